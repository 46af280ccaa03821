"""Sends the documents of one subagent to a client that has opened it.

The session above the subagent runs it and writes its journal. This feed reads the journal,
and takes no orders. Text in progress and live output are taken from the `feed` of that
session.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence

import anyio
import msgspec
from anyio import to_thread
from msgspec.structs import replace

from refold.client.event_documents import (
    Cursor,
    Newest,
    documents_after,
    end_cursor,
    event_documents,
    has_event,
    window,
)
from refold.client.shared_session import SharedSession
from refold.client.stored_sessions import StoredSessions
from refold.errors import BadInput
from refold.journal.events.kinds import Entry, Frame
from refold.journal.state.event_history import EventHistory
from refold.journal.state.fold import View, apply, fold
from refold.values.usage import Budget
from refold.views.stream_json.encode import approval_request, documents_of
from refold.views.stream_json.live_documents import ChildMoved, ToolProgress, WithinChild
from refold.views.stream_json.snapshot import Choices, Status, snapshot, status

_READ_SECONDS = 1.0  # between two readings of the journal, without live documents
_BEFORE_ALL_EVENTS = "0-0-0"  # a position, for the snapshot of an empty journal
Send = Callable[[bytes], Awaitable[None]]


class SubagentFeed:
    """Sends the documents of the subagent with the full id `id_`.

    `root`, the session above all its subagents, is open in this process.
    """

    def __init__(self, stored: StoredSessions, root: SharedSession, id_: str) -> None:
        self._root = root
        self._id = id_
        _, _, self._node = id_.partition("/")  # its address below the root session
        self._journal = stored.follow(id_)
        self._view = View()
        self._sending = anyio.Lock()

    async def run(self, after: Cursor | Newest | None, send: Send) -> None:
        """Send the documents that follow `after`, then new ones, until the session is
        closed.
        """
        follower = await self._root.join(self._root.feed.position)
        try:
            for frame in await to_thread.run_sync(self._first_frames, after):
                await send(frame)
            async with anyio.create_task_group() as group:
                group.start_soon(self._send_new_often, send)
                async for batch in follower.batches():
                    await self._send_live(batch, send)
                group.cancel_scope.cancel()
        finally:
            self._root.leave(follower)

    def _first_frames(self, after: Cursor | Newest | None) -> Sequence[bytes]:
        """Read the journal, and return the frames that follow `after`, and then a status.

        If `after` is None, or is not a position of this journal, return a snapshot and a
        status.
        """
        entries = self._read()
        self._view = fold(entries)
        match after:
            case Newest(events):
                frames = window(EventHistory(entries), self._view.marks, events, self._id)
            case Cursor() if not after.seq or has_event(entries, after):
                frames = documents_after(after, EventHistory(entries), self._id)
            case _:  # None, or a position of another journal
                position = str(end_cursor(entries[-1])) if entries else _BEFORE_ALL_EVENTS
                state = snapshot(self._view, self._status())
                state = replace(state, id=position, conversation=self._id)
                frames = iter([msgspec.json.encode(state)])
        return [*frames, msgspec.json.encode(self._status())]

    async def _send_new_often(self, send: Send) -> None:
        while True:
            await anyio.sleep(_READ_SECONDS)
            await self._send_new(send)

    async def _send_new(self, send: Send) -> None:
        """Send the documents of new events, and a status if a turn began or ended."""
        async with self._sending:
            turn_before = self._view.turn.seq
            for entry in await to_thread.run_sync(self._read):
                # Read before the event is applied: the end of a turn resets it.
                turn_began = self._view.turn.started_at
                self._view = apply(self._view, entry)
                documents = event_documents(
                    entry, self._view, self._id, turn_began, approval_request
                )
                for _, frame in documents:
                    await send(frame)
            if self._view.turn.seq != turn_before:
                await send(msgspec.json.encode(self._status()))

    async def _send_live(self, batch: Sequence[bytes], send: Send) -> None:
        """Send what the subagent is writing now, if any frame of the batch is about it."""
        documents = list[WithinChild | ChildMoved]()
        for frame in batch:
            document = _live_document(frame)
            if document is not None:
                documents.append(document)
        if not any(document.node == self._node for document in documents):
            return
        await self._send_new(send)  # first the earlier events, which are in the journal
        for frame in self._live_frames(documents):
            await send(frame)

    def _live_frames(self, news: Sequence[WithinChild | ChildMoved]) -> Iterator[bytes]:
        """Yield frames with live output of the subagent, and with text of its open response."""
        for item in news:
            if not isinstance(item, WithinChild) or item.node != self._node:
                continue
            for document in documents_of(Frame(self._view.seq, 1, item.live), live=True):
                # Text that comes later than its response is in the recorded response.
                has_open_response = bool(self._view.turn.open_request)
                if has_open_response or isinstance(document, ToolProgress):
                    yield msgspec.json.encode(replace(document, conversation=self._id))

    def _read(self) -> Sequence[Entry]:
        """Return the new events of the subagent. Raises `BadInput` if its journal is
        damaged.
        """
        entries = [
            entry for node, entry in self._journal.new_entries() if node == self._node
        ]
        if self._journal.damages:
            raise BadInput("; ".join(self._journal.damages))
        return entries

    def _status(self) -> Status:
        """Return the status document of the subagent."""
        view = self._view
        prompt = view.conversation.system_prompt
        choices = Choices(
            model=view.turn.model or prompt.model,
            agent=prompt.agent or view.session.agent,
            mode=view.rights.mode or self._root.session.mode,
            effort=prompt.effort,
            steps=view.rights.steps,
            budget=view.rights.budget or Budget(),
        )
        return replace(
            status(view, choices, view.turn.questions),
            conversation=self._id,
            cut_off=bool(view.turn.seq) and self._root.cut_off,
        )


def _live_document(frame: bytes) -> WithinChild | ChildMoved | None:
    """Return the document about a subagent in this frame; None for any other kind of
    document.
    """
    if frame.startswith(b'{"type":"within"'):
        return msgspec.json.decode(frame, type=WithinChild)
    if frame.startswith(b'{"type":"child_moved"'):
        return msgspec.json.decode(frame, type=ChildMoved)
    return None
