"""One session that switches from provider to provider, and back.

Each of them validates requests like the real one: data of other providers in the
conversation must not be refused, and its own data must be returned.
"""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from refold import Agent, Effect, Reply, tool
from refold.cli.main import main
from refold.client.protocol import Order, SetAgent, SetEffort, SetModel
from refold.errors import BadInput
from refold.testing.providers import Reply as Line
from refold.testing.providers import ScriptedProvider
from refold.testing.wire_answers import WireName, answer
from refold.testing.wire_server import Answer, ReceivedRequest, WireServer, wire_server
from refold.values.usage import Usage
from tests.provider.strict_servers import rejection_reason

# An image of one pixel; bytes after its end belong to no image.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a49444154789c636000000002000148afa4710000000049454e44ae4260"
    "82"
)
WIRES: tuple[WireName, ...] = (
    "anthropic", "openai-responses", "openai-chat", "gemini", "ollama",
)  # fmt: skip
# Another agent's command line: it may only speak.
PROGRAM = """
import sys
asked = sys.stdin.read()
assert "Say 5" in asked, asked
print("I am a program.")
"""


@tool(Effect.LOOK)
async def look(n: int) -> Reply:
    """Look at something."""
    return Reply(f"seen {n}")


class Strict:
    """A server for each wire. It answers a person with a call, and a result with text."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.bodies: dict[WireName, list[str]] = {wire: [] for wire in WIRES}

    def answering(self, wire: WireName) -> "Answering":
        return Answering(self, wire)


class Answering:
    def __init__(self, strict: Strict, wire: WireName) -> None:
        self._strict, self._wire = strict, wire

    def __call__(self, request: ReceivedRequest) -> Answer:
        body = json.loads(request.body)
        if "/api/show" in request.path:
            return Answer(b"{}")
        if wrong := rejection_reason(self._wire, body):
            self._strict.complaints.append(f"{self._wire}: {wrong}")
        bodies = self._strict.bodies[self._wire]
        bodies.append(request.body.decode())
        usage = Usage(fresh=100, output=10)
        calls = Line("", (("look", f'{{"n": {len(bodies)}}}'),), "Hm.", usage=usage)
        line = calls if len(bodies) % 2 else Line(f"I am {self._wire}.", usage=usage)
        return answer(self._wire, line)


@asynccontextmanager
async def serving(strict: Strict) -> AsyncGenerator[dict[WireName, WireServer]]:
    servers: dict[WireName, WireServer] = {}
    async with anyio.create_task_group() as group:
        done = anyio.Event()

        async def serve(wire: WireName, started: anyio.Event) -> None:
            async with wire_server(strict.answering(wire)) as server:
                servers[wire] = server
                started.set()
                await done.wait()

        for wire in WIRES:
            started = anyio.Event()
            group.start_soon(serve, wire, started)
            await started.wait()
        yield servers
        done.set()


@pytest.mark.parametrize(
    ("order", "text"),
    [
        (SetModel("ollama/m"), "model"),
        (SetEffort("low"), "effort"),
        (SetAgent("code"), "agent"),
    ],
)
def test_changing_model_effort_or_agent_during_a_turn_is_refused(
    tmp_path: Path, order: Order, text: str
) -> None:
    async def run_story() -> set[str]:
        refusals = set[str]()
        async with agent.session() as session:
            async with session.stream("Go.") as frames:
                async for _ in frames:
                    if session.running:
                        with pytest.raises(BadInput) as error:
                            await session.send(order)
                        refusals.add(str(error.value))
            assert (session.effort, session.agent) == ("", "main")
        return refusals

    agent = Agent(provider=ScriptedProvider("Yes."), directory=tmp_path)

    assert anyio.run(run_story) == {
        f"a turn of this session is running: wait or stop it, and set the {text} then"
    }


def test_the_effort_set_between_two_turns_applies_to_the_next_turn(tmp_path: Path) -> None:
    async def run_story() -> tuple[str, str]:
        async with agent.session() as session:
            await session.run("Go.")
            await session.set_effort("low")
            before = session.view.conversation.system_prompt.effort
            await session.run("And now?")
            return before, session.view.conversation.system_prompt.effort

    agent = Agent(provider=ScriptedProvider("Yes.", "So."), directory=tmp_path)

    assert anyio.run(run_story) == ("", "low")


def test_a_session_switches_through_every_wire_and_a_program_and_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    strict = Strict()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    (tmp_path / "shot.png").write_bytes(PNG)

    async def run_story() -> tuple[str, list[str], dict[str, float | None], float | None]:
        async with serving(strict) as servers:
            settings: dict[str, object] = {"commands.mine.tools": "none"}
            settings["commands.mine.command"] = [sys.executable, str(program)]
            for wire, server in servers.items():
                settings[f"providers.p-{wire}.wire"] = wire
                settings[f"providers.p-{wire}.base_url"] = server.url
                settings[f'prices."p-{wire}/m".input'] = 10_000.0
                settings[f'prices."p-{wire}/m".output'] = 0.0
            agent = Agent(
                tools=[look], builtin=False, directory=tmp_path, settings=settings
            )
            async with agent.session() as session:
                answers: list[str] = []
                names = [f"p-{wire}/m" for wire in WIRES]
                for n, name in enumerate([*names, "command/mine", *names]):
                    await session.set_model(name)
                    paths = [tmp_path / "shot.png"] if n == 0 else []
                    result = await session.run(f"Say {n}.", paths)
                    answers.append(result.text or result.reason)
                view = session.view
                costs = {name: spent.cost for name, spent in view.account.by_model}
                return session.id, answers, costs, view.account.spent.dollars

    id_, texts, costs, dollars = anyio.run(run_story)

    words = [f"I am {wire}." for wire in WIRES]
    assert texts == [*words, "I am a program.", *words]
    assert strict.complaints == []
    assert costs == {f"p-{wire}/m": 4.0 for wire in WIRES} | {"command/mine": None}
    assert dollars == 20.0
    assert main(["sessions", "check", id_]) == 0
    assert "whole" in capfd.readouterr().out
    # Data that only one provider understands went back to that provider only.
    last = {wire: sent[-1] for wire, sent in strict.bodies.items()}
    assert '"signature"' in last["anthropic"]
    assert "encrypted_content" in last["openai-responses"].partition('"input"')[2]
    for wire in ("openai-chat", "ollama"):
        assert '"signature"' not in last[wire]
        assert "encrypted_content" not in last[wire]
