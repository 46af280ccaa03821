"""Every command line that is written down somewhere: it is understood, and it works.

What stands in ```console blocks is run by `test_docs`, with what it prints. Here are all
others: blocks of commands, and commands in the middle of a sentence.
"""

import base64
import json
import os
import re
import shlex
import subprocess
import sys
import time
from argparse import PARSER
from collections.abc import Iterator, Sequence
from itertools import groupby, product
from pathlib import Path
from shutil import which

import pytest

from refold.cli.flags import parse, session_parser
from refold.cli.parser import Parser
from refold.cli.subcommands import SUBCOMMANDS, parser_of
from refold.errors import BadInput
from tests.terminal.pty_terminal import ENTER, Terminal

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("changelog.d/*.md")]
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ALONE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
REFOLD = re.compile(r"(?:^|[|&;(] *)(?:\.venv/bin/)?(refold(?: .*)?)$")
# Words that stand for a number; all others are taken as they stand.
OR = "\0"
STANDS_FOR = {"EVENT": "1", "N": "1", "PORT": "80"}
# Flags of other programs.
OTHERS = {
    "--restricted", "--strict-mcp-config", "--wait", "--watch", "--retry",
    "--seccomp", "--unshare-user", "--unshare-pid", "--proc", "--disable-userns", "--as-pid-1",
    "--no-sandbox", "--user-data-dir", "--chromeArg", "--exec", "--edit-todo",
}  # fmt: skip
CLUSTER = "a database; tests/cluster/test_shown_commands.py runs it with one"
# Commands that cannot run offline and unattended, and the reason.
NOT_RUN = {
    "refold local install": "fetches a gigabyte",
    "refold -m claude-code/opus": "another program",
    'refold -m codex-cli/gpt-6.1-sol -p "what does this project do?"': "another program",
    "refold -m command/mine": "another program",
    'refold -p "…" --log-requests && refold sessions requests ID 1': "a server",
    "refold agents --agents agents.toml doctor reviewer": "the model is missing here, so the exit code is 1",
    "refold mcp test time": "a server from PyPI",
    "refold mcp update time": "a server from PyPI",
    "refold mcp search weather": "the public registry",
    "refold mcp add io.github.user/weather": "the public registry",
    "refold mcp login tracker": "a server with a login; tests/mcp has one",
    "refold doctor": "no model is set up here, which it says, with exit code 1",
    "refold eval tasks.toml -m local/qwen2.5-coder-1.5b -o a.json": "a model of a gigabyte",
    "refold eval tasks.toml -m ollama/qwen3:8b -o b.json": "another server",
    "refold eval --compare a.json b.json": "the results of both",
    "refold mcp allow tracker TRACKER_TOKEN": "a project with that server",
    "refold serve --port 3500": "it serves until it is stopped; tests/server start it",
    "refold serve --terminal": "the same",
    "refold serve --port 0 --script answers.jsonl": "the same",
    "refold web": "the same, and a browser",
    "refold mcp serve": "it serves another agent; tests/task_server starts it",
    "refold mcp serve --http": "the same",
    "refold acp": "it serves an editor; tests/acp starts it",
    "refold sessions export ID --otlp --endpoint http://127.0.0.1:4318": "a collector",
    "refold sessions export ID --otlp": "the same; tests/cli/test_otlp_export.py has one",
    "refold memory forget 3": "three notes, which a model makes",
    "refold cluster init postgresql://owner@db.example.org/refold": CLUSTER,
    "refold sessions move --all --to postgresql://ann@db.example.org/refold": CLUSTER,
    "refold ports build": "a machine named build; tests/place has one",
    "refold ports build 8000": "the same",
    "refold worker": CLUSTER,
    "refold web-node --port 3500": CLUSTER,
    "refold cluster check": CLUSTER,
    "refold cluster status": CLUSTER,
    "refold tenants add acme": CLUSTER,
    "refold tenants limit acme 20": CLUSTER,
    "refold tenants audit acme > audit.jsonl": CLUSTER,
    "openssl rand -base64 32 > cluster.key && chmod 600 cluster.key": CLUSTER,
    "refold tenants keys set acme openai --base-url https://gateway.example.org/v1 < acme.key": CLUSTER,
    "refold tenants keys list acme": CLUSTER,
    "pg_dumpall --roles-only -h db.example.org -U postgres > roles.sql": CLUSTER,
    "pg_dump -Fc -h db.example.org -U postgres refold > refold.dump": CLUSTER,
    "psql -h new.example.org -U postgres -f roles.sql": CLUSTER,
    "createdb -h new.example.org -U postgres -O owner refold": CLUSTER,
    "pg_restore --exit-on-error -h new.example.org -U postgres -d refold refold.dump": CLUSTER,
    "refold tenants export acme -o acme.tar": CLUSTER,
    "refold tenants delete acme --yes": CLUSTER,
    "refold people list acme": CLUSTER,
    "refold people role acme SUB admin": CLUSTER,
    "refold people lock acme SUB": CLUSTER,
    "refold people export acme SUB -o person.tar": CLUSTER,
    "refold people delete acme SUB --sessions --yes": CLUSTER,
    "REFOLD_TENANT=acme refold worker": CLUSTER,
    "refold web-node --oidc oidc.toml": CLUSTER,
    "refold attach https://refold.example.org/": "a service; tests/cluster/test_attach_by_address.py has one",
    'refold attach "https://refold.example.org/?c=ID"': "the same",
    'refold tui --attach "https://refold.example.org/?c=ID"': "the same",
    "refold --container python:3.12-slim": "an image of a registry; tests/place has a stand-in",
    "refold --devcontainer": "the same",
    "refold --clone https://github.com/acme/app": "a server; tests/cli/test_clones.py has one",
    'refold --clone git@github.com:acme/app.git@develop --setup "npm ci" -p "fix the flaky test"': "the same",
    "refold --clone https://github.com/acme/app --workspace ssh://big/srv/work": "the same",
    'refold rlm -r ID "And in which year?"': "a session of refold rlm; tests/cli/test_rlm_resume.py has one",
    'refold rlm -r ID --turn 1 "And in which year?"': "the same",
    'refold rlm -r ID --turn 1 --fork "…"': "the same",
    "refold rlm -r ID": "the same",
    "refold replay ID --what-if KIND=VALUE": "the kinds are shown below it",
    "refold replay ID --what-if system-prompt=short.md": "it differs, so the exit code is 1",
    "refold map init --max-cost 0.50": "a model; tests/cli/test_map.py has one",
    'refold map ask "Who may close a session, and when?"': "the same",
    "refold map refresh --max-cost 0.05": "the same",
}
# The steps of the guide before its reference page.
DONE_BEFORE = {"docs/reference/agents-as-data.md": ["refold --init-config agents.toml"]}
WRAPPER = """\
#!/bin/sh
case "$1" in
{names}) exec {python} -m refold "$@" ;;
*) exec {python} -m refold "$@" --script answers.jsonl ;;
esac
"""
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="


