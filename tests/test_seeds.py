"""The command lines and files of the agent loops that refold follows run as they are written.

The blocks in `seeds_data` are copied from the texts of those loops. Nothing here reaches the
network: programs on the PATH are fakes, and connections to port 11434, of whatever machine, go to
a server on loopback. `agent_loop.py`, which the lines start, is refold under that name.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.cli.main import main
from refold.client.agent import Agent
from refold.config.paths import paths
from refold.config.settings import Settings
from refold.declared.variant import Variant
from refold.provider.command.prompt import Prompts
from refold.provider.command.spec import ConversationFormat
from refold.testing.providers import ScriptedProvider
from refold.values.growing import Log
from refold.values.messages import Message, Role, StoredMessage, Text
from tests.provider.command.fakes import shell
from tests.provider.list_server import list_server

DATA = Path(__file__).with_name("seeds_data")
LINES = [
    line.partition("  #")[0].strip()
    for line in (DATA / "agent_loop_quick_start.sh").read_text().splitlines()
    if line.startswith("python3 ")
]
OLLAMA = [
    {"model": "m", "message": {"role": "assistant", "content": "From Ollama."}, "done": False},
    {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True,
     "done_reason": "stop", "prompt_eval_count": 10, "eval_count": 3},
]  # fmt: skip
LOOP = """
import socket, sys
connect = socket.socket.connect
def on_loopback(self, address):
    here = isinstance(address, tuple) and address[1] == 11434
    return connect(self, ("127.0.0.1", PORT) if here else address)
socket.socket.connect = on_loopback
from refold.cli.main import main
raise SystemExit(main(sys.argv[1:]))
"""
# The agents that the lines name, and the file of the same text does not have.
MORE_AGENTS = {
    "claude-opus": {"backend": "claude-code", "model": "opus"},
    "ollama": {"backend": "ollama-api", "model": "llama3"},
}


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with `agent_loop.py` and the agents, fake programs, and Ollama on loopback."""
    top = tmp_path_factory.mktemp("loop")
    for name in ("bin", "home/.config/refold", "work/agents", "work/skills"):
        (top / name).mkdir(parents=True)
    (top / "work/agents/coding.md").write_text("You write code.\n")
    (top / "work/skills/git.md").write_text("Commit often.\n")
    answer = {"type": "result", "is_error": False, "result": "From Claude Code."}
    shell(top / "bin", f"cat >/dev/null; echo {shlex.quote(json.dumps(answer))}", "claude")
    said = {"type": "message", "role": "assistant", "content": "From the Gemini CLI."}
    told = "\n".join(map(json.dumps, (said, {"type": "result", "status": "success"})))
    shell(top / "bin", f"cat >/dev/null; echo {shlex.quote(told)}", "gemini")
    shell(top / "bin", 'cat >/dev/null; echo "From ollama run $2."', "ollama")
    shell(top / "bin", f'exec {sys.executable} "$@"', "python3")
    agents = json.loads((DATA / "agent_loop_agents.json").read_text())
    agents["agents"] |= MORE_AGENTS
    (top / "work/.refold").mkdir()
    (top / "home/.config/refold/agents.json").write_text(json.dumps(agents))
    for name in ("agents", "skills"):  # what the file names is beside it
        (top / f"home/.config/refold/{name}").symlink_to(top / "work" / name)
    pages = _Pages({"/api/tags": {"models": [{"name": "codellama"}]}})
    with ExitStack() as stack:
        server = stack.enter_context(list_server(pages))
        port = server.url.rpartition(":")[2]
        (top / "work/agent_loop.py").write_text(LOOP.replace("PORT", port))
        yield top


class _Pages(dict[str, object]):
    """Also answers what is asked with a body: the conversation of a chat."""

    def get(self, asked: str, default: object = None) -> object:  # type: ignore[override]
        path = asked.partition(" ")[0]
        if path == "/api/chat":
            return b"".join(json.dumps(line).encode() + b"\n" for line in OLLAMA)
        if path == "/api/show":
            return {}
        return super().get(path, default)


