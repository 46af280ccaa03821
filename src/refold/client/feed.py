"""The documents of one session as numbered frames, for any number of clients.

A frame is one encoded document. That of an event has an `id`: epoch of the writer, number
of the event, number of the document in it. A client that reconnects with the last id it had
gets what follows, from memory or from the journal, and nothing twice; if the journal does
not continue from there, it gets a `snapshot`. A piece of text has its offset in its text,
because a longer one may be sent again. A client that does not keep up is disconnected.

`views.stream_json` decides what a document says; `shared_session` takes orders.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Sequence
from contextlib import aclosing
from typing import TypeAlias

import anyio
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.client.session import Session
from refold.errors import BadInput
from refold.journal.events.kinds import (
    ChildEnded,
    Ended,
    Entry,
    Frame,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state.fold import View, apply
from refold.values.growing import Growing
from refold.values.live import Live, Progress, TextCame, ThinkingCame, stream_key
from refold.views.stream_json.documents import EventRecorded, Placed
from refold.views.stream_json.encode import Document, documents_of
from refold.views.stream_json.live_documents import (
    ChildMoved,
    TextDelta,
    ThinkingDelta,
    ToolProgress,
    WithinChild,
)
from refold.views.stream_json.snapshot import Status
from refold.views.stream_json.turn_result import result

MOST_WAITING = 4 * 1024 * 1024  # bytes that may wait for one follower
_MAX_RECENT_BYTES = 512 * 1024  # of frames kept for followers that reconnect
# Seconds between two pieces of one text; more in a busy process, up to the second.
_PAUSE, _LONGEST_PAUSE = 0.04, 0.08
_AT_ONCE = 200  # events, after which other tasks may run
_ROOT_NAME = "root"


class Cursor(Struct, frozen=True, order=True):
    """A position: after document `n` of event `seq`, which the writer `epoch` recorded."""

    seq: int
    n: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.seq}-{self.n}"


ALL_DOCUMENTS = 1_000_000  # as `n`: all documents of the event
FEED_START = Cursor(0, ALL_DOCUMENTS, 0)


def cursor(text: str) -> Cursor:
    """Parse a cursor; "0" is the beginning. Raises `BadInput`."""
    parts = text.split("-")
    if text == "0":
        return FEED_START
    if len(parts) != 3 or not all(p.isascii() and p.isdecimal() for p in parts):
        raise BadInput(f"{text!r} is not the id of a document: give the last one, or 0")
    epoch, seq, n = (int(part[:15]) for part in parts)
    return Cursor(seq, n, epoch)


class Follower:
    """The queue of one follower: frames wait here until they are sent.

    With `reads_journal` it also gets a document for each recorded event.
    """

    def __init__(self, limit: int = MOST_WAITING, *, reads_journal: bool = False) -> None:
        self.reads_journal = reads_journal
        self._frames = deque[bytes]()
        self._early = list[tuple[Cursor, bytes]]()  # events during `join`
        self._most, self._size = limit, 0
        self._joined = False
        self._told = FEED_START
        self._news = anyio.Event()
        self.closed = self.cut_off = False

    def begin(
        self, first: Sequence[bytes], last_cursor: Cursor, frames: Sequence[bytes]
    ) -> None:
        """Queue `first`, which ends at `last_cursor`, then events since then, then `frames`."""
        self._told = last_cursor
        early = [data for cursor, data in self._early if cursor > last_cursor]
        if self._early:
            self._told = max(last_cursor, self._early[-1][0])
            self._early.clear()
        self._frames.extendleft(reversed([*first, *early, *frames]))
        self._joined = True
        self._news.set()

    def queue(self, data: bytes, cursor: Cursor | None = None) -> None:
        """Queue a frame; `cursor` is its position if it is an event's document."""
        if self.closed or (cursor is not None and cursor <= self._told):
            return
        self._size += len(data)
        if self._size > self._most:
            self.cut_off = True
            self.close()
        elif self._joined:
            self._frames.append(data)
            self._told = cursor or self._told
            self._news.set()
        elif cursor is not None:  # text in progress is sent whole at the beginning
            self._early.append((cursor, data))

    def queue_document(self, data: bytes) -> None:
        """Queue a document for this follower alone."""
        self.queue(data)

    def close(self) -> None:
        self.closed = self._joined = True
        self._news.set()

    async def batches(self) -> AsyncGenerator[Sequence[bytes], None]:
        """Yield the waiting frames in batches, until the follower is closed."""
        while not self.cut_off:
            if self._joined and self._frames:
                frames = tuple(self._frames)
                self._frames.clear()
                self._size = 0
                yield frames
                continue
            if self.closed:
                return
            self._news = anyio.Event()
            await self._news.wait()


_Text: TypeAlias = TextDelta | ThinkingDelta | ToolProgress


class _OpenText(Struct, frozen=True):
    """The text of one speaker so far, for followers that join in the middle."""

    newest: _Text
    text: Growing


