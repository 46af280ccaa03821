"""Watches the guarded paths of a workspace while commands write to it.

When the first writing command begins, the state of the guarded paths is recorded
(`guard_state`). When any writing command ends, the present state is compared with it, and
differences are undone (`guard_changes`). Commands that run at the same time share one recorded
state, so a change by one of them may be found when another ends.

The recorded state is also stored on the disk while commands run. If refold is killed, its next
start in the workspace compares with the stored state (`undo_after_kill`).
"""

import os
import time
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock

from msgspec import Struct
from msgspec.structs import replace

from refold.place.guard_state import (
    AllowedPaths,
    Fingerprint,
    GuardState,
    read_state,
)
from refold.place.guarded_paths import GuardedPaths, Guards, path_and_parents
from refold.place.port import GuardChange, GuardReport
from refold.place.private_files import make_directories
from refold.place.reaper import owner_lives, owner_token
from refold.safe_open import check_no_links, create_file, open_checked
from refold.values.path_names import below

# The endings of stored states: while a command runs, and while none does.
_RUNNING_SUFFIX, _IDLE_SUFFIX = ".running", ".resting"
_NOTES_DIRECTORY = "known"  # the directory of notes
# the time of a file may be behind the clock by less than this
_CLOCK_LAG_NANOSECONDS = 10_000_000
_HEARTBEAT_SECONDS = 20.0  # between two heartbeats of a running command
# A killed refold's command may have run this long after the last heartbeat.
_HEARTBEAT_MARGIN_NANOSECONDS = 60 * 1_000_000_000


class GuardedWorkspace(Struct, frozen=True):
    """The directories to which commands write, and the directories for refold's data.

    `roots` are searched for guarded paths. Commands also write to `repositories`, those of
    linked worktrees. Files are moved to `quarantine`. `states` is the directory for stored
    states; with "", none are stored. `git_settings` are the user's git settings files, in which
    `~` means `home`. `covered` directories are not searched, because commands do not see their
    content.
    """

    roots: tuple[str, ...]
    repositories: tuple[str, ...] = ()
    quarantine: str = ""
    states: str = ""
    home: str = ""
    git_settings: tuple[str, ...] = ()
    covered: tuple[str, ...] = ()


class StoredState(Struct, frozen=True, array_like=True):
    """A state before a command, with the directories to which it belongs.

    `held` are guarded directories to which no command could write.
    """

    roots: tuple[str, ...]
    repositories: tuple[str, ...]
    state: GuardState
    held: tuple[str, ...] = ()


