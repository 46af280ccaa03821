"""Takes, compares and restores snapshots of a workspace. Implements `port.Snapshots`.

A checkpoint is a snapshot that belongs to a moment of a session. Snapshots are git trees in a
repository of refold, which all sessions of a workspace share, so each file is stored once. Each
session has its own index there. The index is deleted with the session, and the repository with
the last session.

This module decides when to scan, and reports what cannot be stored. `snapshot_scan` scans the
files, `snapshot_repository` stores them, `snapshot_restore` restores them, and
`snapshot_deletion` deletes snapshots. The engine and `session.rewind` decide when a session
needs a checkpoint.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
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
    snapshot_directory,
)
from refold.programs import Programs
from refold.values.path_names import below

if TYPE_CHECKING:  # starting a session neither scans nor restores
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
_SKIP_RESCAN_SECONDS = 1.0  # do not scan again within this time after a scan
_REUSE_SECONDS = 10.0  # reuse the result of a scan for this time
_Kind: TypeAlias = Literal["created", "changed", "deleted"]
# git omits a count of 1, and adds the name of the surrounding function.
_HUNK_HEADER = r"(?m)^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@.*$"
_KIND_OF_STATUS: Mapping[str, _Kind] = {
    "A": "created",
    "D": "deleted",
    "M": "changed",
    "T": "changed",
}


class Checkpoints:
    """Takes and restores snapshots of the directories `roots`.

    `store` is the directory with the snapshots of all workspaces. No snapshot contains
    `own_paths` or refold's other data beside `store`. `notice` is a sentence for the user if
    snapshots are impossible or one has failed, otherwise "".
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
        real_roots = list(dict.fromkeys(os.path.realpath(root) for root in roots))
        self._roots = tuple(root for root in real_roots if os.path.isdir(root))
        programs = Programs(environ, self._roots)
        git = programs.find("git")
        directory = snapshot_directory(store.absolute(), real_roots[0])
        self.repository = SnapshotRepository(directory, git, programs.path)
        own = (*_own_directories(store, self._roots), *map(os.path.realpath, own_paths))
        self._ignored = IgnoreRules(environ, git, own)
        self._session = session
        self._clock = clock
        self._notice = "" if git else NO_GIT
        if "/" in self._roots:
            self._notice = WHOLE_MACHINE
        self._why_impossible = self._notice
        self._change_count = 0  # the number of calls of `note_change` and `forget`
        self._newest_task: SnapshotTask | None = None
        self._scan_lock = threading.Lock()
        self._behind = False  # files may have changed since the last scan
        self._commit_objects = ""  # the directory with the objects of the requested commits

    @property
    def is_behind(self) -> bool:
        return self._behind

    @property
    def notice(self) -> str:
        return self._notice

    def begin(self) -> None:
        if not self._why_impossible and not self._is_recent(_SKIP_RESCAN_SECONDS):
            self._newest_task = self._start_thread(self._scan_files)

    def note_change(self) -> None:
        self.forget()
        self._behind = True

    def forget(self) -> None:
        self._change_count += 1

    async def take(self, report: ReportProgress | None = None) -> SnapshotTaken:
        """Take a snapshot of the files, and wait until it is complete."""
        task = self.start_taking()
        await task.wait(report)
        return self.snapshot_of_scan(task)

    def start_taking(self) -> "SnapshotTask":
        """Start a scan, or return one that is running or recent. Does not wait.

        Raises `ToolFailed` if snapshots are impossible. `take` also waits, and needs an event
        loop.
        """
        if self._why_impossible:
            raise ToolFailed(self._why_impossible)
        if not self._is_recent(_REUSE_SECONDS):
            self.begin()
        assert self._newest_task is not None  # `begin` has set it
        return self._newest_task

    def snapshot_of_scan(self, task: "SnapshotTask") -> SnapshotTaken:
        """Return the snapshot that the finished scan `task` took.

        Raises `ToolFailed` if the scan failed.
        """
        if task.error is not None:
            self._newest_task = None  # the next scan may succeed
            raise task.error
        # The numbers are equal if no change was noted since the scan began.
        if task.change_count == self._change_count:
            self._behind = False
        return task.taken

    async def secure(self, arguments: bytes, report: ReportProgress | None = None) -> None:
        """Store all lent contents if a call with `arguments` may delete some.

        Lent contents are those that only the user's repository has.
        """
        task = self.start_securing(arguments)
        if task is None:
            return
        await task.wait(report)
        if task.error is not None:
            raise task.error

    def start_securing(self, arguments: bytes) -> "SnapshotTask | None":
        """Start copying lent contents from the user's repository into our repository.

        Return None if a command with these `arguments` cannot delete any of these contents, if
        no contents are lent, or if snapshots are impossible.
        """
        from refold.place.snapshot_lender import lenders_in, may_delete_objects

        if self._why_impossible or not may_delete_objects(arguments):
            return None
        if not any(lenders_in(self.repository.directory)):
            return None
        return self._start_thread(self._store_borrowed)

    def report_failure(self, reason: str) -> None:
        self._notice = reason

    def changes(self, before: Trees, after: Trees) -> tuple[FileChange, ...]:
        """Return the files that differ between two snapshots.

        A root that only `after` has is reported as one created directory.
        """
        trees_after = dict(after)
        changed = {
            root: self._changes(root, tree, trees_after.get(root, EMPTY_TREE))
            for root, tree in before
        }
        return _changes_of_roots(changed, after)

    def patch(
        self, before: Trees, after: Trees, paths: Collection[str] = ()
    ) -> tuple[tuple[FileChange, str], ...]:
        """Return the changed files, each with its diff; the diff of a binary file is ""."""
        texts = dict[str, str]()  # by path
        by_root = dict[str, Sequence[FileChange]]()
        trees_after = dict(after)
        for root, tree in before:
            tree_after = trees_after.get(root, EMPTY_TREE)
            names = [os.path.relpath(path, root) for path in paths if below(path, root)]
            if paths and not names:  # none of the wanted files is in this root
                continue
            changed = self._changes(root, tree, tree_after, names)
            by_root[root] = changed
            if not changed:
                continue
            diff = self._diff("-p", "--no-color", tree, tree_after, "--", *names)
            # The text before the first header is empty.
            file_diffs = re.split(rb"^diff --git ", diff, flags=re.MULTILINE)[1:]
            # git lists the files in the order in which it lists their line counts.
            for change, file_diff in zip(changed, file_diffs, strict=False):
                texts[change.path] = _hunks(file_diff.decode(errors="replace"))
        # With `paths`, some roots were skipped, so a missing root does not mean a new one.
        changes = chain(*by_root.values()) if paths else _changes_of_roots(by_root, after)
        return tuple((change, texts.get(change.path, "")) for change in changes)

    def commits(self, head: str) -> tuple[Commit, ...]:
        return self.history.newest(head)

    def commit_trees(self, commit: str) -> Trees:
        """Return the git trees of the roots in a commit.

        Later calls of other methods then find the contents of the commit.
        """
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
        """Restore the files of a snapshot in a thread. Return the number of changed files."""
        progress = ScanProgress()
        work = partial(self.restore_now, current, to, paths, progress)
        return await progress.run_in_thread(work, report)

    def _is_recent(self, seconds: float) -> bool:
        """Whether the newest scan can be used for a snapshot of the present files.

        That is so if no change was noted after its start, it has not failed, and it is running
        or began at most `seconds` ago.
        """
        task = self._newest_task
        if task is None or task.error is not None:
            return False
        if task.change_count != self._change_count:
            return False
        return not task.done.is_set() or self._clock() - task.began <= seconds

    def _start_thread(self, work: "Callable[[SnapshotTask], None]") -> "SnapshotTask":
        """Call `work` with a new task in a new thread. Return the task."""
        task = SnapshotTask(self._change_count, self._clock())
        threading.Thread(target=self._run, args=(task, work), daemon=True).start()
        return task

    def _run(self, task: "SnapshotTask", work: "Callable[[SnapshotTask], None]") -> None:
        """Call `work` when no other scan runs, and store its error in `task`."""
        try:
            with self._scan_lock:
                work(task)
        except TooLarge as error:
            self._notice = self._why_impossible = str(error)
            task.error = error
        except ToolFailed as error:
            task.error = error
        # A bug or a system error: it is passed on to the waiting caller.
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
        """The history of the user's repository that contains the first directory of `roots`."""
        from refold.place.commit_history import CommitHistory

        return CommitHistory(self.repository, self._roots[0])

    def _scan_files(self, task: "SnapshotTask") -> None:
        """Scan all roots, and store the snapshot in `task`."""
        task.began = self._clock()
        trees, left_out = self._scan.scan(self._roots, task.progress)
        task.taken = SnapshotTaken(trees, left_out, tuple(sorted(self._scan.lost)))

    def _store_borrowed(self, task: "SnapshotTask") -> None:
        self._scan.store_lent_contents(self._roots, task.progress)

    def restore_now(
        self, current: Trees, to: Trees, paths: Collection[str], progress: ScanProgress
    ) -> int:
        """Restore files as `restore` does, but in the thread of the caller.

        Return the number of changed files. If `paths` is not empty, only these are restored.
        """
        from refold.place.snapshot_restore import rewrite

        shared_roots = dict(current).keys() & dict(to).keys()
        if to and not shared_roots:
            raise ToolFailed("That snapshot is of another directory: nothing was changed.")
        steps = self._restore_steps(current, to)
        chosen_steps = [s for s in steps if not paths or s.path in paths]
        if not chosen_steps:
            return 0
        with self.repository.lock("restoring"):
            try:
                return rewrite(self.repository, chosen_steps, progress)
            finally:
                self.note_change()

    def _restore_steps(self, current: Trees, to: Trees) -> "Collection[RewriteStep]":
        """Return the file changes that restore all roots of `to`, one for each path."""
        from refold.place.snapshot_restore import RewriteStep

        steps = dict[str, RewriteStep]()  # by path
        trees, target = dict(current), dict(to)
        for root, tree in current:
            if root in target:
                for step in self._rewrite_steps(root, tree, target[root]):
                    steps[step.path] = step
        # Roots that are no repositories any longer belong to the nearest root above them.
        for root in target.keys() - trees.keys():
            roots_above = [other for other in trees if root.startswith(f"{other}/")]
            nearest = max(roots_above, key=len, default=root)
            for step in self._rewrite_steps(root, EMPTY_TREE, target[root]):
                known_step = steps.get(step.path)
                present = None if known_step is None else known_step.now
                steps[step.path] = RewriteStep(nearest, step.path, present, step.to)
        return steps.values()

    def _rewrite_steps(self, root: str, current: str, to: str) -> "list[RewriteStep]":
        """Return the file changes that turn the git tree `current` into the git tree `to`.

        Both are trees of the directory `root`.
        """
        from refold.place.snapshot_restore import RewriteStep, SnapshotFile

        def snapshot_file(mode: str, name: str) -> SnapshotFile | None:
            # git writes the mode 000000 for a file that does not exist.
            return SnapshotFile(mode, name) if int(mode) else None

        if current == to:
            return []
        diff = self._diff("--raw", "--no-abbrev", current, to)
        # For each file: its modes, object names and status, and then its path.
        fields = iter(diff.split(b"\0"))
        steps = list[RewriteStep]()
        for head in fields:
            if not head:  # after the last separator
                break
            old_mode, new_mode, old, new, _ = head.decode().lstrip(":").split(" ")
            path = os.path.join(root, os.fsdecode(next(fields)))
            before, after = snapshot_file(old_mode, old), snapshot_file(new_mode, new)
            steps.append(RewriteStep(root, path, before, after))
        return steps

    def _changes(
        self, root: str, before: str, after: str, names: Sequence[str] = ()
    ) -> list[FileChange]:
        """Return the files that differ between the git trees `before` and `after` of `root`.

        If `names` is not empty, only the files in it are compared.
        """
        if before == after:
            return []
        arguments = (before, after, "--", *names)
        try:
            diff = self._diff("--raw", "--numstat", *arguments)
        except GitFailed:  # a file's content is lost, so its lines are not counted
            diff = self._diff("--raw", *arguments)
        # For each file, git prints two fields: a head that ends with the status, and the path.
        # Then it prints for each file one field with the line counts and the path.
        fields = iter(diff.split(b"\0"))
        kinds = dict[bytes, _Kind]()
        line_counts = dict[bytes, tuple[int | None, ...]]()
        for field in fields:
            if field.startswith(b":"):
                status = field.rpartition(b" ")[2].decode()[:1]
                kinds[next(fields)] = _KIND_OF_STATUS[status]
            elif field:
                added, removed, path = field.split(b"\t", 2)
                # git writes "-" for a binary file.
                counts = (None if n == b"-" else int(n) for n in (added, removed))
                line_counts[path] = tuple(counts)
        return [
            FileChange(
                os.path.join(root, os.fsdecode(path)), kind, *line_counts.get(path, ())
            )
            for path, kind in kinds.items()
        ]

    def _diff(self, *arguments: str) -> bytes:
        """Return the output of `git diff-tree`, with contents of lenders if they are needed."""
        from refold.place.snapshot_lender import lenders_in

        self.repository.create()
        command = (
            "--literal-pathspecs", "diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff",
            "--no-textconv", *arguments,
        )  # fmt: skip
        folder = str(self.repository.directory)
        try:
            return self.repository.run(*command, folder=folder)
        except GitFailed:  # the content may be in another repository
            lenders = [*lenders_in(self.repository.directory), self._commit_objects]
            borrowing = self.repository.with_lenders(*filter(None, lenders))
            process = borrowing.start(*command, folder=folder)
            return process.read(seconds=MAX_BORROWING_SECONDS)