class Feed:
    """The feed of one open session. `run` follows it; followers join at any time."""

    def __init__(self, session: Session, status: Callable[[], Status]) -> None:
        self._session, self._status = session, status
        self._followers = list[Follower]()
        self._recent = deque[tuple[Cursor, bytes]]()
        self._recent_size = 0
        self._last = Cursor(session.view.seq, ALL_DOCUMENTS, 0)  # the position sent last
        self._message, self._began = 0, 0.0
        self._open = dict[Hashable, _OpenText]()  # by `stream_key`
        self._children = dict[str, ChildMoved]()
        self._closed, self._moved = False, anyio.Event()
        self._progress = anyio.Event()
        self._watch, self._pause = session.watch(), _PAUSE

    @property
    def followers(self) -> int:
        return len(self._followers)

    async def run(self) -> None:
        """Follow the session, also to another directory, until `close`."""
        while True:
            async with aclosing(self._watch.merge_frames()) as frames:
                async for frame in frames:
                    self._on_frame(frame)
                    live = not isinstance(frame.item, Entry)
                    if live and not self._watch.waiting and not self._closed:
                        await self._gather()
            await self._moved.wait()
            if self._closed:
                break
            self._moved = anyio.Event()
            self._watch = self._session.watch()
            for entry in await self._session.reports.entries(self._last.seq):
                self._on_frame(Frame(entry.seq, 0, entry))
        for follower in tuple(self._followers):
            self.leave(follower)

    async def _gather(self) -> None:
        """Wait a moment, so that text that arrives meanwhile becomes one piece.

        It waits longer if the process is busy with other sessions.
        """
        until = anyio.current_time() + self._pause
        await anyio.sleep(self._pause)
        late = anyio.current_time() - until
        self._pause = min(_PAUSE + 4 * late, _LONGEST_PAUSE)

    def follow_move(self) -> None:
        """Follow the session to another directory, under the same handle."""
        self._moved.set()

    def close(self) -> None:
        self._closed = True
        self._watch.close()
        self._moved.set()
        self._progress.set()

    def leave(self, follower: Follower) -> None:
        follower.close()
        if follower in self._followers:
            self._followers.remove(follower)

    async def join(self, follower: Follower, after: Cursor | None) -> None:
        """Send the follower what follows `after`, then new frames. None sends a snapshot first."""
        self._followers.append(follower)  # new frames wait in it
        first, cursor = await self._find_missed(after)
        await self.wait_until_sent(cursor.seq)  # the journal is ahead of this feed
        # The state once all missed frames have been sent.
        status = replace(self._status(), conversation=self._session.id)
        frames = [msgspec.json.encode(status), *self._open_frames()]
        follower.begin(first, cursor, frames)

    async def wait_until_sent(self, seq: int) -> None:
        """Return once the documents of the events up to this one were sent."""
        while self._last.seq < seq and not self._closed:
            await self._progress.wait()

    def broadcast(self, document: Document) -> None:
        """Send every follower a document that belongs to no event."""
        data = msgspec.json.encode(document)
        for follower in tuple(self._followers):
            self._send(follower, data)

    def _on_frame(self, frame: Frame) -> None:
        if isinstance(frame.item, Entry):
            if frame.seq > self._last.seq:
                self._event(frame.item)
            return
        for document in documents_of(frame, live=True):
            placed_document = self._with_offset(document, frame.item)
            if self._followers:
                self.broadcast(placed_document)

    def _event(self, entry: Entry) -> None:
        self._track(entry)
        session = self._session
        documents = self._documents(entry, session.view)
        for cursor, data in _with_cursors(documents, entry, session.id):
            self._last = cursor
            self._keep(cursor, data)
            for follower in tuple(self._followers):
                self._send(follower, data, cursor)
        self._last = Cursor(entry.seq, self._last.n, entry.epoch)
        readers = [reader for reader in self._followers if reader.reads_journal]
        if readers:
            recorded = msgspec.json.encode(EventRecorded(seq=entry.seq))
            for follower in readers:
                self._send(follower, recorded)
        progress, self._progress = self._progress, anyio.Event()
        progress.set()

    def _send(self, follower: Follower, data: bytes, cursor: Cursor | None = None) -> None:
        follower.queue(data, cursor)
        if follower.closed:
            self.leave(follower)

    def _documents(self, entry: Entry, view: View) -> list[Document]:
        frame = Frame(entry.seq, 0, entry)
        documents = list(
            documents_of(frame, live=False, make_request=self._session.request)
        )
        if isinstance(entry.event, TurnStarted):
            self._began = entry.at
        if isinstance(entry.event, TurnEnded):
            seconds = entry.at - self._began if self._began else 0.0
            documents.append(result(view, self._session.id, seconds))
        return documents

    def _keep(self, cursor: Cursor, data: bytes) -> None:
        self._recent.append((cursor, data))
        self._recent_size += len(data)
        while self._recent_size > _MAX_RECENT_BYTES and len(self._recent) > 1:
            self._recent_size -= len(self._recent.popleft()[1])

    def _track(self, entry: Entry) -> None:
        match entry.event:
            case ModelAsked():
                self._message = entry.seq
                self._forget(TextCame, ThinkingCame)
            case ModelAnswered() | ModelFailed():
                self._forget(TextCame, ThinkingCame)
            case Ended(call_id):
                self._forget((Progress, call_id))
            case ChildEnded(child):
                self._children.pop(child, None)
            case TurnEnded():
                self._open.clear()
                self._children.clear()
            case _:
                pass

    def _forget(self, *speakers: Hashable) -> None:
        for key in speakers:
            self._open.pop(key, None)

    def _with_offset(self, document: Document, live: Live) -> Document:
        """Add the offset to live text. Text in progress is kept for followers that join later."""
        match document:
            case TextDelta() | ThinkingDelta() | ToolProgress():
                return self._next_piece(document, stream_key(live))
            case ChildMoved():
                moved = replace(document, conversation=self._session.id)
                self._children[document.node] = moved
                return moved
            case WithinChild():
                return replace(document, conversation=self._session.id)
            case _:
                return document

    def _next_piece(self, document: _Text, key: Hashable) -> _Text:
        before = self._open.get(key)
        message = before.newest.message if before else self._message
        text = before.text if before else Growing()
        piece = replace(
            document, conversation=self._session.id, message=message, offset=len(text)
        )
        self._open[key] = _OpenText(piece, text.plus(document.text))
        return piece

    def _open_frames(self) -> Iterator[bytes]:
        """Frames of the whole text in progress, and of running subagents."""
        for live in self._open.values():
            after, id_ = self._last.seq, self._session.id
            yield msgspec.json.encode(
                replace(
                    live.newest,
                    after=after,
                    conversation=id_,
                    offset=0,
                    text=str(live.text),
                )
            )
        for moved in self._children.values():
            yield msgspec.json.encode(moved)

    async def _find_missed(self, after: Cursor | None) -> tuple[list[bytes], Cursor]:
        """The frames after `after`, and the position where they end."""
        if after is None:
            return await self._snapshot()
        if after == self._last:
            return [], self._last
        if self._recent and self._recent[0][0] <= after and self._is_recent(after):
            return [data for cursor, data in self._recent if cursor > after], self._last
        return await self._replay(after)

    def _is_recent(self, after: Cursor) -> bool:
        return any(cursor == after for cursor, _ in self._recent)

    async def _replay(self, after: Cursor) -> tuple[list[bytes], Cursor]:
        entries = await self._session.reports.entries()
        if after.seq:
            known = entries[after.seq - 1] if after.seq <= len(entries) else None
            if known is None or known.epoch != after.epoch:
                return await self._snapshot()
        frames, cursor, view = list[bytes](), after, View()
        for index, entry in enumerate(entries):
            view = apply(view, entry)
            if entry.seq >= after.seq:
                for place, data in _with_cursors(
                    self._documents(entry, view), entry, self._session.id
                ):
                    if place > after:
                        frames.append(data)
                cursor = Cursor(entry.seq, ALL_DOCUMENTS, entry.epoch)
            if index % _AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()
        return frames, cursor

    async def _snapshot(self) -> tuple[list[bytes], Cursor]:
        waiting = await self._session.waiting()
        view = self._session.view
        epoch = await self._epoch(view.seq)
        place = Cursor(view.seq, ALL_DOCUMENTS, epoch)
        document = replace(
            self._session.snapshot,
            id=str(place),
            conversation=self._session.id,
            status=self._status(),
        )
        return [msgspec.json.encode(item) for item in (document, *waiting)], place

    async def _epoch(self, seq: int) -> int:
        entries = await self._session.reports.entries(seq - 1)
        return next((entry.epoch for entry in entries if entry.seq == seq), 0)


def documents_with_cursors(
    entries: Sequence[Entry], conversation: str
) -> Iterator[tuple[Cursor, bytes]]:
    """The frames of a journal from its first event, each with its position."""
    view, began = View(), 0.0
    for entry in entries:
        view = apply(view, entry)
        if isinstance(entry.event, TurnStarted):
            began = entry.at
        documents: list[Document] = list(
            documents_of(Frame(entry.seq, 0, entry), live=False)
        )
        if isinstance(entry.event, TurnEnded):
            documents.append(result(view, conversation, entry.at - began if began else 0.0))
        yield from _with_cursors(documents, entry, conversation)


def _with_cursors(
    documents: Sequence[Document], entry: Entry, conversation: str
) -> Iterator[tuple[Cursor, bytes]]:
    for n, document in enumerate(documents):
        cursor = Cursor(entry.seq, n, entry.epoch)
        if isinstance(document, Placed):
            turn = entry.seq if isinstance(entry.event, TurnStarted) else entry.turn
            document = replace(
                document, id=str(cursor), conversation=conversation, node=_ROOT_NAME, turn=turn,
                at=entry.at,
            )  # fmt: skip
        yield cursor, msgspec.json.encode(document)
