"""One writer at a time: the lock on a journal, and a note beside it about the writer.

The lock is an exclusive `flock` on the log file itself. The note, a file named `pen`, only
says which process has the lock, for the error that another process gets, and where the
journal ended then. Deleting it does not release the lock. It is never synced: after a power
failure it may be older than the lines, or name lines that are lost. Both are noticed.

The note is two lines of text. The first has a fixed width and is overwritten after each
append; it has a checksum, because others may read it while it is being written.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal
from zlib import crc32

import msgspec
from msgspec import Struct

from refold.errors import Held
from refold.journal.store.disk import Disk

HEAD_WIDTH = 128
_MAX_SIGNED_BYTES = 4096  # of the second line; it has a host name and four numbers
FILE_NAME = "pen"


class Writer(Struct, frozen=True):
    """The process that writes a journal.

    If `pid` is 0, that process has closed the journal, and everything is on the disk.

    `claim` is the newest claim number under which the session was leased (`port.Store`).
    """

    epoch: int = 0
    pid: int = 0
    host: str = ""
    since: float = 0.0
    claim: int = 0


class LockNote(Struct, frozen=True):
    """The content of the note. `kept` is the number of bytes that were synced when it was
    written.
    """

    writer: Writer = Writer()
    head: tuple[int, str] = (0, "")
    kept: int = 0
    state: Literal["good", "missing", "damaged"] = "good"


class LockFile:
    """The file of the note. The writer keeps it open."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._path, self._disk = directory / FILE_NAME, disk
        self._name = str(self._path)
        self._file = -1  # not open
        self._signed = b""  # what this writer wrote about itself

    def sign(self, writer: Writer, head: tuple[int, str], kept_bytes: int) -> None:
        """Write the note of this writer, in a new file if the old one was removed."""
        if self._file < 0 or not self.is_in_place():
            self.close()
            try:
                self._file = self._disk.open(self._path)
            except FileNotFoundError:
                self._file = self._disk.open(self._path, new=True)
        self._signed = msgspec.json.encode(writer) + b"\n"
        words = _head_line(head, kept_bytes) + self._signed
        self._disk.write(self._file, words, offset=0)
        self._disk.truncate(self._file, len(words))

    def remember(self, head: tuple[int, str], kept_bytes: int) -> None:
        """Record where the journal ends now."""
        # The lines are written already. An outdated note only detects fewer losses.
        with suppress(OSError):
            self._disk.write(self._file, _head_line(head, kept_bytes), offset=0)

    def is_in_place(self) -> bool:
        """Whether the file still exists, with the content that this writer wrote."""
        try:
            current, own = os.lstat(self._name), os.fstat(self._file)
        except OSError:
            return False
        is_same_file = (current.st_dev, current.st_ino) == (own.st_dev, own.st_ino)
        if not is_same_file:
            return False
        return os.pread(self._file, _MAX_SIGNED_BYTES, HEAD_WIDTH) == self._signed

    def close(self) -> None:
        if self._file >= 0:
            self._disk.close(self._file)
        self._file = -1


def lock(file: int, path: Path) -> None:
    """Lock the open log file at `path`. Raises `Held` while another process has the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Held(f"{path} is locked") from error


def unlock(file: int) -> None:
    fcntl.flock(file, fcntl.LOCK_UN)


def current_writer(epoch: int, claim: int = 0) -> Writer:
    """Return this process as the writer with this number."""
    return Writer(epoch, os.getpid(), os.uname().nodename, time.time(), claim)


def read(directory: Path) -> LockNote:
    """Return the note in `directory`. Its `state` says whether it is missing or damaged."""
    try:
        data = (directory / FILE_NAME).read_bytes()
    except FileNotFoundError:
        return LockNote(state="missing")
    try:
        head, kept_bytes = _head(data[:HEAD_WIDTH])
        signed = data[HEAD_WIDTH:].split(b"\n")[0]
        return LockNote(msgspec.json.decode(signed, type=Writer), head, kept_bytes)
    except (ValueError, msgspec.DecodeError):
        return LockNote(state="damaged")


def is_alive(writer: Writer) -> bool:
    """Whether the writer is alive; also True for a process on another machine."""
    return bool(writer.pid) and _may_be_alive(writer)


def describe_holder(writer: Writer) -> str:
    """Describe the writer, for the error that another process gets."""
    if not is_alive(writer):
        return "another process"
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(writer.since))
    return f"process {writer.pid} on {writer.host}, since {when}"


def is_locked_by(pid: int, path: Path) -> bool:
    """Whether the process `pid` holds the lock on the log file at `path`, according to
    /proc.

    False also for another user's process, and without /proc.
    """
    with suppress(OSError):
        log = os.stat(path)
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                file = os.stat(f"/proc/{pid}/fd/{number}")
                if (file.st_dev, file.st_ino) == (log.st_dev, log.st_ino):
                    locks = Path(f"/proc/{pid}/fdinfo/{number}").read_text("ascii")
                    if "FLOCK" in locks:
                        return True
    return False


def _head_line(head: tuple[int, str], kept_bytes: int) -> bytes:
    """Return the first line of the note. Its width is fixed, so that it can be overwritten."""
    words = f"{head[0]} {head[1] or '-'} {kept_bytes}"
    checksum = f"{crc32(words.encode()):08x}"
    line = f"{words} {checksum}".ljust(HEAD_WIDTH - 1)  # the line end is the last byte
    return line.encode() + b"\n"


def _head(line: bytes) -> tuple[tuple[int, str], int]:
    """Return the head and the kept bytes of a line that `_head_line` has made.

    Raises `ValueError` for other bytes.
    """
    words, checksum = line.rsplit(maxsplit=1)
    if int(checksum, 16) != crc32(words):
        raise ValueError("the checksum differs")
    seq, h, kept_bytes = words.decode().split()
    return (int(seq), "" if h == "-" else h), int(kept_bytes)


def _may_be_alive(writer: Writer) -> bool:
    """Whether the process exists; True if it is on another machine."""
    if writer.host != os.uname().nodename:
        return True
    try:
        os.kill(writer.pid, 0)
    # An old note (the new one is not written yet), or a damaged one with too large a number.
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