class GuardWatch:
    """Watches the guarded paths of one workspace for all commands. Thread-safe."""

    def __init__(self, workspace: GuardedWorkspace) -> None:
        self.workspace = workspace
        self._guards = Guards(
            workspace.roots,
            workspace.home,
            workspace.git_settings,
            covered_directories=workspace.covered,
        )
        self._lock = Lock()
        self._running = list[AllowedPaths]()  # what each running command may change
        # the paths and their states when the first of the running commands began
        self._first_paths, self._state = GuardedPaths(), GuardState()
        self._stored, self._known = _Stored(workspace), _KnownChanges(workspace.states)
        # paths that no command since the first could write; None: none was recorded yet
        self._held: Set[str] | None = None
        self._unrestricted_count = 0  # number of commands that may have written anywhere
        self._reported = set[str]()

    def paths(self) -> GuardedPaths:
        """Return the guarded paths that can be mounted without a race.

        While commands write, these are only the paths that existed when the first of these
        commands began: they are mount points, which no command can rename. A path that appeared
        later could be renamed while it is being mounted for another command. Such a path is
        moved away when the command that created it ends.
        """
        with self._lock:
            paths = self._guards.paths()
            if not self._running:
                return paths
            return paths.only(self._first_paths.paths)

    def path_named_by_git(self, paths: Sequence[str]) -> str:
        """Return the first of `paths` that a git setting makes git run or read; "" for none."""
        with self._lock:
            return self._guards.path_named_by_git(paths)

    def begin(self, allowed: AllowedPaths) -> GuardedPaths:
        """Register a writing command before it starts. Return the paths to mount.

        These are the paths that the method `paths` returns. Call `end` or `cancel` later with
        the same object `allowed`. Raises `OSError` if the state cannot be stored.
        """
        with self._lock:
            paths = self._guards.paths()
            if not self._running:
                self._first_paths = paths
                self._state = read_state(paths, self._state)
                self._held = None
                self._unrestricted_count = 0
                self._stored.begin(self._state)
                self._known.begin()
            self._running.append(allowed)
            self._unrestricted_count += 1
            return paths.only(self._first_paths.paths)

    def record_unwritable(self, paths: Iterable[str]) -> None:
        """Record the paths to which the newly registered command can never write.

        Call this before the command starts; otherwise the command counts as able to write to
        all paths. Raises `OSError`.
        """
        with self._lock:
            held = frozenset(paths)
            self._held = held if self._held is None else self._held & held
            self._unrestricted_count -= 1
            self._stored.store_unwritable(self._certainly_held)

    @property
    def _certainly_held(self) -> Set[str]:
        """The paths to which no command could write since the state was recorded."""
        if self._unrestricted_count or self._held is None:
            return frozenset()
        return self._held

    def end(self, allowed: AllowedPaths) -> GuardReport:
        """Undo a command's changes of guarded paths. Return what was undone and what was not.

        Call this when all processes of the command have exited. `allowed` is the object that
        `begin` got.
        """
        # Imported late: a command that only reads has nothing to undo.
        from refold.place.guard_changes import Reach, undo_changes

        workspace = self.workspace
        with self._lock:
            try:
                paths = self._guards.paths()
                before = self._state
                after = read_state(paths, before, before.targets)
                roots = (*workspace.roots, *workspace.repositories)
                undone, accepted, by_others = undo_changes(
                    before,
                    after,
                    Reach(roots, workspace.quarantine, self._certainly_held),
                    self._running,
                    self._known.has,
                )
                self._known.note(before, after, undone, accepted)
            finally:
                self._running.remove(allowed)
            self._accept(after, [*accepted, *by_others])
            if not self._running:
                self._stored.end()
            changed_by_others = self._mark_reported(by_others)
        return GuardReport(tuple(undone), tuple(accepted), changed_by_others)

    def _mark_reported(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Return the guarded directories that contain `paths` and were never returned before.

        Each directory is reported once, because editors write all the time.
        """
        directories = set[str]()
        for path in paths:
            directories.update(path_and_parents(path))
        unreported = directories.intersection(self._held or ()) - self._reported
        self._reported |= unreported
        return tuple(sorted(unreported))

    def cancel(self, allowed: AllowedPaths) -> None:
        """Unregister a command that was not started after all."""
        with self._lock:
            self._running.remove(allowed)
            self._unrestricted_count -= 1
            if not self._running:
                self._stored.end()

    def record_heartbeat(self) -> None:
        """Record that a command still runs. Call it regularly.

        If refold is killed, changes long after the last call count as the user's.
        """
        self._stored.record_heartbeat()

    def close(self) -> None:
        self._stored.close()

    def _accept(self, state: GuardState, accepted_paths: Sequence[str]) -> None:
        """Make the present state of some paths the one that is expected from now on.

        `state` is the present state of all paths.
        """
        if not self._running or not accepted_paths:
            return
        prints, steps = dict(self._state.prints), dict(self._state.steps)
        for path in accepted_paths:
            for expected, present in ((prints, state.prints), (steps, state.steps)):
                expected.pop(path, None)
                if path in present:
                    expected[path] = present[path]
        self._state = replace(
            self._state,
            prints=prints,
            steps=steps,
            repositories=self._state.repositories | state.repositories,
            targets=self._state.targets | state.targets,
        )
        self._stored.begin(self._state)  # stored for the case that refold is killed


class _Stored:
    """The state on the disk. Its file is only renamed while the state stays the same."""

    def __init__(self, workspace: GuardedWorkspace) -> None:
        self._workspace = workspace
        name = f"{owner_token()}.{os.urandom(4).hex()}"
        self._file = os.path.join(workspace.states, name) if workspace.states else ""
        self._state: GuardState | None = None
        self._held: Set[str] = frozenset()
        self._last_beat = 0.0

    def begin(self, state: GuardState) -> None:
        """Store the state as that of a running command. Raises `OSError`.

        If the same state is stored already, for no running command, its file is only renamed.
        """
        if not self._file:
            return
        self._last_beat = 0.0
        if self._state == state:
            with suppress(FileNotFoundError):
                os.rename(self._file + _IDLE_SUFFIX, self._file + _RUNNING_SUFFIX)
                self.record_heartbeat()
                return
        self._write(state)

    def store_unwritable(self, paths: Set[str]) -> None:
        """Store the paths to which commands cannot write, if they have changed."""
        if self._file and self._held != paths:
            self._held = paths
            if self._state is not None:
                self._write(self._state)

    def _write(self, state: GuardState) -> None:
        """Write the state to a new file, under the name that says that a command runs."""
        import msgspec

        self._state = None  # unknown if the writing fails
        folder = Path(self._workspace.states)
        make_directories(folder)
        check_no_links(folder)
        workspace = self._workspace
        held = tuple(sorted(self._held))
        stored = StoredState(workspace.roots, workspace.repositories, state, held)
        new = Path(f"{self._file}.new")
        with suppress(FileNotFoundError):
            new.unlink()
        create_file(new, msgspec.msgpack.encode(stored))
        new.rename(self._file + _RUNNING_SUFFIX)
        with suppress(FileNotFoundError):
            os.unlink(self._file + _IDLE_SUFFIX)
        self._state = state

    def record_heartbeat(self) -> None:
        """Set the time of the stored state, at intervals, to show that this process lives."""
        clock = time.monotonic()
        if self._file and clock > self._last_beat + _HEARTBEAT_SECONDS:
            self._last_beat = clock
            with suppress(OSError):
                os.utime(self._file + _RUNNING_SUFFIX)

    def end(self) -> None:
        """Rename the file: no command runs, so after a kill nothing must be undone."""
        if self._file:
            with suppress(OSError):  # another program emptied our directory
                os.rename(self._file + _RUNNING_SUFFIX, self._file + _IDLE_SUFFIX)

    def close(self) -> None:
        """Delete the file, unless a command runs."""
        if self._file and self._state is not None:
            with suppress(OSError):
                os.unlink(self._file + _IDLE_SUFFIX)
            self._state = None


class _KnownChanges:
    """Notes about changes that refold made or allowed, for all sessions in the workspace.

    Another session or process has recorded a state of its own, and must not undo these changes.
    """

    def __init__(self, states: str) -> None:
        self._folder = os.path.join(states, _NOTES_DIRECTORY) if states else ""
        self._since = 0

    def begin(self) -> None:
        self._since = time.time_ns() - _CLOCK_LAG_NANOSECONDS

    def has(self, path: str, current: Fingerprint | None) -> bool:
        """Whether refold made or allowed the present state of `path`.

        `current` is this state. None means that the path does not exist; then the removal of a
        directory above it counts, too.
        """
        if not self._folder:
            return False
        if current is not None:
            return self._is_noted(path, current)
        return any(self._is_noted(above, None) for above in path_and_parents(path))

    def note(
        self,
        before: GuardState,
        after: GuardState,
        changes: Sequence[GuardChange],
        accepted_paths: Sequence[str],
    ) -> None:
        """Note the present state of the paths that refold restored, and of the accepted paths."""
        fingerprints = {change.path: before.fingerprint(change.path) for change in changes}
        fingerprints |= {path: after.fingerprint(path) for path in accepted_paths}
        if not fingerprints or not self._folder:
            return
        make_directories(Path(self._folder))
        for path, fingerprint in fingerprints.items():
            file = self._note_file(path, fingerprint)
            # If this fails, another process may undo the change, but nothing is lost.
            with suppress(OSError):
                os.close(open_checked(file, os.O_WRONLY | os.O_CREAT))
                os.utime(file)

    def _is_noted(self, path: str, current: Fingerprint | None) -> bool:
        """Whether this state of `path` was noted since the first command began."""
        try:
            return os.stat(self._note_file(path, current)).st_mtime_ns >= self._since
        except OSError:
            return False

    def _note_file(self, path: str, fingerprint: Fingerprint | None) -> str:
        """Return the path of the note for a state of `path`, named by a hash of the state."""
        state: tuple[object, ...] = (path,)
        if fingerprint is not None:
            digest = fingerprint.digest.hex()
            state += (fingerprint.kind, fingerprint.mode, fingerprint.target, digest)
        text = repr(state).encode(errors="surrogateescape")
        return os.path.join(self._folder, sha256(text).hexdigest())


def undo_after_kill(workspace: GuardedWorkspace) -> list[GuardChange]:
    """Undo changes of guarded paths by commands whose refold was killed. Return the changes."""
    changes = list[GuardChange]()
    try:
        names = sorted(os.listdir(workspace.states)) if workspace.states else []
    except OSError:
        return changes
    for name in names:
        if name == _NOTES_DIRECTORY:
            continue
        file = os.path.join(workspace.states, name)
        if not owner_lives(name):
            changes += _undo(file, workspace)
    return changes


def _undo(file: str, workspace: GuardedWorkspace) -> list[GuardChange]:
    """Undo the changes since the state in `file`, and delete the file. Return the changes.

    The refold that stored it has exited.
    """
    if not file.endswith(_RUNNING_SUFFIX):  # no command ran
        with suppress(OSError):
            os.unlink(file)
        return []
    from refold.place.guard_changes import Reach, undo_changes

    # Two processes may find the file: the one that renames it does the comparison.
    mine = f"{file}.{owner_token()}"
    try:
        os.rename(file, mine)
    except OSError:
        return []
    stored, end_ns = _read_stored(mine)
    stored_roots = (*stored.roots, *stored.repositories)
    if not _overlap(stored_roots, workspace.roots):
        os.rename(mine, file)  # the state belongs to another workspace
        return []
    state = stored.state
    guards = Guards(
        stored.roots,
        workspace.home,
        workspace.git_settings,
        beyond=state.beyond,
        covered_directories=workspace.covered,
    )
    current = read_state(guards.paths(), state, state.targets)
    before = _with_changes_since(state, current, end_ns)
    reach = Reach(stored_roots, workspace.quarantine, frozenset(stored.held))

    # No command of another refold ran in between, so no note is needed to judge the changes.
    def _is_known(_path: str, _current: Fingerprint | None) -> bool:
        return False

    undone = undo_changes(before, current, reach, allowed=(), is_known=_is_known)
    changes = undone.made
    # Another refold may have begun a command meanwhile, and may have read the changes that
    # were just undone.
    _KnownChanges(workspace.states).note(before, current, changes, accepted_paths=())
    with suppress(OSError):
        os.unlink(mine)
    return changes


def _overlap(paths: Sequence[str], others: Sequence[str]) -> bool:
    """Whether one of `paths` is the same as, above or below one of `others`."""
    return any(below(a, b) or below(b, a) for a in paths for b in others)


def _read_stored(file: str) -> tuple[StoredState, int]:
    """Return the stored state, and a time by which its last command had certainly ended.

    The time is in nanoseconds since 1970. If the file is damaged, return an empty state and 0.
    """
    import msgspec

    try:
        data = Path(file).read_bytes()
        last_beat_ns = os.stat(file).st_mtime_ns
        stored = msgspec.msgpack.decode(data, type=StoredState)
    except (OSError, msgspec.DecodeError):
        return StoredState(roots=(), repositories=(), state=GuardState()), 0
    return stored, last_beat_ns + _HEARTBEAT_MARGIN_NANOSECONDS


def _with_changes_since(before: GuardState, current: GuardState, end_ns: int) -> GuardState:
    """Return the state `before`, updated with the changes that were made after `end_ns`.

    No command ran after `end_ns`, so the user made these changes, and they are not undone.
    """
    prints, steps = dict(before.prints), dict(before.steps)
    for updated, present in ((prints, current.prints), (steps, current.steps)):
        for path, fingerprint in present.items():
            if fingerprint.changed > end_ns:
                updated[path] = fingerprint
    for deleted_path in before.prints.keys() - current.prints.keys():
        with suppress(OSError):
            # deleting a file changes its directory
            directory_status = os.lstat(os.path.dirname(deleted_path))
            if directory_status.st_ctime_ns > end_ns:
                del prints[deleted_path]
    return replace(before, prints=prints, steps=steps)
