"""The documents of one subagent, for a client that has opened it.

The process that runs its session writes its journal: it is read here, and takes no orders.
What it writes and prints at the moment comes through the `feed` of that session.
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

_READ_SECONDS = 1.0  # between two readings, if no live news comes
Send = Callable[[bytes], Awaitable[None]]


class SubagentFeed:
    """The subagent with the full id `id_`, of the session `root`, which is open here."""

    def __init__(self, stored: StoredSessions, root: SharedSession, id_: str) -> None:
        self._root, self._id = root, id_
        self._node = id_.partition("/")[2]
        self._journal = stored.follow(id_)
        self._view = View()
        self._sending = anyio.Lock()

    async def run(self, after: Cursor | Newest | None, send: Send) -> None:
        """Send what follows `after`, and then what is new, until the session is closed."""
        follower = await self._root.join(self._root.feed.position)
        try:
            for frame in await to_thread.run_sync(self._begin, after):
                await send(frame)
            async with anyio.create_task_group() as group:
                group.start_soon(self._read_often, send)
                async for batch in follower.batches():
                    await self._send_live(batch, send)
                group.cancel_scope.cancel()
        finally:
            self._root.leave(follower)

    def _begin(self, after: Cursor | Newest | None) -> Sequence[bytes]:
        entries = self._read()
        self._view = fold(entries)
        match after:
            case Newest(events):
                frames = window(EventHistory(entries), self._view.marks, events, self._id)
            case Cursor() if not after.seq or has_event(entries, after):
                frames = documents_after(after, EventHistory(entries), self._id)
            case _:
                place = str(end_cursor(entries[-1])) if entries else "0-0-0"
                state = snapshot(self._view, self._status())
                frames = iter(
                    [msgspec.json.encode(replace(state, id=place, conversation=self._id))]
                )
        return [*frames, msgspec.json.encode(self._status())]

    async def _read_often(self, send: Send) -> None:
        while True:
            await anyio.sleep(_READ_SECONDS)
            await self._send_new(send)

    async def _send_new(self, send: Send) -> None:
        async with self._sending:
            before = self._view.turn.seq
            for entry in await to_thread.run_sync(self._read):
                began, self._view = self._view.turn.started_at, apply(self._view, entry)
                documents = event_documents(
                    entry, self._view, self._id, began, approval_request
                )
                for _, frame in documents:
                    await send(frame)
            if self._view.turn.seq != before:
                await send(msgspec.json.encode(self._status()))

    async def _send_live(self, batch: Sequence[bytes], send: Send) -> None:
        news = [live for frame in batch if (live := _live_document(frame))]
        if not any(live.node == self._node for live in news):
            return
        await self._send_new(send)  # the journal has what came before
        for frame in self._live_frames(news):
            await send(frame)

    def _live_frames(self, news: Sequence[WithinChild | ChildMoved]) -> Iterator[bytes]:
        """Frames with what the subagent prints, and with what it writes until the whole
        response is there.
        """
        for live in news:
            if not isinstance(live, WithinChild) or live.node != self._node:
                continue
            for document in documents_of(Frame(self._view.seq, 1, live.live), live=True):
                if self._view.turn.open_request or isinstance(document, ToolProgress):
                    yield msgspec.json.encode(replace(document, conversation=self._id))

    def _read(self) -> Sequence[Entry]:
        entries = [
            entry for node, entry in self._journal.new_entries() if node == self._node
        ]
        if self._journal.damages:
            raise BadInput("; ".join(self._journal.damages))
        return entries

    def _status(self) -> Status:
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
    if frame.startswith(b'{"type":"within"'):
        return msgspec.json.decode(frame, type=WithinChild)
    if frame.startswith(b'{"type":"child_moved"'):
        return msgspec.json.decode(frame, type=ChildMoved)
    return None
