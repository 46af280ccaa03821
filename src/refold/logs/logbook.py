"""Writes and reads refold's log, to which several processes append without waiting.

The log has what belongs to no session: a retried request, a weak sandbox, an internal error.
Events of a session are in its journal, which is never shortened and may not exist yet when
something goes wrong. No decision depends on the content of the log.

An entry is one line, `time level pid session text`, and indented continuation lines. Secrets
are masked and control characters are made visible. An entry that cannot be written is dropped,
so that the log never makes anything fail.

Python's `logging` is not used: it belongs to the program that uses refold as a library, loses
lines if several processes rotate a file, and would cost each start 5 to 10 ms. A module that
logs gets a function instead (`values.log_level.WriteLog`).
"""

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from refold.errors import RefoldError
from refold.place.private_files import make_directories
from refold.values.log_level import LOG_LEVELS, Level
from refold.views.escape import visible

Threshold: TypeAlias = Literal["debug", "info", "warning", "error", "off"]
LOG_NAME = "refold.log"
MAX_LOG_BYTES = 1_000_000  # of one file
OLDER_LOGS = 2  # older files that are kept, too
CONTINUATION_INDENT = "    "  # begins a line that belongs to the line above
_MAX_ENTRY_CHARS = 20_000  # of one entry: a traceback of a deep recursion is longer
_APPEND_FLAGS = (
    os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)


class Logbook:
    """Appends entries to the log. Implements `WriteLog`.

    Entries below `threshold` are dropped. `mask` replaces secrets in the text.
    """

    def __init__(
        self, state: Path, threshold: Threshold, mask: Callable[[bytes], bytes]
    ) -> None:
        self.file = state / LOG_NAME
        self._mask = mask
        no_level = len(LOG_LEVELS)  # above all levels
        self._min_level = no_level if threshold == "off" else LOG_LEVELS.index(threshold)

    def __call__(self, level: Level, message: str, session: str = "") -> None:
        if LOG_LEVELS.index(level) >= self._min_level:
            self.write(level, message, session)

    def write(self, level: Level, message: str, session: str = "") -> bool:
        """Append an entry, whatever its level. Return False if it cannot be written."""
        now = time.time()
        timestamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now))
        millis = int(now * 1000) % 1000
        prefix = f"{timestamp}.{millis:03} {level} {os.getpid()} {session or '-'}"
        entry = f"{prefix} {message[:_MAX_ENTRY_CHARS]}"
        masked = self._mask(entry.encode("utf-8", "replace")).decode("utf-8", "replace")
        first_line, *other_lines = visible(masked).rstrip("\n").split("\n")
        lines = [first_line, *(CONTINUATION_INDENT + line for line in other_lines)]
        try:
            _append(self.file, ("\n".join(lines) + "\n").encode())
        except OSError:
            return False
        return True


def files(state: Path) -> tuple[Path, ...]:
    """Return the paths of the log's files, the oldest first. Some may not exist."""
    older = (state / f"{LOG_NAME}.{number}" for number in range(OLDER_LOGS, 0, -1))
    return (*older, state / LOG_NAME)


def _append(file: Path, line: bytes) -> None:
    """Append `line` to the log, and rotate the log first if the line does not fit.

    Raises `OSError`.
    """
    descriptor = _open_log(file)
    try:
        # `flock` fails if another process has the lock. That process rotates the file, and
        # this line goes beyond the limit.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_full = os.fstat(descriptor).st_size + len(line) > MAX_LOG_BYTES
            if is_full and _is_same_file(descriptor, file):
                _rotate(file)
                full_log, descriptor = descriptor, _open_log(file)
                os.close(full_log)
        os.write(descriptor, line)
        # A process that was just forked has the file open, too, so closing it would not
        # release the lock.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _open_log(file: Path) -> int:
    """Return a descriptor to append to the log. The file is created if it is missing."""
    try:
        return os.open(file, _APPEND_FLAGS, 0o600)
    except FileNotFoundError:
        make_directories(file.parent)
        return os.open(file, _APPEND_FLAGS, 0o600)


