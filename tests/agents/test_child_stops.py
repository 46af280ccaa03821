"""A stop reaches all subagents: nothing keeps running, and every journal records it."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from refold.errors import ProviderError
from refold.journal.events.kinds import ChildEnded, ChildStopped, Ended, TurnEnded
from refold.session.session import Session
from refold.testing.providers import ScriptedConversations
from tests.agents.families import Tree, run_turn, task_call, tool_call

WAIT = tool_call("wait")
DEEP = {
    "Go": [[task_call("Middle", "worker")], "Done."],
    "Middle": [[task_call("Bottom", "worker")], "Passed on."],
    "Bottom": [[WAIT], "Never."],
}
BESIDE = {
    "Go": [[task_call("Slow", "worker", background=True)], "I wait.", "Heard."],
    "Slow": [[WAIT], "Never."],
}


def run(tree: Tree, do: Callable[[Session], Awaitable[object]]) -> Session:
    async def main() -> Session:
        session = await tree.open_session()
        await session.inbox.say("Go.")
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            with anyio.fail_after(60):
                while not tree.at_work:
                    await anyio.sleep(0.002)
            await anyio.wait_all_tasks_blocked()
            await do(session)
        return session

    return anyio.run(main)


@pytest.mark.parametrize("scripts", [DEEP, BESIDE])
def test_stopping_a_session_ends_all_its_subagents(scripts: Any) -> None:
    tree = Tree(ScriptedConversations(scripts))

    session = run(tree, lambda s: s.inbox.interrupt("enough"))

    assert session.view.turn.outcome == "interrupted"
    assert tree.at_work == []
    for id_ in tree.stores:
        ends = tree.events(id_, TurnEnded)
        assert [e.outcome for e in ends] == [
            "interrupted" if id_ == "root" else "cancelled"
        ]
    (end,) = tree.events("root", ChildEnded)
    assert (end.outcome, end.reason) == ("cancelled", "enough")
    assert session.view.children.running == ()
    assert session.idle


def test_a_stopped_turn_ends_after_its_children() -> None:
    tree = Tree(ScriptedConversations(BESIDE))

    run(tree, lambda s: s.inbox.interrupt("enough"))

    kinds = [kind for who, kind in tree.log if who == "root"]
    assert kinds.index("ChildEnded") < kinds.index("TurnEnded")


def test_one_subagent_is_stopped_and_its_parent_continues() -> None:
    tree = Tree(ScriptedConversations(DEEP))

    session = run(tree, lambda s: s.inbox.stop_child("child-1", "not needed"))

    assert session.view.turn.outcome == "answered"
    assert tree.at_work == []
    assert tree.events("root", ChildStopped) == [ChildStopped("child-1", "not needed")]
    (end,) = tree.events("root", Ended)
    assert end.text == "child-1 is failed: not needed."
    assert [e.outcome for e in tree.events("root/child-1/child-1", TurnEnded)] == [
        "cancelled"
    ]


def test_a_stopped_background_subagent_is_reported_to_its_parent() -> None:
    cast = ScriptedConversations(BESIDE)
    tree = Tree(cast)

    session = run(tree, lambda s: s.inbox.stop_child("", "not needed"))

    assert session.view.turn.answer == "Heard."
    part = session.view.conversation.messages[-2].message.parts[0]
    assert 'status="failed"' in part.text  # pyright: ignore


def test_closing_a_session_ends_its_running_subagents() -> None:
    tree = Tree(ScriptedConversations(DEEP))

    async def main() -> None:
        session = await tree.open_session()
        await session.inbox.say("Go.")
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            with anyio.fail_after(60):
                while not tree.at_work:
                    await anyio.sleep(0.002)
            group.cancel_scope.cancel()

    anyio.run(main)

    assert tree.at_work == []
    assert [e.outcome for e in tree.events("root", ChildEnded)] == ["cancelled"]


def test_a_failed_turn_stops_its_background_subagents() -> None:
    lines = [[task_call("Slow", "worker", background=True)], ProviderError("down")]
    tree = Tree(ScriptedConversations({"Go": lines, "Slow": [[WAIT], "Never."]}))

    session = anyio.run(run_turn, tree, "Go.")

    assert session.view.turn.outcome == "failed"
    assert tree.at_work == []
    (end,) = tree.events("root", ChildEnded)
    assert (end.outcome, end.reason) == (
        "cancelled",
        "the turn that it worked for has ended",
    )
    assert session.idle
