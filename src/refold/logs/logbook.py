"""The log: one file of limited size, to which several processes write without waiting.

A line is `time level pid session text`; continuation lines are indented. It contains no
secrets and no control characters. A line that cannot be written is dropped: the log never
makes anything fail. What happened in a session is in its journal, not here. Python's
`logging` is not used: it belongs to the program that uses refold as a library, and loses
lines if several processes rotate a file.

The log has what belongs to no session: a retried request, a weak sandbox, an internal
error. A journal is exported and shared, never shortened, and may not exist yet when
something goes wrong. Nothing is decided by the content of the log. A module that logs gets
a function (`values.log_level.Tell`); `logging` would also cost each start 5 to 10 ms.
"""

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
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
OLDER_LOGS = 2  # files that are kept besides
CONTINUATION_INDENT = "    "  # begins what belongs to the line above
_MAX_ENTRY_CHARS = 20_000  # of one entry: a traceback of a deep recursion is longer
_APPEND_FLAGS = (
    os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)


class Logbook:
    """`mask` takes out what is secret. Has the shape of `WriteLog`."""

    def __init__(
        self, state: Path, threshold: Threshold, mask: Callable[[bytes], bytes]
    ) -> None:
        self.file = state / LOG_NAME
        self._mask = mask
        self._min_level = (
            len(LOG_LEVELS) if threshold == "off" else LOG_LEVELS.index(threshold)
        )

    def __call__(self, level: Level, message: str, session: str = "") -> None:
        if LOG_LEVELS.index(level) >= self._min_level:
            self.write(level, message, session)

    def write(self, level: Level, message: str, session: str = "") -> bool:
        """Write an entry of any level. Return False if it cannot be written."""
        now = time.time()
        timestamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now))
        prefix = f"{timestamp}.{int(now * 1000) % 1000:03} {level} {os.getpid()} {session or '-'}"
        line = self._mask(
            f"{prefix} {message[:_MAX_ENTRY_CHARS]}".encode("utf-8", "replace")
        )
        text = visible(line.decode("utf-8", "replace")).rstrip("\n")
        try:
            _append(
                self.file, (text.replace("\n", f"\n{CONTINUATION_INDENT}") + "\n").encode()
            )
        except OSError:
            return False
        return True


def files(state: Path) -> tuple[Path, ...]:
    """The files of the log, the oldest part first, whether they exist or not."""
    older = (state / f"{LOG_NAME}.{number}" for number in range(OLDER_LOGS, 0, -1))
    return (*older, state / LOG_NAME)


def _append(file: Path, line: bytes) -> None:
    descriptor = _open_log(file)
    try:
        with suppress(
            OSError
        ):  # another process rotates it: then it grows by one more line
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_size + len(line) > MAX_LOG_BYTES and _is_same_file(
                descriptor, file
            ):
                _rotate(file)
                os.close(descriptor)
                descriptor = _open_log(file)
        os.write(descriptor, line)
        # A process that was forked just now has it open, too: closing would not unlock it.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _open_log(file: Path) -> int:
    try:
        return os.open(file, _APPEND_FLAGS, 0o600)
    except FileNotFoundError:
        make_directories(file.parent)
        return os.open(file, _APPEND_FLAGS, 0o600)


def _is_same_file(descriptor: int, file: Path) -> bool:
    """Return False if another process rotated the log since it was opened."""
    return os.path.samestat(os.fstat(descriptor), file.lstat())


def _rotate(file: Path) -> None:
    *older, newest = files(file.parent)
    for later, earlier in zip(older, [*older[1:], newest], strict=True):
        with suppress(FileNotFoundError):
            earlier.replace(later)


# The log read back: its entries in order, and what is added meanwhile.

_READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe is not waited for
_LINE_PATTERN = r"(\S+) (debug|info|warning|error) (\d+) (\S+) (.*)"


class Entry(Struct, frozen=True):
    """An entry of the log. `text` is the entry as it was written, without its last line
    end.
    """

    level: Level
    text: str


def entries(state: Path) -> tuple[Entry, ...]:
    """All entries, the oldest first. Raises `RefoldError` if they cannot be read."""
    return tuple(_entries(line for file in files(state) for line in _lines(file)))


def at_least(log_entries: Iterable[Entry], level: Level) -> list[Entry]:
    return [
        entry
        for entry in log_entries
        if LOG_LEVELS.index(entry.level) >= LOG_LEVELS.index(level)
    ]


class Tail:
    """Reads the entries that were added since the last read. A log that was rotated is read
    to its end.
    """

    def __init__(self, state: Path) -> None:
        self._file = state / LOG_NAME
        self._held, self._number = b"", -1
        self._open()
        if self._number >= 0:
            os.lseek(self._number, 0, os.SEEK_END)

    def news(self) -> tuple[Entry, ...]:
        added = self._read()
        if self._is_another():
            self._close()
            self._open()
            added += self._read()
        whole, end, rest = (self._held + added).rpartition(b"\n")
        self._held = rest
        return tuple(_entries((whole + end).decode("utf-8", "replace").splitlines()))

    def close(self) -> None:
        self._close()

    def _open(self) -> None:
        try:
            self._number = os.open(self._file, _READ_FLAGS)
        except OSError:
            self._number = -1

    def _close(self) -> None:
        if self._number >= 0:
            os.close(self._number)
        self._number = -1

    def _read(self) -> bytes:
        content = b""
        while self._number >= 0 and (piece := os.read(self._number, 65536)):
            content += piece
        return content

    def _is_another(self) -> bool:
        try:
            status = self._file.stat()
        except OSError:
            return False
        return self._number < 0 or not os.path.samestat(os.fstat(self._number), status)


def _lines(file: Path) -> Iterator[str]:
    try:
        with os.fdopen(
            os.open(file, _READ_FLAGS), encoding="utf-8", errors="replace"
        ) as descriptor:
            yield from descriptor.read().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise RefoldError(f"the log {file} cannot be read: {error.strerror}") from error


def _entries(lines: Iterable[str]) -> Iterator[Entry]:
    level: Level = "info"
    pending = list[str]()
    for line in lines:
        if match := re.fullmatch(_LINE_PATTERN, line):
            if pending:
                yield Entry(level, "\n".join(pending))
            level, pending = _level(match[2]), [line]
        elif pending and line.startswith(CONTINUATION_INDENT):
            pending.append(line)
    if pending:
        yield Entry(level, "\n".join(pending))


def _level(name: str) -> Level:
    return next(level for level in LOG_LEVELS if level == name)
