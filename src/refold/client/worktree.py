"""`--worktree` and `/worktree`: a session that works in a git working tree of its own.

The tree is created beside the repository, on a branch of its own that starts at the current
commit. If it has nothing new at the end, it is removed again; otherwise it stays.
`agents.worktree` runs git.
"""

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

import anyio
from msgspec import Struct

from refold.agents.worktree import Worktree, Worktrees
from refold.errors import BadInput, ToolFailed
from refold.prompts.repository import root_of

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?"
_BRANCH = "refold/{name}"


class Inside(Struct, frozen=True):
    """Where in a working tree a session works, and whether its settings count."""

    directory: str
    branch: str
    trusted: bool


class _Begun(Struct, frozen=True):
    trees: Worktrees
    tree: Worktree
    ours: bool  # was it made here?


class WorkingTrees:
    """The working trees that the user asked for in one start.

    Not to be used in an event loop.
    """

    def __init__(self) -> None:
        self._begun = dict[str, _Begun]()

    def begin(self, name: str, directory: str, said: str) -> Inside:
        """Create a tree of this name beside the repository of `directory`, or use the
        existing one.

        Raises `BadInput`, which begins with `said`, if that is not possible.
        """
        begun, inside = _begin(name, os.path.realpath(directory), said)
        tree = begun.tree
        self._begun.setdefault(tree.directory, begun)
        return Inside(inside, tree.branch, _trusted(inside, os.path.realpath(directory)))

    def leave(self) -> Sequence[str]:
        """Remove those that hold nothing new. A sentence about each."""
        found = list[str]()
        while self._begun:
            _, begun = self._begun.popitem()
            found += _leave(begun)
        return found


def _begin(name: str, directory: str, said: str) -> tuple[_Begun, str]:
    root = root_of(directory)
    named = _named(name, said) or time.strftime("%Y%m%d-%H%M%S")
    place = Path(os.path.dirname(root), f"{os.path.basename(root)}-{named}")
    trees = Worktrees(place.parent, os.environ, directory)
    try:
        base = anyio.run(trees.base)
        tree = Worktree(str(place), _BRANCH.format(name=named), base)
        ours = not os.path.lexists(place)
        if not ours and not _is_of(place, root):
            raise BadInput(
                f"{said}: {place} already exists and is not a working tree of {root}: "
                "choose another name"
            )
        inside = trees.inside(tree)
        anyio.run(trees.make, tree, inside)
    except ToolFailed as error:
        raise BadInput(f"{said}: {_for_a_person(str(error))}") from error
    except OSError as error:
        raise BadInput(f"{said}: {place} cannot be made: {error.strerror}") from error
    return _Begun(trees, tree, ours), inside


def _named(name: str, said: str) -> str:
    if name and (not re.fullmatch(_NAME, name) or ".." in name or name.endswith(".lock")):
        hint = " (a first message stands before the flag, or behind --)"
        raise BadInput(
            f"{said} {name!r} is not a name for a working tree: letters, digits, '.', '_' "
            f"and '-'{hint if said.startswith('--') else ''}"
        )
    return name


def _is_of(place: Path, root: str) -> bool:
    """Is this a working tree of the repository that `root` belongs to?"""
    return _common(str(place)) == _common(root) != ""


def _common(folder: str) -> str:
    """Where the repository of a working tree keeps what all of its trees share; or ""."""
    from refold.place.guarded_paths import common_of, pointed_to

    place = os.path.join(folder, ".git")
    if not os.path.isdir(place):
        place = pointed_to(place)
    return os.path.realpath(common_of(place)) if place else ""


def _trusted(inside: str, directory: str) -> bool:
    """Whether its settings count, because all of them are in a trusted folder, too.

    A setting that is not, byte for byte, the trusted one does not count.
    """
    from refold.config.paths import paths
    from refold.config.project import project
    from refold.config.trusted_folders import Folders

    places = paths(os.environ)
    folders, root = Folders(places.folders), root_of(directory)
    if folders.trusted_above(directory, root) != root:
        return False
    there, shown = (project(Path(each), places.settings) for each in (inside, directory))
    if there.problem:
        return False
    same = there.hashes.items() <= shown.hashes.items()
    return same and (not there.files or folders.state(shown) == "trusted")


def _leave(begun: _Begun) -> Sequence[str]:
    tree, problem = begun.tree, list[str]()
    try:
        if begun.ours and anyio.run(begun.trees.removed, tree):
            return (f"nothing was changed, so {tree.directory} is removed",)
    except ToolFailed as error:
        problem = [_for_a_person(str(error))]
    return (*problem, f"the work is in {tree.directory}, on the branch {tree.branch}")


def _for_a_person(said: str) -> str:
    """The same sentence without what a model is to do instead."""
    return re.sub(r"(?:: |, or )call task without worktree\.?", "", said).rstrip(".")
