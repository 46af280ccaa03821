"""Compares the files of a workspace with their state at an earlier moment.

The moment is an event of the session that has a checkpoint, or a commit of the user's
repository. It is compared with a snapshot taken now, so changes by commands and by other
programs are included. A file that the user uploaded after the moment is compared with the
uploaded content.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

import anyio
from msgspec import Struct

from refold.errors import BadInput, ToolFailed
from refold.journal.state.fold import View
from refold.place.port import FileChange, Snapshots, Trees
from refold.values.display import Diff


class Since(Struct, frozen=True):
    """The moment with which files are compared.

    The moment is just before the event with the number `event`. If `commit` is set, it is the
    commit with this hash.
    """

    event: int = 1
    commit: str = ""


SESSION_START = Since()


Changed = TypeVar("Changed")


async def changes(view: View, snapshots: Snapshots, since: Since) -> tuple[FileChange, ...]:
    """Return the changed files, by path. Raises `BadInput` if they cannot be compared."""
    try:
        snapshots.forget()  # files may have changed since the last scan
        before, after = await _trees(view, snapshots, since)

        def compare(trees: Trees, _: Collection[str]) -> Iterable[FileChange]:
            return snapshots.changes(trees, after)

        compared = await _compare(
            view, since, before, compare, path_of=lambda change: change.path
        )
    except ToolFailed as error:
        raise _problem(error) from error
    return tuple(change for change in compared if not _is_left_out(change, since))


async def diffs(
    view: View, snapshots: Snapshots, since: Since, files: Collection[str]
) -> tuple[Diff, ...]:
    """Return the changed files with their changed lines.

    With `files`, only these files are compared, and a scan of the last seconds is reused,
    because a page requests one file after the other.
    """
    try:
        if not files:
            snapshots.forget()
        before, after = await _trees(view, snapshots, since)

        def patch(trees: Trees, paths: Collection[str]) -> Iterable[tuple[FileChange, str]]:
            """Return the changes from `trees` to `after` with their lines.

            Only files that are in both `paths` and `files` are compared. An empty `paths` or
            `files` stands for all files.
            """
            if not files:
                return snapshots.patch(trees, after, paths)
            if not paths:
                return snapshots.patch(trees, after, files)
            in_both = [path for path in paths if path in files]
            # Without a file, `Snapshots.patch` would compare all.
            return snapshots.patch(trees, after, in_both) if in_both else ()

        def path_of(change_with_lines: tuple[FileChange, str]) -> str:
            change, _ = change_with_lines
            return change.path

        patches = await _compare(view, since, before, patch, path_of=path_of)
    except ToolFailed as error:
        raise _problem(error) from error
    return tuple(
        Diff(change.path, change.kind, text)
        for change, text in patches
        if not _is_left_out(change, since)
    )


def upload_points(view: View, since: Since) -> Mapping[str, int]:
    """Return the files that the user uploaded since the moment `since`, by path.

    The value is the number of the first event after the upload: a rewind to this event
    restores the uploaded content.
    """
    checkpoint = None if since.commit else view.checkpoints.at(since.event)
    if checkpoint is None:
        return {}
    points = dict[str, int]()
    # Files that are uploaded together are a batch. It ends after its last file.
    ends = {file.batch: file.seq + 1 for file in view.checkpoints.uploads}
    for file in view.checkpoints.uploads:
        if file.seq > checkpoint.seq:
            points[file.path] = ends[file.batch]
    return points


async def _compare(
    view: View,
    since: Since,
    before: Trees,
    compare: Callable[[Trees, Collection[str]], Iterable[Changed]],
    path_of: Callable[[Changed], str],
) -> list[Changed]:
    """Return how files differ from `before`, the git trees of the moment `since`.

    A file that was uploaded later is compared with the uploaded content instead.
    `compare(trees, paths)` returns the files that differ from git trees. With () as `paths`,
    all files are compared; otherwise the result may have more files than `paths`. `path_of`
    returns the path of a result.
    """
    points = upload_points(view, since)
    since_before = await anyio.to_thread.run_sync(compare, before, ())
    result = [change for change in since_before if path_of(change) not in points]
    paths_by_point = dict[int, list[str]]()
    for uploaded_path, point in points.items():
        paths_by_point.setdefault(point, []).append(uploaded_path)
    for point, paths in sorted(paths_by_point.items()):
        checkpoint = view.checkpoints.at(point)
        if checkpoint is not None:
            since_upload = await anyio.to_thread.run_sync(compare, checkpoint.trees, paths)
            result += [change for change in since_upload if path_of(change) in paths]
    return sorted(result, key=path_of)


async def _trees(view: View, snapshots: Snapshots, since: Since) -> tuple[Trees, Trees]:
    """Return the git trees of the files at the moment `since`, and of the present files.

    Return two empty tuples if no checkpoint is that old.
    """
    if not since.commit:
        checkpoint = view.checkpoints.at(since.event)
        if checkpoint is None:
            return (), ()
        return checkpoint.trees, (await snapshots.take()).trees
    present = (await snapshots.take()).trees
    before = await anyio.to_thread.run_sync(snapshots.commit_trees, since.commit)
    # Directories that are not in the repository have no tree in the commit.
    roots = {root for root, _ in before}
    return before, tuple((root, tree) for root, tree in present if root in roots)


def _is_left_out(change: FileChange, since: Since) -> bool:
    """Whether a file only seems to be deleted since a commit.

    The file exists, but git ignores it now, and snapshots contain no ignored files.
    """
    return bool(since.commit) and change.kind == "deleted" and os.path.lexists(change.path)


def _problem(error: ToolFailed) -> BadInput:
    return BadInput(f"the files cannot be compared: {error}")
