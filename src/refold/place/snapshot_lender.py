"""The user's repository as a lender: contents that it has are not stored a second time.

The files of a large tree are already objects of the user's repository. A snapshot refers to these
objects, and git reads them there. They can be lost, so refold stores an object of its own as soon
as its file changes, stores all of them before a command that may delete objects, and stores a
deleted one again while its file is unchanged. `GitBlobReader` checks the hash of every object that
it reads there.

No program and no hook of the user's repository is run, nothing in it is written, and its index is
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

LEND_FROM_FILES = 2_000  # in a smaller tree each file is stored
# Commands that may delete objects: of git, and those that delete a directory with its `.git`.
_DELETING_COMMANDS = re.compile(
    rb"""\b(gc|prune\w*|repack|maintenance|filter-branch|filter-repo|rmtree)\b
    | \breflog\s+(expire|delete) | \bfind\b.*-delete
    | (?<![\w.])\.git(?![\w-])
    | \brm\s+(-\S+\s+)+([^\s;|&]+\s+)*[\\"']*(/|~|\$|\*|\.\.|\.(?![\w/])|\./(?![\w.]))
    """,
    re.VERBOSE,
)


class Lender(Struct, frozen=True):
    """A directory of objects, and what it looked like when each lent content was there."""

    objects: str
    stamp: str


def may_delete_objects(arguments: bytes) -> bool:
    """Whether a call with these arguments may delete objects, as far as its words show."""
    return _DELETING_COMMANDS.search(arguments) is not None


def user_objects(top: str) -> str:
    """The objects of the repository in `top`; "" if they cannot be lent."""
    objects = os.path.realpath(os.path.join(common_git_folder(top), "objects"))
    # git separates paths by a colon, and reads quotes in them.
    if not os.path.isdir(objects) or re.search(r'[:"\n]', objects):
        return ""
    # Objects that it borrows itself may be deleted without a change here (`stamp_of`).
    if os.path.lexists(os.path.join(objects, "info", "alternates")):
        return ""
    return objects


def stamp_of(objects: str) -> str:
    """A value that changes whenever an object or a pack is deleted. Raises `OSError`."""
    hashing = sha256()
    for directory in (*(f"{number:02x}" for number in range(256)), "pack", "info"):
        with suppress(FileNotFoundError):
            about = os.lstat(os.path.join(objects, directory))
            hashing.update(f"{directory} {about.st_ino} {about.st_ctime_ns}\n".encode())
    return hashing.hexdigest()


def has_only_files(objects: str) -> bool:
    """Whether git can read the packs without waiting for a pipe."""
    with suppress(FileNotFoundError), os.scandir(os.path.join(objects, "pack")) as entries:
        return all(
            stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode) for entry in entries
        )
    return True


def read_lender(path: Path) -> Lender | None:
    try:
        objects, stamp = path.read_bytes().split(b"\n")
    except (OSError, ValueError):
        return None
    return Lender(os.fsdecode(objects), stamp.decode())


def write_lender(path: Path, lender: Lender) -> None:
    """Write the file whole, or not at all."""
    temporary = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
    with open(temporary, "xb", opener=open_checked) as file:
        file.write(os.fsencode(lender.objects) + b"\n" + lender.stamp.encode())
        file.flush()
        os.fsync(file.fileno())  # without it, what is lent cannot be found
    temporary.replace(path)


def lenders_in(directory: Path) -> Iterator[str]:
    """The objects that the snapshots in this directory may need."""
    for path in sorted(directory.glob("*.lender")):
        if lender := read_lender(path):
            yield lender.objects
