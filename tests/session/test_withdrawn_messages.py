"""A user withdraws a message that waits for the end of the turn."""

import anyio
import pytest

from refold.errors import BadInput
from refold.journal.events.kinds import (
    Delivered,
    Entry,
    MessageWithdrawn,
    Said,
    Stopped,
    TurnStarted,
)
from refold.journal.state.fold import View, fold
from refold.journal.store.port import MemoryStore
from refold.session.session import Session
from refold.testing.providers import ScriptedProvider
from tests.engine.house import entries, open_session, world
from tests.engine.worlds import render_conversation


async def start_turn(store: MemoryStore, model: ScriptedProvider) -> Session:
    """Return a session whose turn runs, with two messages that wait for its end."""
    session = await open_session(store, world(model))
    await session.inbox.say("Begin.")
    await session.record(TurnStarted(session.view.seq), Delivered((session.view.seq,)))
    await session.inbox.say("And paint it.", when="next")
    await session.inbox.say("Then sell it.", when="next")
    return session


def test_a_withdrawn_message_never_reaches_the_model() -> None:
    store, model = MemoryStore(), ScriptedProvider("Done.")

    async def main() -> View:
        session = await start_turn(store, model)
        paint, sell = session.view.message_queue
        assert await session.inbox.withdraw(paint.seq)
        assert session.view.message_queue == [sell]
        return await session.run_turns()

    view = anyio.run(main)

    assert render_conversation(view) == "› Begin.\n› Then sell it.\n‹ Done."
    assert fold(entries(store)).conversation == view.conversation


def test_only_a_message_that_waits_for_the_end_of_the_turn_can_be_withdrawn() -> None:
    store, model = MemoryStore(), ScriptedProvider("Done.", "Sold.")

    async def main() -> None:
        session = await start_turn(store, model)
        delivered, paint = 2, session.view.message_queue[0].seq
        await session.inbox.say("At once.")
        at_once = session.view.seq
        await session.inbox.withdraw(paint)
        for number in (delivered, at_once, paint, 999):
            with pytest.raises(
                BadInput, match=f"message {number} does not wait for the end"
            ):
                await session.inbox.withdraw(number)

    anyio.run(main)

    events = [e.event for e in entries(store) if isinstance(e.event, MessageWithdrawn)]
    assert len(events) == 1


def test_stopping_a_turn_queues_every_undelivered_user_message() -> None:
    events = (
        Said("Go."), TurnStarted(1), Delivered((1,)), Said("Faster.", when="now"),
        Said("", "child-1", "next"), Stopped("enough"),
    )  # fmt: skip

    before, after = (
        fold(Entry(n, event) for n, event in enumerate(events[:end], start=1))
        for end in (5, 6)
    )

    assert before.message_queue == []
    assert [item.said.text for item in after.message_queue] == ["Faster."]


def test_between_turns_the_message_queue_is_empty() -> None:
    assert fold([Entry(1, Said("Go.", when="next"))]).message_queue == ()
