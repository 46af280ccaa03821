"""Profiles, the list of sessions, status and snapshot, as programs get them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import get_args

import anyio
import msgspec
import pytest

from refold import Agent, BadInput, Profile, Session
from refold.client.protocol import Order, SetAgent
from refold.testing.providers import ScriptedProvider
from refold.values.usage import Usage
from refold.views.stream_json.snapshot import SnapshotCall, SnapshotMessage

READ = ("read_file", '{"path": "a.txt"}')
# A value for each field that an order must have.
FIELDS: Mapping[str, object] = MappingProxyType({
    "text": "x", "call_id": "x", "allowed": True, "answers": [], "plan": 1, "approved": True,
    "hash": "x", "use": True, "to": 1, "message": 1, "mode": "plan", "model": "a/b",
    "effort": "low", "agent": "plan", "on": True, "steps": 9, "teammate": "x", "name": "x",
    "changes": ["+x"], "command": "x", "output": "x",
    "path": "x", "content": "eA==",
})  # fmt: skip
POET = Profile(
    name="poet",
    description="Writes verse.",
    prompt="You are a poet.",
    tools=("read_file",),
)


def test_a_custom_agent_profile_sets_prompt_and_tools(tmp_path: Path) -> None:
    provider = ScriptedProvider("Rain, rain.")
    agent = Agent(provider=provider, agents=[POET], agent="poet", directory=tmp_path)

    result = agent.run("Write.")

    assert result.text == "Rain, rain."
    assert "You are a poet." in provider.heard[0].system
    assert [spec.name for spec in provider.heard[0].tools] == ["read_file"]


@pytest.mark.parametrize("agents", [[POET, POET], [Profile(name="plan", description="")]])
def test_two_agent_profiles_with_the_same_name_are_refused(
    tmp_path: Path, agents: Sequence[Profile]
) -> None:
    agent = Agent(provider=ScriptedProvider("So."), agents=agents, directory=tmp_path)

    with pytest.raises(BadInput, match="give yours another name"):
        agent.run("Go.")


def test_the_sessions_of_a_directory_are_listed(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    here = Agent(provider=ScriptedProvider("So.", "So."), directory=one)
    first, second = here.run("First.").session_id, here.run("Second.").session_id
    elsewhere = Agent(provider=ScriptedProvider("So."), directory=two)

    sessions = anyio.run(here.sessions)

    assert {card.id for card in sessions} == {first, second}
    assert anyio.run(elsewhere.sessions) == []


def test_status_and_snapshot_return_the_state_and_messages_of_a_session(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    provider = ScriptedProvider([READ], "It says hello.")
    agent = Agent(provider=provider, directory=tmp_path, settings={"limits.steps": 7})

    async def main() -> tuple[Session, bool]:
        async with agent.session() as session:
            before = session.status.running
            await session.run("Read it.")
            return session, before

    session, before = anyio.run(main)
    status, snapshot = session.status, session.snapshot

    assert (before, status.running, status.outcome) == (False, False, "answered")
    assert (status.choices.steps, status.choices.agent) == (7, "main")
    assert (status.turn_steps, status.cost, status.waiting) == (2, None, [])
    assert status.usage == session.view.account.spent.usage != Usage()
    assert status.seq == session.view.seq
    result = snapshot.messages[1].calls[0].result or ""
    assert snapshot.status == status
    assert "hello" in result
    assert snapshot.messages == [
        SnapshotMessage("user", "Read it."),
        SnapshotMessage("assistant", "", (SnapshotCall("call-0", "read_file", result),)),
        SnapshotMessage("assistant", "It says hello."),
    ]


def test_calls_of_team_tools_have_a_label_without_a_team(tmp_path: Path) -> None:
    agent = Agent(provider=ScriptedProvider("So."), directory=tmp_path)

    async def look() -> str:
        async with agent.session() as session:
            tool = session.tool("spawn_teammate")
            assert tool is not None
            return tool.label({"name": "ann", "role": "tests", "prompt": "Go."})

    assert anyio.run(look) == "spawn_teammate ann"


def test_an_order_that_was_refused_is_refused_again_when_it_is_sent_again(
    tmp_path: Path,
) -> None:
    order = SetAgent("nobody", client_key="again")

    async def send_twice() -> list[str]:
        reasons = list[str]()
        agent = Agent(provider=ScriptedProvider("So."), directory=tmp_path)
        async with agent.session() as session:
            for _ in range(2):
                with pytest.raises(BadInput) as error:
                    await session.send(order)
                reasons.append(str(error.value))
        return reasons

    first, second = anyio.run(send_twice)

    assert first == second
    assert "nobody" in first


@pytest.mark.parametrize("kind", get_args(Order))
def test_every_order_is_executed_or_raises_bad_input(
    kind: type[Order], tmp_path: Path
) -> None:
    agent = Agent(provider=ScriptedProvider("So."), directory=tmp_path)
    required = [field.name for field in msgspec.structs.fields(kind) if field.required]
    order = msgspec.convert({name: FIELDS[name] for name in required} | {
        "type": kind.__struct_config__.tag}, kind)  # fmt: skip

    async def send() -> object:
        async with agent.session() as session:
            try:
                return await session.send(order)
            except BadInput as refused:
                return refused

    assert isinstance(anyio.run(send), bool | BadInput)
