"""Brings the checkpoints of a place elsewhere home, and its files back if the place was lost.

It watches the journals of the sessions that work there: when a turn has ended, and after every 20th
checkpoint in a turn, a thread pulls what is new (`place.elsewhere.home_packs`). No turn waits for
it; the end of the session does, for a while. When a connection finds a new place, it is rebuilt
before the first request, and `PlaceRebuilt` is recorded with what is lost.
"""

import os
import threading
from collections.abc import Sequence
from functools import partial

import anyio
import anyio.from_thread
from msgspec import Struct

from refold.errors import ToolFailed
from refold.journal.events.child_events import PlaceRebuilt
from refold.journal.events.kinds import (
    Checkpointed,
    Ended,
    Entry,
    Event,
    FilesRestored,
    Started,
    TurnEnded,
)
from refold.journal.state.fold import View
from refold.place.elsewhere.greeting import PlaceGreeting
from refold.place.elsewhere.home_packs import Begin, HomePacks, StoredCheckpoint
from refold.place.elsewhere.pipe import Pipe
from refold.session.recorder import Recorder
from refold.values.display import Diff

_PULL_AFTER_CHECKPOINTS = 20  # in one turn
_MAX_NAMED_PATHS = 50
_CLOSE_SECONDS = 60.0  # that the end of a session waits for a pack


class _Rebuilt(Struct, frozen=True):
    """`files` is None if the place kept the files that it has."""

    newest: StoredCheckpoint
    files: int | None
    problem: str = ""


class CheckpointsAtHome:
    """Those of the place behind `pipe`. `join` each session; `settle` before the pipe is closed.

    With `keeps_files` a new place has lost nothing: the files of the workspace are on this machine.
    """

    def __init__(self, pipe: Pipe, packs: HomePacks, *, keeps_files: bool = False) -> None:
        self._pipe, self._packs, self._keeps_files = pipe, packs, keeps_files
        self._records = dict[str, Recorder]()
        self._waiting = dict[str, list[StoredCheckpoint]]()  # by session, not pulled yet
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._again = False
        self._rebuilt: _Rebuilt | None = None
        self._told = set[str]()  # the sessions that know of it
        self.is_made_anew = (
            False  # the place was just made, so its files are not the user's
        )
        pipe.at_connect = self._on_connection
        pipe.at_request = self._tell_from_thread

    @property
    def notice(self) -> str:
        """Why checkpoints are not here, or ""."""
        return self._packs.notice

    async def join(self, session: str, record: Recorder, *, read_only: bool) -> None:
        """Follow the journal of an open session. With `read_only`, nothing is recorded yet."""
        pulled = {one.seq for one in self._packs.stored() if one.session == session}
        self._waiting[session] = [
            StoredCheckpoint(session, one.seq, one.trees)
            for one in record.view.checkpoints.checkpoints
            if one.seq not in pulled
        ]
        self._records[session] = record
        record.hub.subscribe(partial(self._on_event, session))
        if not read_only:
            await self._tell()

    async def settle(self) -> None:
        """Pull what is new, and wait for it as long as the end of a session may take."""
        if any(self._waiting.values()) and not self._pipe.is_broken:
            self._pull_soon()
        if (thread := self._thread) is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(thread.join, _CLOSE_SECONDS)

    def _on_event(self, session: str, entry: Entry) -> None:
        match entry.event:
            case Checkpointed(trees):
                waiting = self._waiting[session]
                waiting.append(StoredCheckpoint(session, entry.seq, trees))
                if len(waiting) >= _PULL_AFTER_CHECKPOINTS:
                    self._pull_soon()
            case TurnEnded() | FilesRestored() if self._waiting[session]:
                self._pull_soon()
            case _:
                pass

    def _pull_soon(self) -> None:
        with self._lock:
            self._again = True
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._pull, daemon=True)
                self._thread.start()

    def _pull(self) -> None:
        while True:
            with self._lock:
                if not self._again:
                    self._thread = None
                    return
                self._again = False
                taken = {name: tuple(waiting) for name, waiting in self._waiting.items()}
            for name, checkpoints in taken.items():
                if checkpoints and self._packs.pull(self._pipe.begin, checkpoints):
                    done = {one.seq for one in checkpoints}
                    self._waiting[name] = [
                        one for one in self._waiting[name] if one.seq not in done
                    ]

    def _on_connection(self, begin: Begin, greeting: PlaceGreeting) -> None:
        """Rebuild the place if it is not the one that the checkpoints are of."""
        known = self._packs.identity
        if self._keeps_files or not greeting.identity or known == greeting.identity:
            return
        if known and (stored := self._packs.stored()):
            try:
                files = self._packs.rebuild(begin, stored[-1], always=self.is_made_anew)
                self._rebuilt = _Rebuilt(stored[-1], files)
            except ToolFailed as error:
                self._rebuilt = _Rebuilt(stored[-1], None, str(error))
            self._told.clear()
        self.is_made_anew = False
        self._packs.note_identity(greeting.identity)

    def _tell_from_thread(self) -> None:
        """Record what was rebuilt, if the caller is in a thread of the event loop."""
        if self._rebuilt is None or self._told >= self._records.keys():
            return
        try:
            anyio.from_thread.run(self._tell)
        except RuntimeError:  # in a thread of its own: the next request records it
            return

    async def _tell(self) -> None:
        rebuilt = self._rebuilt
        if rebuilt is None:
            return
        for session, record in self._records.items():
            if session in self._told:
                continue
            self._told.add(session)
            is_own = rebuilt.newest.session == session
            since = rebuilt.newest.seq if is_own else record.view.seq
            lost, calls = changes_after(await record.entries(since))
            event = PlaceRebuilt(
                self._pipe.address.text,
                restored=rebuilt.files is not None,
                checkpoint=rebuilt.newest.seq if is_own else 0,
                files=rebuilt.files or 0,
                lost=lost,
                calls=calls,
                problem=rebuilt.problem,
            )
            await record.append_if(partial(_unless_new, event), kept=True, author="place")


def _unless_new(event: PlaceRebuilt, view: View) -> Sequence[Event]:
    """Drop a rebuild for a session without a checkpoint: it never used the lost place."""
    return (event,) if view.checkpoints.seq else ()


def changes_after(entries: Sequence[Entry]) -> tuple[tuple[str, ...], int]:
    """The files that calls changed, and how many calls were started."""
    paths, calls = dict[str, None](), 0
    for entry in entries:
        match entry.event:
            case Checkpointed(changed=changed):
                paths.update((path, None) for path, _ in changed)
            case Ended(shown=shown):
                diffs = (one.path for one in shown if isinstance(one, Diff))
                paths.update((os.path.normpath(path), None) for path in diffs)
            case Started():
                calls += 1
            case _:
                pass
    return tuple(paths)[:_MAX_NAMED_PATHS], calls
