"""What a command made under a guarded name is taken away again when it has ended.

What was there before cannot be changed by a sandboxed command; what was not there can
be made, and would work for the next program that looks. It is moved, not lost. A new
repository is left alone where there is nothing in it that git would run.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from refold.place.guards import Found, pointed_to

# What `git init`, `git clone`, `git remote` and `git submodule` write. Nothing runs by it.
_SECTIONS = {"branch", "remote", "submodule", "user", "extensions", "pull"}
_CORE = {
    "autocrlf", "bare", "eol", "filemode", "ignorecase", "logallrefupdates",
    "precomposeunicode", "repositoryformatversion", "safecrlf", "symlinks",
}  # fmt: skip
_OF_REMOTES = re.compile(r"\.(?:receivepack|uploadpack|vcs|update)$")
_EXT = re.compile(r"=\s*\"?\s*(?:ext|[\w+.-]*)::", re.IGNORECASE)
_LONGEST = 256 * 1024  # bytes


def take_away(
    before: Found, after: Found, roots: Sequence[str], opened: Iterable[str], where: str
) -> list[tuple[str, str]]:
    """Move what came up to below `where`. Gives each path and its new one."""
    free = set(opened)
    moved = list[tuple[str, str]]()
    for path in sorted(_made(before, after, roots)):
        if path not in free and os.path.lexists(path):
            moved.append((path, _move(path, where)))
            if path in before.links:
                with suppress(OSError):
                    os.symlink(before.links[path], path)
    return moved


def _made(before: Found, after: Found, roots: Sequence[str]) -> Iterator[str]:
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


def harmless(config: str) -> bool:
    """Is there nothing in a file of git's settings by which git would run a program?"""
    try:
        if os.path.islink(config) or os.path.getsize(config) > _LONGEST:
            return False
        with open(config, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    section = ""
    for line in (line.strip() for line in lines):
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            section, _, rest = line[1:].partition("]")
            section = section.split(maxsplit=1)[0].lower() if section.strip() else ""
            if rest.strip() or section not in {*_SECTIONS, "core"}:
                return False
        elif not _harmless_line(section, line):
            return False
    return True


def _harmless_line(section: str, line: str) -> bool:
    name = line.partition("=")[0].strip().lower()
    if line.endswith("\\") or _EXT.search(line) or not section:
        return False
    if section == "core":
        return name in _CORE
    return not _OF_REMOTES.search(f".{name}")


def _worktree(path: str, directory: str) -> bool:
    """Does this directory of a linked worktree belong to the repository it lies in?"""
    above, name = os.path.split(os.path.dirname(directory))
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            said = file.read(4096).strip()
    except OSError:
        return False
    return name == "worktrees" and os.path.realpath(os.path.join(directory, said)) == above


def _ours(path: str, roots: Sequence[str]) -> bool:
    """Does a new `.git` lead to a place that was looked through?"""
    if os.path.islink(path):
        return False
    directory = pointed_to(path)
    return any(directory.startswith(root.rstrip("/") + "/") for root in roots)


def _move(path: str, where: str) -> str:
    name = os.path.basename(path)
    goal = os.path.join(where, f"{os.urandom(4).hex()}-{name}")
    try:
        os.makedirs(where, exist_ok=True)
        shutil.move(path, goal)
    except (OSError, shutil.Error):
        # There is always room beside it, under a name that nobody looks for.
        goal = os.path.join(os.path.dirname(path), f"taken-{os.urandom(4).hex()}")
        os.rename(path, goal)
    return goal
