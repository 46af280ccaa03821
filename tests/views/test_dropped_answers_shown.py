"""An answer that was dropped is marked wherever a session is shown."""

import msgspec
from msgspec import UNSET

from refold.acp.call_display import CallDisplay
from refold.acp.session_updates import SessionUpdates
from refold.client.types import Frame
from refold.journal.events.kinds import Entry, ModelAsked, ModelFailed
from refold.journal.state.fold import fold
from refold.journal.state.session_tree import Node
from refold.tui.transcript import item_text
from refold.views.export.html import page
from refold.views.export.text import markdown, plain_document
from refold.views.screen.blocks import DroppedBlock
from refold.views.screen.screen import screen_of
from refold.views.screen.transcript import transcript
from refold.views.stream_json import documents
from refold.views.stream_json.encode import documents_of
from tests.views.hostile_story import export_options
from tests.views.planted import answer, start_events

DROPPED = ModelFailed("busy (529)", "Overloaded", "I look", dropped=True)
MARK = "dropped, the model is asked again: busy (529)"
ENTRIES = [
    Entry(seq, event, 100.0 + seq)
    for seq, event in enumerate(
        [*start_events("do it"), ModelAsked(), DROPPED, ModelAsked(), answer("Yes.")],
        start=1,
    )
]


def node() -> Node:
    return Node("root", "s", ENTRIES, fold(ENTRIES))


def test_dropped_answer_is_marked_in_text_and_exports() -> None:
    texts = [
        transcript(screen_of(ENTRIES)),
        "".join(markdown(node(), export_options())).replace("\\", ""),
        "".join(plain_document(node(), export_options())),
        "".join(page(node(), export_options())),
    ]

    for text in texts:
        words, mark, yes = (text.rindex(item) for item in ("I look", MARK, "Yes."))
        assert words < mark < yes


def test_dropped_answer_is_marked_in_the_full_screen() -> None:
    (block,) = [b for b in screen_of(ENTRIES).blocks if isinstance(b, DroppedBlock)]

    assert item_text(block) == f"I look\n{MARK}"


def test_dropped_answer_is_marked_in_documents() -> None:
    entry = next(item for item in ENTRIES if item.event is DROPPED)

    (document,) = documents_of(Frame(entry.seq, 0, entry), live=True)

    assert isinstance(document, documents.Error)
    assert (document.dropped, document.partial) == (True, "I look")
    assert msgspec.json.decode(msgspec.json.encode(document))["dropped"] is True
    plainly = documents.Error(kind="x", reason="y", seq=1)
    assert plainly.dropped is UNSET


def test_dropped_answer_is_marked_for_an_editor() -> None:
    updates = SessionUpdates(lambda *_: CallDisplay("", "other", ()), "/w")
    dropped = documents.Error(kind="Overloaded", reason="busy", seq=3, dropped=True)

    (chunk,) = updates.updates_of(dropped)

    assert "dropped, the model is asked again: busy" in chunk.content.text  # type: ignore[union-attr]
    assert [
        *updates.updates_of(documents.Error(kind="Overloaded", reason="busy", seq=3))
    ] == []
