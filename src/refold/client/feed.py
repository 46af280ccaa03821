"""Sends the documents of one session, as numbered frames, to any number of clients.

A frame is one encoded document. The frame of an event has an `id`: the epoch of the writer,
the number of the event, and the number of the document within the event. A client that
reconnects with its last id gets each later frame once, from memory or from the journal. If
the journal does not have that position, the client gets a `snapshot`. A piece of live text
has its offset in the whole text, because a client may get text again that it already has,
as part of a longer piece. A client that does not read fast enough is disconnected.

`views.stream_json` decides what a document says; `shared_session` takes orders.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import TypeAlias

import anyio
import msgspec
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from refold.client.event_documents import (
    ALL_DOCUMENTS,
    FEED_START,
    Cursor,
    Newest,
    documents_after,
    end_cursor,
    event_documents,
    has_event,
    window,
)
from refold.client.session import Session
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
from refold.values.growing import Growing
from refold.values.live import Live, Progress, TextCame, ThinkingCame, stream_key
from refold.views.stream_json.documents import EventRecorded
from refold.views.stream_json.encode import Document, documents_of
from refold.views.stream_json.live_documents import (
    ChildMoved,
    PortsChanged,
    TextDelta,
    ThinkingDelta,
    ToolProgress,
    WithinChild,
)
from refold.views.stream_json.snapshot import Status

MAX_WAITING_BYTES = 4 * 1024 * 1024  # for each follower; more disconnect it
_MAX_RECENT_BYTES = 512 * 1024  # bytes of frames that are remembered for reconnections
_PAUSE_SECONDS = 0.04  # between two pieces of one text
_MAX_PAUSE_SECONDS = 0.08  # the same, if the process is busy
_PAUSE_PER_LATE_SECOND = 4  # a sleep that ends 10 ms late reaches the maximum
_BATCH_DOCUMENTS = 200  # that are encoded before other tasks may run


class Follower:
    """The queue of one client that follows the session: frames wait in it until they are sent.

    With `reads_journal` the client also gets a document for each recorded event.
    """

    def __init__(
        self, limit: int = MAX_WAITING_BYTES, *, reads_journal: bool = False
    ) -> None:
        self.reads_journal = reads_journal
        self._frames = deque[bytes]()
        self._early = list[tuple[Cursor, bytes]]()  # events that arrive before `begin`
        self._max_bytes = limit
        self._waiting_bytes = 0
        self._joined = False  # whether `begin` was called
        self._queued_to = FEED_START  # the position of the last event that was queued
        self._news = anyio.Event()
        self.closed = False
        self.cut_off = False  # whether it was closed because too many bytes waited

    def begin(
        self, first: Sequence[bytes], last_cursor: Cursor, frames: Sequence[bytes]
    ) -> None:
        """Queue `first`, then the events that arrived since `last_cursor`, then `frames`.

        `last_cursor` is the position at the end of `first`.
        """
        early = [data for cursor, data in self._early if cursor > last_cursor]
        self._queued_to = last_cursor
        if self._early:
            newest_early, _ = self._early[-1]
            self._queued_to = max(last_cursor, newest_early)
            self._early.clear()
        self._frames.extend([*first, *early, *frames])
        self._joined = True
        self._news.set()

    def queue(self, data: bytes, cursor: Cursor | None = None) -> None:
        """Queue a frame. `cursor` is its position; None for a document that belongs to no
        event.

        A frame that was queued before is dropped. If too many bytes wait, the follower is
        closed. Before `begin`, only documents of events are queued: live text is dropped,
        because `begin` gets all text so far.
        """
        if self.closed or (cursor is not None and cursor <= self._queued_to):
            return
        self._waiting_bytes += len(data)
        if self._waiting_bytes > self._max_bytes:
            self.cut_off = True
            self.close()
        elif self._joined:
            self._frames.append(data)
            if cursor is not None:
                self._queued_to = cursor
            self._news.set()
        elif cursor is not None:
            self._early.append((cursor, data))

    def queue_document(self, data: bytes) -> None:
        """Queue a document for this follower alone."""
        self.queue(data)

    def close(self) -> None:
        self.closed = True
        self._news.set()

    async def batches(self) -> AsyncGenerator[Sequence[bytes], None]:
        """Yield the waiting frames in batches, until the follower is closed and none waits.

        A follower that was cut off because too many bytes waited gets no more.
        """
        while not self.cut_off:
            if self._joined and self._frames:
                frames = tuple(self._frames)
                self._frames.clear()
                self._waiting_bytes = 0
                yield frames
                continue
            if self.closed:
                return
            self._news = anyio.Event()
            await self._news.wait()


_Text: TypeAlias = TextDelta | ThinkingDelta | ToolProgress


class _OpenText(Struct, frozen=True):
    """A text that a model or tool is still writing; followers that join get all of it.

    `newest` is the last piece that was sent, `text` the whole text so far.
    """

    newest: _Text
    text: Growing


class Feed:
    """The feed of one open session.

    `run` sends new documents; followers can join at any time.
    """

    def __init__(self, session: Session, status: Callable[[], Status]) -> None:
        self._session = session
        self._status = status
        self._followers = list[Follower]()
        # The newest documents with their positions, for clients that connect again.
        self._recent = deque[tuple[Cursor, bytes]]()
        self._recent_bytes = 0
        # The position of the document that was sent last. At first, all events so far count
        # as sent.
        self._last_sent = Cursor(session.view.seq, ALL_DOCUMENTS, 0)
        self._message_seq = 0  # of the last `ModelAsked`, to which live text belongs
        self._turn_began = 0.0  # the time at which the turn began
        self._open_texts = dict[Hashable, _OpenText]()  # by `stream_key`
        # The newest state of each running subagent.
        self._children = dict[str, ChildMoved]()
        self._closed = False
        self._moved_or_closed = anyio.Event()
        self._documents_sent = anyio.Event()  # replaced each time it is set
        self._watch = session.watch()
        self._gather_seconds = _PAUSE_SECONDS  # longer while the process is busy

    @property
    def followers(self) -> int:
        return len(self._followers)

    @property
    def position(self) -> Cursor:
        """The position of the document that was sent last."""
        return self._last_sent

    async def run(self) -> None:
        """Send the documents of the session until `close`, also after it moves to another
        directory.
        """
        while True:
            # The frames end when the session moves, or when this feed is closed.
            async with aclosing(self._watch.merge_frames()) as frames:
                async for frame in frames:
                    self._on_frame(frame)
                    is_live = not isinstance(frame.item, Entry)
                    if is_live and not self._watch.waiting and not self._closed:
                        await self._gather()
            await self._moved_or_closed.wait()
            if self._closed:
                break
            self._moved_or_closed = anyio.Event()
            self._watch = self._session.watch()
            # Send the events that were recorded before this subscription.
            for entry in await self._session.reports.entries(self._last_sent.seq):
                self._on_frame(Frame(entry.seq, 0, entry))
        for follower in tuple(self._followers):
            self.leave(follower)

    async def _gather(self) -> None:
        """Wait a moment after live text, so that the text that arrives meanwhile is sent as
        one piece.

        The wait is longer if the process is busy with other sessions.
        """
        until = anyio.current_time() + self._gather_seconds
        await anyio.sleep(self._gather_seconds)
        seconds_late = anyio.current_time() - until
        longer = _PAUSE_SECONDS + _PAUSE_PER_LATE_SECOND * seconds_late
        self._gather_seconds = min(longer, _MAX_PAUSE_SECONDS)

    def follow_move(self) -> None:
        """Continue with the events of the session after it has moved to another directory."""
        self._moved_or_closed.set()

    def close(self) -> None:
        """End `run`, which then disconnects all followers."""
        self._closed = True
        self._watch.close()
        self._moved_or_closed.set()
        self._documents_sent.set()

    def leave(self, follower: Follower) -> None:
        follower.close()
        if follower in self._followers:
            self._followers.remove(follower)

    async def join(self, follower: Follower, after: Cursor | Newest | None) -> None:
        """Send the follower the frames that follow `after`, then new frames.

        If `after` is None, a snapshot is sent first; if it is `Newest`, the newest events.
        """
        self._followers.append(follower)  # from now on, new frames are queued for it
        first, cursor = await self._find_missed(after)
        await self.wait_until_sent(cursor.seq)  # the journal is ahead of this feed
        # This is read after all missed frames have been found, so that it includes them.
        status = replace(self._status(), conversation=self._session.id)
        frames = [msgspec.json.encode(status), *self._frames_in_progress()]
        follower.begin(first, cursor, frames)

    async def wait_until_sent(self, seq: int) -> None:
        """Return once the documents of the events up to event `seq` were sent."""
        while self._last_sent.seq < seq and not self._closed:
            await self._documents_sent.wait()

    def broadcast(self, document: Document) -> None:
        """Send every follower a document that belongs to no event."""
        data = msgspec.json.encode(document)
        for follower in tuple(self._followers):
            self._send(follower, data)

    def _on_frame(self, frame: Frame) -> None:
        """Send live text at once; queue the documents of an event, if it is new."""
        if isinstance(frame.item, Entry):
            if frame.seq > self._last_sent.seq:
                self._queue_event(frame.item)
            return
        for document in documents_of(frame, live=True):
            # Also without followers: the text is stored for those that join later.
            with_offset = self._with_offset(document, frame.item)
            if self._followers:
                self.broadcast(with_offset)

    def _queue_event(self, entry: Entry) -> None:
        """Queue the documents of an event for every follower, and remember them for
        reconnections.

        Followers that read the journal are then informed that the event is recorded.
        """
        self._update_progress(entry)
        session = self._session
        documents = event_documents(
            entry, session.view, session.id, self._turn_began, session.request
        )
        for cursor, data in documents:
            self._last_sent = cursor
            self._remember(cursor, data)
            for follower in tuple(self._followers):
                self._send(follower, data, cursor)
        # The event may have no document: then the number of the last one stays.
        self._last_sent = Cursor(entry.seq, self._last_sent.n, entry.epoch)
        readers = [reader for reader in self._followers if reader.reads_journal]
        if readers:
            recorded = msgspec.json.encode(EventRecorded(seq=entry.seq))
            for follower in readers:
                self._send(follower, recorded)
        self._documents_sent.set()
        self._documents_sent = anyio.Event()

    def _send(self, follower: Follower, data: bytes, cursor: Cursor | None = None) -> None:
        follower.queue(data, cursor)
        if follower.closed:
            self.leave(follower)

    def _remember(self, cursor: Cursor, data: bytes) -> None:
        """Store a document for reconnections, and drop the oldest above the limit."""
        self._recent.append((cursor, data))
        self._recent_bytes += len(data)
        while self._recent_bytes > _MAX_RECENT_BYTES and len(self._recent) > 1:
            _, oldest = self._recent.popleft()
            self._recent_bytes -= len(oldest)

    def _update_progress(self, entry: Entry) -> None:
        """Note which turn and message the event begins, and forget live text that it
        completes.
        """
        match entry.event:
            case TurnStarted():
                self._turn_began = entry.at
            case ModelAsked():
                self._message_seq = entry.seq
                self._forget_texts(TextCame, ThinkingCame)
            case ModelAnswered() | ModelFailed():
                self._forget_texts(TextCame, ThinkingCame)
            case Ended(call_id):
                self._forget_texts((Progress, call_id))
            case ChildEnded(child):
                self._children.pop(child, None)
            case TurnEnded():
                self._open_texts.clear()
                self._children.clear()
            case _:
                pass

    def _forget_texts(self, *keys: Hashable) -> None:
        for key in keys:
            self._open_texts.pop(key, None)

    def _with_offset(self, document: Document, live: Live) -> Document:
        """Return the document with the id of the conversation, and live text with its offset.

        Text in progress is remembered for followers that join later.
        """
        match document:
            case TextDelta() | ThinkingDelta() | ToolProgress():
                return self._next_piece(document, stream_key(live))
            case ChildMoved():
                moved = replace(document, conversation=self._session.id)
                self._children[document.node] = moved
                return moved
            case WithinChild() | PortsChanged():
                return replace(document, conversation=self._session.id)
            case _:
                return document

    def _next_piece(self, document: _Text, key: Hashable) -> _Text:
        """Append the document's text to the open text `key`, and return the document with
        its offset.
        """
        open_text = self._open_texts.get(key)
        if open_text is None:
            message_seq = self._message_seq
            text = Growing()
        else:
            message_seq = open_text.newest.message
            text = open_text.text
        piece = replace(
            document, conversation=self._session.id, message=message_seq, offset=len(text)
        )
        self._open_texts[key] = _OpenText(piece, text.plus(document.text))
        return piece

    def _frames_in_progress(self) -> Iterator[bytes]:
        """Yield frames with all text in progress, and with the newest state of each running
        subagent.
        """
        for open_text in self._open_texts.values():
            document = replace(
                open_text.newest,
                after=self._last_sent.seq,
                conversation=self._session.id,
                offset=0,
                text=str(open_text.text),
            )
            yield msgspec.json.encode(document)
        for moved in self._children.values():
            yield msgspec.json.encode(moved)

    async def _find_missed(
        self, after: Cursor | Newest | None
    ) -> tuple[list[bytes], Cursor]:
        """Return the frames that a follower with the position `after` misses, and their end
        position.
        """
        if after is None:
            return await self._snapshot()
        if isinstance(after, Newest):
            return await self._newest(after.events)
        if after == self._last_sent:
            return [], self._last_sent
        if self._is_recent(after):
            missed = [data for cursor, data in self._recent if cursor > after]
            return missed, self._last_sent
        return await self._replay(after)

    def _is_recent(self, after: Cursor) -> bool:
        return any(cursor == after for cursor, _ in self._recent)

    async def _replay(self, after: Cursor) -> tuple[list[bytes], Cursor]:
        """Return the frames that follow `after`, read from the journal, and their end position.

        If the journal does not have the position `after`, return a snapshot.
        """
        session = self._session
        history = await session.reports.history()
        entries = history.entries
        if after.seq and not has_event(entries, after):
            return await self._snapshot()
        frames = await to_thread.run_sync(
            documents_after, after, history, session.id, session.request
        )
        end = end_cursor(entries[-1]) if entries else after
        return await self._collect(frames), end

    async def _newest(self, count: int) -> tuple[list[bytes], Cursor]:
        """Return the frames of the `count` newest events, and their end position.

        Frames of older events that still have an effect are in front.
        """
        session = self._session
        marks = session.view.marks
        history = await session.reports.history()
        frames = await to_thread.run_sync(
            window, history, marks, count, session.id, session.request
        )
        entries = history.entries
        end = end_cursor(entries[-1]) if entries else FEED_START
        return await self._collect(frames), end

    async def _collect(self, frames: Iterable[bytes]) -> list[bytes]:
        """Return all frames. `frames` encodes them one by one; other tasks run in between."""
        collected = list[bytes]()
        for frame in frames:
            collected.append(frame)
            if len(collected) % _BATCH_DOCUMENTS == 0:
                await anyio.lowlevel.checkpoint()
        return collected

    async def _snapshot(self) -> tuple[list[bytes], Cursor]:
        """Return the frames of a `snapshot` and of the open requests, and the position of
        both.
        """
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
        frames = [msgspec.json.encode(item) for item in (document, *waiting)]
        return frames, place

    async def _epoch(self, seq: int) -> int:
        """Return the epoch of the writer of event `seq`; 0 if there is no such event."""
        entries = await self._session.reports.entries(seq - 1)
        return next((entry.epoch for entry in entries if entry.seq == seq), 0)
