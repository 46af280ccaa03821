"""Stores the files of a worker's sessions in a bucket, and restores them on another worker.

New files are stored (pushed) while the session continues: after a turn, after a rewind, and
at every 20th checkpoint in a turn. Only checkpoints that this worker took are stored,
because it does not have the files of earlier ones. A worker that takes a session over
restores the newest stored files before it opens the session, and records one event about
what may be lost since then. The end of a claim waits until the files are stored.
`cluster.workspace_packs` defines what is in the bucket.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio
from anyio import to_thread
from msgspec import Struct

from refold.app.checkpoints_at_home import changes_after
from refold.app.workspace import checkpoints
from refold.client.resume import SessionDirectory, find_directory
from refold.cluster.bucket import TenantObjects
from refold.cluster.workspace_packs import StoredFiles, WorkspacePacks, trees_below
from refold.config.paths import Paths
from refold.errors import Disconnected, RefoldError, ToolFailed
from refold.journal.events.child_events import PlaceRebuilt
from refold.journal.events.kinds import (
    Checkpointed,
    Entry,
    TurnEnded,
)
from refold.journal.session_index import SessionIndex
from refold.place.checkpoints import Checkpoints
from refold.session.recorder import Recorder
from refold.values.path_names import below

PUSH_AFTER_CHECKPOINTS = 20  # of one turn
_MAX_PUSH_WAIT_SECONDS = 60.0  # for which the end of a claim waits for a push
_NEWER_FILES = "another worker stored files of this session while this one opened it"
_NOTHING_LEFT = "no checkpoint of it had left the worker that it ran on"


class _Arrival(Struct, frozen=True):
    """What a worker found when it took over a session.

    `stored` are the stored files that were newest then; None if there were none.
    """

    stored: StoredFiles | None
    files: int = 0  # number of files that were restored
    problem: str = ""  # why files are missing


class FollowingFiles:
    """Restores the files of all sessions of this worker, and makes the objects that store them.

    `report` is called with the reason if files could not be stored.
    """

    def __init__(
        self,
        objects: TenantObjects,
        paths: Paths,
        environ: Mapping[str, str],
        report: Callable[[str], None],
    ) -> None:
        self._objects = objects
        self._paths = paths
        self._environ = environ
        self._report = report
        self._arrivals = dict[str, _Arrival]()
        # For each session, the name of the newest stored files when it was opened.
        self._seen = dict[str, str]()

    def restore(
        self,
        home: SessionIndex,
        session: str,
        otherwise: Path,
        allows: Callable[[str], bool] = lambda _: True,
    ) -> SessionDirectory:
        """Restore the newest stored files of a session, and return the session's directory.

        If the directory that the journal names is allowed (`allows`), and is missing or empty
        here, the files are restored into this directory. Otherwise they are restored into a
        directory for this session alone, because the journal's directory may have files of
        other sessions. Nothing is restored if the files are here already, or if none were
        stored. `otherwise` is used if the journal names no directory, or a directory that
        does not exist. It blocks.
        """
        recorded = home.directories(session).directory
        if not recorded:
            return find_directory(home, session, otherwise)
        packs = self._packs(session)
        directory = Path(os.path.realpath(recorded))
        stored = packs.newest()
        self._seen[session] = stored.name if stored else ""
        if stored is None:
            exists = directory.is_dir()
            has_files_of_session = exists and bool(packs.presence(directory))
            if not has_files_of_session:
                self._arrivals[session] = _Arrival(stored=None, problem=_NOTHING_LEFT)
            target = directory if exists else self._target(session, directory, allows)
            return _in_directory(home, session, target)
        if directory.is_dir() and packs.is_here(stored, directory):
            return find_directory(home, session, otherwise)
        try:
            target = self._target(session, directory, allows)
            restored_files = packs.restore(stored, target)
            self._arrivals[session] = _Arrival(stored, files=restored_files)
        except (ToolFailed, OSError) as error:
            self._arrivals[session] = _Arrival(stored, problem=str(error))
            return find_directory(home, session, otherwise)
        return _in_directory(home, session, target)

    def follow(self, session: str, record: Recorder) -> "FollowedFiles":
        """Return the object that stores the files of a session from its opening on.

        Call its method `record_arrival` once the session is leased.
        """
        arrival = self._arrivals.pop(session, None)
        seen = self._seen.pop(session, "")
        return FollowedFiles(self._packs(session), record, arrival, seen, self._report)

    def _packs(self, session: str) -> WorkspacePacks:
        return WorkspacePacks(self._objects, session, self._open_checkpoints)

    def _open_checkpoints(self, directory: Path, session: str) -> Checkpoints:
        return checkpoints((directory,), self._paths, self._environ, session)

    def _target(self, session: str, directory: Path, allows: Callable[[str], bool]) -> Path:
        """Create and return the directory into which files are restored.

        The result is `directory` if that is allowed and empty, otherwise a directory for this
        session alone.
        """
        own = self._paths.server / "workspaces" / session
        if directory != own and allows(str(directory)) and not _has_files(directory):
            try:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError:
                pass  # it cannot be created on this machine
            else:
                return directory
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(os.path.realpath(own))


class FollowedFiles:
    """Stores the files of one open session, while `run` runs.

    `seen` is the name of the newest stored files when the session was opened; "" if there
    were none.
    """

    def __init__(
        self,
        packs: WorkspacePacks,
        record: Recorder,
        arrival: _Arrival | None,
        seen: str,
        report: Callable[[str], None],
    ) -> None:
        self._packs = packs
        self.record = record
        self._report = report
        # How the files came to this worker; None if none were restored, or after it is recorded.
        self._arrival = arrival
        self._seen: str | None = seen  # None after the first `record_arrival`: unknown
        self._stored: StoredFiles | None = None  # the newest in the bucket
        self._knows_stored = False  # whether `_stored` was read from the bucket
        self._next_push: StoredFiles | None = None  # what `run` stores next
        self._checkpoints_since_push = 0
        self._problem = ""  # why the last push failed; it is reported once
        self._arrived_seq = 0  # checkpoints up to this event are of another worker's files
        # If stored files could not be restored here, nothing may be stored over them.
        self._is_off = False
        self._push_requested = anyio.Event()
        self._idle = anyio.Event()  # set while no push runs or is requested
        self._idle.set()

    @property
    def are_complete(self) -> bool:
        """Whether all files that the session had are on this worker."""
        return self._arrival is None or not self._arrival.problem

    async def record_arrival(self) -> None:
        """Record in the journal what may be lost, and in the bucket that the files are here.

        Raises `Disconnected` if another worker stored files after this worker opened the
        session and before it leased it. The next attempt restores these files.
        """
        arrival = self._arrival
        self._arrival = None
        seen = self._seen
        self._seen = None
        directory = self._directory
        newest = await to_thread.run_sync(self._packs.newest)
        newest_name = newest.name if newest else ""
        if seen is not None and seen != newest_name:
            raise Disconnected(_NEWER_FILES)
        # The epoch (number) of the last writer whose files are in the directory; 0: of none.
        had_until = await to_thread.run_sync(self._packs.presence, directory)
        # Without an arrival, `restore` found the newest files here, the session is new (0), or
        # its last writer was here.
        was_last_writer = had_until == self.record.epoch - 1
        is_complete = newest is not None or had_until == 0 or was_last_writer
        if arrival is None and is_complete:
            await self._note_presence(directory)
            return
        if arrival is None:
            arrival = _Arrival(stored=None, problem=_NOTHING_LEFT)
        stored = arrival.stored
        await self._record_losses(arrival, had_until)
        self._arrived_seq = self.record.view.seq
        if stored is None or arrival.problem:
            self._is_off = stored is not None
            await self._note_presence(directory)
            return
        self._is_off = False
        trees = trees_below(stored.trees, str(directory))
        files = StoredFiles(self.record.epoch, stored.seq, trees, stored.packs)
        self._stored = await to_thread.run_sync(self._packs.publish, directory, files)
        self._knows_stored = True

    async def _record_losses(self, arrival: _Arrival, had_until: int) -> None:
        """Record which changes of files are missing on this worker, if there is anything to
        record.

        Changes that another worker has reported as lost may be present on this worker. This
        is recorded, too. `had_until` is the epoch of the last writer whose files are in the
        directory.
        """
        stored = arrival.stored
        checkpoint = stored.seq if stored else 0
        entries = await self.record.entries(checkpoint)
        is_back = False
        if stored is not None:
            unreported = _after_last_arrival(entries)
        else:  # this worker's files have its own earlier changes
            checkpoint = _newest_checkpoint(entries, had_until)
            later = [entry for entry in entries if entry.epoch > had_until]
            unreported = _after_last_arrival(later)
            # Another worker has reported changes as lost that are on this worker.
            is_back = bool(checkpoint) and len(unreported) < len(later)
        lost, calls = changes_after(unreported)
        event = PlaceRebuilt(
            place="",
            restored=not arrival.problem,
            checkpoint=checkpoint,
            files=arrival.files,
            lost=lost,
            calls=calls,
            problem="" if is_back else arrival.problem,
        )
        if arrival.files or calls or is_back or (stored and arrival.problem):
            await self.record(event, kept=True, author="place")

    def note(self, entry: Entry) -> None:
        """Request a push if the event ends a turn, follows a rewind, or is the 20th
        checkpoint.
        """
        match entry.event:
            case Checkpointed():
                self._checkpoints_since_push += 1
                is_rewound = self.record.view.checkpoints.follows_rewind
                if is_rewound or self._checkpoints_since_push >= PUSH_AFTER_CHECKPOINTS:
                    self._request_push(entry)
            case TurnEnded():
                self._request_push(entry)
            case _:
                pass

    async def _note_presence(self, directory: Path) -> None:
        """Record on this machine that the directory has the session's files up to this
        writer.
        """
        epoch = self.record.epoch
        await to_thread.run_sync(self._packs.note_presence, directory, epoch)

    async def run(self) -> None:
        """Store the files of requested pushes, one after the other, until cancelled."""
        while True:
            await self._push_requested.wait()
            self._push_requested = anyio.Event()
            files = self._next_push
            self._next_push = None
            if files is not None:
                await to_thread.run_sync(self._push, files)
            if self._next_push is None:
                self._idle.set()

    async def finish(self) -> None:
        """Wait until no push runs, but not longer than the end of a claim may take."""
        with anyio.move_on_after(_MAX_PUSH_WAIT_SECONDS):
            await self._idle.wait()

    @property
    def _directory(self) -> Path:
        return Path(os.path.realpath(self.record.view.session.own_directory))

    def _request_push(self, entry: Entry) -> None:
        """Have `run` store the newest checkpoint, unless it is of another worker's files."""
        if self._is_off:
            return
        newest = self.record.view.checkpoints.newest
        if newest.seq <= self._arrived_seq:
            return
        own = str(self._directory)
        trees = dict(newest.trees)
        # Without the session's own directory, it works in a worktree, which stays on its worker.
        if own not in trees:
            return
        # The own directory sorts before those below it.
        stored = sorted(
            (root, tree) for root, tree in newest.trees if root == own or below(root, own)
        )
        self._checkpoints_since_push = 0
        self._next_push = StoredFiles(entry.epoch, newest.seq, tuple(stored))
        self._idle = anyio.Event()
        self._push_requested.set()

    def _push(self, files: StoredFiles) -> None:
        """Store the files of a checkpoint. If that fails, they are part of the next push."""
        directory, _ = files.trees[0]  # the session's own, see `_request_push`
        try:
            if not self._knows_stored:
                self._stored = self._packs.newest()
                self._knows_stored = True
            stored = self._stored
            if stored and (stored.trees, stored.epoch) == (files.trees, files.epoch):
                return  # nothing has changed
            self._stored = self._packs.push(Path(directory), stored, files)
            self._problem = ""
        except (RefoldError, OSError) as error:
            if str(error) != self._problem:
                self._problem = str(error)
                self._report(
                    f"the newest files of a session are only on this worker: {error}"
                )


def _in_directory(home: SessionIndex, session: str, target: Path) -> SessionDirectory:
    """Return `target` as the session's directory, with the further directories of its
    journal.
    """
    recorded = find_directory(home, session, target)
    return SessionDirectory(target, recorded.roots, recorded.notices)


def _has_files(directory: Path) -> bool:
    """Return whether the directory contains anything; False if it does not exist."""
    try:
        return any(directory.iterdir())
    except FileNotFoundError:
        return False


def _newest_checkpoint(entries: Sequence[Entry], epoch: int) -> int:
    """Return the event number of the newest checkpoint by a writer with an epoch up to `epoch`.

    Return 0 if there is none.
    """
    return max(
        (
            entry.seq
            for entry in entries
            if entry.epoch <= epoch and isinstance(entry.event, Checkpointed)
        ),
        default=0,
    )


def _after_last_arrival(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries after the last event with which a worker reported what may be lost.

    Return all entries if no worker has reported anything.
    """
    for index in reversed(range(len(entries))):
        event = entries[index].event
        # With a `place`, it is about a machine elsewhere.
        if isinstance(event, PlaceRebuilt) and not event.place:
            return entries[index + 1 :]
    return entries
