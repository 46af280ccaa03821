"""Watches the guarded paths of a workspace while commands write in it.

When the first command that writes begins, the state is read (`guard_state`). When any command
ends, what lies there is compared with it, and what differs is undone (`guard_changes`). Commands
that run at the same time share one state: what one of them does is found when another ends.

The state is stored while a command runs. If refold is killed, the next start in the workspace
compares with it (`undo_after_kill`).
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

_RUNS, _RESTS = ".running", ".resting"  # endings of stored states
_NOTES_DIRECTORY = "known"  # the directory of notes
_CLOCK_LAG_NANOSECONDS = 10_000_000  # by which the time of a file may be behind the clock
_HEARTBEAT_SECONDS = 20.0  # between two heartbeats of a running command
# After the last heartbeat, in which it may still have run.
_HEARTBEAT_MARGIN_NANOSECONDS = 60 * 1_000_000_000


class GuardedWorkspace(Struct, frozen=True):
    """Where commands write, and where refold puts what it moves out of there.

    `roots` are searched for guarded paths; the `repositories` of linked worktrees are written,
    too. `states` is the directory for stored states; "" for none. `git_settings` are the user's
    files of git's settings, in which `~` is `home`. Commands do not see what is in `covered`
    directories, and it is not searched.
    """

    roots: tuple[str, ...]
    repositories: tuple[str, ...] = ()
    quarantine: str = ""
    states: str = ""
    home: str = ""
    git_settings: tuple[str, ...] = ()
    covered: tuple[str, ...] = ()


class StoredState(Struct, frozen=True, array_like=True):
    """The state from before a command, with the directories in which it is compared.

    `held` are guarded directories that no command could write.
    """

    roots: tuple[str, ...]
    repositories: tuple[str, ...]
    state: GuardState
    held: tuple[str, ...] = ()


class GuardWatch:
    """Watches one workspace for all its commands. All methods are thread-safe."""

    def __init__(self, workspace: GuardedWorkspace) -> None:
        self.workspace = workspace
        self._guards = Guards(
            workspace.roots,
            workspace.home,
            workspace.git_settings,
            covered_directories=workspace.covered,
        )
        self._lock, self._running = Lock(), list[AllowedPaths]()
        self._first, self._state = GuardedPaths(), GuardState()
        self._stored, self._known = _Stored(workspace), _KnownChanges(workspace.states)
        self._held: Set[str] | None = None  # by every command since the first began
        self._unheld = 0  # commands that began and may have written anywhere
        self._reported = set[str]()

    def paths(self) -> GuardedPaths:
        """The guarded paths that can be mounted without a race.

        While a command writes, it may rename what it created since it began, but not what
        existed then: a mount point cannot be renamed. So guarded paths that appeared since
        are not mounted for others; the command that created them can write them anyway, and
        they are moved away in the end.
        """
        with self._lock:
            paths = self._guards.paths()
            return paths.only(self._first.paths) if self._running else paths

    def path_named_by_git(self, paths: Sequence[str]) -> str:
        """The first of these paths that a git setting makes git run or read; "" for none."""
        with self._lock:
            return self._guards.path_named_by_git(paths)

    def begin(self, allowed: AllowedPaths) -> GuardedPaths:
        """Register a command that writes, before it starts. Return what `paths` returns.

        Raises `OSError` where the state cannot be stored.
        """
        with self._lock:
            paths = self._guards.paths()
            if not self._running:
                self._first = paths
                self._state = read_state(paths, self._state)
                self._held, self._unheld = None, 0
                self._stored.begin(self._state)
                self._known.begin()
            self._running.append(allowed)
            self._unheld += 1
            return paths.only(self._first.paths)

    def record_unwritable(self, paths: Iterable[str]) -> None:
        """Record that the command that began last can never write these paths.

        Call it before the command starts; without a call, it may write all. Raises `OSError`.
        """
        with self._lock:
            held = frozenset(paths)
            self._held = held if self._held is None else self._held & held
            self._unheld -= 1
            self._stored.store_unwritable(self._all_held)

    @property
    def _all_held(self) -> Set[str]:
        return frozenset() if self._unheld or self._held is None else self._held

    def end(self, allowed: AllowedPaths) -> GuardReport:
        """Undo a command's changes to guarded paths, after all its processes have
        exited."""
        # A read-only command has no state.
        from refold.place.guard_changes import Reach, undo_changes

        workspace = self.workspace
        with self._lock:
            try:
                paths, before = self._guards.paths(), self._state
                state = read_state(paths, before, before.targets)
                roots = (*workspace.roots, *workspace.repositories)
                undone, accepted, by_others = undo_changes(
                    before,
                    state,
                    Reach(roots, workspace.quarantine, self._all_held),
                    self._running,
                    self._known.has,
                )
                self._known.note(before, state, undone, accepted)
            finally:
                self._running.remove(allowed)
            self._accept(state, [*accepted, *by_others])
            if not self._running:
                self._stored.end()
            others = self._mark_reported(by_others)
        return GuardReport(tuple(undone), tuple(accepted), others)

    def _mark_reported(self, paths: Sequence[str]) -> tuple[str, ...]:
        """The guarded directories of these paths that no report has named yet.

        Each is reported once, because editors write all the time.
        """
        held = self._held or ()
        tops = {top for path in paths for top in path_and_parents(path) if top in held}
        new = tops - self._reported
        self._reported |= new
        return tuple(sorted(new))

    def cancel(self, allowed: AllowedPaths) -> None:
        """Unregister a command that was not started after all."""
        with self._lock:
            self._running.remove(allowed)
            self._unheld -= 1
            if not self._running:
                self._stored.end()

    def record_heartbeat(self) -> None:
        """Record that a command still runs: if refold is killed, later changes are not its own."""
        self._stored.record_heartbeat()

    def close(self) -> None:
        self._stored.close()

    def _accept(self, state: GuardState, accepted_paths: Sequence[str]) -> None:
        """Compare later changes of these paths with their present state."""
        if not self._running or not accepted_paths:
            return
        prints, steps = dict(self._state.prints), dict(self._state.steps)
        for path in accepted_paths:
            for ours, theirs in ((prints, state.prints), (steps, state.steps)):
                ours.pop(path, None)
                if path in theirs:
                    ours[path] = theirs[path]
        self._state = replace(
            self._state,
            prints=prints,
            steps=steps,
            repositories=self._state.repositories | state.repositories,
            targets=self._state.targets | state.targets,
        )
        self._stored.begin(self._state)


class _Stored:
    """The state on the disk. Most commands find it unchanged and only rename it."""

    def __init__(self, workspace: GuardedWorkspace) -> None:
        self._workspace = workspace
        name = f"{owner_token()}.{os.urandom(4).hex()}"
        self._file = os.path.join(workspace.states, name) if workspace.states else ""
        self._state: GuardState | None = None
        self._held: Set[str] = frozenset()
        self._last_beat = 0.0

    def begin(self, state: GuardState) -> None:
        if not self._file:
            return
        self._last_beat = 0.0
        if self._state == state:
            with suppress(FileNotFoundError):
                os.rename(self._file + _RESTS, self._file + _RUNS)
                self.record_heartbeat()
                return
        self._write(state)

    def store_unwritable(self, paths: Set[str]) -> None:
        """Store the held paths, if they differ from those of the last command."""
        if self._file and self._held != paths:
            self._held = paths
            if self._state is not None:
                self._write(self._state)

    def _write(self, state: GuardState) -> None:
        import msgspec

        self._state = None
        folder = Path(self._workspace.states)
        make_directories(folder)
        check_no_links(folder)
        workspace, held = self._workspace, tuple(sorted(self._held))
        stored = StoredState(workspace.roots, workspace.repositories, state, held)
        new = Path(f"{self._file}.new")
        with suppress(FileNotFoundError):
            new.unlink()
        create_file(new, msgspec.msgpack.encode(stored))
        new.rename(self._file + _RUNS)
        with suppress(FileNotFoundError):
            os.unlink(self._file + _RESTS)
        self._state = state

    def record_heartbeat(self) -> None:
        clock = time.monotonic()
        if self._file and clock > self._last_beat + _HEARTBEAT_SECONDS:
            self._last_beat = clock
            with suppress(OSError):
                os.utime(self._file + _RUNS)

    def end(self) -> None:
        if self._file:
            with suppress(OSError):  # our directory was emptied
                os.rename(self._file + _RUNS, self._file + _RESTS)

    def close(self) -> None:
        """Remove the stored state, if no command runs."""
        if self._file and self._state is not None:
            with suppress(OSError):
                os.unlink(self._file + _RESTS)
            self._state = None


class _KnownChanges:
    """Notes of what refold did to guarded paths and allowed, for all sessions in the workspace.

    Another conversation or another process has a state of its own, and must not undo it.
    """

    def __init__(self, states: str) -> None:
        self._folder = os.path.join(states, _NOTES_DIRECTORY) if states else ""
        self._since = 0

    def begin(self) -> None:
        self._since = time.time_ns() - _CLOCK_LAG_NANOSECONDS

    def has(self, path: str, current: Fingerprint | None) -> bool:
        if not self._folder:
            return False
        folders = [path] if current is not None else path_and_parents(path)
        return any(self._is_noted(folder, current) for folder in folders)

    def note(
        self,
        before: GuardState,
        after: GuardState,
        changes: Sequence[GuardChange],
        accepted_paths: Sequence[str],
    ) -> None:
        states = {change.path: before.fingerprint(change.path) for change in changes}
        states |= {path: after.fingerprint(path) for path in accepted_paths}
        if not states or not self._folder:
            return
        make_directories(Path(self._folder))
        for path, change in states.items():
            with suppress(OSError):  # then another may undo it, and nothing is lost
                os.close(open_checked(self._name(path, change), os.O_WRONLY | os.O_CREAT))
                os.utime(self._name(path, change))

    def _is_noted(self, path: str, current: Fingerprint | None) -> bool:
        try:
            return os.stat(self._name(path, current)).st_mtime_ns >= self._since
        except OSError:
            return False

    def _name(self, path: str, fingerprint: Fingerprint | None) -> str:
        content = (
            ()
            if fingerprint is None
            else (
                fingerprint.kind,
                fingerprint.mode,
                fingerprint.target,
                fingerprint.digest.hex(),
            )
        )
        text = repr((path, *content)).encode(errors="surrogateescape")
        return os.path.join(self._folder, sha256(text).hexdigest())


def undo_after_kill(workspace: GuardedWorkspace) -> list[GuardChange]:
    """Compare with the states of refolds that were killed while a command ran here."""
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
    if not file.endswith(_RUNS):
        with suppress(OSError):
            os.unlink(file)
        return []
    from refold.place.guard_changes import Reach, undo_changes

    # Two processes may find it: the one that renames it compares.
    mine = f"{file}.{owner_token()}"
    try:
        os.rename(file, mine)
    except OSError:
        return []
    stored, ended = _read_stored(mine)
    theirs = (*stored.roots, *stored.repositories)
    if not any(below(a, b) or below(b, a) for a in theirs for b in workspace.roots):
        os.rename(mine, file)  # of another workspace
        return []
    state = stored.state
    guards = Guards(
        stored.roots,
        workspace.home,
        workspace.git_settings,
        state.beyond,
        workspace.covered,
    )
    current = read_state(guards.paths(), state, state.targets)
    before = _with_changes_since(state, current, ended)
    reach = Reach(theirs, workspace.quarantine, frozenset(stored.held))
    # It has no change from another refold.
    changes = undo_changes(before, current, reach, (), lambda path, now: False).made
    # Another refold may have begun a command since, and have seen what was undone just now.
    _KnownChanges(workspace.states).note(before, current, changes, ())
    with suppress(OSError):
        os.unlink(mine)
    return changes


def _read_stored(file: str) -> tuple[StoredState, int]:
    """The stored state, and the time by which its last command had ended. Empty if damaged."""
    import msgspec

    try:
        data, about = Path(file).read_bytes(), os.stat(file)
        return msgspec.msgpack.decode(
            data, type=StoredState
        ), about.st_mtime_ns + _HEARTBEAT_MARGIN_NANOSECONDS
    except (OSError, msgspec.DecodeError):
        return StoredState((), (), GuardState()), 0


def _with_changes_since(before: GuardState, current: GuardState, end_ns: int) -> GuardState:
    """`before`, updated with changes after `end_ns`: no command ran then, so the user made them."""
    prints, steps = dict(before.prints), dict(before.steps)
    for ours, theirs in ((prints, current.prints), (steps, current.steps)):
        ours |= {
            path: fingerprint
            for path, fingerprint in theirs.items()
            if fingerprint.changed > end_ns
        }
    for path in before.prints.keys() - current.prints.keys():
        with suppress(OSError):
            if os.lstat(os.path.dirname(path)).st_ctime_ns > end_ns:
                del prints[path]
    return replace(before, prints=prints, steps=steps)