def command_of(line: str) -> str:
    """Return the command of a line, without the comment behind two blanks."""
    return re.split(r" {2,}|\s# ", line.strip().removeprefix("$ "))[0].strip()


def blocks(page: Path) -> Iterator[str]:
    """Commands in blocks, but for those with what they print."""
    text = page.read_text(encoding="utf-8")
    bodies = [
        body for language, body in FENCE.findall(text) if language in ("", "text", "sh")
    ]
    indented = re.findall(r"^    (\S.*)$", FENCE.sub("", text), re.MULTILINE)
    for line in (*"\n".join(bodies).split("\n"), *indented):
        if REFOLD.search(command_of(line)) and not line.startswith("You are "):
            yield command_of(line)


def sentences(page: Path) -> Iterator[str]:
    """Commands in the middle of a sentence."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    yield from (match for match in ALONE.findall(text) if REFOLD.search(match))


def expand_synopsis(line: str) -> Iterator[list[str]]:
    """Yield the command lines that a synopsis stands for: with all options, and each
    choice.
    """
    line = re.sub(r"\"?\$\((.*)\)\"?", r"; \1", line)
    line = re.sub(r"[\[\]…]", "", re.sub(r" \| (?=[^\[]*\])", "|", line))
    line = re.sub(r"(?<=\S)\|(?=\S)", OR, line)
    words = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    words.whitespace_split = True
    for operator, part in groupby(words, lambda word: set(word) <= set("|&;<>")):
        first, *more = part
        if not operator and first.removeprefix(".venv/bin/") == "refold":
            for chosen in product(*(word.split(OR) for word in more)):
                yield [STANDS_FOR.get(word, word) for word in chosen]


def invalid_lines(lines: Sequence[str], *, whole: bool) -> list[tuple[str, str]]:
    problems = list[tuple[str, str]]()
    for line in lines:
        for words in expand_synopsis(line):
            try:
                parse(words)
            except SystemExit:  # --help has printed, and ends the program
                continue
            except BadInput as error:
                # In a sentence, the name of a command is enough.
                if whole or "arguments are required" not in str(error):
                    problems.append((line, str(error)))
    return problems


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_line_in_the_documents_parses(page: Path) -> None:
    assert invalid_lines([*blocks(page)], whole=True) == []
    assert invalid_lines([*sentences(page)], whole=False) == []


def test_an_invalid_command_line_is_detected() -> None:
    lines = ["refold sessions lost", "refold -p hi --colour", "refold verify"]

    assert [line for line, _ in invalid_lines(lines, whole=True)] == lines[:2]


def test_make_targets_and_python_modules_named_in_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    lines = [
        (page.name, line)
        for page in PAGES
        for text in [page.read_text(encoding="utf-8")]
        for line in (
            *ALONE.findall(FENCE.sub("", text)),
            *(line for _, body in FENCE.findall(text) for line in body.split("\n")),
        )
    ]

    pairs = [(name, line.split()[1]) for name, line in lines if line.startswith("make ")]
    run = [
        (name, match[1]) for name, line in lines
        if (match := re.search(r"(?:^|/)python -m ((?:bench|scripts)[\w.]*)", line))
    ]  # fmt: skip

    assert pairs
    assert [item for item in pairs if item[1] not in targets] == []
    assert run
    paths = [(name, ROOT / module.replace(".", "/")) for name, module in run]
    assert [
        p for p in paths if not (p[1].is_dir() or p[1].with_suffix(".py").exists())
    ] == []


def test_every_flag_named_in_the_text_of_a_document_exists() -> None:
    known = {
        flag
        for parser in (session_parser(), parser_of(SUBCOMMANDS))
        for flag in flags(parser)
    } | OTHERS
    pairs = [
        (page.name, flag)
        for page in PAGES
        for code in ALONE.findall(own_prose(page))
        if code.startswith("--")
        for flag in re.findall(r"(?<!\S)--[a-z][\w-]*", code)
    ]

    assert pairs
    assert [item for item in pairs if item[1] not in known] == []


def own_prose(page: Path) -> str:
    """Return the prose of a page; of tables that compare, without the column of the other
    agent.
    """
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    if page.name == "coming-from.md":
        return re.sub(r"^\|[^|]*\|", "|", text, flags=re.MULTILINE)
    return text


def flags(parser: Parser) -> Iterator[str]:
    """Yield the flags of a parser and of all its subcommands."""
    for action in parser.actions():
        yield from action.option_strings
        for inner in (action.choices or {}) if action.nargs == PARSER else ():
            yield from flags(action.choices[inner])  # type: ignore[index,call-overload]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a directory with sessions; `refold` there has a scripted model."""
    answers = [
        {"calls": [{"tool": "read_file", "arguments": {"path": path}}]}
        for path in ("README", "logs/one", "reports/one")
    ]
    write = {"path": "made.txt", "content": "made\n"}
    answers.append({"calls": [{"tool": "write_file", "arguments": write}]})
    (tmp_path / "answers.jsonl").write_text(
        "\n".join(json.dumps(item) for item in [*answers, {"text": "[]"}])
    )
    (tmp_path / "routes.schema.json").write_text('{"type": "array"}')
    (tmp_path / "screenshot.png").write_bytes(base64.b64decode(PICTURE))
    for name in ("logs", "reports"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one").write_text("disk full\n")
    (tmp_path / "README").write_text("Read me.\n")
    (tmp_path / "AGENTS.md").write_text("Use tabs.\n")
    (tmp_path / "agents.pl").write_text('agent(reviewer, [model("ollama/llama3")]).\n')
    program = tmp_path / ".venv/bin/refold"
    program.parent.mkdir(parents=True)
    program.write_text(
        WRAPPER.format(python=sys.executable, names="|".join({*SUBCOMMANDS} - {"rlm"}))
    )
    program.chmod(0o755)
    for line in (
        "git init -q .",
        "refold -p 'mend the gutters' --permission-mode accept-edits",
    ):
        subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=environ_with_refold(tmp_path), check=True,
            capture_output=True, timeout=60,
        )  # fmt: skip
    return tmp_path


