"""Lets snapshots refer to contents in the user's repository (the lender).

The files of a large tree are usually objects of the user's repository already, so refold does
not store them again; git reads them there. But the user's git can delete objects. So refold
stores a file's content itself when the file changes, and stores all lent contents before a
command that may delete objects. If an object was deleted nevertheless, and its file is
unchanged, the file is stored. `GitBlobReader` checks the hash of every lent object.

No program or hook of the user's repository is run, nothing is written there, and its index is
not read.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from refold.place.ignore_rules import common_git_folder
from refold.safe_open import open_checked

LEND_FROM_FILES = 2_000  # in a tree with fewer files, every file is stored
# Commands that may delete objects: some of git, and those that delete a directory with its
# `.git`.
_DELETING_COMMANDS = re.compile(
    rb"""\b(gc|prune\w*|repack|maintenance|filter-branch|filter-repo|rmtree)\b
    | \breflog\s+(expire|delete) | \bfind\b.*-delete
    | (?<![\w.])\.git(?![\w-])
    | \brm\s+(-\S+\s+)+([^\s;|&]+\s+)*[\\"']*(/|~|\$|\*|\.\.|\.(?![\w/])|\./(?![\w.]))
    """,
    re.VERBOSE,
)


class Lender(Struct, frozen=True):
    """A user's objects directory, and its stamp when all lent objects existed."""

    objects: str
    stamp: str


def may_delete_objects(arguments: bytes) -> bool:
    """Whether a tool call may delete git objects, judged by words in its `arguments`."""
    return _DELETING_COMMANDS.search(arguments) is not None


def user_objects(top: str) -> str:
    """Return the objects directory of the repository in `top`; "" if it cannot lend."""
    objects = os.path.realpath(os.path.join(common_git_folder(top), "objects"))
    # git separates paths by colons, and interprets quotes in them.
    if not os.path.isdir(objects) or re.search(r'[:"\n]', objects):
        return ""
    # Objects that the repository itself borrows may be deleted without a change here
    # (`stamp_of`).
    if os.path.lexists(os.path.join(objects, "info", "alternates")):
        return ""
    return objects


def stamp_of(objects: str) -> str:
    """Return a value that changes if an object or a pack is deleted. Raises `OSError`."""
    hashing = sha256()
    for directory in (*(f"{number:02x}" for number in range(256)), "pack", "info"):
        with suppress(FileNotFoundError):
            status = os.lstat(os.path.join(objects, directory))
            hashing.update(f"{directory} {status.st_ino} {status.st_ctime_ns}\n".encode())
    return hashing.hexdigest()


def has_only_files(objects: str) -> bool:
    """Whether all packs are regular files, so that git does not wait for a pipe."""
    with suppress(FileNotFoundError), os.scandir(os.path.join(objects, "pack")) as entries:
        return all(
            stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode) for entry in entries
        )
    return True


def read_lender(path: Path) -> Lender | None:
    """Return the lender that a file names; None if it is missing or damaged."""
    try:
        objects, stamp = path.read_bytes().split(b"\n")
    except (OSError, ValueError):
        return None
    return Lender(os.fsdecode(objects), stamp.decode())


def write_lender(path: Path, lender: Lender) -> None:
    """Write a lender to the file `path`, completely or not at all."""
    temporary = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
    with open(temporary, "xb", opener=open_checked) as file:
        file.write(os.fsencode(lender.objects) + b"\n" + lender.stamp.encode())
        file.flush()
        os.fsync(file.fileno())  # without the file, lent objects cannot be found
    temporary.replace(path)


def lenders_in(directory: Path) -> Iterator[str]:
    """Yield the objects directories that snapshots in the repository `directory` may need."""
    for path in sorted(directory.glob("*.lender")):
        if lender := read_lender(path):
            yield lender.objects
