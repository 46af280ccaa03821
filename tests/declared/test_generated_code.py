"""The code of generated programs: short, typed, tested, and with nothing that is not needed."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from refold.cli.main import main

SEED = Path(__file__).with_name("data") / "agent_loop.pl"
OF_SEED = ("claude_code", "gemini", "coro", "ollama", "openai", "claude_api")
MORE = """
[agents.reviewer]
description = "Reads a change and says what is wrong with it."
backend = "claude-code"
model = "opus"
system_prompt = "You review changes.\\nSay \\"why\\", and never use a \\\\ in a path."
tools = ["read", "grep", "glob"]
auto_tools = true
context_mode = "summarize"
context_format = "markdown"
display = "status"
show_tokens = false

[agents.codex]
backend = "codex-cli"
context_mode = "sliding"
context_format = "xml"
max_messages = 30

[agents.far]
backend = "ollama-cli"
model = "llama3"
host = "192.168.1.5"
tools = ["bash"]
context_format = "json"

[agents.json]
backend = "vllm"
model = "m"
port = 9000
tools = ["edit"]
context_mode = "fresh"

[agents.other]
command = ["prog", "--model", "{model}", "{prompt_file}", "{system}"]
own_tools = "none"
model = "m-1"
tools = ["write"]
context_mode = "sliding"

[agents.plain]
command = ["/nowhere/prog"]
own_tools = "none"
approval = "auto_edit"

[agents.apart]
command = ["prog", "--system", "{system_file}"]
own_tools = "none"
approval = "plan"
skills = ["skill"]

