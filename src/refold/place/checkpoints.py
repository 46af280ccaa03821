"""Checkpoints of a workspace: snapshots in a git repository. Implements `port.Snapshots`.

This module decides when to scan, and reports what cannot be stored. `snapshot_scan` scans the
files, `snapshot_repository` stores them, `snapshot_restore` restores them. The engine and
`session.rewind` decide when a session needs a checkpoint.

All sessions of a workspace share one repository, in which each file is stored once. Each session
has an index of its own, which is deleted with it; the repository goes with the last session.
"""

import fcntl
import os
import re
import shutil
import threading
import time
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from refold.errors import ToolFailed
from refold.place.ignore_rules import IgnoreRules
from refold.place.port import Commit, FileChange, ReportProgress, SnapshotTaken, Trees
from refold.place.snapshot_repository import (
    EMPTY_TREE,
    MAX_BORROWING_SECONDS,
    REPORT_SECONDS,
    GitFailed,
    ScanProgress,
    SnapshotRepository,
    TooLarge,
)
from refold.programs import Programs
from refold.safe_open import open_checked
from refold.values.path_names import below

if TYPE_CHECKING:  # a start scans and restores nothing
    from refold.place.commit_history import CommitHistory
    from refold.place.snapshot_restore import RewriteStep
    from refold.place.snapshot_scan import Scan

NO_GIT = (
    "git is not installed, so no checkpoints are kept: changes here cannot be undone. "
    "Install git to have them."
)
WHOLE_MACHINE = (
    "checkpoints do not cover a whole machine, so changes here cannot be undone: "
    "work in a project directory to have them."
)
_DELETE_PREFIX = ".deleted-"  # followed by the id of the deleting process
_SKIP_RESCAN_SECONDS = 1.0  # a scan this recent is not repeated
_REUSE_SECONDS = 10.0  # a scan this recent is still valid
_Kind: TypeAlias = Literal["created", "changed", "deleted"]
# git leaves out a count of 1, and names the function around.
_HUNK_HEADER = r"(?m)^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@.*$"
_KIND_OF_STATUS: Mapping[str, _Kind] = {
    "A": "created",
    "D": "deleted",
    "M": "changed",
    "T": "changed",
}


