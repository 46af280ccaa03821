"""The command lines, files and code of the agent loops that refold follows run as they are written.

The blocks in `seeds_data` are copied from the texts of those loops. Nothing here reaches the
network: programs on the PATH are fakes, connections to port 11434, of whatever machine, go to
a server on loopback, and models are scripted. `agent_loop.py` and `openagent`, which the lines start,
are refold under that name. The rest of what is written in Clojure and Go is a table of names: each is used
under the name that it has here; `seeds_library` does that for the library in Go.

Not run: the test command of the program in Clojure (`clojure -M:test`), for it tests that program; the
path of its sessions and logs, of its settings and of its generated files, which are refold's own here; and the
second server of the MCP file, which is on the network.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import anyio
import pytest
from msgspec import Struct

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.cli.main import main
from refold.client.agent import Agent
from refold.config.paths import paths
from refold.config.settings import Settings
from refold.declared.variant import Variant
from refold.journal.events.kinds import Ended
from refold.journal.state.fold import fold
from refold.provider.command.prompt import Prompts
from refold.provider.command.spec import Context, ConversationFormat, Format
from refold.testing.providers import ScriptedProvider
from refold.values.growing import Log
from refold.values.messages import Message, Role, StoredMessage, Text
from refold.values.usage import Spent, Usage
from refold.views.number_format import turn_line
from refold.views.styled import plain_text
from tests.mcp import fake_server
from tests.provider.command.fakes import write_shell_program
from tests.provider.list_server import list_server
from tests.seeds_library import NAMES, NOT_HERE, USES, Use
from tests.server.serving import open_server, read_until
from tests.terminal.at_home import TerminalDriver

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
GEMINI_ANSWER = {"candidates": [{"content": {"parts": [{"text": "From Gemini."}]}, "finishReason": "STOP"}],
                 "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 3}}  # fmt: skip
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
ROLES: tuple[Role, ...] = ("user", "assistant")
# The agents that the lines name, and the file of the same text does not have.
MORE_AGENTS = {
    "claude-opus": {"backend": "claude-code", "model": "opus"},
    "ollama": {"backend": "ollama-api", "model": "llama3"},
}


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a folder with `agent_loop.py` and the agents, fake programs, and Ollama on
    loopback.
    """
    top = tmp_path_factory.mktemp("loop")
    for name in ("bin", "home/.config/refold", "work/agents", "work/skills"):
        (top / name).mkdir(parents=True)
    (top / "work/agents/coding.md").write_text("You write code.\n")
    (top / "work/skills/git.md").write_text("Commit often.\n")
    answer = {"type": "result", "is_error": False, "result": "From Claude Code."}
    write_shell_program(
        top / "bin", f"cat >/dev/null; echo {shlex.quote(json.dumps(answer))}", "claude"
    )
    data = {"type": "message", "role": "assistant", "content": "From the Gemini CLI."}
    text = "\n".join(map(json.dumps, (data, {"type": "result", "status": "success"})))
    write_shell_program(top / "bin", f"cat >/dev/null; echo {shlex.quote(text)}", "gemini")
    write_shell_program(top / "bin", 'cat >/dev/null; echo "From ollama run $2."', "ollama")
    write_shell_program(top / "bin", f'exec {sys.executable} "$@"', "python3")
    write_shell_program(top / "bin", f'exec {sys.executable} -m refold "$@"', "openagent")
    agents = json.loads((DATA / "agent_loop_agents.json").read_text())
    agents["agents"] |= MORE_AGENTS
    (top / "work/.refold").mkdir()
    (top / "home/.config/refold/agents.json").write_text(json.dumps(agents))
    for name in ("agents", "skills"):  # the named file is beside it
        (top / f"home/.config/refold/{name}").symlink_to(top / "work" / name)
    pages = _Pages({"/api/tags": {"models": [{"name": "codellama"}]}})
    with ExitStack() as stack:
        server = stack.enter_context(list_server(pages))
        port = server.url.rpartition(":")[2]
        (top / "url").write_text(server.url)
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
        if "streamGenerateContent" in path:
            return GEMINI_ANSWER
        return super().get(path, default)