def _is_same_file(descriptor: int, file: Path) -> bool:
    """Whether the open file is still at the path `file`.

    After another process has rotated the log, the path leads to another file.
    """
    return os.path.samestat(os.fstat(descriptor), file.lstat())


def _rotate(file: Path) -> None:
    """Rename each file of the log to the next older name. The oldest is overwritten."""
    oldest_first = files(file.parent)
    for older, newer in pairwise(oldest_first):
        with suppress(FileNotFoundError):
            newer.replace(older)


# Reading the log: its entries in order, and entries that are added meanwhile.

_READ_BYTES = 65_536  # at once
_READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe is not waited for
_LINE_PATTERN = r"(\S+) (debug|info|warning|error) (\d+) (\S+) (.*)"


class Entry(Struct, frozen=True):
    """An entry of the log. `text` has all its lines, without the last line end."""

    level: Level
    text: str


def entries(state: Path) -> tuple[Entry, ...]:
    """Return all entries of the log's files, the oldest first.

    Raises `RefoldError` if a file exists but cannot be read.
    """
    return tuple(_entries(line for file in files(state) for line in _lines(file)))


def at_least(log_entries: Iterable[Entry], level: Level) -> list[Entry]:
    """Return the entries of `level` and of more serious levels."""
    return [
        entry
        for entry in log_entries
        if LOG_LEVELS.index(entry.level) >= LOG_LEVELS.index(level)
    ]


class Tail:
    """Follows the log: `news` returns what was written after the `Tail` was created.

    If the log is rotated, the rest of the old file is read before the new one.
    """

    def __init__(self, state: Path) -> None:
        self._file = state / LOG_NAME
        self._partial_line = b""
        self._descriptor = -1  # the file is not open
        self._open()
        if self._descriptor >= 0:
            os.lseek(self._descriptor, 0, os.SEEK_END)

    def news(self) -> tuple[Entry, ...]:
        """Return the entries that were appended since the last call of `news`."""
        added = self._read()
        if self._was_rotated():
            self._close()
            self._open()
            added += self._read()
        *complete_lines, self._partial_line = (self._partial_line + added).split(b"\n")
        text = b"\n".join(complete_lines).decode("utf-8", "replace")
        return tuple(_entries(text.splitlines()))

    def close(self) -> None:
        self._close()

    def _open(self) -> None:
        """Open the log. The descriptor is -1 if that fails."""
        try:
            self._descriptor = os.open(self._file, _READ_FLAGS)
        except OSError:
            self._descriptor = -1

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _read(self) -> bytes:
        """Return what was written since the last read; b"" if no file is open."""
        if self._descriptor < 0:
            return b""
        content = b""
        while piece := os.read(self._descriptor, _READ_BYTES):
            content += piece
        return content

    def _was_rotated(self) -> bool:
        """Whether a log file exists that is not the open one."""
        try:
            status = self._file.stat()
        except OSError:
            return False
        if self._descriptor < 0:
            return True
        return not os.path.samestat(os.fstat(self._descriptor), status)


def _lines(file: Path) -> Iterator[str]:
    """Yield the lines of a file of the log; none if the file does not exist."""
    try:
        descriptor = os.open(file, _READ_FLAGS)
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as opened:
            yield from opened.read().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise RefoldError(f"the log {file} cannot be read: {error.strerror}") from error


def _entries(lines: Iterable[str]) -> Iterator[Entry]:
    """Join each line with its continuation lines to an entry."""
    level: Level = "info"
    pending = list[str]()
    for line in lines:
        if match := re.fullmatch(_LINE_PATTERN, line):
            if pending:
                yield Entry(level, "\n".join(pending))
            _, level_name, *_ = match.groups()
            level, pending = _level(level_name), [line]
        elif pending and line.startswith(CONTINUATION_INDENT):
            pending.append(line)
    if pending:
        yield Entry(level, "\n".join(pending))


def _level(name: str) -> Level:
    return next(level for level in LOG_LEVELS if level == name)