def started(loop: Path, line: str) -> "subprocess.CompletedProcess[str]":
    """The line, run by a shell as it is written."""
    environ = {
        "HOME": str(loop / "home"), "PATH": f"{loop / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "REFOLD_NO_BACKGROUND": "1",
    }  # fmt: skip
    return subprocess.run(
        ["bash", "-c", line],
        cwd=loop / "work", env=environ, input="What is 2+2?\n",
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


# What each line of the quick start prints; "in": somewhere.
EXPECTED = {
    "python3 agent_loop.py": "From Claude Code.",
    'python3 agent_loop.py "list files in current directory"': "From Claude Code.",
    'python3 agent_loop.py -a yolo "create hello.py"': "From Claude Code.",
    'python3 agent_loop.py -a claude-opus "complex task"': "From Claude Code.",
    'python3 agent_loop.py -a ollama "local prompt"': "From Ollama.",
    'python3 agent_loop.py -b claude-code "prompt"': "From Claude Code.",
    'python3 agent_loop.py -b ollama-api --host 192.168.1.5 "prompt"': "From Ollama.",
    'python3 agent_loop.py -b ollama-cli -m codellama "prompt"': "From ollama run codellama.",
    "python3 agent_loop.py --list-agents": "coding-assistant",
    "python3 agent_loop.py --init-config agents.json": "wrote agents.json",
    "python3 agent_loop.py --help": "usage: ",
}
GEMINI = 'python3 agent_loop.py -b gemini "prompt"'


def test_every_line_of_the_quick_start_is_tried() -> None:
    assert [line for line in LINES if line != GEMINI] == list(EXPECTED)
    assert GEMINI in LINES


@pytest.mark.slow
@pytest.mark.parametrize("line", EXPECTED)
def test_a_line_of_the_quick_start_runs_as_it_is_written(loop: Path, line: str) -> None:
    done = started(loop, line)

    assert (done.returncode, done.stderr if done.returncode else "") == (0, "")
    assert EXPECTED[line] in done.stdout


@pytest.mark.slow
def test_gemini_is_the_api_and_the_message_names_the_command_line(loop: Path) -> None:
    """The one line that does something else here: `gemini` is the API, which needs a key."""
    refused = started(loop, GEMINI)
    done = started(loop, GEMINI.replace("gemini", "gemini-cli"))

    assert refused.returncode == 1
    assert "such as gemini-cli, its command line" in refused.stderr
    assert (done.returncode, done.stdout.strip()) == (0, "From the Gemini CLI.")


def test_the_facts_of_the_loop_are_read_whole(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "check", str(DATA / "agent_loop_facts.pl")]) == 0
    assert capfd.readouterr().out == "6 agents, no fault\n"


def test_the_fields_that_the_loop_lists_are_all_read() -> None:
    listed = (
        "backend", "model", "host", "port", "api_key", "command", "system_prompt", "agent_md",
        "tools", "auto_tools", "context_mode", "max_context_tokens", "max_messages", "skills",
        "timeout", "show_tokens",
    )  # fmt: skip

    assert set(listed) <= set(Variant.__struct_fields__)


def test_a_conversation_is_written_in_the_plain_format_of_the_example() -> None:
    said: tuple[tuple[Role, str], ...] = (
        ("user", "What is 2+2?"), ("assistant", "4"), ("user", "Add 3 to that"),
    )  # fmt: skip
    messages = [
        StoredMessage(n, Message(role, (Text(text),)))
        for n, (role, text) in enumerate(said, start=1)
    ]
    text = Prompts(ConversationFormat("continue", "plain", 20)).prompt(Log(messages), "")
    written = [line for line in text.splitlines() if line]

    assert written[-3:] == (DATA / "agent_loop_context.txt").read_text().splitlines()


def test_a_file_of_mcp_servers_is_read_with_its_variable(tmp_path: Path) -> None:
    """The servers are not started: the first would be fetched, the second is on the network."""
    environ = {"HOME": str(tmp_path), "REFOLD_HOME": str(tmp_path), "GITHUB_TOKEN": "t0ken"}
    places = paths(environ)
    places.config.mkdir(parents=True, exist_ok=True)
    content = (DATA / "openagent_mcp_servers.json").read_bytes()
    (places.config / "mcp_servers.json").write_bytes(content)

    app = App(Settings(), places, environ, LaunchOptions(directory=tmp_path))

    assert app.mcp is not None
    assert sorted(server.config.name for server in app.mcp.statuses()) == [
        "filesystem",
        "github",
    ]


def test_an_agent_in_a_folder_works_for_the_person_and_for_other_agents(
    tmp_path: Path,
) -> None:
    """`as:` is a list, as in the registry whose lists are those that it includes."""
    folder = tmp_path / "home/agents/nono"
    folder.mkdir(parents=True)
    (folder / "meta.yml").write_text("description: Says no.\nas: [main, subagent]\n")
    (folder / "system_prompt.md").write_text("You say no.\n")
    (folder / "tools.yml").write_text("active: [read_file, grep]\n")
    provider = ScriptedProvider("No.")
    agent = Agent(
        provider=provider, home=tmp_path / "home", agent="nono", directory=tmp_path
    )

    async def name() -> str:
        async with agent.session() as session:
            await session.run("Yes?")
            return session.agent

    assert anyio.run(name) == "nono"
    assert provider.heard[0].system.startswith("You say no.")


@pytest.mark.slow
def test_a_question_through_a_pipe_runs_unattended(loop: Path) -> None:
    """`openagent` is refold under that name."""
    (loop / "bin/openagent").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m refold "$@"\n'
    )
    (loop / "bin/openagent").chmod(0o755)
    (loop / "work/error.log").write_text("It broke.\n")

    line = 'echo "Explain this error: $(cat error.log)" | openagent --no-approval'
    done = started(loop, line)

    assert (done.returncode, done.stdout.strip()) == (0, "From Claude Code.")