def run_line(
    loop: Path, line: str, typed: str = "What is 2+2?\n", **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Return the line, run by a shell as it is written."""
    environ = {
        "HOME": str(loop / "home"), "PATH": f"{loop / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "REFOLD_NO_BACKGROUND": "1",
        **variables,
    }  # fmt: skip
    return subprocess.run(
        ["bash", "-c", line],
        cwd=loop / "work", env=environ, input=typed,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


# The output of each line of the quick start; "in": anywhere in it.
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


def test_every_line_of_the_quick_start_has_a_test_case() -> None:
    assert [line for line in LINES if line != GEMINI] == list(EXPECTED)
    assert GEMINI in LINES


@pytest.mark.parametrize("line", EXPECTED)
def test_each_line_of_the_quick_start_runs_unchanged(loop: Path, line: str) -> None:
    done = run_line(loop, line)

    assert (done.returncode, done.stderr if done.returncode else "") == (0, "")
    assert EXPECTED[line] in done.stdout
    assert not {"\x1b", "\r"} & set(done.stdout)  # append-only: no cursor is moved


def test_gemini_uses_the_api_and_without_a_key_the_error_names_gemini_cli(
    loop: Path,
) -> None:
    """`gemini` is the API, a server on loopback here, and `gemini-cli` the fake program."""
    key = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": (loop / "url").read_text()}
    done = run_line(loop, GEMINI, **key)
    completed_process = run_line(loop, GEMINI)
    by_program = run_line(loop, GEMINI.replace("gemini", "gemini-cli"))

    assert (done.returncode, done.stdout.strip()) == (0, "From Gemini.")
    assert completed_process.returncode == 1
    assert "such as gemini-cli, its command line" in completed_process.stderr
    assert (by_program.returncode, by_program.stdout.strip()) == (0, "From the Gemini CLI.")


def test_the_facts_file_of_the_agent_loop_is_valid(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["spec", "check", str(DATA / "agent_loop_facts.pl")]) == 0
    assert capfd.readouterr().out == "6 agents, no fault\n"


def test_every_agent_field_of_the_loop_is_supported() -> None:
    texts = (
        "backend", "model", "host", "port", "api_key", "command", "system_prompt", "agent_md",
        "tools", "auto_tools", "context_mode", "max_context_tokens", "max_messages", "skills",
        "timeout", "show_tokens",
    )  # fmt: skip

    assert set(texts) <= set(Variant.__struct_fields__)


def test_the_plain_context_format_matches_the_example() -> None:
    texts: tuple[tuple[Role, str], ...] = (
        ("user", "What is 2+2?"), ("assistant", "4"), ("user", "Add 3 to that"),
    )  # fmt: skip
    messages = [
        StoredMessage(n, Message(role, (Text(text),)))
        for n, (role, text) in enumerate(texts, start=1)
    ]
    text = Prompts(ConversationFormat("continue", "plain", 20)).prompt(Log(messages), "")
    lines = [line for line in text.splitlines() if line]

    assert lines[-3:] == (DATA / "agent_loop_context.txt").read_text().splitlines()


@pytest.mark.parametrize("context", ["continue", "fresh", "summarize", "sliding"])
@pytest.mark.parametrize("form", ["plain", "markdown", "json", "xml"])
def test_each_context_mode_includes_its_messages_in_each_format(
    context: Context, form: Format
) -> None:
    plain = (DATA / "agent_loop_context.txt").read_text().splitlines()
    texts = [line.partition(": ")[2] for line in plain]
    messages = [
        StoredMessage(n, Message(ROLES[1 - n % 2], (Text(text),)))
        for n, text in enumerate(texts, start=1)
    ]

    prompt = Prompts(ConversationFormat(context, form, 20)).prompt(Log(messages), "")

    assert [text in prompt for text in texts] == [
        context != "fresh",
        context != "fresh",
        True,
    ]


def test_variables_in_an_mcp_servers_file_are_expanded(tmp_path: Path) -> None:
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


def test_an_agent_folder_defines_a_main_agent_and_a_subagent(
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


# --- the facts of the loop as a program, and its components in Python

CLAUDE_SAYS = json.dumps(
    {"type": "result", "is_error": False, "result": "The answer is 4."}
)


def test_a_generated_program_answers_the_example_session(tmp_path: Path) -> None:
    """The program `claude`, which these facts name for coro, is a fake."""
    example = (DATA / "agent_loop_session.txt").read_text()
    typed = [line.removeprefix("You: ") for line in example.splitlines() if "You: " in line]
    expected = next(line for line in example.splitlines() if line.startswith("Assistant: "))
    (tmp_path / "bin").mkdir()
    write_shell_program(
        tmp_path / "bin", f"cat >/dev/null; echo {shlex.quote(CLAUDE_SAYS)}", "claude"
    )
    facts = str(DATA / "agent_loop_facts.pl")
    out = tmp_path / "out"
    assert main(["spec", "generate", "coro", "--agents", facts, "--out", str(out)]) == 0

    done = subprocess.run(
        [sys.executable, "-I", str(out / "coro.py")],
        cwd=tmp_path, env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
        input="\n".join(typed) + "\n", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert typed == ["What is 2+2?", "exit"]
    assert (done.returncode, done.stderr) == (0, "")
    assert expected.removeprefix("Assistant: ") in done.stdout
    assert done.stdout.count("You: ") == len(typed)


class AgentResponse(Struct):
    content: str
    tool_calls: list[Any]
    tokens: dict[str, int]


class ToolCall(Struct):
    name: str
    arguments: dict[str, Any]


@pytest.fixture
def components(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the six classes of the text. It leaves two types to the reader; the SDK is a
    double.
    """

    def create(**request: Any) -> SimpleNamespace:
        namespace = SimpleNamespace(text=f"{len(request['messages'])} messages")
        usage = SimpleNamespace(input_tokens=3, output_tokens=2)
        return SimpleNamespace(content=[namespace], usage=usage)

    def client(api_key: str) -> SimpleNamespace:
        return SimpleNamespace(messages=SimpleNamespace(create=create))

    names: dict[str, Any] = {
        "AgentResponse": AgentResponse, "ToolCall": ToolCall, "subprocess": subprocess,
        "anthropic": SimpleNamespace(Anthropic=client), "__name__": "components",
    }  # fmt: skip
    exec((DATA / "agent_loop_components.py.txt").read_text(), names)
    return names


def test_refold_works_as_a_backend_of_the_original_loop(
    components: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The loop, its context and its tools are those of the text; the model is scripted."""
    provider = ScriptedProvider("I look.", "The answer is 4.", "And now 7.")

    class RefoldBackend(components["AgentBackend"]):  # type: ignore[misc]
        def send_message(
            self, message: str, context: list[dict[str, str]]
        ) -> AgentResponse:
            done = Agent(provider=provider, directory=tmp_path).run(message)
            tokens = {"input": done.usage.fresh, "output": done.usage.output}
            return AgentResponse(done.text, self.parse_tool_calls(done.text), tokens)

        def parse_tool_calls(self, response: str) -> list[ToolCall]:
            look = ToolCall("bash", {"command": "echo $((2+2))"})
            return [look] if response == "I look." else []

    class Tools(components["ToolHandler"]):  # type: ignore[misc]
        read_file = write_file = edit_file = components["ToolHandler"].execute_bash

    typed = iter(["What is 2+2?", "", "Add 3 to that", "clear", "exit"])

    def read(prompt: str) -> str:
        return next(typed)

    monkeypatch.setattr("builtins.input", read)

    components["AgentLoop"](RefoldBackend(), Tools()).run()

    output = capfd.readouterr().out
    assert [line for line in output.splitlines() if line.strip()][:2] == [
        "UnifyWeaver Agent Loop", "Backend: RefoldBackend",
    ]  # fmt: skip
    assert "  [Tool: bash]\n\nAssistant: The answer is 4.\n" in output
    assert "Assistant: And now 7.\n" in output
    assert "Context cleared." in output
    texts = [request.messages[-1].message.text for request in provider.heard]
    assert texts == ["What is 2+2?", "Tool results:\n['4\\n']", "Add 3 to that"]


def test_the_backends_of_the_text_call_programs_like_refold_does(
    components: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """coro is a fake program, which prints what it was called with; refold calls it alike."""
    (tmp_path / "bin").mkdir()
    write_shell_program(tmp_path / "bin", 'cat >/dev/null; printf "%s|" "$@"', "coro")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")

    class Coro(components["CoroBackend"]):  # type: ignore[misc]
        """The class of the text, with the methods that it leaves to the reader."""

        def clean_output(self, text: str) -> str:
            return text

        def parse_tokens(self, text: str) -> dict[str, int]:
            return {}

        def parse_tool_calls(self, response: str) -> list[ToolCall]:
            return []

    class Claude(components["ClaudeBackend"]):  # type: ignore[misc]
        def extract_tool_use(self, response: object) -> list[ToolCall]:
            return []

    before = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    theirs = Coro().send_message("And?", before).content
    claude = Claude("key").send_message("And?", before)
    ours = Agent(model="coro/default", directory=tmp_path).run("And?").text

    assert theirs.startswith(
        "--verbose|Previous conversation:\nUser: Hi\nAssistant: Hello\n"
    )
    assert ours.startswith("--verbose|")
    assert "User: And?|" in ours
    assert (claude.content, claude.tokens) == ("3 messages", {"input": 3, "output": 2})


# --- agent0: a terminal agent in Clojure

# The names of its tools in refold.
AGENT0_TOOLS = {
    "read-file": "read_file", "list-files": "list_files", "edit-file": "edit_file",
    "create-file": "write_file", "run-shell-command": "bash", "glob-files": "glob",
    "grep-files": "grep", "delegate": "task", "skills-tool": "list_skills",
}  # fmt: skip
# The documents of refold for its events.
AGENT0_EVENTS = {
    "text": "assistant_message", "tool": "tool_call", "diff": "diff", "error": "error",
    "done": "result",
}  # fmt: skip


@pytest.fixture
def empty_input() -> Iterator[TextIO]:
    """Yield an input that has ended."""
    with open(os.devnull) as stream:
        yield stream


def test_agent0_context_templates_and_skills_are_read_from_their_original_paths(
    tmp_path: Path, home: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, empty_input: TextIO,
) -> None:  # fmt: skip
    """The model is scripted; the template is called as `/test --watch`."""
    files = {
        tmp_path / ".agent0/context.md": "We use tabs.\n",
        tmp_path / ".agent0/skills.md": "/test <args>\nRun the tests with {args}.\n",
        home / ".config/agent0/skills.md": "/greet <name>\nGreet {name}.\n",
        home / ".claude/skills/say-hi/SKILL.md":
            "---\nname: say-hi\ndescription: Says hi.\n---\nSay hi.\n",
    }  # fmt: skip
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "s").write_text('{"text": "Green."}\n')
    place = ["-p", "-C", str(tmp_path), "--trust", "--script", str(tmp_path / "s")]

    monkeypatch.setattr("sys.stdin", empty_input)
    texts = list[str]()
    for typed in ("/test --watch", "/greet Ann"):
        assert (
            main([*place, typed, "--output-format", "stream-json", "--log-requests"]) == 0
        )
        documents = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        texts += [d["text"] for d in documents if d["type"] == "user_message"]
    main(["skills", "list"])
    output = capfd.readouterr().out

    assert texts == ["Run the tests with --watch.", "Greet Ann."]
    assert "say-hi" in output


def test_each_event_of_the_agent0_loop_has_a_stream_document(
    tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, empty_input: TextIO,
) -> None:  # fmt: skip
    """The queue is the stream of documents; what the loop calls `conversation` is the snapshot."""
    names = re.findall(r":type :(\w+)", (DATA / "agent0_events.edn").read_text())
    (tmp_path / "a.txt").write_text("one\n")
    call = {"tool": "edit_file", "arguments": {"path": "a.txt", "old": "one", "new": "two"}}
    read = {"tool": "read_file", "arguments": {"path": "a.txt"}}
    lines = ({"calls": [read]}, {"calls": [call]}, {"text": "Done."})
    (tmp_path / "s").write_text("".join(json.dumps(line) + "\n" for line in lines))
    place = ["-p", "-C", str(tmp_path), "--yolo", "--output-format", "stream-json"]

    monkeypatch.setattr("sys.stdin", empty_input)
    main([*place, "--script", str(tmp_path / "s"), "Edit."])
    (tmp_path / "empty").write_text("")
    main([*place, "--script", str(tmp_path / "empty"), "Fail."])
    documents = [json.loads(line) for line in capfd.readouterr().out.splitlines()]

    by_type = {document["type"]: document for document in documents}
    assert names == list(AGENT0_EVENTS)
    assert set(AGENT0_EVENTS.values()) <= set(by_type)
    assert "two" in json.dumps(by_type["diff"])
    call_id = by_type["diff"]["call_id"]
    results = (d for d in documents if d["type"] == "tool_result")
    result = next(d for d in results if d["call_id"] == call_id)
    assert "@@" not in result["text"]  # the model reads a sentence, the screen the diff


def test_every_agent0_tool_has_a_refold_tool(tmp_path: Path) -> None:
    provider = ScriptedProvider("Hi.")

    Agent(provider=provider, directory=tmp_path).run("Hi.")

    assert set(AGENT0_TOOLS.values()) <= {spec.name for spec in provider.heard[0].tools}


# It stops at the third equal call; here the model is warned then.
@pytest.mark.parametrize(
    ("tool", "arguments", "responses"),
    [("list_files", "{{}}", 4), ("web_search", '{{"query": "words {}"}}', 6)],
)
def test_a_turn_that_repeats_calls_is_stopped_after_a_reminder(
    tmp_path: Path, tool: str, arguments: str, responses: int
) -> None:
    calls = [[(tool, arguments.format(n))] for n in range(9)]
    provider = ScriptedProvider(*calls)

    settings = {"limits.repeated_errors": 0}  # each search fails: nothing is reached
    agent = Agent(provider=provider, directory=tmp_path, mode="bypass", settings=settings)

    done = agent.run("Go on.")

    assert (done.outcome, len(provider.heard)) == ("stuck", responses)
    nudges = [r for r in provider.heard if "<reminder" in r.messages[-1].message.text]
    assert len(nudges) >= 1


def test_ollama_conversations_use_the_chat_endpoint(
    loop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ollama is a server on loopback, as in every line above that names it."""
    done = run_line(loop, 'python3 agent_loop.py -m ollama/llama3 "local prompt"')

    assert (done.returncode, done.stdout.strip()) == (0, "From Ollama.")


# --- OpenAgent: a server, its pages and a command line

# Its events that have another name in refold; all others have the same.
OTHER_EVENTS = {
    "background_result": "background_ended", "done": "result",
    "plan_mode_changed": "mode_changed", "approval_changed": "mode_changed",
}  # fmt: skip


def test_the_openagent_command_lines_run_unchanged(loop: Path) -> None:
    """`openagent` is refold under that name, and the model is a fake program."""
    lines = (DATA / "openagent_commands.sh").read_text().splitlines()
    (loop / "work/error.log").write_text("It broke.\n")

    plain, listing, resume, pipe = (line for line in lines)
    completed_processes = [run_line(loop, pipe), run_line(loop, plain)]
    completed_process = run_line(loop, listing, "")
    id_ = re.findall(
        r"\d{8}-\d{6}-\w{4}", completed_process.stdout + completed_process.stderr
    )[0]
    resumed = run_line(loop, resume.replace("<ID>", id_))

    assert [
        (done.returncode, done.stdout.strip()) for done in (*completed_processes, resumed)
    ] == [(0, "From Claude Code.")] * 3
    assert "What is 2+2?" in completed_process.stdout + completed_process.stderr


@pytest.mark.parametrize(
    "command", (DATA / "openagent_slash_commands.txt").read_text().split()
)
def test_every_openagent_slash_command_has_an_effect(command: str, tmp_path: Path) -> None:
    """The model is scripted. A list to choose from is left with an empty line."""
    texts = TerminalDriver(tmp_path).tell(
        "hello", command, "", answers=("Hi there.", "The summary.")
    )

    assert "Hi there." in "\n".join(texts)
    assert not any("there is no command" in line.lower() for line in texts)
    assert len(texts) > 2 or command == "/quit"


def test_the_line_after_a_turn_shows_tokens_context_usage_and_price() -> None:
    """In another order: tokens in and out, the share of the window, the price."""
    line = (DATA / "openagent_figures.txt").read_text()
    fresh, output, dollars, share = re.findall(r"[\d.,]+", line)
    usage = Usage(fresh=int(fresh.replace(",", "")), output=int(output))
    spent = Spent(usage, float(dollars), answers=1)
    size = round((usage.input + usage.output) / int(share) * 100)

    text = plain_text([turn_line(spent, usage, size, 2.0)])

    assert text.strip() == "1,234 in · 89 out · 3% of window · $0.0200 · 2.0 s"


@pytest.mark.anyio
async def test_the_openagent_browser_frames_are_accepted_as_orders(tmp_path: Path) -> None:
    """The server runs in this process, and the model is scripted: it waits until it is stopped."""
    message, cancel, interrupt = (DATA / "openagent_frames.jsonl").read_text().splitlines()
    write = ("write_file", '{"path": "hello.py", "content": "print(1)\\n"}')
    waits = [("bash", '{"command": "sleep 60"}')]
    answers = ([write], "All done!", waits, waits, "X it is.")
    provider = ScriptedProvider(*answers)
    async with open_server(tmp_path, provider=lambda: provider) as client:
        id_ = await client.begin(mode="bypass")
        async with client.follow(id_) as socket:
            await socket.send(message)
            first = await read_until(socket, "result")
            await socket.send(message)
            await read_until(socket, "tool_start")
            await socket.send(cancel)
            stopped = await read_until(socket, "result")
            await socket.send(message)
            await read_until(socket, "tool_start")
            await socket.send(interrupt)
            await read_until(socket, "result")
            redirected = await read_until(socket, "result")

    types = [data["type"] for data in first]
    content = json.loads(message)["content"]
    order = ["user_message", "tool_call", "tool_result", "text_delta", "result"]
    assert [types.index(name) for name in order] == sorted(
        types.index(name) for name in order
    )
    assert next(d for d in first if d["type"] == "user_message")["text"] == content
    assert [file["path"] for file in first[-1]["files"]] == ["hello.py"]
    assert (stopped[-1]["outcome"], redirected[-1]["text"]) == ("cancelled", "X it is.")
    texts = [item.message.text for item in provider.heard[-1].messages]
    assert json.loads(interrupt)["content"] in texts


def test_each_openagent_server_event_has_a_stream_document(
    capfd: pytest.CaptureFixture[str],
) -> None:
    names = (DATA / "openagent_events.txt").read_text().split()

    main(["schema", "stream"])
    schema = capfd.readouterr().out

    assert set(OTHER_EVENTS) <= set(names)
    assert [n for n in names if f'"{OTHER_EVENTS.get(n, n)}"' not in schema] == []


def test_the_tools_presets_and_skills_of_the_guide_exist(tmp_path: Path) -> None:
    guide = (
        "bash read_file write_file edit_file think task compact list_skills read_skill "
        "background_run task_create enter_plan_mode exit_plan_mode todo_write"
    )
    team = {"spawn_teammate", "send_message", "broadcast"}
    skills = (
        "code-review api-design dockerfile-builder pdf-writer excel-writer ppt-writer "
        "docx-writer design"
    )
    provider = ScriptedProvider("Hi.")
    agent = Agent(provider=provider, directory=tmp_path, settings={"subagents.teams": True})

    async def look() -> tuple[set[str], set[str], set[str]]:
        async with agent.session() as session:
            offered = session.reports.next_tools()
            tools = {tool.name for tool in (*offered.active, *offered.deferred)}
            assert session.skills is not None
            names = {name for name, _ in session.skills.descriptions()}
            return tools, names, {name for name, _ in session.agents.presets()}

    tools, texts, presets = anyio.run(look)

    assert set(guide.split()) - {"enter_plan_mode", "exit_plan_mode"} <= tools
    assert set(skills.split()) <= texts
    assert {"coding", "work"} <= presets
    assert team <= tools


def test_the_tool_calls_of_the_guide_work_with_their_arguments(
    tmp_path: Path,
) -> None:
    """The model is scripted, and the test suite that runs in the background is empty."""
    calls: list[tuple[str, dict[str, object]]] = [
        ("bash", {"command": "ls -la"}),
        ("write_file", {"path": "script.py", "content": "print('Hello World!')"}),
        ("bash", {"command": "python3 script.py"}),
        ("think", {"thought": "Created, ran, right."}),
        ("background_run", {"command": "echo 42 passed"}),
        ("task_create", {"subject": "Set up project structure"}),
        ("todo_write", {"todos": [{"subject": "Add tests", "status": "pending"}]}),
        ("compact", {}),
    ]
    lines = [[(tool, json.dumps(arguments))] for tool, arguments in calls]
    provider = ScriptedProvider(*lines, "The summary.", "Done!")
    agent = Agent(provider=provider, directory=tmp_path, mode="bypass")

    async def run() -> tuple[str, list[tuple[str, str]]]:
        async with agent.session() as session:
            result = await session.run("Create a hello world Python script")
            entries = await session.reports.entries()
            ended = [e.event for e in entries if isinstance(e.event, Ended)]
            return result.text, [(end.outcome, end.text) for end in ended]

    text, ends = anyio.run(run)

    assert text == "Done!"
    assert [outcome for outcome, _ in ends] == ["done"] * len(calls)
    assert "Hello World!" in ends[2][1]


@pytest.mark.slow  # the SDK takes long to import
def test_a_stdio_server_of_the_mcp_servers_file_is_started_and_used(
    tmp_path: Path,
) -> None:
    """A program of ours stands for `npx`, which would install a package; the second server is left out."""
    servers = json.loads((DATA / "openagent_mcp_servers.json").read_text())
    (tmp_path / "bin").mkdir()
    write_shell_program(
        tmp_path / "bin", f"exec {sys.executable} {fake_server.__file__}", "server"
    )
    # `npx` would install it.
    servers["filesystem"]["command"] = str(tmp_path / "bin" / "server")
    provider = ScriptedProvider(
        [("tool_search", '{"query": "echo"}')],
        [("mcp__filesystem__echo", '{"text": "hi"}')],
        "Done.",
    )
    (tmp_path / "work").mkdir()
    agent = Agent(
        provider=provider, directory=tmp_path / "work", mode="bypass",
        mcp_servers={"filesystem": servers["filesystem"]},
        settings={"sandbox.profile": "off"},  # it would not see the double
    )  # fmt: skip

    assert agent.run("Echo.").text == "Done."
    assert '"hi"' in str(provider.heard[-1].messages[-1].message.parts[0])


# --- fractal: code that calls models

CELL = """a = lm('one', 'what?')
b = map_lm(['x', 'y'], 'each?')
c = rlm('sub')
d = map_rlm(['p', 'q'])
FINAL([a, b, c, d])"""
LEAVES = {"<material>\none": "1", "<material>\nx": "2", "<material>\ny": "3"}
BELOW = {"sub": "FINAL(4)", "p": "FINAL(5)", "q": "FINAL(6)"}


def encode_cell(cell: str, first: str = "") -> str:
    line = {"text": f"```python\n{cell}\n```"} | ({"for": first} if first else {})
    return json.dumps(line) + "\n"


def test_the_six_fractal_functions_work_with_a_scripted_model(loop: Path) -> None:
    """Every model is scripted. The second question continues from the variables of the first."""
    names = (DATA / "fractal_functions.txt").read_text().replace("-", "_").split()
    leaves = "".join(json.dumps({"for": f, "text": t}) + "\n" for f, t in LEAVES.items())
    below = "".join(encode_cell(cell, first) for first, cell in BELOW.items())
    (loop / "work/one.jsonl").write_text(encode_cell(CELL) + leaves + below)

    first = run_line(loop, "openagent rlm all? --rlm --fake-script one.jsonl", "")
    id_ = re.findall(r"session (\S+)", first.stderr)[0]
    attach = f"FINAL(attach_rlm('{id_}', 'more'))"
    (loop / "work/two.jsonl").write_text(
        encode_cell(attach) + encode_cell("FINAL([a, b])", "more")
    )
    second = run_line(loop, "openagent rlm on? --rlm --fake-script two.jsonl", "")

    assert all(f"{name}(" in CELL + attach for name in names)
    assert (first.returncode, json.loads(first.stdout)) == (0, ["1", ["2", "3"], 4, [5, 6]])
    assert (second.returncode, json.loads(second.stdout)) == (0, ["1", ["2", "3"]])
    for line in (f"tree {id_} --json", f"show {id_} --json", f"cost {id_} --json"):
        read = run_line(loop, f"openagent {line}", "")
        assert (read.returncode, json.loads(read.stdout) is not None) == (0, True)
    (loop / "work/none.jsonl").write_text("")  # for no claim is there to judge
    checked = run_line(loop, f"openagent verify {id_} --deep --script none.jsonl", "")
    assert checked.returncode == 0


def test_the_session_facade_supports_all_operations_and_reads_without_a_model(
    tmp_path: Path,
) -> None:
    """The model is scripted, and has no line left when the journal is read again."""
    used = dict[str, object]()
    agent = Agent(provider=ScriptedProvider("One.", "Two."), directory=tmp_path)

    async def drive() -> None:
        async with agent.session() as session:
            used["config"], used["start-session!"] = session.settings, session.id
            used["run-turn!"] = (await session.run("First.")).text
            used["fork-session!"] = copy = await session.fork()
            used["journal-events"] = entries = await session.reports.entries()
            used["tree"] = await session.reports.tree()
            used["load-node"] = await session.reports.node("root")
            used["verify-task"] = used["check-claims"] = await session.reports.verify()
            used["load-at"] = fold(entries).conversation.messages[-1].message.text
            await session.close()
        used["stop-session!"] = session.end_reason
        silent = Agent(provider=ScriptedProvider(), directory=tmp_path)
        async with silent.session(session.id) as again, silent.session(copy) as other:
            used["resume-session!"] = again.view.conversation.messages[-1].message.text
            assert other.view.conversation.messages[-1].message.text == "One."

    anyio.run(drive)
    used["run-task!"] = agent.run("Second.").text

    assert sorted(used) == sorted((DATA / "fractal_api.clj").read_text().split())
    assert (used["run-turn!"], used["load-at"], used["resume-session!"]) == ("One.",) * 3
    assert used["run-task!"] == "Two."


# --- evva: a library in Go


def test_every_name_of_the_evva_api_has_a_test_or_a_reason_for_its_absence() -> None:
    api = (DATA / "evva_api.go").read_text()
    api_names = re.findall(r"^(?:(?:var|type) |func (?:\([^)]*\) )?)(\w+)", api, re.M)

    assert set(api_names) == {*NAMES, *NOT_HERE}


@pytest.mark.parametrize("uses", USES, ids=lambda uses: uses[0].__name__)
def test_each_use_of_the_evva_library_is_possible_with_refold(
    uses: tuple[Use, object], tmp_path: Path
) -> None:
    """A use calls what its names have become in Python, with a scripted model, and asserts
    what happens.
    """
    use, _ = uses
    directory = tmp_path / "work"
    directory.mkdir()

    anyio.run(use, directory)