def _changes_of_roots(
    changes_by_root: Mapping[str, Sequence[FileChange]], after: Trees
) -> tuple[FileChange, ...]:
    """Merge the changes of all roots into one sequence, sorted by path.

    `changes_by_root` are the changes in each root of the earlier snapshot, `after` is the later
    snapshot. A root that only `after` has is reported as one created directory.
    """
    changes = dict[str, FileChange]()
    roots_after = [root for root, _ in after]
    for root in roots_after:
        if root in changes_by_root:
            changes |= {item.path: item for item in changes_by_root[root]}
        elif any(root.startswith(f"{other}/") for other in roots_after):
            # The new directory is a repository with its own history.
            changes[f"{root}/"] = FileChange(f"{root}/", "created")
    for root, items in changes_by_root.items():
        if root not in roots_after:
            for item in items:
                # The files still exist, but their root is not a repository any longer.
                exists = item.path in changes
                changes[item.path] = FileChange(item.path, "changed") if exists else item
    return tuple(sorted(changes.values(), key=lambda change: change.path))


def _hunks(file_diff: str) -> str:
    """Return a file's diff without its header lines; "" for a binary file."""
    _, marker, text = file_diff.partition("\n@@ ")
    if not marker:
        return ""
    return re.sub(_HUNK_HEADER, _hunk_header_with_counts, f"@@ {text}".rstrip("\n"))