def environ_with_refold(place: Path) -> dict[str, str]:
    data = {**os.environ, "PATH": f"{place / '.venv/bin'}:{os.environ['PATH']}"}
    return {**data, "EDITOR": "true"}


def find_message(sessions: Path) -> tuple[str, int]:
    """Return the first session with a message, and the event of that message."""
    for session in sorted(sessions.iterdir()):
        for row in (session / "events.jsonl").read_bytes().splitlines():
            event = json.loads(row)
            if event["kind"] == "Said":
                return session.name, event["seq"]
    raise AssertionError("nothing was said in any session")


def fill_in(line: str) -> str:
    """With a session, its words and a directory where their names stand."""
    id_, number = find_message(Path(os.environ["REFOLD_HOME"]) / "sessions")
    for name, value in (
        ("ID", id_),
        ("EVENT", str(number)),
        ("[DIR]", "."),
        ("…", "hello"),
    ):
        line = re.sub(rf"(?<![\w\"'-]){re.escape(name)}(?!\w)", value, line)
    return line


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in PAGES if [*blocks(p)]], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_line_of_a_code_block_runs(page: Path, place: Path, compiled: Path) -> None:
    """Each line is typed into a shell in a terminal, and every question is answered with
    yes.
    """
    failed = list[tuple[str, str]]()
    for line in [*DONE_BEFORE.get(str(page.relative_to(ROOT)), []), *blocks(page)]:
        if line in NOT_RUN or "[--" in line or ("| jq" in line and not which("jq")):
            continue
        terminal = Terminal(
            Path("/bin/bash"), "-o", "pipefail", "-c", fill_in(line), directory=place, compiled=compiled,
            **environ_with_refold(place),
        )  # fmt: skip
        code = leave(terminal)
        if line.startswith("refold mcp add ") and code == 1:
            # Without a network and a key the server does not work; the entry is kept.
            code = int(" is in " not in terminal.text)
        if code:
            failed.append((line, f"{code}: {terminal.text.strip()}"))

    assert failed == []


def leave(terminal: Terminal) -> int:
    """Answer what is asked and leave; the exit code."""
    text = ""
    deadline = time.monotonic() + 60
    while terminal.read():
        assert time.monotonic() < deadline, terminal.text
        last = (terminal.text.rstrip().splitlines() or [""])[-1]
        if last != text and last.endswith("›"):
            terminal.type("\x04")
        elif last != text and last.endswith("y/N]"):
            terminal.type("y" + ENTER)
        elif last != text and last.startswith("› 1 not now"):
            terminal.type("y")
        elif last != text and last.endswith("esc quit"):
            terminal.type("\x04")
        elif last != text and last.endswith("esc later"):
            terminal.type(ENTER)
        elif last.endswith("esc no, and stop"):
            terminal.type("y")
        else:
            continue
        text = last
    terminal.child.close()
    return int(terminal.child.exitstatus or 0)
