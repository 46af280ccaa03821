"""The documents of stored events, each with its position: all of them, or the newest.

A client that opens a long session gets a `window`: the newest events, and in front of them what
an older event still says, such as a subagent that runs, and a `history` document in place of
the rest. It reads older windows when they are needed. Pure. `feed` has the events that come
later.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
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

ALL_DOCUMENTS = 1_000_000  # as `n`: all documents of the event
_ROOT_NAME = "root"
# Events that say something as long as the session is open, such as what a subagent does.
_LASTING_KINDS = frozenset((
    ChildBorn, ChildEnded, ChildStopped, TeammateIdled, MailSent, BackgroundStarted,
    BackgroundEnded, Forked, Imported,
))  # fmt: skip
_MAY_LAST_KINDS = _LASTING_KINDS | {TurnStarted, Stopped, ChildAsked, Ended}


class Cursor(Struct, frozen=True, order=True):
    """A position: after document `n` of event `seq`, which the writer `epoch` recorded."""

    seq: int
    n: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.seq}-{self.n}"


FEED_START = Cursor(0, ALL_DOCUMENTS, 0)


class Newest(Struct, frozen=True):
    """A client that begins with this number of events, and gets older ones when it asks."""

    events: int


def parse_cursor(text: str) -> Cursor:
    """Parse a cursor; "0" is the beginning. Raises `BadInput`."""
    parts = text.split("-")
    if text == "0":
        return FEED_START
    if len(parts) != 3 or not all(p.isascii() and p.isdecimal() for p in parts):
        raise BadInput(f"{text!r} is not the id of a document: give the last one, or 0")
    epoch, seq, n = (int(part[:15]) for part in parts)
    return Cursor(seq, n, epoch)


def end_cursor(entry: Entry) -> Cursor:
    """The position after all documents of an event."""
    return Cursor(entry.seq, ALL_DOCUMENTS, entry.epoch)


def has_event(entries: Sequence[Entry], position: Cursor) -> bool:
    """Whether the journal has the event at this position, by the same writer."""
    seq = position.seq
    return 0 < seq <= len(entries) and entries[seq - 1].epoch == position.epoch


def event_documents(
    entry: Entry, view: View, conversation: str, began: float, make_request: MakeRequest
) -> Iterator[tuple[Cursor, bytes]]:
    """The frames of one event, each with its position.

    `view` is the one after it, and `began` the time at which its turn began.
    """
    documents: list[Document] = list(
        documents_of(Frame(entry.seq, 0, entry), live=False, make_request=make_request)
    )
    if isinstance(entry.event, TurnEnded):
        documents.append(result(view, conversation, entry.at - began if began else 0.0))
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
    """The frames that follow `after`. What comes before them is folded at once."""
    entries = journal.entries
    start = max(min(after.seq, len(entries)) - 1, 0)
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
    """The frames of at least `size` events at the end, with what comes before.

    `marks` are those of the view that is folded from these or more events. What comes before
    the window is folded at once.
    """
    entries = journal.entries
    start = _find_start(entries, marks, size)
    earlier, frames = entries[:start], list[bytes]()
    view = journal.view_at(start)
    if earlier:
        place = partial(_with_position, conversation=conversation)
        documents = (
            (entry, document)
            for entry in _lasting_entries(earlier, view)
            for document in documents_of(
                Frame(entry.seq, 0, entry), live=False, make_request=make_request
            )
        )
        frames = [
            msgspec.json.encode(place(document, entry))
            for entry, document in documents
            if isinstance(document, Placed) and not isinstance(document, ToolResult)
        ]
        last = earlier[-1]
        rest = replace(place(history(view), last), id=str(end_cursor(last)))
        frames.append(msgspec.json.encode(rest))
    pairs = _documents(entries[start:], view, conversation, make_request)
    return chain(frames, (data for _, data in pairs))


def older_documents(
    journal: EventHistory, before: Cursor | None, size: int, conversation: str
) -> Iterator[bytes]:
    """The frames of the window that ends at `before`; None: of the newest one.

    Raises `BadInput` if the journal does not have that event.
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
    """The frames of these events, each with its position. `view` is the one before them."""
    for entry in entries:
        began, view = view.turn.started_at, apply(view, entry)
        yield from event_documents(entry, view, conversation, began, make_request)


def _find_start(entries: Sequence[Entry], marks: Sequence[Mark], size: int) -> int:
    """The last event, `size` events before the end or earlier, after which nothing shown is open.

    The documents after it do not depend on earlier ones. 0: there is no such event.
    """
    newest = len(entries) - size
    for mark in reversed(marks):
        start = mark.seq - 1
        free = not mark.conversation.undelivered
        if start <= newest and free and not _is_requesting(entries, start):
            return max(start, 0)
    return 0


def _is_requesting(entries: Sequence[Entry], seq: int) -> bool:
    """Whether a screen's status line shows, after this event, that a model is being called."""
    settled = False
    for index in range(seq - 1, -1, -1):
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
    """The events whose effect still lasts: an open turn, running subagents, commands."""
    open_questions = {ask.id for ask in view.children.asks}
    turn = view.turn.seq
    for entry in entries_of_kinds(entries, _MAY_LAST_KINDS):
        match entry.event:
            case TurnStarted() | Stopped():
                lasts = 0 < turn <= entry.seq
            case ChildAsked(id=id_):
                lasts = id_ in open_questions
            case Ended(control=control):
                lasts = isinstance(control, TasksChanged)
            case _:
                lasts = True
        if lasts:
            yield entry


def _with_position(document: Placed, entry: Entry, conversation: str) -> Placed:
    turn = entry.seq if isinstance(entry.event, TurnStarted) else entry.turn
    return replace(
        document, conversation=conversation, node=_ROOT_NAME, turn=turn, at=entry.at
    )