def _hunk_header_with_counts(head: re.Match[str]) -> str:
    return f"@@ -{head[1]}{head[2] or ',1'} +{head[3]}{head[4] or ',1'} @@"


class SnapshotTask:
    """A scan or other work on snapshots, in a thread. `done` is set at its end.

    `change_count` is the number of noted changes when it began.
    """

    def __init__(self, change_count: int, began: float) -> None:
        self.change_count, self.began = change_count, began
        self.done = threading.Event()
        self.progress = ScanProgress()
        self.taken = SnapshotTaken(())
        self.error: ToolFailed | None = None

    async def wait(self, report: ReportProgress | None) -> None:
        """Wait until the thread has finished, and report the progress meanwhile."""
        import anyio

        while not self.done.is_set():
            await anyio.to_thread.run_sync(
                self.done.wait, REPORT_SECONDS, abandon_on_cancel=True
            )
            if report is not None and not self.done.is_set():
                report(self.progress.done, self.progress.total)


def _own_directories(store: Path, roots: Sequence[str]) -> tuple[str, ...]:
    """Return the directories of refold that snapshots leave out and no restore changes.

    Usually that is the whole data directory. If a root is in the data directory, return only
    the parts that refold writes while it works.
    """
    data = os.path.realpath(store.parent)
    if any(below(root, data) for root in roots):
        return tuple(
            os.path.join(data, name) for name in ("checkpoints", "sessions", "models")
        )
    return (data,)
