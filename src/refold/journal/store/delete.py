"""Deletes a session for good: its journal, its blobs and its subagents.

It holds the lock that every writer takes. The directory is renamed before it is removed, so
that no session is ever half deleted; the next deletion removes what a crash leaves. Blobs
that a fork shares are hard links and stay in the fork. Checkpoints of the workspace are not
changed.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from refold.errors import BadInput, Held
from refold.journal.store import log_file, writer_lock
from refold.journal.store.blobs import SHARED_DIRECTORY_NAME, remove_unused_blobs
from refold.journal.store.disk import Disk, as_journal_errors
from refold.journal.store.session_files import sweep

DELETE_PREFIX = ".deleted-"  # followed by the id of the deleting process
# The directories of processes that fork, import or delete a session, as `sweep` expects
# them.
_UNFINISHED_PATTERN = r"\.[a-z]+-\d+-"


class SessionSize(Struct, frozen=True):
    """The size of a session with all its subagents."""

    sessions: int
    files: int
    bytes: int


def session_size(root: Path, path: Path) -> SessionSize:
    """Return the size of what the deletion of this session would remove."""
    shared = root / SHARED_DIRECTORY_NAME
    sessions = files = size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):  # it was deleted in the meantime
                status = os.lstat(os.path.join(folder, name))
                files += 1
                if name == log_file.FILE_NAME:
                    sessions += 1
                # Its own link, and that in the directory of shared blobs, if it is one. If it
                # has more, it stays on the disk for other sessions.
                own_links = 1 + os.path.lexists(shared / name)
                if status.st_nlink == own_links:
                    size += status.st_size
    return SessionSize(sessions, files, size)


def leftovers(root: Path) -> list[str]:
    """Return the names of directories in `root` that have no journal, not even an
    unreadable one.
    """
    with suppress(FileNotFoundError), os.scandir(root) as entries:
        return sorted(
            entry.name
            for entry in entries
            if entry.is_dir(follow_symlinks=False) and _has_no_journal(entry)
        )
    return []


def _has_no_journal(entry: "os.DirEntry[str]") -> bool:
    """Whether the directory is left over, without a journal of a session; False if unknown."""
    if re.match(_UNFINISHED_PATTERN, entry.name):
        return True  # if it has a journal, that does not belong to a session
    if entry.name.startswith("."):
        return False
    try:
        os.lstat(os.path.join(entry.path, log_file.FILE_NAME))
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def delete(root: Path, path: Path, disk: Disk | None = None) -> None:
    """Delete the session at `path`, below `root`. Raises `Held` while a writer has the session.

    Raises `BadInput` if `path` is a link, which could lead anywhere.
    """
    disk = disk or Disk()
    if path.is_symlink():
        raise BadInput(
            f"{path} is a link to {path.resolve()}: nothing is deleted there; move the "
            "session back in its place, or remove both by hand"
        )
    temporary = root / f"{DELETE_PREFIX}{os.getpid()}-{path.name}"
    with as_journal_errors("delete", path):
        sweep(root, DELETE_PREFIX)
        if path.name.startswith(DELETE_PREFIX) and not path.exists():
            return  # an interrupted deletion left it, and it was removed above
        with ExitStack() as locks:
            for file in sorted(path.rglob(log_file.FILE_NAME)):
                locks.enter_context(_lock_journal(file))
            disk.rename(path, temporary)
        disk.sync_directory(root)
        shutil.rmtree(temporary)
        remove_unused_blobs(root)


@contextmanager
def _lock_journal(file: Path) -> Generator[None]:
    """Lock a journal for the `with` block. Raises `Held` while a writer has it."""
    opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        holder = writer_lock.describe_holder(writer_lock.read(file.parent).writer)
        raise Held(
            f"{file.parent} is being written by {holder}: end that one first"
        ) from None
    finally:
        os.close(opened)
