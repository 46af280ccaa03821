"""Copies the checkpoints of a remote workspace to this machine, and restores a lost workspace.

The place is the machine or container that has the workspace. When a turn has ended, and after
every 20th checkpoint in a turn, a thread fetches the new checkpoints
(`place.elsewhere.home_packs`). No turn waits for that; the end of the session waits for a
limited time. If a connection finds a new, empty place, its files are restored before the first
request, and the event `PlaceRebuilt` names what is lost.
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
_CLOSE_SECONDS = 60.0  # for which the end of a session waits for a pack


class _Rebuilt(Struct, frozen=True):
    """The result of restoring a new place from the checkpoint `newest`.

    `files` is the number of restored files. It is None if the place had kept its files, or if
    they could not be restored because of `problem`.
    """

    newest: StoredCheckpoint
    files: int | None
    problem: str = ""


class CheckpointsAtHome:
    """Keeps checkpoints of the place to which `pipe` is a connection.

    Call `join` for each session, and `settle` before the pipe is closed. `keeps_files` says
    that the files of the workspace are on this machine, so a new place has lost nothing.
    """

    def __init__(self, pipe: Pipe, packs: HomePacks, *, keeps_files: bool = False) -> None:
        self._pipe, self._packs, self._keeps_files = pipe, packs, keeps_files
        self._records = dict[str, Recorder]()
        self._unfetched = dict[str, list[StoredCheckpoint]]()  # by session; not fetched yet
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pull_requested = False
        self._rebuilt: _Rebuilt | None = None
        self._informed_sessions = set[str]()  # sessions whose journals have `PlaceRebuilt`
        # True if the place was just created, so its files are not the user's
        self.is_made_anew = False
        pipe.at_connect = self._on_connection
        pipe.at_request = self._record_from_thread

    @property
    def notice(self) -> str:
        """Why checkpoints are not on this machine, or "" if they are."""
        return self._packs.notice

    async def join(self, session: str, record: Recorder, *, read_only: bool) -> None:
        """Copy the checkpoints that an open session makes from now on.

        With `read_only`, the session records nothing yet.
        """
        stored_seqs = {
            stored.seq for stored in self._packs.stored() if stored.session == session
        }
        self._unfetched[session] = [
            StoredCheckpoint(session, checkpoint.seq, checkpoint.trees)
            for checkpoint in record.view.checkpoints.checkpoints
            if checkpoint.seq not in stored_seqs
        ]
        self._records[session] = record
        record.hub.subscribe(partial(self._on_event, session))
        if not read_only:
            await self._record_rebuilt()

    async def settle(self) -> None:
        """Fetch new checkpoints, and wait for that at most `_CLOSE_SECONDS`."""
        if any(self._unfetched.values()) and not self._pipe.is_broken:
            self._pull_soon()
        if (thread := self._thread) is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(thread.join, _CLOSE_SECONDS)

    def _on_event(self, session: str, entry: Entry) -> None:
        """Note a new checkpoint of the session, and request a fetch when one is due."""
        match entry.event:
            case Checkpointed(trees):
                with self._lock:
                    waiting = self._unfetched[session]
                    waiting.append(StoredCheckpoint(session, entry.seq, trees))
                is_rewound = self._records[session].view.checkpoints.follows_rewind
                if is_rewound or len(waiting) >= _PULL_AFTER_CHECKPOINTS:
                    self._pull_soon()
            case TurnEnded() if self._unfetched[session]:
                self._pull_soon()
            case _:
                pass

    def _pull_soon(self) -> None:
        """Request a fetch, and start the thread if none runs."""
        with self._lock:
            self._pull_requested = True
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._pull, daemon=True)
                self._thread.start()

    def _pull(self) -> None:
        """Fetch the checkpoints that wait, until no fetch is requested any more."""
        while True:
            with self._lock:
                if not self._pull_requested:
                    self._thread = None
                    return
                self._pull_requested = False
                unfetched = {
                    session: tuple(waiting) for session, waiting in self._unfetched.items()
                }
            for session, checkpoints in unfetched.items():
                if not checkpoints or not self._packs.pull(self._pipe.begin, checkpoints):
                    continue
                fetched = {checkpoint.seq for checkpoint in checkpoints}
                with self._lock:
                    self._unfetched[session] = [
                        checkpoint
                        for checkpoint in self._unfetched[session]
                        if checkpoint.seq not in fetched
                    ]

    def _on_connection(self, begin: Begin, greeting: PlaceGreeting) -> None:
        """Restore the files if this place is not the place in which the checkpoints were made."""
        known = self._packs.identity
        if self._keeps_files or not greeting.identity or known == greeting.identity:
            return
        if known and (stored := self._packs.stored()):
            newest = stored[-1]
            try:
                files = self._packs.rebuild(begin, newest, always=self.is_made_anew)
                self._rebuilt = _Rebuilt(newest, files)
            except ToolFailed as error:
                self._rebuilt = _Rebuilt(newest, files=None, problem=str(error))
            self._informed_sessions.clear()
        self.is_made_anew = False
        self._packs.note_identity(greeting.identity)

    def _record_from_thread(self) -> None:
        """Record the restored files, if this thread was started by an event loop."""
        all_are_informed = self._informed_sessions >= self._records.keys()
        if self._rebuilt is None or all_are_informed:
            return
        try:
            anyio.from_thread.run(self._record_rebuilt)
        # A thread that no event loop started called this; the next request records the files.
        except RuntimeError:
            return

    async def _record_rebuilt(self) -> None:
        """Record the restored files in each session that does not know of them yet."""
        rebuilt = self._rebuilt
        if rebuilt is None:
            return
        for session, record in self._records.items():
            if session in self._informed_sessions:
                continue
            self._informed_sessions.add(session)
            has_newest = rebuilt.newest.session == session
            since = rebuilt.newest.seq if has_newest else record.view.seq
            lost, calls = changes_after(await record.entries(since))
            event = PlaceRebuilt(
                self._pipe.address.text,
                restored=rebuilt.files is not None,
                checkpoint=rebuilt.newest.seq if has_newest else 0,
                files=rebuilt.files or 0,
                lost=lost,
                calls=calls,
                problem=rebuilt.problem,
            )
            await record.append_if(
                partial(_event_if_used, event), kept=True, author="place"
            )


def _event_if_used(event: PlaceRebuilt, view: View) -> Sequence[Event]:
    """Return the event for a session that has a checkpoint, otherwise nothing.

    A session without a checkpoint never used the lost place.
    """
    return (event,) if view.checkpoints.seq else ()


def changes_after(entries: Sequence[Entry]) -> tuple[tuple[str, ...], int]:
    """Return the files that these entries report as changed, and the number of calls that
    began.
    """
    paths = dict[str, None]()  # an ordered set
    calls = 0
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
