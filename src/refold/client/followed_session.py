"""A session that another process writes, read from its journal: the view, and no writer.

The engine here has the state of any other, folded from the lines that the writer appends;
whatever would record an event raises `BadInput`. How a client learns that there are new
lines is decided in `remote_session`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

from refold.engine.world import World
from refold.errors import BadInput
from refold.journal.events import codec
from refold.journal.events.kinds import Entry
from refold.journal.state.fold import View, apply
from refold.journal.store import log_file
from refold.journal.store.port import Store
from refold.journal.store.reader import Reader
from refold.session.recorder import MakeEvents, Recorder
from refold.session.session import Session as Engine
from refold.session.session import SessionOptions
from refold.values.messages import ToolCall

_ELSEWHERE = "this session is open in another process: do this there"


class FollowedJournal(Recorder):
    """Follows the journal in `path`. `ended` says why nothing more comes of it; or ""."""

    def __init__(self, store: Store, path: Path) -> None:
        super().__init__(store)
        self._path, self.ended = path / log_file.NAME, ""
        self._lines = Reader(self._path)

    async def open(self) -> View:
        return await self.follow()

    async def close(self) -> None:
        """The journal is its writer's."""

    async def append_if(
        self, make_events: MakeEvents, *, kept: bool = False, by: str = "agent"
    ) -> bool:
        raise BadInput(self.ended or _ELSEWHERE)

    async def follow(self) -> View:
        """Fold what is new in the journal, and publish it."""
        async with self._lock:
            after = self._head.seq
            lines = await anyio.to_thread.run_sync(self._lines.read, after)
            for entry, head in codec.decode(lines, self._head):
                self.view, self._head = apply(self.view, entry), head
                self.hub.publish(entry)
        self._wake()
        return self.view

    async def entries(self, after: int = 0) -> Sequence[Entry]:
        async with self._lock:
            read, since = Reader(self._path).read, max(after - 1, 0)
            lines = await anyio.to_thread.run_sync(read, since)
        return codec.decode_after(after, lines)

    async def wait_for_event(self, after: int) -> None:
        """Raises `BadInput` where nothing more can come."""
        while self.view.seq <= after:
            if self.ended:
                raise BadInput(self.ended)
            self._news = self._news or anyio.Event()
            await self._news.wait()

    def end(self, why: str) -> None:
        self.ended = self.ended or why
        self._wake()
        self.hub.close()

    def _wake(self) -> None:
        woken, self._news = self._news, None
        if woken:
            woken.set()


class FollowedEngine(Engine):
    """`made` has calls as the model made them, by their ids, where the journal masks them."""

    def __init__(self, journal: FollowedJournal, made: Mapping[str, ToolCall]) -> None:
        super().__init__(journal, _no_turns, SessionOptions())
        self.journal, self._made, self.cut_off = journal, made, False

    @property
    def running(self) -> bool:
        return bool(self.view.turn.seq) and not self.cut_off

    def as_made(self, call: ToolCall) -> ToolCall:
        return self._made.get(call.id, call)


def _no_turns(view: View) -> World:
    raise BadInput(_ELSEWHERE)
