"""The log: one file, kept short, in which several processes write without waiting.

A line is `time level pid session what`; what goes on is set in. It holds nothing secret
and nothing that could order a screen about. What cannot be written is not written: a
log is no reason for anything to fail. What happened in a session says its journal, not
this. The `logging` of Python is not used: it belongs to whoever uses refold as a
library, and loses lines where several processes put a file away.
"""

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from refold.place.private_files import make_directories
from refold.values.log_level import LEVELS, Level
from refold.views.escape import visible

Threshold: TypeAlias = Literal["debug", "info", "warning", "error", "off"]
NAME = "refold.log"
LARGEST = 1_000_000  # bytes of one file
OLDER = 2  # files that are kept besides
GOES_ON = "    "  # begins what belongs to the line above
_LONGEST = 20_000  # characters of one entry: a traceback of a deep recursion is longer
_FLAGS = (
    os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)


class Logbook:
    """`mask` takes out what is secret. Has the shape of `Tell`."""

    def __init__(
        self, state: Path, threshold: Threshold, mask: Callable[[bytes], bytes]
    ) -> None:
        self.file = state / NAME
        self._mask = mask
        self._least = len(LEVELS) if threshold == "off" else LEVELS.index(threshold)

    def __call__(self, level: Level, what: str, session: str = "") -> None:
        if LEVELS.index(level) >= self._least:
            self.write(level, what, session)

    def write(self, level: Level, what: str, session: str = "") -> bool:
        """Whatever the level. False: it could not be written."""
        now = time.time()
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now))
        who = f"{at}.{int(now * 1000) % 1000:03} {level} {os.getpid()} {session or '-'}"
        line = self._mask(f"{who} {what[:_LONGEST]}".encode("utf-8", "replace"))
        text = visible(line.decode("utf-8", "replace")).rstrip("\n")
        try:
            _append(self.file, (text.replace("\n", f"\n{GOES_ON}") + "\n").encode())
        except OSError:
            return False
        return True


def files(state: Path) -> tuple[Path, ...]:
    """Where the log is, the oldest part first, whether it is there or not."""
    older = (state / f"{NAME}.{number}" for number in range(OLDER, 0, -1))
    return (*older, state / NAME)


def _append(file: Path, line: bytes) -> None:
    opened = _opened(file)
    try:
        with suppress(OSError):  # somebody else is at it: then it grows by one line more
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(opened).st_size + len(line) > LARGEST and _is_still(opened, file):
                _put_away(file)
                os.close(opened)
                opened = _opened(file)
        os.write(opened, line)
    finally:
        os.close(opened)


def _opened(file: Path) -> int:
    try:
        return os.open(file, _FLAGS, 0o600)
    except FileNotFoundError:
        make_directories(file.parent)
        return os.open(file, _FLAGS, 0o600)


def _is_still(opened: int, file: Path) -> bool:
    """Not if another process put it away since it was opened."""
    return os.path.samestat(os.fstat(opened), file.lstat())


def _put_away(file: Path) -> None:
    *older, newest = files(file.parent)
    for later, earlier in zip(older, [*older[1:], newest], strict=True):
        with suppress(FileNotFoundError):
            earlier.replace(later)
