"""Converts stored events to documents, each with its position. Pure.

A document is a JSON object that a client gets; a frame is an encoded document.

A client that opens a long session gets a *window*: the newest events. In front of them are
those older events that still have an effect, such as the start of a subagent that runs, and
one `history` document for all other older events. The client requests older windows when it
needs them. `feed` sends the documents of new events.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.errors import BadInput
from refold.journal.events.kinds import (
    BackgroundEnded,
    BackgroundStarted,
    ChildAsked,
    ChildBorn,
    ChildEnded,
    ChildStopped,
    Ended,
    Entry,
    Forked,
    Frame,
    Imported,
    MailSent,
    ModelAsked,
    Reserved,
    Settled,
    Stopped,
    TeammateIdled,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state.event_history import EventHistory, entries_of_kinds
from refold.journal.state.fold import Mark, View, apply
from refold.values.control import TasksChanged
from refold.views.screen.status import EVENT_KINDS as STATUS_KINDS
from refold.views.stream_json.documents import Placed, ToolResult
from refold.views.stream_json.encode import (
    Document,
    MakeRequest,
    approval_request,
    documents_of,
)
from refold.views.stream_json.snapshot import history
from refold.views.stream_json.turn_result import result

ALL_DOCUMENTS = 1_000_000  # as `Cursor.n`: after all documents of the event
_ROOT_NAME = "root"
_MAX_DIGITS = 15  # of a number in a cursor
# Events whose effect lasts while the session is open, such as the start of a subagent.
_LASTING_KINDS = frozenset((
    ChildBorn, ChildEnded, ChildStopped, TeammateIdled, MailSent, BackgroundStarted,
    BackgroundEnded, Forked, Imported,
))  # fmt: skip
_MAY_LAST_KINDS = _LASTING_KINDS | {TurnStarted, Stopped, ChildAsked, Ended}


class Cursor(Struct, frozen=True, order=True):
    """The position after document number `n` of the event with the number `seq`.

    `epoch` is that of the writer who recorded the event.
    """

    seq: int
    n: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.seq}-{self.n}"


FEED_START = Cursor(0, ALL_DOCUMENTS, 0)


class Newest(Struct, frozen=True):
    """Used in place of a `Cursor` by a client that wants this number of the newest events."""

    events: int


def parse_cursor(text: str) -> Cursor:
    """Parse a cursor that was sent as text; "0" is the beginning.

    Raises `BadInput` for any other text.
    """
    if text == "0":
        return FEED_START
    parts = text.split("-")
    are_numbers = all(part.isascii() and part.isdecimal() for part in parts)
    if len(parts) != 3 or not are_numbers:
        raise BadInput(f"{text!r} is not the id of a document: give the last one, or 0")
    # `int` rejects very long texts; a real number has fewer digits.
    epoch, seq, n = (int(part[:_MAX_DIGITS]) for part in parts)
    return Cursor(seq, n, epoch)


def end_cursor(entry: Entry) -> Cursor:
    """Return the position after all documents of an event."""
    return Cursor(entry.seq, ALL_DOCUMENTS, entry.epoch)


def has_event(entries: Sequence[Entry], position: Cursor) -> bool:
    """Whether the journal has the event of this position, recorded by the writer of that
    epoch.
    """
    seq = position.seq
    return 0 < seq <= len(entries) and entries[seq - 1].epoch == position.epoch


def event_documents(
    entry: Entry, view: View, conversation: str, began: float, make_request: MakeRequest
) -> Iterator[tuple[Cursor, bytes]]:
    """Yield the frames (encoded documents) of one event, each with its position.

    `view` is the state after the event; `began` is the time at which its turn began, or 0.
    """
    documents: list[Document] = list(
        documents_of(Frame(entry.seq, 0, entry), live=False, make_request=make_request)
    )
    if isinstance(entry.event, TurnEnded):
        seconds = entry.at - began if began else 0.0
        documents.append(result(view, conversation, seconds))
    for n, document in enumerate(documents):
        position = Cursor(entry.seq, n, entry.epoch)
        if isinstance(document, Placed):
            placed = _with_position(document, entry, conversation)
            document = replace(placed, id=str(position))
        yield position, msgspec.json.encode(document)


def documents_after(
    after: Cursor,
    journal: EventHistory,
    conversation: str,
    make_request: MakeRequest = approval_request,
) -> Iterator[bytes]:
    """Return the frames (encoded documents) that follow the position `after`.

    Call it in a thread: it first folds all events before that position.
    """
    entries = journal.entries
    # The event of the position itself is included: some of its documents may follow.
    last_seq = min(after.seq, len(entries))
    start = max(last_seq - 1, 0)
    view = journal.view_at(start)
    pairs = _documents(entries[start:], view, conversation, make_request)
    return (data for position, data in pairs if position > after)


def window(
    journal: EventHistory,
    marks: Sequence[Mark],
    size: int,
    conversation: str,
    make_request: MakeRequest = approval_request,
) -> Iterator[bytes]:
    """Return frames of older events that still have an effect, then of the newest events.

    The newest events are at least `size`. `marks` are places in the journal, each with the
    conversation before it. The newest events begin at one of these places. Call it in a
    thread: it first folds all events before the window.
    """
    entries = journal.entries
    start = _find_start(entries, marks, size)
    view = journal.view_at(start)
    earlier_frames = list[bytes]()
    if start:
        earlier_frames = _earlier_frames(entries[:start], view, conversation, make_request)
    pairs = _documents(entries[start:], view, conversation, make_request)
    return chain(earlier_frames, (data for _, data in pairs))


def _earlier_frames(
    earlier: Sequence[Entry], view: View, conversation: str, make_request: MakeRequest
) -> list[bytes]:
    """Return the frames of events before a window that still have an effect, and a summary.

    `view` is the state after the events before the window. The summary has the position of
    the last of these events.
    """
    frames = list[bytes]()
    for entry in _lasting_entries(earlier, view):
        frame = Frame(entry.seq, 0, entry)
        for document in documents_of(frame, live=False, make_request=make_request):
            # The results of tools are in the conversation that the summary has.
            if isinstance(document, Placed) and not isinstance(document, ToolResult):
                placed = _with_position(document, entry, conversation)
                frames.append(msgspec.json.encode(placed))
    last = earlier[-1]
    summary = _with_position(history(view), last, conversation)
    summary = replace(summary, id=str(end_cursor(last)))
    frames.append(msgspec.json.encode(summary))
    return frames


def older_documents(
    journal: EventHistory, before: Cursor | None, size: int, conversation: str
) -> Iterator[bytes]:
    """Return the frames of the window (see `window`) that ends before the event `before`.

    If `before` is None, return the frames of the newest window. Raises `BadInput` if the
    journal does not have that event.
    """
    if before is not None:
        if not has_event(journal.entries, before):
            raise BadInput(f"there is no document {str(before)!r}: open the session again")
        journal = journal.until(before.seq)
    marks = journal.view_at(len(journal.entries)).marks
    return window(journal, marks, size, conversation)


def _documents(
    entries: Iterable[Entry], view: View, conversation: str, make_request: MakeRequest
) -> Iterator[tuple[Cursor, bytes]]:
    """Yield the frames of all documents of `entries`, each with its position.

    `view` is the state before the first entry.
    """
    for entry in entries:
        # Read before the event is applied: the end of a turn resets it.
        turn_began = view.turn.started_at
        view = apply(view, entry)
        yield from event_documents(entry, view, conversation, turn_began, make_request)


def _find_start(entries: Sequence[Entry], marks: Sequence[Mark], size: int) -> int:
    """Return the number of events before the window, which has at least `size` events.

    The window begins as late as possible, but only where no message waits and no model is
    called, so that its documents do not depend on earlier ones. Return 0 if no mark is such
    a place.
    """
    latest_start = len(entries) - size
    for mark in reversed(marks):
        start = mark.seq - 1
        if start > latest_start or mark.conversation.undelivered:
            continue
        if not _is_requesting(entries, start):
            return max(start, 0)
    return 0


def _is_requesting(entries: Sequence[Entry], seq: int) -> bool:
    """Whether a call of the model is under way after the event `seq`.

    The newest event that changes the status line of a screen decides. `Reserved` comes
    before a call of the model, and `Settled` after it.
    """
    settled = False  # whether a call ended after the event that is looked at
    for index in reversed(range(seq)):
        match entries[index].event:
            case ModelAsked():
                return True
            case Reserved():
                return not settled
            case Settled():
                settled = True
            case event if type(event) in STATUS_KINDS:
                return False
            case _:
                pass
    return False


def _lasting_entries(entries: Sequence[Entry], view: View) -> Iterator[Entry]:
    """Yield the events that still have an effect in the state `view`.

    Examples are the start of an open turn, and an open question of a subagent.
    """
    open_questions = {ask.id for ask in view.children.asks}
    open_turn = view.turn.seq  # 0 if none is open
    for entry in entries_of_kinds(entries, _MAY_LAST_KINDS):
        match entry.event:
            case TurnStarted() | Stopped():
                lasts = bool(open_turn) and entry.seq >= open_turn
            case ChildAsked(id=id_):
                lasts = id_ in open_questions
            case Ended(control=control):
                lasts = isinstance(control, TasksChanged)
            case _:
                lasts = True
        if lasts:
            yield entry


def _with_position(document: Placed, entry: Entry, conversation: str) -> Placed:
    """Return the document with the conversation, the turn and the time of its event.

    The number of a turn is that of its `TurnStarted`.
    """
    turn = entry.seq if isinstance(entry.event, TurnStarted) else entry.turn
    return replace(
        document, conversation=conversation, node=_ROOT_NAME, turn=turn, at=entry.at
    )
