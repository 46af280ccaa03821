"""Creates and finds git working trees with a name: each is beside the repository, on a branch
of its own, by default refold/NAME.

They are created for `refold -w`, for a session that enters a tree, and for the user. `worktree`
runs git, and `app.entered_worktree` moves a session into a working tree.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
from msgspec import Struct

from refold.agents.worktree import Worktree, Worktrees
from refold.errors import BadInput
from refold.prompts.repository import root_of

_NAME_PATTERN = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?"
_BRANCH_FORMAT = "refold/{name}"


class NamedTree(Struct, frozen=True):
    """A working tree with a name. `inside` is the folder in the tree in which the session
    works.
    """

    trees: Worktrees
    tree: Worktree
    inside: str
    ours: bool  # whether refold created it


def check_name(name: str) -> str:
    """Return the name if it is valid. Raises `BadInput` otherwise."""
    if not re.fullmatch(_NAME_PATTERN, name) or ".." in name or name.endswith(".lock"):
        raise BadInput(
            f"{name!r} is not a name for a working tree: letters, digits, '.', '_' and '-'"
        )
    return name


def place_of(name: str, directory: str) -> Path:
    """Return the path of the tree of this name, beside the repository that contains
    `directory`.

    The tree need not exist.
    """
    root = root_of(directory)
    return Path(os.path.dirname(root), f"{os.path.basename(root)}-{name}")


async def make_tree(
    name: str, directory: str, environ: Mapping[str, str], branch: str = ""
) -> NamedTree:
    """Create the tree of this name, or use the existing tree.

    A new tree checks out `branch`, or, if that is "", a new branch. Raises `BadInput` for a bad
    name or branch, and `ToolFailed` if git fails.
    """
    root, place = root_of(directory), place_of(name, directory)
    trees = Worktrees(place.parent, environ, directory)
    base = await trees.base()
    if branch and not await trees.has_branch(branch):
        raise BadInput(f"there is no branch {branch!r} in {root}")
    tree = Worktree(str(place), branch or _BRANCH_FORMAT.format(name=name), base)
    path = anyio.Path(place)
    is_new = not await path.exists() and not await path.is_symlink()
    if not is_new:
        if not belongs_to(str(place), root):
            raise BadInput(
                f"{place} already exists and is not a working tree of {root}: "
                "choose another name"
            )
        existing = find_tree_at(place, await trees.list_trees()) or tree
        if branch and existing.branch != branch:
            raise BadInput(f"{place} has the branch {existing.branch!r}, not {branch!r}")
        tree = Worktree(str(place), existing.branch, existing.base)
    inside = trees.child_directory(tree)
    try:
        await trees.make(tree, inside)
    except OSError as error:
        raise BadInput(f"{place} cannot be made: {error.strerror}") from error
    return NamedTree(trees, tree, inside, ours=is_new)


def find_tree_at(place: Path | str, trees: Sequence[Worktree]) -> Worktree | None:
    """Return the tree whose directory is `place`, with links followed; None if there is
    none.
    """
    real = os.path.realpath(place)
    return next((t for t in trees if os.path.realpath(t.directory) == real), None)


def belongs_to(place: str, root: str) -> bool:
    """Whether `place` is a working tree of the repository to which `root` belongs."""
    git_directory = _common_git_directory(root)
    return git_directory != "" and _common_git_directory(place) == git_directory


def _common_git_directory(folder: str) -> str:
    """Return the git directory that all working trees of a repository share.

    Return "" if `folder` is not the top of a working tree.
    """
    from refold.place.guarded_paths import gitdir_target, main_git

    place = os.path.join(folder, ".git")
    if not os.path.isdir(place):
        place = gitdir_target(place)
    return os.path.realpath(main_git(place)) if place else ""
