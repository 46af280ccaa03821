"""Lists the sessions in a directory by name and time, and removes unfinished ones.

It reads no journal: `journal_directory` finds sessions, and `store.file` reads them.
"""

import os
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Protocol

from msgspec import Struct

from refold.errors import BadInput
from refold.journal.store import log_file
from refold.safe_open import check_no_links
from refold.values.text import clean

CHILDREN_DIRECTORY = "children"  # in the directory of their parent


class FileStamp(Struct, frozen=True, array_like=True):
    """The size, time and inode of a journal. If one of the three differs, the journal was
    written.
    """

    size: int = -1
    mtime: int = 0  # nanoseconds
    inode: int = 0

    @property
    def mtime_seconds(self) -> float:
        """Seconds since 1970."""
        return self.mtime / 1e9


class SessionFiles(Protocol):
    """The directory of all sessions, for code that creates one."""

    root: Path

    def new_id(self, started_at: float) -> str:
        """Return a free id for a session that begins at `started_at`."""
        ...

    def path(self, session: str) -> Path:
        """Return the directory of the session, which need not exist."""
        ...

    def exists(self, session: str) -> bool:
        """Whether the session has a journal."""
        ...


class SessionListing(Struct, frozen=True):
    """The sessions without subagents. `ids` begins with the session that was written last."""

    ids: tuple[str, ...]
    stamps: dict[str, FileStamp]


def list_sessions(root: Path) -> SessionListing:
    """List the sessions in `root`, if `root` exists. Raises `BadInput` if `root` cannot be
    read.
    """
    stamps = dict[str, FileStamp]()
    try:
        root_descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return SessionListing((), stamps)
    except OSError as error:
        raise BadInput(_unreadable(root, error)) from error
    try:
        for name in os.listdir(root_descriptor):
            if name[0] == "." or clean(name) != name:  # not the name of a session
                continue
            stamp = stamp_of(f"{name}/{log_file.FILE_NAME}", root_descriptor)
            if stamp is not None:
                stamps[name] = stamp
    except OSError as error:
        raise BadInput(_unreadable(root, error)) from error
    finally:
        os.close(root_descriptor)
    newest = sorted(stamps, key=lambda name: (stamps[name].mtime, name), reverse=True)
    return SessionListing(tuple(newest), stamps)


def stamp_of(file: str | Path, parent: int | None = None) -> FileStamp | None:
    """Return the stamp of this journal; None if the file does not exist."""
    try:
        status = os.stat(file, dir_fd=parent)
    except (OSError, ValueError):  # `ValueError` for an invalid path
        return None
    if not (S_ISREG(status.st_mode) or S_ISDIR(status.st_mode)):
        return None  # opening a pipe would block for ever
    return FileStamp(status.st_size, status.st_mtime_ns, status.st_ino)


def _unreadable(root: Path, error: OSError) -> str:
    return (
        f"the sessions in {root} cannot be listed: {error.strerror}; make it readable, or "
        "set REFOLD_HOME to another directory"
    )


def sweep(root: Path, prefix: str) -> None:
    """Remove the directories that dead processes left unfinished.

    Their names are `prefix` and a process id. Raises `OSError` for a link.
    """
    check_no_links(root)
    from shutil import rmtree  # imported late: its compressors take long to load

    for directory in root.glob(f"{prefix}*"):
        process = directory.name.removeprefix(prefix).partition("-")[0]
        if process.isdecimal() and not _is_alive(int(process)):
            rmtree(directory, ignore_errors=True)


def _is_alive(process: int) -> bool:
    """Whether a process has this number, also another user's; True if unknown."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
