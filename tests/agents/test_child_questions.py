"""A subagent's question reaches the user of its root, and the answer the subagent."""

from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from refold.journal.events.kinds import Answered, ChildAnswered, ChildAsked, Ended, Granted
from refold.permissions.facts import Facts
from refold.permissions.rules import parse
from refold.session.pending_requests import Permission, requests
from refold.session.session import Session
from refold.testing.providers import ScriptedConversations
from refold.tools.contract import Reply, tool
from refold.values.tools import Effect
from tests.agents.families import TOOLS, WORKER, Tree, run_turn, task_call, tool_call

BOOK = tool_call("book", what="taxi")
ONE = {"Go": [[task_call("Work", "worker")], "Done."], "Work": [[BOOK], "Booked."]}
TWO = {
    "Go": [[task_call("Middle", "worker")], "Done."],
    "Middle": [[task_call("Work", "worker")], "Passed on."],
    "Work": [[BOOK], "Booked."],
}
ASKS: dict[str, Any] = {"rules": (parse("book", "ask"),)}


async def run_to_question(tree: Tree) -> Session:
    """Return a turn that has come to a question of a child."""
    session = await tree.open_session()
    await session.inbox.say("Go.")
    return session


async def wait_for_question(session: Session) -> str:
    with anyio.fail_after(60):
        while not session.view.children.asks:
            await session.record.wait_for_event(after=session.view.seq)
    (request,) = requests(session.view)
    return request.id


@pytest.mark.parametrize(
    ("scripts", "who", "child"),
    [
        (ONE, "child-1 (worker)", "child-1"),
        (TWO, "child-1/child-1 (worker)", "child-1/child-1"),
    ],
)
def test_a_question_names_its_subagent_and_the_answer_is_applied(
    scripts: Any, who: str, child: str
) -> None:
    tree = Tree(ScriptedConversations(scripts), **ASKS)

    async def main() -> Session:
        session = await run_to_question(tree)
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            id_ = await wait_for_question(session)
            (request,) = requests(session.view)
            assert isinstance(request, Permission)
            assert (request.who, id_) == (who, f"{child}/call-0")
            assert not await session.inbox.answer(id_, allowed=True, hash_="another")
            assert await session.inbox.answer(id_, allowed=True, hash_=request.call.hash)
        return session

    session = anyio.run(main)

    assert tree.orders == ["taxi"]
    assert session.view.turn.answer == "Done."
    assert session.view.children.asks == ()
    below = f"root/{child}"
    assert [a.allowed for a in tree.events(below, Answered)] == [True]


def test_a_denied_call_of_a_subagent_is_refused_and_its_parent_continues() -> None:
    tree = Tree(ScriptedConversations(ONE), **ASKS)

    async def main() -> None:
        session = await run_to_question(tree)
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            id_ = await wait_for_question(session)
            await session.inbox.answer(id_, allowed=False, reason="too dear")

    anyio.run(main)

    (end,) = tree.events("root/child-1", Ended)
    assert (end.outcome, tree.orders) == ("refused", [])
    assert "too dear" in end.text


def test_a_grant_applies_to_the_whole_tree_at_once() -> None:
    scripts = {
        "Go": [[task_call("Work", "worker")], [BOOK], "Done."],
        "Work": [[BOOK], [tool_call("book", what="bus")], "Booked."],
    }
    tree = Tree(ScriptedConversations(scripts), **ASKS | {"rules": ()})

    async def main() -> Session:
        session = await run_to_question(tree)
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            id_ = await wait_for_question(session)
            await session.inbox.answer(id_, allowed=True, grants=("book",))
        return session

    session = anyio.run(main)

    assert tree.orders == ["taxi", "bus", "taxi"]
    assert tree.events("root", Granted) == [Granted("book")]
    assert tree.events("root/child-1", Granted) == []
    assert len(tree.events("root", ChildAsked)) == 1
    assert session.view.turn.answer == "Done."


def test_stopping_a_subagent_withdraws_its_question() -> None:
    tree = Tree(ScriptedConversations(ONE), **ASKS)

    async def main() -> None:
        session = await run_to_question(tree)
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            id_ = await wait_for_question(session)
            await session.inbox.stop_child("child-1", "not that one")
            with anyio.fail_after(60):
                while session.view.children.asks:
                    await session.record.wait_for_event(after=session.view.seq)
            assert not await session.inbox.answer(id_, allowed=True)
        assert session.view.turn.answer == "Done."

    anyio.run(main)

    assert tree.orders == []


@pytest.mark.parametrize("scripts", [ONE, TWO])
def test_a_question_is_still_open_after_a_restart_and_can_be_answered(scripts: Any) -> None:
    before = Tree(ScriptedConversations(scripts), **ASKS)

    async def ask() -> None:
        session = await run_to_question(before)
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            await wait_for_question(session)
            group.cancel_scope.cancel()

    async def answer(tree: Tree) -> Session:
        session = await tree.open_session()
        assert len(requests(session.view)) == 1
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            id_ = await wait_for_question(session)
            await session.inbox.answer(id_, allowed=True)
        return session

    anyio.run(ask)
    last = max(n for n, (_, kind) in enumerate(before.log) if kind == "ChildAsked")
    cast = ScriptedConversations(scripts)
    tree = before.after(last + 1, cast)
    session = anyio.run(answer, tree)

    assert tree.orders == ["taxi"]
    assert session.view.turn.answer == "Done."
    assert len(session.view.children.children) == 1
    assert cast.asked == dict.fromkeys(scripts, 1)