[agents.cloud]
backend = "openrouter"
model = "a/b"
approval = "yolo"
confirm = ["bash"]
context_mode = "summarize"
context_format = "json"
max_context_words = 3000
max_iterations = 5
timeout = 12.5
"""
OF_MORE = ("reviewer", "codex", "far", "json", "other", "plain", "apart", "cloud")
ALL = tuple((str(SEED), name) for name in OF_SEED) + tuple(
    ("agents.toml", name) for name in OF_MORE
)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REFOLD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    Path("agents.toml").write_text(MORE)
    Path("skill").mkdir()
    Path("skill/SKILL.md").write_text("---\nname: skill\n---\nWrite `git log` first.\n")
    return tmp_path


def generate(file: str, name: str, *flags: str) -> Path:
    arguments = ["spec", "generate", name, "--agents", file, "--out", name, *flags]
    assert main(arguments) == 0
    return Path(name)


def program_in(folder: Path) -> Path:
    (path,) = [item for item in folder.glob("*.py") if not item.name.startswith("test_")]
    return path


def python(*text: str, cwd: Path | None = None, program: str = sys.executable) -> str:
    done = subprocess.run(
        [program, "-S", "-W", "error", *text],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("file", "name"), ALL)
def test_a_generated_program_passes_its_test_and_needs_no_package(
    file: str, name: str
) -> None:
    folder = generate(file, name)

    assert "OK" in python("-m", "unittest", cwd=folder)
    assert f"usage: {name} " in python("-I", str(program_in(folder)), "--help")


def newest_python() -> str:
    """Return the newest on the PATH, or among those that pyenv has installed."""
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [os.environ["PATH"], *map(str, installed.glob("*/bin"))]
    there = {
        n: path
        for n in range(11, 40)
        if (
            path := shutil.which(
                f"python3.{n}", path=os.pathsep.join(places[1:] + places[:1])
            )
        )
        and "/shims/" not in path  # it may stand for none
    }
    return there[max(there)] if there else sys.executable


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.skipif(
    newest_python().endswith(f"python3.{sys.version_info.minor}"),
    reason="no Python is installed that is newer than the one of the tests",
)
@pytest.mark.parametrize(("file", "name"), ALL)
def test_a_generated_program_and_its_test_run_on_the_newest_python(
    file: str, name: str
) -> None:
    folder = generate(file, name)

    tested = python("-m", "unittest", cwd=folder, program=newest_python())
    assert "OK" in tested
    text = python("-I", str(program_in(folder)), "--help", program=newest_python())
    assert f"usage: {name} " in text


@pytest.mark.parametrize(("file", "name"), ALL)
def test_every_generated_function_and_constant_is_used_and_documented(
    file: str, name: str
) -> None:
    text = program_in(generate(file, name)).read_text()
    tree = ast.parse(text)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    constants = [n.targets[0] for n in tree.body if isinstance(n, ast.Assign)]
    tools = [n.name for n in functions if getattr(n, "decorator_list", [])]
    names = [n.name for n in functions if n.name not in tools] + [
        constant.id for constant in constants if isinstance(constant, ast.Name)
    ]
    used = [
        n.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    ]

    assert [item for item in names if item not in used] == []
    assert [n.name for n in functions if not ast.get_docstring(n)] == []
    assert "refold.declared" not in text
    assert 250 < lines_of_code(text) < 490


def lines_of_code(text: str) -> int:
    """Without blank lines, comments and docstrings."""
    about = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and (
            ast.get_docstring(node)
        ):
            first = node.body[0]
            about |= set(range(first.lineno, (first.end_lineno or 0) + 1))
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in about
        for number, line in enumerate(text.splitlines(), 1)
    )


@pytest.mark.slow
def test_a_generated_program_contains_only_the_backend_and_tools_of_its_agent() -> None:
    texts = {
        name: program_in(generate("agents.toml", name)).read_text() for name in OF_MORE
    }
    backends = ("urllib", "claude", "codex", "gemini", "ollama", "COMMAND", "curses")
    tools = ("def read_file", "def write_file", "def edit_file", "def bash")

    assert {n: [b for b in backends if b in t] for n, t in texts.items()} == {
        "reviewer": ["claude", "curses"], "codex": ["codex"], "far": ["ollama"],
        "json": ["urllib"], "other": ["COMMAND"], "plain": ["COMMAND"], "apart": ["COMMAND"],
        "cloud": ["urllib"],
    }  # fmt: skip
    assert {n: [b[4:] for b in tools if b in t] for n, t in texts.items()} == {
        "reviewer": ["read_file"], "codex": ["read_file", "write_file", "edit_file", "bash"],
        "far": ["bash"], "json": ["edit_file"], "other": ["write_file"],
        "plain": ["read_file", "write_file", "edit_file", "bash"], "apart": ["read_file"],
        "cloud": ["read_file", "write_file", "edit_file", "bash"],
    }  # fmt: skip


@pytest.mark.slow
def test_agent_keys_become_constants_of_the_generated_program() -> None:
    def settings(name: str) -> dict[str, object]:
        tree = ast.parse(program_in(generate("agents.toml", name)).read_text())
        return {
            node.targets[0].id if isinstance(node, ast.Assign) else node.target.id: (
                set() if ast.unparse(node.value) == "set()" else ast.literal_eval(node.value)
            )
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            and ast.unparse(node).partition(" ")[0].strip(":")
            in {"NAME", "MODEL", "URL", "HOST", "COMMAND", "SYSTEM_PROMPT", "CONFIRM", "MAX_STEPS",
                "MAX_CONTEXT_TOKENS", "MAX_MESSAGES", "TIMEOUT", "SHOW_TOKENS", "API_KEY_VARIABLE"}
        }  # fmt: skip

    assert settings("reviewer") == {
        "NAME": "reviewer", "MODEL": "opus", "CONFIRM": set(), "MAX_STEPS": 50,
        "SYSTEM_PROMPT": 'You review changes.\nSay "why", and never use a \\ in a path.',
        "MAX_CONTEXT_TOKENS": 100_000, "MAX_MESSAGES": 20, "TIMEOUT": 600, "SHOW_TOKENS": False,
    }  # fmt: skip
    cloud = settings("cloud")
    del cloud["SYSTEM_PROMPT"]
    assert cloud == {
        "NAME": "cloud", "MODEL": "a/b", "CONFIRM": {"bash"}, "MAX_STEPS": 5,
        "URL": "https://openrouter.ai/api/v1/chat/completions", "MAX_CONTEXT_TOKENS": 4000,
        "API_KEY_VARIABLE": "OPENROUTER_API_KEY", "MAX_MESSAGES": 20, "TIMEOUT": 12.5,
        "SHOW_TOKENS": True,
    }  # fmt: skip
    assert settings("json")["URL"] == "http://127.0.0.1:9000/v1/chat/completions"
    assert settings("far")["HOST"] == "192.168.1.5:11434"
    assert settings("other")["COMMAND"] == [
        "prog",
        "--model",
        "m-1",
        "{prompt_file}",
        "{system}",
    ]
    assert settings("plain")["CONFIRM"] == {"bash"}
    assert settings("apart")["SYSTEM_PROMPT"] == (
        "---\nname: skill\n---\nWrite `git log` first."
    )


@pytest.mark.slow
def test_generated_programs_pass_ruff_and_strict_type_checks(directory: Path) -> None:
    for file, name in ALL:
        generate(file, name)
    tools = Path(sys.executable).parent
    everywhere = [*OF_SEED, *OF_MORE]
    places = [{"root": name} for name in everywhere]
    settings = {"typeCheckingMode": "strict", "executionEnvironments": places}
    (directory / "pyrightconfig.json").write_text(json.dumps(settings))

    for command in (
        ["ruff", "check", "--isolated", "--select", "E,F,I,B,UP,SIM,RET,C4,C901", "--ignore", "E501"],
        ["ruff", "format", "--isolated", "--check"],
        ["basedpyright", "-p", str(directory), "--pythonversion", "3.11"],
    ):  # fmt: skip
        words = [] if command[0] == "basedpyright" else everywhere
        done = subprocess.run(
            [str(tools / command[0]), *command[1:], *words],
            capture_output=True,
            text=True,
            timeout=110,
        )
        assert done.returncode == 0, done.stdout[-3000:]


def test_generate_refuses_a_nonempty_directory_without_replace(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("far").mkdir()
    Path("far/mine.txt").write_text("mine")

    assert main(["spec", "generate", "far", "--agents", "agents.toml", "--out", "far"]) == 1
    assert "'far' is not empty: name another directory" in capfd.readouterr().err
    assert os.listdir("far") == ["mine.txt"]

    generate("agents.toml", "far", "--replace")
    assert sorted(os.listdir("far")) == ["README.md", "far.py", "mine.txt", "test_far.py"]


def test_generate_names_tools_that_the_program_cannot_have(
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = generate("agents.toml", "reviewer")

    assert "not in the program: the tools grep, glob\n" in capfd.readouterr().out
    readme = (folder / "README.md").read_text()
    assert "This agent also has `grep` and `glob`; the program does not." in readme


def test_the_commands_of_the_generated_readme_work() -> None:
    folder = generate("agents.toml", "far")

    block = (folder / "README.md").read_text().split("```")[1].strip()
    commands = [row.split("    ")[0] for row in block.splitlines()]
    name = folder.name
    assert commands == [
        f"python3 {name}/far.py", f'python3 {name}/far.py "look at my change"',
        f'python3 {name}/far.py --yes "fix the test"', f"(cd {name} && python3 -m unittest)",
    ]  # fmt: skip
    tested = subprocess.run(
        commands[-1], shell=True, cwd=folder.parent, capture_output=True
    )
    assert tested.returncode == 0, tested.stderr


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ('model = "m"', "the agent one has no backend: a generated program needs one"),
        ('backend = "coro"', "the tools of coro itself cannot be switched off"),
        ('backend = "ollama"', "one.model is missing: ollama needs one"),
        ('backend = "azure"\nmodel = "m"', "a generated program cannot ask Azure OpenAI"),
        ('backend = "groq"\ntools = ["grep"]', "has none of the tools that a generated program"),
        ('backend = "nope"', "there is no provider 'nope'"),
    ],
)  # fmt: skip
def test_generating_an_unsupported_agent_fails_with_one_error(
    agent: str, expected: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("a.toml").write_text(f"[agents.one]\n{agent}\n")

    assert main(["spec", "generate", "one", "--agents", "a.toml", "--out", "out"]) == 1
    assert expected in capfd.readouterr().err
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("base_url", "address"),
    [
        ("http://[::1]:8080/v1", "http://[::1]:9000/v1"),
        ("http://[::1]/v1", "http://[::1]:9000/v1"),
        ("http://localhost/v1", "http://localhost:9000/v1"),
    ],
)
def test_a_port_replaces_that_of_the_base_url(base_url: str, address: str) -> None:
    Path("a.toml").write_text(
        '[agents.one]\nbackend = "openai-chat"\nmodel = "m"\n'
        f'base_url = "{base_url}"\nport = 9000\n'
    )

    text = program_in(generate("a.toml", "one")).read_text()

    assert f"{address}/chat/completions" in text


def test_generate_of_an_unknown_agent_suggests_the_nearest_name(
    capfd: pytest.CaptureFixture[str],
) -> None:
    arguments = ["spec", "generate", "reviewers", "--agents", "agents.toml", "--out", "out"]

    assert main(arguments) == 1
    assert "no declared agent 'reviewers': there is reviewer" in capfd.readouterr().err


@pytest.mark.slow
def test_ctrl_c_in_a_generated_program_stops_the_call_and_the_conversation_continues(
    directory: Path,
) -> None:
    prog = directory / "prog"
    call = (
        '<tool_call>\n{"name": "bash", "arguments": {"command": "sleep 99"}}\n</tool_call>'
    )
    prog.write_text(
        f"#!{sys.executable} -S\nimport sys\nprompt = sys.stdin.read()\n"
        f"print('Fine.' if 'The user stopped this call.' in prompt else {call!r})\n"
    )
    prog.chmod(0o755)
    Path("a.toml").write_text(
        f'[agents.one]\ncommand = ["{prog}"]\nown_tools = "none"\napproval = "yolo"\n'
    )
    program = program_in(generate("a.toml", "one"))
    child = pexpect.spawn(
        sys.executable, ["-S", "-I", str(program)], encoding="utf-8", timeout=60
    )
    child.expect("You: ")
    child.sendline("wait")
    child.expect(r"\[bash sleep 99\]")
    child.sendintr()
    child.expect(r"\[stopped\]")
    child.expect("You: ")
    child.sendline("and now?")
    child.expect("Fine.")
    child.expect("You: ")
    child.sendeof()
    child.expect(pexpect.EOF)
    child.close()

    assert child.exitstatus == 0


@pytest.mark.slow
def test_a_generated_program_erases_its_status_line_only_at_a_terminal(
    directory: Path,
) -> None:
    prog = directory / "prog"
    prog.write_text("#!/bin/sh\ncat > /dev/null\necho Fine.\n")
    prog.chmod(0o755)
    Path("a.toml").write_text(
        f'[agents.one]\ncommand = ["{prog}"]\nown_tools = "none"\ndisplay = "status"\n'
    )
    program = program_in(generate("a.toml", "one"))
    environ = {"TERM": "xterm", "PATH": os.environ["PATH"]}
    child = pexpect.spawn(
        sys.executable, ["-S", "-I", str(program), "hi"], encoding="utf-8", timeout=60, env=environ
    )  # fmt: skip
    child.expect(pexpect.EOF)
    text = str(child.before)
    child.close()

    assert text.startswith("\r\x1b[K[asking one 0 s]\r\x1b[K")
    assert text.endswith("\r\x1b[K\r\nFine.\r\n\r\n")
    assert python("-I", str(program), "hi") == "[asking one ...]\n\nFine.\n\n"


def test_list_agents_lists_all_agents_of_the_seed_file(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["--agents", str(SEED), "--list-agents"]) == 0

    names = [line.split()[0] for line in capfd.readouterr().out.splitlines()]
    assert [name for name in names if name in OF_SEED] == sorted(OF_SEED, key=names.index)
    assert {*OF_SEED} <= {*names}


def test_the_generated_readme_names_run_commands_and_tools_that_ask() -> None:
    text = (generate("agents.toml", "cloud") / "README.md").read_text()

    start = f"{'python3 cloud/cloud.py':46} start a session in this directory\n"
    assert start in text
    assert "a key in the environment variable `OPENROUTER_API_KEY`." in text
    assert "`write_file`, `edit_file` and `bash`; `bash` ask before they run." not in text
    assert "`bash` asks before it runs." in text
    assert "last 20 messages, and the beginning of each other one, as json text" in text


@pytest.mark.parametrize(
    "text",
    [
        'x"""; import os; os.system("echo PWNED"); """y', 'ends with "', "a \\", 'a "quoted" word',
        'x\\"""; print(1); """',
    ],
)  # fmt: skip
def test_an_agent_description_becomes_text_and_never_code_in_the_program(text: str) -> None:
    rows = (
        f"[agents.one]\ndescription = {json.dumps(text)}",
        'command = ["p"]\nown_tools = "none"',
    )
    Path("agents.toml").write_text("\n".join(rows))

    tree = ast.parse(program_in(generate("agents.toml", "one")).read_text())

    assert (ast.get_docstring(tree) or "").endswith(text.strip())
    assert not any(isinstance(node, ast.Expr) for node in tree.body[1:])
