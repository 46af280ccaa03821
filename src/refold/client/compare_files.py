"""Compares the files of a workspace with those of an earlier moment.

The moment is an event of the session, for which a checkpoint is there, or a commit of the
user's repository. Both are compared with a snapshot that is taken now, so changes by commands and
by other programs are included.
"""

import os
from collections.abc import Collection

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


async def changes(view: View, snapshots: Snapshots, since: Since) -> tuple[FileChange, ...]:
    """The changed files, by path. Raises `BadInput`."""
    try:
        snapshots.forget()  # files may have changed since
        before, after = await _trees(view, snapshots, since)
        compared = await anyio.to_thread.run_sync(snapshots.changes, before, after)
    except ToolFailed as error:
        raise _problem(error) from error
    return tuple(change for change in compared if not _is_left_out(change, since))


async def diffs(
    view: View, snapshots: Snapshots, since: Since, only: Collection[str]
) -> tuple[Diff, ...]:
    """The same with the changed lines. With `only`, of no files but these, and a scan of the last
    seconds is new enough: a page asks for them one after the other.
    """
    try:
        if not only:
            snapshots.forget()
        before, after = await _trees(view, snapshots, since)
        patches = await anyio.to_thread.run_sync(snapshots.patch, before, after, only)
    except ToolFailed as error:
        raise _problem(error) from error
    return tuple(
        Diff(change.path, change.kind, text)
        for change, text in patches
        if not _is_left_out(change, since)
    )


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
    """Whether a commit has a file that no snapshot contains, such as an ignored one."""
    return bool(since.commit) and change.kind == "deleted" and os.path.lexists(change.path)


def _problem(error: ToolFailed) -> BadInput:
    return BadInput(f"the files cannot be compared: {error}")
