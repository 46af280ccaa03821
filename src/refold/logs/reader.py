"""The log read back: its entries in order, and what is added while somebody looks."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from refold.errors import RefoldError
from refold.logs.logbook import GOES_ON, NAME, files
from refold.values.log_level import LEVELS, Level

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe is not waited for
_LINE = re.compile(r"(\S+) (debug|info|warning|error) (\d+) (\S+) (.*)")


class Entry(Struct, frozen=True):
    """`text` is all of it as it was written, without the last line's end."""

    level: Level
    text: str


def entries(state: Path) -> tuple[Entry, ...]:
    """All there are, the oldest first. Raises `RefoldError` where they cannot be read."""
    return tuple(_entries(line for file in files(state) for line in _lines(file)))


def at_least(found: Iterable[Entry], level: Level) -> list[Entry]:
    return [each for each in found if LEVELS.index(each.level) >= LEVELS.index(level)]


class Tail:
    """What was added since it was last asked. A log that was put away is read to its end."""

    def __init__(self, state: Path) -> None:
        self._file = state / NAME
        self._held, self._number = b"", -1
        self._open()
        if self._number >= 0:
            os.lseek(self._number, 0, os.SEEK_END)

    def news(self) -> tuple[Entry, ...]:
        found = self._read()
        if self._is_another():
            self._close()
            self._open()
            found += self._read()
        whole, end, rest = (self._held + found).rpartition(b"\n")
        self._held = rest
        return tuple(_entries((whole + end).decode("utf-8", "replace").splitlines()))

    def close(self) -> None:
        self._close()

    def _open(self) -> None:
        try:
            self._number = os.open(self._file, _FLAGS)
        except OSError:
            self._number = -1

    def _close(self) -> None:
        if self._number >= 0:
            os.close(self._number)
        self._number = -1

    def _read(self) -> bytes:
        found = b""
        while self._number >= 0 and (piece := os.read(self._number, 65536)):
            found += piece
        return found

    def _is_another(self) -> bool:
        try:
            there = self._file.stat()
        except OSError:
            return False
        return self._number < 0 or not os.path.samestat(os.fstat(self._number), there)


def _lines(file: Path) -> Iterator[str]:
    try:
        with os.fdopen(os.open(file, _FLAGS), encoding="utf-8", errors="replace") as opened:
            yield from opened.read().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise RefoldError(f"the log {file} cannot be read: {error.strerror}") from error


def _entries(lines: Iterable[str]) -> Iterator[Entry]:
    level: Level = "info"
    held = list[str]()
    for line in lines:
        if found := _LINE.fullmatch(line):
            if held:
                yield Entry(level, "\n".join(held))
            level, held = _level(found[2]), [line]
        elif held and line.startswith(GOES_ON):
            held.append(line)
    if held:
        yield Entry(level, "\n".join(held))


def _level(name: str) -> Level:
    return next(each for each in LEVELS if each == name)