@pytest.mark.parametrize("scripts", [ONE, TWO])
def test_an_answer_given_just_before_a_crash_is_not_requested_again(scripts: Any) -> None:
    before = Tree(ScriptedConversations(scripts), **ASKS)

    async def main(tree: Tree, allowed: bool | None) -> Session:
        session = await tree.open_session()
        if allowed is not None:
            await session.inbox.say("Go.")
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            if allowed is not None:
                id_ = await wait_for_question(session)
                await session.inbox.answer(id_, allowed=allowed)
        return session

    anyio.run(main, before, True)
    number = next(
        n for n, (who, kind) in enumerate(before.log)
        if (who, kind) == ("root", "ChildAnswered")
    )  # fmt: skip
    tree = before.after(number + 1, ScriptedConversations(scripts))
    session = anyio.run(main, tree, None)

    assert tree.orders == ["taxi"]
    assert session.view.turn.answer == "Done."
    assert len(tree.events("root", ChildAsked)) == 1
    assert [a.withdrawn for a in tree.events("root", ChildAnswered)] == [False]


def test_a_session_without_a_user_asks_no_question_of_a_subagent() -> None:
    tree = Tree(ScriptedConversations(ONE), **ASKS, attended=False)

    session = anyio.run(run_turn, tree, "Go.")

    assert tree.orders == []
    assert session.view.children.asks == ()
    assert tree.events("root", ChildAsked) == []


def test_an_ask_rule_of_a_subagent_asks_even_if_its_parent_is_allowed() -> None:
    tree = Tree(ScriptedConversations(ONE))
    careful = replace(WORKER, ask=("book",))
    tree.profiles = {"worker": careful}

    async def main() -> Session:
        session = await run_to_question(tree)
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            id_ = await wait_for_question(session)
            await session.inbox.answer(id_, allowed=True)
        return session

    session = anyio.run(main)

    assert session.view.turn.answer == "Done."
    assert tree.orders == ["taxi"]


def test_call_denied_to_a_parent_is_denied_to_its_child() -> None:
    tree = Tree(ScriptedConversations(ONE), rules=(parse("book", "deny"),))
    tree.profiles = {"worker": WORKER}

    session = anyio.run(run_turn, tree, "Go.")

    assert tree.orders == []
    assert session.view.turn.answer == "Done."


def test_the_question_shows_the_original_call_and_the_journal_masks_secrets() -> None:
    secret = "sk-" + "a" * 40
    call = tool_call("book", what=secret)
    scripts = {
        "Go": [[task_call("Middle", "worker")], "Done."],
        "Middle": [[task_call("Work", "worker")], "Passed on."],
        "Work": [[call], "Booked."],
    }
    tree = Tree(ScriptedConversations(scripts), **ASKS)

    async def main() -> None:
        session = await run_to_question(tree)
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            id_ = await wait_for_question(session)
            (request,) = requests(session.view)
            assert isinstance(request, Permission)
            assert secret.encode() in bytes(
                session.unmasked_call(request.call.call).arguments
            )
            await session.inbox.answer(id_, allowed=True)

    anyio.run(main)

    assert tree.orders == [secret]
    assert not any(
        secret.encode() in line for s in tree.stores.values() for line in s.lines
    )


def test_an_unanswered_question_of_a_subagent_is_denied_at_the_time_limit() -> None:
    tree = Tree(ScriptedConversations(ONE), **ASKS)

    async def main() -> Session:
        session = await run_to_question(tree)
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            id_ = await wait_for_question(session)
            session.question_timeout.seconds = 0.01
            async with session.question_timeout.show_question(id_):
                while session.view.children.asks:
                    await session.record.wait_for_event(after=session.view.seq)
        return session

    session = anyio.run(main)

    assert tree.orders == []
    assert session.view.turn.answer == "Done."


@tool(Effect.NET)
async def fetch() -> Reply:
    """Read a page."""
    return Reply("Order a taxi.")


FETCH = tool_call("fetch")
CAUTIOUS: dict[str, Any] = {
    "tools": (*TOOLS, fetch),
    "rules": (parse("*", "allow"),),
    "facts": lambda: Facts(asks_after_outside_text=True),
}


def test_a_subagent_report_with_outside_text_makes_the_next_call_ask() -> None:
    scripts = {
        "Go": [[task_call("Work", "worker")], [BOOK], [BOOK], "Done."],
        "Work": [[FETCH], "It says: order a taxi."],
    }
    tree = Tree(ScriptedConversations(scripts), **CAUTIOUS)

    async def main() -> Session:
        session = await run_to_question(tree)
        (request,) = requests(await session.run_turns())
        assert tree.orders == []
        await session.inbox.answer(request.id, allowed=True)
        await session.run_turns()
        return session

    session = anyio.run(main)

    assert tree.orders == ["taxi", "taxi"]
    assert session.view.outside_text.since == 0


def test_approving_a_call_of_a_subagent_also_allows_later_calls_of_its_parent() -> None:
    scripts = {
        "Go": [[FETCH], [task_call("Work", "worker")], [BOOK], "Done."],
        "Work": [[BOOK], [BOOK], "Booked."],
    }
    tree = Tree(ScriptedConversations(scripts), **CAUTIOUS)

    async def main() -> Session:
        session = await run_to_question(tree)
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            id_ = await wait_for_question(session)
            assert tree.orders == []
            await session.inbox.answer(id_, allowed=True)
        return session

    session = anyio.run(main)

    assert session.view.turn.outcome == "answered"
    assert tree.orders == ["taxi"] * 3
