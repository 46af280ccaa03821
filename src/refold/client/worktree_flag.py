"""`--worktree`: a session that begins in a git working tree of its own.

If the tree has nothing new at the end, it is removed again; otherwise it stays.
`agents.named_worktrees` says where it is and makes it. A session that enters a working tree later
is in `app.entered_worktree`.
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
    """Where in a working tree a session works, and whether its settings are used."""

    directory: str
    branch: str
    trusted: bool


class _OpenWorktree(Struct, frozen=True):
    trees: Worktrees
    tree: Worktree
    ours: bool  # whether it was created here


class StartWorktrees:
    """The working trees that the user asked for in one start.

    It blocks: do not call it in an event loop.
    """

    def __init__(self) -> None:
        self._begun = dict[str, _OpenWorktree]()

    def begin(self, name: str, directory: str) -> WorktreeLocation:
        """Create a tree of this name beside the repository of `directory`, or use the
        existing one.

        Raises `BadInput`, which begins with the flag, if that is not possible.
        """
        from refold.app.entered_worktree import shares_trust

        open_worktree, inside = _begin(name, os.path.realpath(directory))
        tree = open_worktree.tree
        self._begun.setdefault(tree.directory, open_worktree)
        return WorktreeLocation(
            inside, tree.branch, shares_trust(inside, os.path.realpath(directory))
        )

    def leave(self) -> Sequence[str]:
        """Remove the trees with nothing new. Returns a sentence about each."""
        lines = list[str]()
        while self._begun:
            _, open_worktree = self._begun.popitem()
            lines += _remove_worktree(open_worktree)
        return lines


def _begin(name: str, directory: str) -> tuple[_OpenWorktree, str]:
    from refold.agents.named_worktrees import check_name, make_tree

    try:
        named = check_name(name) if name else time.strftime("%Y%m%d-%H%M%S")
    except BadInput as error:
        hint = " (a first message stands before the flag, or behind --)"
        raise BadInput(f"{_WORKTREE_FLAG} {error}{hint}") from error
    try:
        named_tree = anyio.run(make_tree, named, directory, os.environ)
    except (BadInput, ToolFailed) as error:
        raise BadInput(f"{_WORKTREE_FLAG}: {error}") from error
    return _OpenWorktree(
        named_tree.trees, named_tree.tree, named_tree.ours
    ), named_tree.inside


def _remove_worktree(open_worktree: _OpenWorktree) -> Sequence[str]:
    tree, problem = open_worktree.tree, list[str]()
    try:
        if open_worktree.ours and anyio.run(open_worktree.trees.remove_if_unchanged, tree):
            return (f"nothing was changed, so {tree.directory} is removed",)
    except ToolFailed as error:
        problem = [str(error)]
    return (*problem, f"the work is in {tree.directory}, on the branch {tree.branch}")
