"""`--worktree`: begins a session in a git worktree of its own.

At the end the worktree is removed if it has no changes. `agents.named_worktrees` finds its
path and creates it. `app.entered_worktree` handles a session that enters a worktree later.
"""

import os
import time
from collections.abc import Sequence

import anyio
from msgspec import Struct

from refold.agents.worktree import Worktree, Worktrees
from refold.errors import BadInput, ToolFailed

_WORKTREE_FLAG = "--worktree"


class WorktreeLocation(Struct, frozen=True):
    """The directory in a worktree in which a session works.

    `trusted` says whether the settings in the directory are used.
    """

    directory: str
    branch: str
    trusted: bool


class _OpenWorktree(Struct, frozen=True):
    trees: Worktrees
    tree: Worktree
    is_new: bool  # whether this start created it


class StartWorktrees:
    """The worktrees that `--worktree` requested in one start of refold.

    Its methods block: do not call them in an event loop.
    """

    def __init__(self) -> None:
        self._begun = dict[str, _OpenWorktree]()

    def begin(self, name: str, directory: str) -> WorktreeLocation:
        """Create the worktree `name` of the repository of `directory`, or use it if it exists.

        Raises `BadInput` if that is not possible; the message begins with the name of the
        flag.
        """
        from refold.app.entered_worktree import shares_trust

        real = os.path.realpath(directory)
        open_worktree, inside = _open_worktree_at(name, real)
        tree = open_worktree.tree
        # If it was begun twice, the first entry says whether this start created it.
        self._begun.setdefault(tree.directory, open_worktree)
        return WorktreeLocation(inside, tree.branch, shares_trust(inside, real))

    def leave(self) -> Sequence[str]:
        """Remove the worktrees that have no changes. Return a sentence about each worktree."""
        lines = list[str]()
        while self._begun:
            _, open_worktree = self._begun.popitem()
            lines += _remove_worktree(open_worktree)
        return lines


def _open_worktree_at(name: str, directory: str) -> tuple[_OpenWorktree, str]:
    """Open a worktree. Return it, and the directory in it that corresponds to `directory`.

    If `name` is "", the worktree is named after the time.
    """
    from refold.agents.named_worktrees import check_name, make_tree

    try:
        tree_name = check_name(name) if name else time.strftime("%Y%m%d-%H%M%S")
    except BadInput as error:
        # The parser takes the word after the flag as the name.
        hint = " (a first message stands before the flag, or behind --)"
        raise BadInput(f"{_WORKTREE_FLAG} {error}{hint}") from error
    try:
        named_tree = anyio.run(make_tree, tree_name, directory, os.environ)
    except (BadInput, ToolFailed) as error:
        raise BadInput(f"{_WORKTREE_FLAG}: {error}") from error
    worktree = _OpenWorktree(named_tree.trees, named_tree.tree, is_new=named_tree.ours)
    return worktree, named_tree.inside


def _remove_worktree(open_worktree: _OpenWorktree) -> Sequence[str]:
    """Remove a worktree that this start created, if it has no changes.

    Return sentences for the user.
    """
    tree = open_worktree.tree
    where = f"the work is in {tree.directory}, on the branch {tree.branch}"
    if not open_worktree.is_new:
        return (where,)
    try:
        was_removed = anyio.run(open_worktree.trees.remove_if_unchanged, tree)
    except ToolFailed as error:
        return (str(error), where)
    if was_removed:
        return (f"nothing was changed, so {tree.directory} is removed",)
    return (where,)
