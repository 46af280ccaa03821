"""Compares the files of a workspace with those of an earlier moment.

The moment is an event of the session, for which a checkpoint is there, or a commit of the
user's repository. Both are compared with a snapshot that is taken now, so changes by commands and
by other programs are included. A file that the user uploaded since that event is compared with
what was uploaded.
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
    """Before the event `event`, or at `commit`, the hash of one."""

    event: int = 1
    commit: str = ""


SESSION_START = Since()


Changed = TypeVar("Changed")


async def changes(view: View, snapshots: Snapshots, since: Since) -> tuple[FileChange, ...]:
    """The changed files, by path. Raises `BadInput`."""
    try:
        snapshots.forget()  # files may have changed since
        before, after = await _trees(view, snapshots, since)
        compared = await _compare(
            view, since, before, lambda trees, _: snapshots.changes(trees, after), _path
        )
    except ToolFailed as error:
        raise _problem(error) from error
    return tuple(change for change in compared if not _is_left_out(change, since))


async def diffs(
    view: View, snapshots: Snapshots, since: Since, files: Collection[str]
) -> tuple[Diff, ...]:
    """The changed files with their changed lines. With `files`, no files but these; a scan of the
    last seconds is then reused, because a page asks for them one after the other.
    """
    try:
        if not files:
            snapshots.forget()
        before, after = await _trees(view, snapshots, since)

        def patch(trees: Trees, paths: Collection[str]) -> Iterable[tuple[FileChange, str]]:
            wanted = [path for path in paths if not files or path in files]
            if paths and not wanted:
                return ()
            return snapshots.patch(trees, after, wanted or files)

        patches = await _compare(view, since, before, patch, lambda item: item[0].path)
    except ToolFailed as error:
        raise _problem(error) from error
    return tuple(
        Diff(change.path, change.kind, text)
        for change, text in patches
        if not _is_left_out(change, since)
    )


def upload_points(view: View, since: Since) -> Mapping[str, int]:
    """The files that the user uploaded since then, each with the first event after its upload.

    A rewind to this event restores the uploaded content.
    """
    checkpoint = None if since.commit else view.checkpoints.at(since.event)
    if checkpoint is None:
        return {}
    points = dict[str, int]()
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
    path: Callable[[Changed], str],
) -> list[Changed]:
    """Compare each file with the moment that counts for it. `compare` may return more files."""
    points = upload_points(view, since)
    result = [
        change
        for change in await anyio.to_thread.run_sync(compare, before, ())
        if path(change) not in points
    ]
    for point in sorted(set(points.values())):
        checkpoint = view.checkpoints.at(point)
        paths = [name for name in points if points[name] == point]
        if checkpoint is not None:
            later = await anyio.to_thread.run_sync(compare, checkpoint.trees, paths)
            result += [change for change in later if path(change) in paths]
    return sorted(result, key=path)


def _path(change: FileChange) -> str:
    return change.path


async def _trees(view: View, snapshots: Snapshots, since: Since) -> tuple[Trees, Trees]:
    checkpoint = None if since.commit else view.checkpoints.at(since.event)
    if not since.commit and checkpoint is None:
        return (), ()
    after = (await snapshots.take()).trees
    if checkpoint is not None:
        return checkpoint.trees, after
    before = await anyio.to_thread.run_sync(snapshots.commit_trees, since.commit)
    roots = {root for root, _ in before}
    return before, tuple(pair for pair in after if pair[0] in roots)


def _is_left_out(change: FileChange, since: Since) -> bool:
    """Whether a file exists here but is in no snapshot, such as one that git ignores."""
    return bool(since.commit) and change.kind == "deleted" and os.path.lexists(change.path)


def _problem(error: ToolFailed) -> BadInput:
    return BadInput(f"the files cannot be compared: {error}")
