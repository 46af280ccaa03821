"""Completion in real shells: every offer is valid, and nothing is changed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from refold.cli.completion import SHELLS, script
from refold.cli.main import main
from refold.cli.subcommands import SUBCOMMANDS
from refold.config.load import flatten
from refold.config.settings import Settings

BIN = str(Path(sys.executable).parent)
REPLY = r"""
source "$1"
COMP_LINE=$2 COMP_POINT=${#2} COMP_TYPE=9 COMP_WORDBREAKS=${3-$' \t\n"'\''><=;|&(:'}
_python_argcomplete refold
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file for each shell."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        (folder / shell).write_text(script(shell), encoding="utf-8")
    return folder


@pytest.fixture
def bash(scripts: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return what bash is offered for a line, with the cursor at its end."""
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")

    def complete(line: str, *breaks: str) -> list[str]:
        done = subprocess.run(
            ["bash", "--norc", "-c", REPLY, "bash", str(scripts / "bash"), line, *breaks],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert done.stderr == ""
        return [part.rstrip() for part in done.stdout.split("\n") if part]

    return complete


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a model whose name holds what bash takes for the end of a word."""
    monkeypatch.setenv("REFOLD_MODELS__SMALL", "ollama/qwen:7b")
    return "ollama/qwen:7b"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("refold sess", ["sessions"]),
        ("refold config ", ["show", "get", "set", "unset", "path", "edit"]),
        ("refold config se", ["set"]),
        ("refold config show --", ["--help", "--origin", "--json"]),
        ("refold --permi", ["--permission-mode"]),
        ("refold --effort h", ["high"]),
        ("refold --effort=h", ["high"]),
        ("refold -p 'some words' --eff", ["--effort"]),
        ("refold 'sessions' ch", ["check"]),
        ("refold -m x sess", []),  # a command stands first
        ("refold config set limits.ste", ["limits.steps"]),
        ("refold config get --x limits.ste", ["limits.steps"]),
        ("refold auth set anth", ["anthropic"]),
        ("refold -r --for", ["--fork", "--fork-session"]),  # -r may be without an id
        ("refold --agent expl", ["explore"]),
        ("refold --agent co", []),  # it works only for other agents
        ("refold --preset cod", ["coding"]),
        ("refold --system-prompt ", []),
        ("/x/y/refold completion z", ["zsh"]),
        ("refold xyzzy ", []),
    ],
)
@pytest.mark.slow
def test_bash_completes_subcommands_flags_and_values(
    bash: Callable[..., list[str]], line: str, expected: list[str]
) -> None:
    assert bash(line) == expected


