"""A user changes or deletes messages of the conversation."""

from collections.abc import Sequence

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.engine.world import World
from refold.errors import BadInput
from refold.journal.events.kinds import (
    Delivered,
    Entry,
    MessageEdited,
    ModelAnswered,
    Said,
    TurnStarted,
)
from refold.journal.state.fold import View, fold
from refold.journal.state.message_edits import DELETED_NOTE
from refold.journal.store.port import MemoryStore
from refold.provider.port import Request
from refold.session.session import Session
from refold.testing.providers import (
    Reply,
    ScriptedProvider,
    StrictProvider,
    check_history,
)
from tests.engine.house import WEATHER, entries, open_session, world
from tests.engine.worlds import render_conversation

WEATHER_ROW = '‹ weather {"city":"Oslo"}'
LINES = (
    Reply("I look.", (WEATHER,)), "Rain.", Reply("Once more.", (WEATHER, WEATHER)), "Still rain.",
)  # fmt: skip


def two_turn_session(*responses: str) -> tuple[MemoryStore, World, ScriptedProvider]:
    """Create a session of two messages, each answered after calls, with `responses` further
    responses.
    """
    model = ScriptedProvider(*LINES, *responses)
    return MemoryStore(), world(StrictProvider(model)), model


async def run_two_turns(store: MemoryStore, world: World) -> Session:
    session = await open_session(store, world)
    for words in ("Umbrella?", "And now?"):
        await session.inbox.say(words)
        await session.run_turns()
    return session


def numbers(store: MemoryStore) -> list[int]:
    """Return the numbers of the two messages and the four responses, in their order."""
    return [e.seq for e in entries(store) if isinstance(e.event, Said | ModelAnswered)]


def run_with_edits(
    *edits: tuple[int, str | None],
) -> tuple[View, MemoryStore, list[Request]]:
    """`edits` name messages by their place; then a third message is sent."""
    store, result, model = two_turn_session("Fine.")

    async def main() -> View:
        session = await run_two_turns(store, result)
        for place, text in edits:
            await session.inbox.edit_message(numbers(store)[place], text)
        await session.inbox.say("Thanks.")
        return await session.run_turns()

    return anyio.run(main), store, model.heard


def test_an_edited_message_is_new_in_the_next_request_and_old_in_the_journal() -> None:
    view, store, requests = run_with_edits((0, "Coat?"), (5, "No rain."))

    texts = [spoken.message.text for spoken in requests[-1].messages]
    assert (texts[0], texts[-2], texts[-1]) == ("Coat?", "No rain.", "Thanks.")
    assert [u.text for u in view.conversation.user_messages] == [
        "Coat?",
        "And now?",
        "Thanks.",
    ]
    originals = [e.event.text for e in entries(store) if isinstance(e.event, Said)]
    assert originals[0] == "Umbrella?"


def test_deleting_an_answer_also_deletes_the_results_of_its_calls() -> None:
    view, _, requests = run_with_edits((1, None))

    assert render_conversation(view).splitlines()[:3] == [
        "› Umbrella?",
        "‹ Rain.",
        "› And now?",
    ]
    assert requests[-1].messages[1].message.text == "Rain."


def test_a_deleted_user_message_is_replaced_by_a_note_of_the_deletion() -> None:
    view, _, requests = run_with_edits((3, None))

    assert requests[-1].messages[4].message.text == DELETED_NOTE
    assert [u.text for u in view.conversation.user_messages] == ["Umbrella?", "Thanks."]


def test_editing_the_text_of_an_answer_keeps_its_calls() -> None:
    view, _, _ = run_with_edits((4, "Twice more."))

    rows = render_conversation(view).splitlines()
    assert rows[6:9] == ["‹ Twice more.", *[WEATHER_ROW] * 2]


EDITS = st.lists(
    st.tuples(st.integers(0, 5), st.none() | st.text("ab", min_size=1)), max_size=6
)


@given(edits=EDITS)
def test_any_edits_give_a_valid_request_and_the_same_fold_on_resume(
    edits: Sequence[tuple[int, str | None]],
) -> None:
    store, scripted_world, _ = two_turn_session("Fine.")

    async def main() -> View:
        session = await run_two_turns(store, scripted_world)
        for place, text in edits:
            number = numbers(store)[place]
            is_deleted = dict(session.view.conversation.edits).get(number, "") is None
            if is_deleted:
                with pytest.raises(BadInput, match=f"no message {number}"):
                    await session.inbox.edit_message(number, text)
            else:
                await session.inbox.edit_message(number, text)
        await session.inbox.say("Thanks.")
        return await session.run_turns()

    view = anyio.run(main)

    assert view.turn.outcome == "answered"  # the provider is strict
    check_history(spoken.message for spoken in view.conversation.messages)
    assert fold(entries(store)).conversation == view.conversation


def test_a_message_edit_is_undone_by_a_rewind() -> None:
    store, scripted_world, _ = two_turn_session()

    async def main() -> tuple[View, View]:
        session = await run_two_turns(store, scripted_world)
        before = session.view
        await session.inbox.edit_message(numbers(store)[1], None)
        assert await session.rewind(session.view.seq)
        return before, session.view

    before, after = anyio.run(main)

    assert after.conversation == before.conversation


def test_messages_cannot_be_edited_while_a_turn_runs() -> None:
    store, scripted_world, _ = two_turn_session()

    async def main() -> None:
        session = await run_two_turns(store, scripted_world)
        await session.inbox.say("More.")
        await session.record(TurnStarted(session.view.seq))
        with pytest.raises(BadInput, match="while a turn runs"):
            await session.inbox.edit_message(numbers(store)[0], "x")

    anyio.run(main)


def test_an_empty_or_unchanged_message_edit_is_not_recorded() -> None:
    store, scripted_world, _ = two_turn_session()

    async def main() -> bool:
        session = await run_two_turns(store, scripted_world)
        with pytest.raises(BadInput, match="cannot be empty"):
            await session.inbox.edit_message(numbers(store)[0], " ")
        return await session.inbox.edit_message(numbers(store)[0], "Umbrella?")

    assert not anyio.run(main)
    assert not [e for e in entries(store) if isinstance(e.event, MessageEdited)]


def test_one_of_two_messages_delivered_together_can_be_deleted() -> None:
    events = (Said("One."), Said("Two."), Delivered((1, 2)), MessageEdited(2, None))

    view = fold(Entry(n, event) for n, event in enumerate(events, start=1))

    assert render_conversation(view) == f"› One.\n› {DELETED_NOTE}"
