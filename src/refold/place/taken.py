"""What a command made under a guarded name is taken away again when it has ended.

What was there before cannot be changed by a sandboxed command; what was not there can
be made, and would work for the next program that looks. It is moved, not lost. A new
repository is left alone where there is nothing in it that git would run. Only what lies
beneath the directories that the command could write is moved, by descriptors: a link that
is put in the way meanwhile leads nowhere. It goes to a directory of ours, or, where that is
on another disk, stays beside under a name that nothing looks for.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from refold.place.beneath import FOLDER, beneath
from refold.place.gitconfig import harmless
from refold.place.guards import GuardedPaths, pointed_to, start_of
from refold.place.quarantine import put
from refold.values.below import below


def take_away(
    before: GuardedPaths,
    after: GuardedPaths,
    roots: Sequence[str],
    opened: Iterable[str],
    where: str,
) -> list[tuple[str, str]]:
    """Move what came up beneath `roots` to below `where`. Gives each path and its new one."""
    free = set(opened)
    moved = list[tuple[str, str]]()
    for path in sorted(_made(before, after, roots)):
        root = next((r for r in roots if path != r and below(path, r)), "")
        if root and path not in free:
            with suppress(OSError):  # gone, or a link is in the way: then it is not there
                moved.append((path, _move(path, root, where, before.links.get(path))))
    return moved


def _made(before: GuardedPaths, after: GuardedPaths, roots: Sequence[str]) -> Iterator[str]:
    for path, said in before.links.items():
        if after.links.get(path) != said:
            yield path
    for path in after.paths - before.paths:
        if directory := after.repositories.get(path):
            yield from _in_repository(path, directory)
        elif os.path.basename(path).lower() != ".git" or not _ours(path, roots):
            yield path


def _in_repository(path: str, directory: str) -> Iterator[str]:
    name = os.path.basename(path)
    if name == "hooks":
        with suppress(OSError):
            hooks = sorted(os.listdir(path))
            yield from (os.path.join(path, h) for h in hooks if not h.endswith(".sample"))
        if os.path.islink(path):
            yield path
    elif name == "commondir":
        if not _worktree(path, directory):
            yield path
    elif not harmless(path):
        yield path


def _worktree(path: str, directory: str) -> bool:
    """Does this directory of a linked worktree belong to the repository it lies in?"""
    above, name = os.path.split(os.path.dirname(directory))
    said = start_of(path)
    return (
        bool(said)
        and name == "worktrees"
        and os.path.realpath(os.path.join(directory, said)) == above
    )


def _ours(path: str, roots: Sequence[str]) -> bool:
    """Does a new `.git` lead to a place that was looked through?"""
    if os.path.islink(path):
        return False
    directory = pointed_to(path)
    return any(directory.startswith(root.rstrip("/") + "/") for root in roots)


def _move(path: str, root: str, where: str, link: str | None) -> str:
    top = os.open(root, FOLDER)
    try:
        folder, name = os.path.split(os.path.relpath(path, root))
        here = beneath(top, folder or ".", FOLDER)
    finally:
        os.close(top)
    try:
        goal = _moved(here, name, os.path.dirname(path), where)
        if link is not None:
            os.symlink(link, name, dir_fd=here)
        return goal
    finally:
        os.close(here)


def _moved(here: int, name: str, folder: str, where: str) -> str:
    with suppress(OSError):  # another disk, or none
        return put(name, here, os.path.join(folder, name), where)
    mark = os.urandom(4).hex()
    # There is always room beside it.
    os.rename(name, f"taken-{mark}", src_dir_fd=here, dst_dir_fd=here)
    return os.path.join(folder, f"taken-{mark}")