@pytest.mark.slow
def test_bash_completes_names_that_contain_colons_spaces_and_quotes(
    bash: Callable[..., list[str]], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    make_named_session("my 'first' session", tmp_path)

    assert bash("refold -m ollama/qw") == ["ollama/qwen:7b"]
    assert bash("refold -m ollama/qwen:") == ["7b"]
    assert bash("refold -m ollama/qwen:", " \t\n") == ["ollama/qwen:7b"]
    assert bash("refold --model=ollama/qwen:") == ["7b"]
    assert bash('refold -m "ollama/qwen:') == ["ollama/qwen:7b"]
    assert bash("refold -r my") == ["my\\ \\'first\\'\\ session"]
    assert bash("refold -r my\\ \\'f") == ["my\\ \\'first\\'\\ session"]
    assert bash('refold -r "my ') == ["my 'first' session"]
    assert bash("refold -r 'my ") == [r"my '\''first'\'' session"]


@pytest.mark.slow
def test_bash_completion_quotes_session_names_that_contain_commands(
    bash: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    id_ = make_named_session("$(date) `date` !x", tmp_path)

    assert bash("refold -r ") == ["\\$\\(date\\)\\ \\`date\\`\\ \\!x", id_]
    assert bash('refold -r "') == [id_]  # bash would replace !x by a line of its history
    assert bash("refold -r '") == ["$(date) `date` !x", id_]
    assert main(["sessions", "rename", id_, "$(date) `date`"]) == 0
    assert bash('refold -r "$') == [r"\$(date) \`date\`"]


@pytest.mark.slow
def test_bash_completes_a_typed_line(
    scripts: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a file.json").write_text("{}")
    typed = ("refold --eff\thi\t|", "refold -m ollama/qwen:\t|", "refold --script a\t|")

    a_terminal = in_a_terminal("bash", ["--norc", "-i"], f"source '{scripts}/bash'", typed)

    assert a_terminal == [
        "<--effort> <high> <|>", "<-m> <ollama/qwen:7b> <|>", "<--script> <a file.json> <|>",
    ]  # fmt: skip


@pytest.mark.peer
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes_a_typed_line(scripts: Path, model: str, tmp_path: Path) -> None:
    begin = (
        f"autoload -U compinit && compinit -u -d {tmp_path}/dump && source {scripts}/zsh"
    )
    typed = (
        "refold --eff\thi\t|",
        "refold sess\tche\t|",
        "refold -m ollama/qw\t|",
        "refold --model=ollama/qw\t|",
        "refold config set limits.ste\t|",
    )

    a_terminal = in_a_terminal("zsh", ["-f", "-i"], begin, typed)

    assert a_terminal == [
        "<--effort> <high> <|>", "<sessions> <check> <|>", "<-m> <ollama/qwen:7b> <|>",
        "<--model=ollama/qwen:7b> <|>", "<config> <set> <limits.steps> <|>",
    ]  # fmt: skip


@pytest.mark.peer
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_subcommands_flags_and_values(
    scripts: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    make_named_session("$(date) `date`", tmp_path)
    capfd.readouterr()
    expected = {
        "refold sess": ["sessions"],
        "refold sessions che": ["check"],
        "refold --effort hi": ["high"],
        "refold --effort=hi": ["--effort=high"],
        "refold config get limits.ste": ["limits.steps"],
        "refold -m ollama/qw": ["ollama/qwen:7b"],
        "refold -p x sess": [],
        "refold -r --for": ["--fork", "--fork-session"],
        "refold -r \\$": ["$(date) `date`"],
    }
    lines = "; ".join(
        f"complete -C '{line}' | string match -rv '^(\\./|/)'; echo ---"
        for line in expected
    )

    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {scripts}/fish; {lines}"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    groups = [
        [line.split("\t")[0] for line in group.splitlines() if line]
        for group in done.stdout.split("---\n")[:-1]
    ]
    assert (dict(zip(expected, groups, strict=True)), done.stderr) == (expected, "")


def completions(line: str, folder: Path, **environ: str) -> dict[str, str]:
    """Return what is offered for a line, each with its description, as a shell gets it."""
    answer = folder / "answer"
    means = {
        "_ARGCOMPLETE": "1", "_ARGCOMPLETE_SHELL": "fish", "_ARGCOMPLETE_DFS": "\t",
        "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line, "COMP_POINT": str(len(line)),
    }  # fmt: skip
    done = subprocess.run(
        [f"{BIN}/refold"], env={**os.environ, **means, **environ}, capture_output=True,
        text=True, check=True, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("", "")
    rows = (row.partition("\t") for row in answer.read_text().splitlines())
    return {value: about for value, _, about in rows}


@pytest.mark.slow
def test_completion_offers_all_subcommands_and_settings(tmp_path: Path) -> None:
    abouts = {subcommand.name: subcommand.help for subcommand in SUBCOMMANDS.values()}

    assert completions("refold ", tmp_path) == abouts
    assert [*completions("refold config get ", tmp_path)] == [*flatten(Settings())]


@pytest.mark.slow
def test_completion_offers_sessions_by_name_and_id_with_their_title(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    id_ = make_named_session("mine", tmp_path)

    for line in ("refold -r ", "refold tree ", "refold sessions show "):
        assert completions(line, tmp_path) == {"mine": f"{id_}  Hello.", id_: "Hello."}


@pytest.mark.slow
def test_completion_offers_nothing_from_a_broken_home_and_writes_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REFOLD_HOME")
    lines = ("refold -r ", "refold -m ", "refold --agent ", "refold --preset ")
    for line in lines:
        completions(line, tmp_path)
    untouched = os.listdir(home)
    (home / ".config").write_text("no directory")
    for line in lines:
        completions(line, tmp_path)

    assert (untouched, os.listdir(home)) == ([], [".config"])


def make_named_session(name: str, folder: Path) -> str:
    """Make a session of this name; gives its id."""
    (folder / "script.json").write_text('{"text": "Good morning."}')
    with Path(os.devnull).open() as nothing:
        before, sys.stdin = sys.stdin, nothing
        try:
            main(["-p", "Hello.", "--script", str(folder / "script.json")])
        finally:
            sys.stdin = before
    (id_,) = os.listdir(Path(os.environ["REFOLD_HOME"]) / "sessions")
    assert main(["sessions", "rename", id_, name]) == 0
    return id_


def in_a_terminal(
    shell: str, arguments: list[str], begin: str, typed: tuple[str, ...]
) -> list[str]:
    """Return the words that `refold` got, for each line that was typed."""
    path = f"{BIN}:{os.environ['PATH']}"
    env = {**os.environ, "TERM": "dumb", "PATH": path, "PS1": "$ ", "INPUTRC": os.devnull}
    child = pexpect.spawn(
        shell, arguments, env=env, encoding="utf-8", timeout=60, dimensions=(24, 200)
    )  # pyright: ignore[reportArgumentType]
    # A function in place of the program prints the completed line.
    show = "show() { printf '@@'; printf ' <%s>' \"$@\"; printf '@@\\n'; }"
    try:
        child.sendline(f"{begin}; {show}; echo rea''dy")
        child.expect("ready")
        return [_type_and_complete(child, line) for line in typed]
    finally:
        child.close(force=True)


def _type_and_complete(child: "pexpect.spawn[str]", line: str) -> str:
    before, _, _ = line.rpartition("|")
    child.send(before)
    # Ctrl+A, put the showing function in front, and send it off.
    child.send("'|'\x01show \r")
    child.expect("@@ (.*)@@")
    words = str(child.match.group(1)) if child.match else ""
    return words.replace("<refold> ", "", 1)


@pytest.fixture(autouse=True)
def no_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:1")