class Checkpoints:
    """`roots` are directories, `store` has the snapshots of all workspaces. Nothing in
    `own_paths`, or beside `store`, is ever part of a snapshot.

    `notice` is a sentence for the user if checkpoints are missing or incomplete.
    """

    def __init__(
        self,
        roots: Sequence[Path | str],
        store: Path,
        environ: Mapping[str, str],
        session: str,
        *,
        own_paths: Sequence[Path] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        real = dict.fromkeys(os.path.realpath(root) for root in roots)
        self._roots = tuple(root for root in real if os.path.isdir(root))
        programs = Programs(environ, self._roots)
        git, path = programs.find("git"), programs.path
        self.repository = SnapshotRepository(
            snapshot_directory(store.absolute(), next(iter(real))), git, path
        )
        ignored = IgnoreRules(
            environ,
            git,
            (*_own_directories(store, self._roots), *map(os.path.realpath, own_paths)),
        )
        self._ignored, self._session = ignored, session
        self._clock = clock
        self._notice = "" if git else NO_GIT
        if "/" in self._roots:
            self._notice = WHOLE_MACHINE
        self._hopeless = self._notice
        self._count = 0  # how often `note_change` or `forget` was called
        self._look: SnapshotTask | None = None
        self._scanning = threading.Lock()
        self._behind = False
        self._commit_objects = ""  # where the commits are that were asked for

    @property
    def is_behind(self) -> bool:
        return self._behind

    @property
    def notice(self) -> str:
        return self._notice

    def begin(self) -> None:
        if not self._hopeless and not self._is_recent(_SKIP_RESCAN_SECONDS):
            self._look = self._start_thread(self._scan_files)

    def note_change(self) -> None:
        self.forget()
        self._behind = True

    def forget(self) -> None:
        self._count += 1

    async def take(self, report: ReportProgress | None = None) -> SnapshotTaken:
        task = self.start_taking()
        await task.wait(report)
        return self.taken(task)

    def start_taking(self) -> "SnapshotTask":
        """Start the scan that `take` waits for. For callers without an event loop."""
        if self._hopeless:
            raise ToolFailed(self._hopeless)
        if not self._is_recent(_REUSE_SECONDS):
            self.begin()
        assert self._look is not None  # `begin` has set it
        return self._look

    def taken(self, task: "SnapshotTask") -> SnapshotTaken:
        """The result of a scan that has ended. Raises its `ToolFailed`."""
        if task.error is not None:
            self._look = None  # the next scan may succeed
            raise task.error
        if task.count == self._count:
            self._behind = False
        return task.taken

    async def secure(self, arguments: bytes, report: ReportProgress | None = None) -> None:
        task = self.start_securing(arguments)
        if task is None:
            return
        await task.wait(report)
        if task.error is not None:
            raise task.error

    def start_securing(self, arguments: bytes) -> "SnapshotTask | None":
        """Start the work that `secure` waits for; None if there is nothing to store."""
        from refold.place.snapshot_lender import lenders_in, may_delete_objects

        lenders = lenders_in(self.repository.directory)
        if self._hopeless or not may_delete_objects(arguments) or not any(lenders):
            return None
        return self._start_thread(self._store_lent)

    def report_failure(self, reason: str) -> None:
        self._notice = reason

    def changes(self, before: Trees, after: Trees) -> tuple[FileChange, ...]:
        trees_after = dict(after)
        changed = {
            root: self._changes(root, tree, trees_after.get(root, EMPTY_TREE))
            for root, tree in before
        }
        return _changes_of_roots(changed, after)

    def patch(
        self, before: Trees, after: Trees, paths: Collection[str] = ()
    ) -> tuple[tuple[FileChange, str], ...]:
        texts, by_root = dict[str, str](), dict[str, Sequence[FileChange]]()
        for root, tree in before:
            tree_after = dict(after).get(root, EMPTY_TREE)
            names = [os.path.relpath(path, root) for path in paths if below(path, root)]
            if paths and not names:
                continue
            # git names the files in one order, with lines or with text.
            by_root[root] = changed = self._changes(root, tree, tree_after, names)
            arguments = (tree, tree_after, "--", *names)
            diff = self._diff("-p", "--no-color", *arguments) if changed else b""
            parts = re.split(rb"^diff --git ", diff, flags=re.MULTILINE)[1:]
            for change, part in zip(changed, parts, strict=False):
                _, marker, text = part.decode(errors="replace").partition("\n@@ ")
                hunks = re.sub(
                    _HUNK_HEADER, _hunk_header_with_counts, f"@@ {text}".rstrip("\n")
                )
                texts[change.path] = hunks if marker else ""
        every = chain(*by_root.values()) if paths else _changes_of_roots(by_root, after)
        return tuple((change, texts.get(change.path, "")) for change in every)

    def commits(self, head: str) -> tuple[Commit, ...]:
        return self.history.newest(head)

    def commit_trees(self, commit: str) -> Trees:
        trees = self.history.trees(commit, self._roots)
        self._commit_objects = self.history.objects
        return trees

    async def restore(
        self,
        current: Trees,
        to: Trees,
        paths: Collection[str] = (),
        report: ReportProgress | None = None,
    ) -> int:
        progress = ScanProgress()
        work = partial(self.restore_now, current, to, paths, progress)
        return await progress.run_in_thread(work, report)

    def _is_recent(self, seconds: float) -> bool:
        """Whether the newest scan is running, or is valid and recent enough."""
        task = self._look
        if task is None or task.count != self._count or task.error is not None:
            return False
        return not task.done.is_set() or self._clock() - task.began <= seconds

    def _start_thread(self, run: "Callable[[SnapshotTask], None]") -> "SnapshotTask":
        """Run `run` in a thread."""
        task = SnapshotTask(self._count, self._clock())
        threading.Thread(target=self._run, args=(task, run), daemon=True).start()
        return task

    def _run(self, task: "SnapshotTask", run: "Callable[[SnapshotTask], None]") -> None:
        try:
            with self._scanning:
                run(task)
        except TooLarge as error:
            self._notice = self._hopeless = str(error)
            task.error = error
        except ToolFailed as error:
            task.error = error
        # A bug or a system error: the waiting caller must get it.
        except Exception as error:
            task.error = ToolFailed(f"No snapshot of the files could be taken: {error}.")
        finally:
            task.done.set()

    @cached_property
    def _scan(self) -> "Scan":
        from refold.place.snapshot_scan import Scan

        return Scan(self.repository, self._ignored, self._session)

    @property
    def history(self) -> "CommitHistory":
        """The commits of the repository that the first directory lies in."""
        from refold.place.commit_history import CommitHistory

        return CommitHistory(self.repository, self._roots[0])

    def _scan_files(self, task: "SnapshotTask") -> None:
        task.began = self._clock()
        trees, left_out = self._scan.scan(self._roots, task.progress)
        task.taken = SnapshotTaken(trees, left_out, tuple(sorted(self._scan.lost)))

    def _store_lent(self, task: "SnapshotTask") -> None:
        self._scan.store_lent(self._roots, task.progress)

    def restore_now(
        self, current: Trees, to: Trees, paths: Collection[str], progress: ScanProgress
    ) -> int:
        """What `restore` does, in the thread of the caller."""
        from refold.place.snapshot_restore import RewriteStep, rewrite

        steps, trees, target = dict[str, RewriteStep](), dict(current), dict(to)
        if to and not trees.keys() & target.keys():
            raise ToolFailed("That snapshot is of another directory: nothing was changed.")
        for root, tree in current:
            if root in target:
                for step in self._rewrite_steps(root, tree, target[root]):
                    steps[step.path] = step
        for root in target.keys() - trees.keys():  # no longer a repository
            above = max(
                (inner for inner in trees if root.startswith(f"{inner}/")), default=root
            )
            for step in self._rewrite_steps(root, EMPTY_TREE, target[root]):
                old = steps.get(step.path)
                now_ = old.now if old else None
                steps[step.path] = RewriteStep(above, step.path, now_, step.to)
        wanted = [step for step in steps.values() if not paths or step.path in paths]
        if not wanted:
            return 0
        with self.repository.lock("restoring"):
            try:
                return rewrite(self.repository, wanted, progress)
            finally:
                self.note_change()

    def _rewrite_steps(self, root: str, current: str, to: str) -> "list[RewriteStep]":
        from refold.place.snapshot_restore import RewriteStep, SnapshotFile

        def snapshot_file(mode: str, name: str) -> SnapshotFile | None:
            return SnapshotFile(mode, name) if int(mode) else None

        if current == to:
            return []
        diff = self._diff("--raw", "--no-abbrev", current, to)
        parts = iter(diff.split(b"\0"))
        steps = list[RewriteStep]()
        for head in parts:
            if not head:
                break
            was, is_, old, new, _ = head.decode().lstrip(":").split(" ")
            path = os.path.join(root, os.fsdecode(next(parts)))
            steps.append(
                RewriteStep(root, path, snapshot_file(was, old), snapshot_file(is_, new))
            )
        return steps

    def _changes(
        self, root: str, before: str, after: str, names: Sequence[str] = ()
    ) -> list[FileChange]:
        if before == after:
            return []
        arguments = (before, after, "--", *names)
        try:
            diff = self._diff("--raw", "--numstat", *arguments)
        except GitFailed:  # a content is lost: no lines are counted
            diff = self._diff("--raw", *arguments)
        parts, kinds = iter(diff.split(b"\0")), dict[bytes, _Kind]()
        lines = dict[bytes, tuple[int | None, ...]]()
        for part in parts:
            if part.startswith(b":"):
                kinds[next(parts)] = _KIND_OF_STATUS[part.rpartition(b" ")[2].decode()[:1]]
            elif part:
                added, removed, path = part.split(b"\t", 2)
                counts = (added, removed)
                lines[path] = tuple(None if n == b"-" else int(n) for n in counts)
        return [
            FileChange(os.path.join(root, os.fsdecode(path)), kind, *lines.get(path, ()))
            for path, kind in kinds.items()
        ]

    def _diff(self, *arguments: str) -> bytes:
        from refold.place.snapshot_lender import lenders_in

        self.repository.create()
        command = (
            "--literal-pathspecs", "diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff",
            "--no-textconv", *arguments,
        )  # fmt: skip
        folder = str(self.repository.directory)
        try:
            return self.repository.run(*command, folder=folder)
        except GitFailed:  # a content may be lent
            names = filter(
                None, (*lenders_in(self.repository.directory), self._commit_objects)
            )
            borrowing = self.repository.with_lenders(*names)
            process = borrowing.start(*command, folder=folder)
            return process.read(seconds=MAX_BORROWING_SECONDS)


def _changes_of_roots(
    changes_by_root: Mapping[str, Sequence[FileChange]], after: Trees
) -> tuple[FileChange, ...]:
    """The changes by path. `changes_by_root` are those of each root before."""
    changes, trees_after = dict[str, FileChange](), dict(after)
    for root, _ in after:
        if root in changes_by_root:
            changes |= {item.path: item for item in changes_by_root[root]}
        elif any(root.startswith(f"{root_after}/") for root_after in trees_after):
            # A repository with its own history.
            changes[f"{root}/"] = FileChange(f"{root}/", "created")
    for root, items in changes_by_root.items():
        if root not in trees_after:
            for item in items:
                # Its files are there, the repository is not.
                exists = item.path in changes
                changes[item.path] = FileChange(item.path, "changed") if exists else item
    return tuple(sorted(changes.values(), key=lambda change: change.path))


def _hunk_header_with_counts(head: re.Match[str]) -> str:
    return f"@@ -{head[1]}{head[2] or ',1'} +{head[3]}{head[4] or ',1'} @@"


def snapshot_directory(store: Path, root: str) -> Path:
    """The store of the workspace whose first root is `root`; links in `root` are followed."""
    return store / sha256(os.fsencode(root)).hexdigest()[:24]


class SnapshotTask:
    """A scan of the files, or other work on the snapshots, running or done."""

    def __init__(self, count: int, began: float) -> None:
        self.count, self.began = count, began
        self.done, self.progress = threading.Event(), ScanProgress()
        self.taken = SnapshotTaken(())
        self.error: ToolFailed | None = None

    async def wait(self, report: ReportProgress | None) -> None:
        import anyio

        while not self.done.is_set():
            await anyio.to_thread.run_sync(
                self.done.wait, REPORT_SECONDS, abandon_on_cancel=True
            )
            if report is not None and not self.done.is_set():
                report(self.progress.done, self.progress.total)


def _own_directories(store: Path, roots: Sequence[str]) -> tuple[str, ...]:
    """Directories of our own that no snapshot may hold and no rewind may restore."""
    data = os.path.realpath(store.parent)
    if any(below(root, data) for root in roots):
        return tuple(
            os.path.join(data, name) for name in ("checkpoints", "sessions", "models")
        )
    return (data,)


def deletable_snapshots(store: Path, root: str, session: str, *, last: bool) -> Path:
    """The directory to delete for a session in the workspace at `root`.

    It is the session's part, or the whole store if this is the `last` session there.
    """
    whole = snapshot_directory(store, os.path.realpath(root))
    return whole if last else whole / "sessions" / session


def is_used_by(store: Path, root: str, sessions: Set[str]) -> bool:
    """Whether one of the sessions has an index in the store of the workspace at `root`."""
    session_directory = snapshot_directory(store, os.path.realpath(root)) / "sessions"
    return session_directory.is_dir() and any(
        entry.name in sessions for entry in session_directory.iterdir()
    )


def find_unused_snapshots(
    store: Path, roots: Iterable[str], sessions: Set[str]
) -> Iterator[Path]:
    """What to delete in `store` if only these sessions are left, which work in `roots`.

    These are complete repositories, the parts of other sessions in a repository that is used,
    and what an interrupted deletion left.
    """
    used = {snapshot_directory(store, os.path.realpath(root)) for root in roots}
    for repository in sorted(store.iterdir()) if store.is_dir() else ():
        if repository.is_symlink() or not repository.is_dir():
            continue
        parts = sorted((repository / "sessions").glob("*"))
        unused = [part for part in parts if part.name not in sessions]
        if repository in used or len(unused) < len(parts):
            yield from unused
        else:
            yield repository


def delete_snapshots(store: Path, place: Path) -> bool:
    """Delete `place`, which is in `store`. Return False if a process is writing there.

    It is renamed first, so that no repository is ever half deleted.
    """
    temporary = store / f"{_DELETE_PREFIX}{os.getpid()}-{place.name}"
    sessions = place / "sessions"
    try:
        with ExitStack() as locks:
            parts = (sessions if sessions.is_dir() else place).rglob("lock")
            for file in filter(Path.is_file, (*parts, place / "restoring")):
                if not locks.enter_context(_lock_if_free(file)):
                    return False
            os.rename(place, temporary)
    except OSError:
        return not place.exists()
    shutil.rmtree(temporary, ignore_errors=True)
    return True


@contextmanager
def _lock_if_free(file: Path) -> Generator[bool]:
    """Hold the lock of a scan or a restore. Yield False if another process has it."""
    opened = open_checked(file, os.O_RDWR)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(opened)
