"""The real `claude`, `codex` and `gemini` as models, against servers of ours on loopback.

`scripts/peers` installs them in .peers/; REFOLD_PEERS names another place.
"""

import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import anyio
import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from refold.errors import Refused, Unreachable
from refold.provider.command.backend import CommandLine
from refold.provider.command.backends import connect, find
from refold.provider.command.spec import CommandSpec, ProgramTimeouts
from refold.provider.port import Delta, Done, Request, TextDelta
from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer, sse
from refold.testing.wire_server import Answer, ReceivedRequest, WireServer, wire_server
from refold.values.usage import Usage
from tests.provider.command.fakes import request, words

PEERS = Path(os.environ.get("REFOLD_PEERS") or Path(__file__).parents[3] / ".peers")
T = TypeVar("T")


@pytest.fixture(autouse=True)
def other_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs in the directory that refold is started in are not trusted: ours are there."""
    monkeypatch.chdir(tmp_path)


class Agent(Struct, frozen=True):
    name: str
    place: str  # where its program is, in .peers
    wire: WireName
    model: str
    environ: Mapping[str, str]
    url_env: str
    unleashed: tuple[str, ...]  # a command line that lets it use its tools
    tools: tuple[tuple[str, str], ...]  # calls of them that would make the canary

    @property
    def spec(self) -> CommandSpec:
        return find(self.name)

    @property
    def program(self) -> Path:
        return PEERS / self.place / self.spec.argv[0]


PATCH = "*** Begin Patch\\n*** Add File: CANARY\\n+x\\n*** End Patch"
AGENTS = (
    Agent(
        "claude-code",
        "claude/claude_agent_sdk/_bundled",
        "anthropic",
        "opus",
        {"ANTHROPIC_API_KEY": "sk-ant-mock", "IS_SANDBOX": "1"},
        "ANTHROPIC_BASE_URL",
        ("claude", "-p", "--dangerously-skip-permissions"),
        (
            ("Bash", '{"command":"touch CANARY","description":"x"}'),
            ("Write", '{"file_path":"CANARY","content":"x"}'),
        ),
    ),
    Agent(
        "codex-cli",
        "codex/node_modules/.bin",
        "openai-responses",
        "gpt-6.1-sol",
        {"CODEX_API_KEY": "mock"},
        "",
        (
            "codex", "exec", "--dangerously-bypass-approvals-and-sandbox",
            "--skip-git-repo-check",
        ),
        (
            ("exec", 'text(JSON.stringify(await tools.exec_command({cmd: "touch CANARY"})))'),
            ("exec", f'text(JSON.stringify(await tools.apply_patch("{PATCH}")))'),
            ("apply_patch", PATCH.replace("\\n", "\n")),
            ("exec_command", '{"cmd":"touch CANARY"}'),
            ("shell", '{"command":["touch","CANARY"]}'),
        ),
    ),
    Agent(
        "gemini-cli",
        "gemini/node_modules/.bin",
        "gemini",
        "gemini-2.5-pro",
        {"GEMINI_API_KEY": "mock"},
        "GOOGLE_GEMINI_BASE_URL",
        ("gemini", "--yolo", "--skip-trust", "-p", ""),
        (
            ("run_shell_command", '{"command":"touch CANARY"}'),
            ("write_file", '{"file_path":"CANARY","content":"x"}'),
        ),
    ),
)  # fmt: skip


def _params(*, without: str = "") -> list[Any]:
    return [
        pytest.param(
            agent,
            id=agent.name,
            marks=pytest.mark.skipif(bool(_missing(agent)), reason=_missing(agent) or "-"),
        )
        for agent in AGENTS
        if agent.name != without
    ]


def _missing(agent: Agent) -> str:
    if not agent.program.exists():
        return f"{agent.program.name} is not in {PEERS}: run scripts/peers"
    if agent.wire != "anthropic" and not shutil.which("node"):
        return "node is not installed"
    return ""


pytestmark = [pytest.mark.peer, pytest.mark.timeout(60)]
each = pytest.mark.parametrize("agent", _params())


def answer_in_turn(agent: Agent, *answers: Answer) -> Callable[[ReceivedRequest], Answer]:
    """Give these answers one after the other, and repeat the last one."""
    waiting = list(answers)

    def inside(request: ReceivedRequest) -> Answer:
        if request.method != "POST":  # Codex asks for a WebSocket first
            return Answer(status=426)
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    return inside


def text_answer(agent: Agent, text: str, **fields: Any) -> Answer:
    return answer(agent.wire, Reply(text, **fields))


def call_answer(agent: Agent, name: str, arguments: str) -> Answer:
    if name not in ("exec", "apply_patch"):
        return answer(agent.wire, Reply("Let me.", ((name, arguments),)))
    # These take free text: a kind of call that only Codex has.
    item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": name}
    item |= {"input": arguments, "status": "completed"}
    if name == "exec":
        item["namespace"] = "functions"
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    ended = {"id": "r1", "status": "completed", "output": [item], "usage": usage}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "r1"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": ended},
    ]
    return Answer(b"".join(map(sse, events)), headers={"content-type": "text/event-stream"})


def run_against_server(
    agent: Agent,
    function: Callable[[CommandLine, WireServer], Awaitable[T]],
    *answers: Answer,
    spec: CommandSpec | None = None,
    idle: float = 30.0,
    environ: Mapping[str, str] | None = None,
) -> T:
    """Return the result of `function` for the program and the server that it asks."""
    home = Path(os.environ["HOME"])
    settings = home / ".gemini/settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}}')

    async def inside() -> T:
        async with wire_server(answer_in_turn(agent, *answers)) as server:
            own_spec = spec or agent.spec
            if agent.wire == "openai-responses":
                url = f'openai_base_url="{server.url}/v1"'
                own_spec = replace(own_spec, argv=(*own_spec.argv, "-c", url))
            data = {
                **os.environ,
                **(agent.environ if environ is None else environ),
                "PATH": f"{agent.program.parent}:{os.environ['PATH']}",
                agent.url_env or "UNUSED": server.url,
            }
            timeouts = ProgramTimeouts(idle)
            provider = connect(own_spec, agent.model, environ=data, timeouts=timeouts)
            return await function(provider, server)

    return anyio.run(inside)


async def read_deltas(provider: CommandLine, request: Request) -> list[Delta]:
    async with aclosing(provider.stream(request)) as deltas:
        return [delta async for delta in deltas]


def read_request(
    request: Request,
) -> Callable[[CommandLine, WireServer], Awaitable[list[Delta]]]:
    async def run_agent(provider: CommandLine, _: WireServer) -> list[Delta]:
        return await read_deltas(provider, request)

    return run_agent


def requests_as_text(server: WireServer) -> str:
    """Return all requests to the server, as one text."""
    return "\n".join(h.body.decode("utf-8", "replace") for h in server.heard)


def list_left_processes(home: Path) -> list[str]:
    """Processes that have this home."""
    texts = list[str]()
    for entry in Path("/proc").iterdir():
        try:
            variables = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if f"HOME={home}\0".encode() in variables and int(entry.name) != os.getpid():
            texts.append((entry / "cmdline").read_text())
    return texts


@each
def test_text_usage_system_prompt_and_model_pass_through_the_program(agent: Agent) -> None:
    model_request = request("What is it? ☂", system="You are REFOLD-7.", effort="high")
    reply = text_answer(agent, "It is rain. ☂ \\ <b>", usage=Usage(70, 30, 0, 9, 4))

    async def run_agent(
        provider: CommandLine, server: WireServer
    ) -> tuple[list[Delta], str, str]:
        outcome = await read_deltas(provider, model_request)
        last = server.heard[-1]
        return outcome, last.path, requests_as_text(server)

    deltas, path, all_told = run_against_server(agent, run_agent, reply)

    assert words(deltas) == "It is rain. ☂ \\ <b>"
    done = deltas[-1]
    assert isinstance(done, Done)
    assert done.usage == Usage(fresh=70, cached=30, output=9, reasoning=4)
    assert (done.cost or 0) > 0 if agent.name == "claude-code" else done.cost is None
    assert agent.model in path + all_told
    assert "You are REFOLD-7." in all_told
    assert "User: What is it? ☂" in all_told
    # Codex prints its answer when it is complete.
    pieces = sum(isinstance(delta, TextDelta) for delta in deltas)
    assert (pieces > 3) == (agent.name != "codex-cli")


@each
def test_each_request_sends_the_conversation_and_the_program_keeps_no_memory(
    agent: Agent,
) -> None:
    async def run_agent(provider: CommandLine, server: WireServer) -> list[str]:
        first = await read_deltas(provider, request("My name is Zoë."))
        await read_deltas(provider, request("My name is Zoë.", words(first), "Who am I?"))
        await read_deltas(provider, request("Something else."))
        return [h.body.decode() for h in server.heard if h.method == "POST"]

    bodies = run_against_server(agent, run_agent, text_answer(agent, "Hello, Zoë."))

    names = [(b.count("Zoë") or b.count("Zo\\u00eb")) for b in bodies]
    assert names == [1, 2, 0]
    assert "Assistant: Hello, Zoë.\\n\\nUser: Who am I?" in bodies[1]


@each
def test_tool_call_written_as_text_passes_through_unchanged(agent: Agent) -> None:
    call = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls \\"a b\\""}}\n</tool_call>'

    deltas = run_against_server(
        agent, read_request(request("List it.")), text_answer(agent, call)
    )

    assert words(deltas) == call


def calls(agent: Agent, canaries: list[Path]) -> list[Answer]:
    return [
        call_answer(agent, name, arguments.replace("CANARY", str(canary)))
        for canary in canaries
        for name, arguments in agent.tools
    ]


@each
def test_tools_of_the_program_are_switched_off(agent: Agent, home: Path) -> None:
    empty = home / "refold/empty"
    canaries = [home / "canary", empty / "canary"]
    answers = calls(agent, canaries)

    async def run_agent(
        provider: CommandLine, server: WireServer
    ) -> tuple[list[Delta], int]:
        result = await read_deltas(provider, request("Go on."))
        return result, sum(h.method == "POST" for h in server.heard)

    deltas, number = run_against_server(
        agent, run_agent, *answers, text_answer(agent, "I cannot.")
    )

    assert [canary for canary in canaries if canary.exists()] == []
    assert list(empty.iterdir()) == []
    # Every call was answered by the program, and the next question was asked.
    assert number == len(answers) + 1
    assert words(deltas).endswith("I cannot.")


@each
def test_same_calls_write_the_file_when_the_tools_of_the_program_are_on(
    agent: Agent, home: Path
) -> None:
    canary = home / "canary"
    spec = CommandSpec(
        name="x",
        keys=agent.spec.keys,
        label="x",
        tools="off",
        argv=agent.unleashed,
        model_argv=("-m", agent.model),
    )
    if agent.name == "claude-code":
        spec = replace(spec, model_argv=("--model", agent.model))

    run_against_server(
        agent,
        read_request(request("Go on.")),
        *calls(agent, [canary])[:1],
        text_answer(agent, "Done."),
        spec=spec,
    )

    assert canary.exists()


@each
def test_files_mentioned_in_the_conversation_are_not_read_by_the_program(
    agent: Agent, home: Path
) -> None:
    (home / "secret.txt").write_text("XYZZY-1")
    model_request = request(
        f"Look at @{home}/secret.txt, @~/secret.txt and @../../../secret.txt"
    )

    async def run_agent(provider: CommandLine, server: WireServer) -> str:
        await read_deltas(provider, model_request)
        return requests_as_text(server)

    assert "XYZZY" not in run_against_server(agent, run_agent, text_answer(agent, "No."))


@each
def test_memory_files_in_parent_directories_are_not_sent(agent: Agent, home: Path) -> None:
    files = ["AGENTS.md", "CLAUDE.md", "GEMINI.md", ".claude/CLAUDE.md"]
    files += ["refold/AGENTS.md", "refold/GEMINI.md", "refold/CLAUDE.md"]
    for name in files:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("XYZZY-2")

    async def run_agent(provider: CommandLine, server: WireServer) -> str:
        await read_deltas(provider, request("Hello?"))
        return requests_as_text(server)

    assert "XYZZY" not in run_against_server(agent, run_agent, text_answer(agent, "No."))


def stalled_answer(agent: Agent) -> Answer:
    """Begin an answer, and stall."""
    whole = text_answer(agent, "A long answer that is never said to its end.")
    body = whole.body if isinstance(whole.body, bytes) else b""
    return replace(whole, body=body[: int(len(body) * 0.6)], then="hang")


@each
def test_cancelling_a_response_leaves_no_process_running(agent: Agent, home: Path) -> None:
    async def run_agent(provider: CommandLine, server: WireServer) -> list[str]:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def stop() -> None:
                    while not any(h.method == "POST" for h in server.heard):
                        await anyio.sleep(0.01)
                    assert list_left_processes(home) != []
                    scope.cancel()

                group.start_soon(stop)
                await read_deltas(provider, request("Hello?"))
        return list_left_processes(home)

    assert run_against_server(agent, run_agent, stalled_answer(agent)) == []


@each
def test_service_that_falls_silent_ends_the_request_after_the_idle_timeout(
    agent: Agent, home: Path
) -> None:
    patient = replace(agent.spec, idle=0.0)

    with pytest.raises(Unreachable, match="printed nothing for 4 seconds"):
        run_against_server(
            agent,
            read_request(request("Hello?")),
            stalled_answer(agent),
            spec=patient,
            idle=4.0,
        )

    assert list_left_processes(home) == []


@each
def test_wrong_key_error_says_how_to_log_in(agent: Agent) -> None:
    error = {"type": "authentication_error", "code": 401, "message": "invalid x-api-key"}
    error["status"] = "UNAUTHENTICATED"
    refusal = Answer(
        msgspec.json.encode({"error": error}), 401, {"content-type": "application/json"}
    )

    with pytest.raises(Refused) as raised:
        run_against_server(agent, read_request(request("Hello?")), refusal)

    sentence = f"{agent.spec.label} could not log in to its service: {agent.spec.login}"
    assert str(raised.value).startswith(sentence)


# Codex asks without a key where the address is not its own.
@pytest.mark.parametrize("agent", _params(without="codex-cli"))
def test_missing_login_error_says_how_to_log_in(agent: Agent) -> None:
    keyless = replace(agent.spec, unset=("GEMINI_API_KEY",))

    with pytest.raises(Refused) as raised:
        run_against_server(
            agent,
            read_request(request("Hello?")),
            text_answer(agent, "No."),
            spec=keyless,
            environ={},
        )

    sentence = f"{agent.spec.label} could not log in to its service: {agent.spec.login}"
    assert str(raised.value).startswith(sentence)
