"""The files of sessions on a worker: they leave it after each turn, and follow to another worker.

After a turn, a rewind, and every 20th checkpoint in a turn, what is new goes to the bucket while the
session continues. A worker that takes a session over restores the newest files that left before the
session is opened, and one event says what may be lost since. Until the files have left, a claim that
ends by itself does not end. `cluster.workspace_packs` has the packs.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from anyio import to_thread
from msgspec import Struct

from refold.app.checkpoints_at_home import changes_after
from refold.app.workspace import checkpoints
from refold.client.elsewhere import address_of_directory
from refold.client.resume import SessionDirectory, find_directory
from refold.cluster.bucket import TenantObjects
from refold.cluster.workspace_packs import StoredFiles, WorkspacePacks, trees_below
from refold.config.paths import Paths
from refold.errors import RefoldError, ToolFailed
from refold.journal.events.child_events import PlaceRebuilt
from refold.journal.events.kinds import (
    Checkpointed,
    Entry,
    FilesRestored,
    TurnEnded,
)
from refold.journal.session_index import SessionIndex
from refold.place.checkpoints import Checkpoints
from refold.session.recorder import Recorder
from refold.values.path_names import below

PUSH_AFTER_CHECKPOINTS = 20  # in one turn
_LEAVE_SECONDS = 60.0  # that the end of a claim waits for a push
_NOTHING_LEFT = "no checkpoint of it had left the worker that it ran on"


class _Arrival(Struct, frozen=True):
    """What a worker found when it took a session over. `stored` is None if nothing had left."""

    stored: StoredFiles | None
    files: int = 0  # number of files that were restored
    problem: str = ""


class FollowingFiles:
    """Of all sessions of this worker. `report` is called with why files could not be stored."""

    def __init__(
        self,
        objects: TenantObjects,
        paths: Paths,
        environ: Mapping[str, str],
        report: Callable[[str], None],
    ) -> None:
        self._objects, self._paths, self._environ = objects, paths, environ
        self._report = report
        self._arrivals = dict[str, _Arrival]()

    def bring(
        self,
        home: SessionIndex,
        session: str,
        otherwise: Path,
        allows: Callable[[str], bool] = lambda _: True,
    ) -> SessionDirectory:
        """The directory in which a session continues here, with its newest files. Blocks.

        They are restored into the directory of the journal if that is missing or empty here and this
        worker `allows` it, and else into one of the session's own: what is there may belong to others.
        """
        recorded = home.directories(session).directory
        if not recorded or address_of_directory(os.path.realpath(recorded)):
            return find_directory(home, session, otherwise)
        packs, directory = self._packs(session), Path(os.path.realpath(recorded))
        stored = packs.newest()
        if stored is None:
            if not (directory.is_dir() and packs.was_here(directory)):
                self._arrivals[session] = _Arrival(None, problem=_NOTHING_LEFT)
            return find_directory(home, session, otherwise)
        if directory.is_dir() and packs.is_here(stored, directory):
            return find_directory(home, session, otherwise)
        try:
            target = self._target(session, directory, allows)
            self._arrivals[session] = _Arrival(stored, packs.restore(stored, target))
        except (ToolFailed, OSError) as error:
            self._arrivals[session] = _Arrival(stored, problem=str(error))
            return find_directory(home, session, otherwise)
        rest = find_directory(home, session, target)
        return SessionDirectory(target, rest.roots, rest.notices)

    def follow(self, session: str, record: Recorder) -> "FollowedFiles":
        """Begin to watch an open session. Call `arrive` once it is leased."""
        return FollowedFiles(
            self._packs(session), record, self._arrivals.pop(session, None), self._report
        )

    def _packs(self, session: str) -> WorkspacePacks:
        return WorkspacePacks(self._objects, session, self._open_checkpoints)

    def _open_checkpoints(self, directory: Path, session: str) -> Checkpoints:
        return checkpoints((directory,), self._paths, self._environ, session)

    def _target(self, session: str, directory: Path, allows: Callable[[str], bool]) -> Path:
        own = self._paths.server / "workspaces" / session
        if directory != own and allows(str(directory)) and not _has_files(directory):
            with suppress(OSError):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                return directory
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(os.path.realpath(own))


class FollowedFiles:
    """The files of one open session. `run` stores them until it is cancelled."""

    def __init__(
        self,
        packs: WorkspacePacks,
        record: Recorder,
        arrival: _Arrival | None,
        report: Callable[[str], None],
    ) -> None:
        self._packs, self.record, self._report = packs, record, report
        self._arrival = arrival
        self._stored: StoredFiles | None = None
        self._has_looked = False  # for what is stored
        self._wanted: StoredFiles | None = None
        self._since_push, self._problem = 0, ""
        self._is_off = False  # the stored files are not here, and must not be replaced
        self._news, self._idle = anyio.Event(), anyio.Event()
        self._idle.set()

    async def arrive(self) -> None:
        """Record what may be lost, and then that the files are here now."""
        arrival, self._arrival = self._arrival, None
        directory = self._directory
        if arrival is None:
            await to_thread.run_sync(self._packs.note_presence, directory)
            return
        stored = arrival.stored
        entries = await self.record.entries(stored.seq if stored else 0)
        lost, calls = changes_after(_after_last_arrival(entries))
        event = PlaceRebuilt(
            "",
            restored=not arrival.problem,
            checkpoint=stored.seq if stored else 0,
            files=arrival.files,
            lost=lost,
            calls=calls,
            problem=arrival.problem,
        )
        if arrival.files or calls or (stored and arrival.problem):
            await self.record(event, kept=True, author="place")
        self._is_off = stored is not None and bool(arrival.problem)
        if stored is None or arrival.problem:
            await to_thread.run_sync(self._packs.note_presence, directory)
            return
        here = StoredFiles(
            self.record.epoch,
            stored.seq,
            trees_below(stored.trees, str(directory)),
            stored.packs,
        )
        self._stored = await to_thread.run_sync(self._packs.publish, directory, here)
        self._has_looked = True

    def note(self, entry: Entry) -> None:
        """Receive an event."""
        match entry.event:
            case Checkpointed():
                self._since_push += 1
                if self._since_push >= PUSH_AFTER_CHECKPOINTS:
                    self._want_push(entry)
            case TurnEnded() | FilesRestored():
                self._want_push(entry)
            case _:
                pass

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            wanted, self._wanted = self._wanted, None
            if wanted is not None:
                await to_thread.run_sync(self._push, wanted)
            if self._wanted is None:
                self._idle.set()

    async def finish(self) -> None:
        """Wait for a push, as long as the end of a claim may take."""
        with anyio.move_on_after(_LEAVE_SECONDS):
            await self._idle.wait()

    @property
    def _directory(self) -> Path:
        return Path(os.path.realpath(self.record.view.session.own_directory))

    def _want_push(self, entry: Entry) -> None:
        if self._is_off:
            return
        newest, own = self.record.view.checkpoints.newest, str(self._directory)
        trees = sorted(
            pair for pair in newest.trees if pair[0] == own or below(pair[0], own)
        )
        if not trees or trees[0][0] != own:  # a worktree, which stays on its worker
            return
        self._since_push = 0
        self._wanted = StoredFiles(entry.epoch, newest.seq, tuple(trees))
        self._idle = anyio.Event()
        self._news.set()

    def _push(self, wanted: StoredFiles) -> None:
        """Store the files. What fails is part of the next push."""
        directory = Path(wanted.trees[0][0])
        try:
            if not self._has_looked:
                self._stored, self._has_looked = self._packs.newest(), True
            stored = self._stored
            if stored and (stored.trees, stored.epoch) == (wanted.trees, wanted.epoch):
                return
            self._stored = self._packs.push(directory, stored, wanted)
            self._problem = ""
        except (RefoldError, OSError) as error:
            if str(error) != self._problem:
                self._problem = str(error)
                self._report(
                    f"the newest files of a session are only on this worker: {error}"
                )


def _has_files(directory: Path) -> bool:
    try:
        return any(directory.iterdir())
    except FileNotFoundError:
        return False


def _after_last_arrival(entries: Sequence[Entry]) -> Sequence[Entry]:
    """What no earlier worker has reported as lost."""
    for number in reversed(range(len(entries))):
        event = entries[number].event
        if isinstance(event, PlaceRebuilt) and not event.place:
            return entries[number + 1 :]
    return entries
