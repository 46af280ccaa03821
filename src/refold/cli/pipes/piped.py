"""The words of a task: those of the command line, and below them what stands on stdin.

Who gave the task on the command line may have left stdin as it was: a pipe that nobody
writes to and nobody closes, as services and CI hand it down. It is read to its end if
there is somebody who may write; else a moment is waited for it, and it is left alone.
"""

import os
import select
import stat
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress

from refold.cli.out import complain
from refold.errors import BadInput, RefoldError, said_by

_MOST = 32 * 2**20  # bytes of words
_SOON = 0.2  # seconds in which a pipe has said something, as a rule
_IDLE = 1.0  # seconds for those that started us to write something
_LONG = 3.0  # seconds after which somebody should know what is waited for
_PROCESSES = "/proc"
_WRITES = (os.O_WRONLY, os.O_RDWR)


def words_of(found: Namespace) -> str:
    """Raises `BadInput` where there are none, and nothing to go on with either."""
    piped = "" if sys.stdin.isatty() else _stdin(found.text)
    words = "\n\n".join(part for part in (found.text, piped) if part.strip())
    if not words and not found.continue_ and found.resume is None:
        raise BadInput('nothing to do: give the task as refold -p "…" or on stdin')
    return words


def _stdin(text: str) -> str:
    try:
        if text and not _comes():
            return ""
        found = sys.stdin.buffer.read(_MOST + 1)
    except OSError as error:
        raise RefoldError(f"stdin cannot be read: {said_by(error)}") from error
    if len(found) > _MOST:
        raise BadInput(
            f"stdin holds more than {_MOST // 2**20} MiB, which no model reads: "
            "put it into a file and name that"
        )
    return found.decode("utf-8-sig", errors="replace")  # some systems put a mark before it


def _comes() -> bool:
    """Is there something to read, or somebody who will write it?"""
    if _ready(_SOON):
        return True
    if _of_a_pipeline():
        if not _ready(_LONG):
            complain("waiting for what comes through the pipe")
        return True
    if _ready(_IDLE - _SOON):
        return True
    complain(
        f"nothing came through stdin in {_IDLE:g} s, so it goes on without: "
        "close it with < /dev/null, or give no words on the command line to wait for it"
    )
    return False


def _ready(seconds: float) -> bool:
    return bool(select.select([sys.stdin], [], [], seconds)[0])


def _of_a_pipeline() -> bool:
    """Has another program than those that started us our pipe open to write?

    `make test | refold -p "why?"`: make does, and we are to wait for it. Those that
    started us would rather wait for us. Only Linux lets us look.
    """
    try:
        pipe = os.fstat(sys.stdin.fileno())
        if not stat.S_ISFIFO(pipe.st_mode):
            return False
        above = set(_above(os.getpid()))
        return any(
            _writes(process, (pipe.st_dev, pipe.st_ino))
            for process in map(int, filter(str.isdecimal, os.listdir(_PROCESSES)))
            if process not in above
        )
    except (OSError, ValueError):
        return False


def _above(process: int) -> Iterator[int]:
    """This process, and those that started it."""
    while process > 1:
        yield process
        with open(
            f"{_PROCESSES}/{process}/stat", encoding="utf-8", errors="replace"
        ) as file:
            # The name of a program stands in brackets, and may hold anything.
            process = int(file.read().rpartition(")")[2].split()[1])
    yield process


def _writes(process: int, pipe: tuple[int, int]) -> bool:
    folder = f"{_PROCESSES}/{process}/fd"
    with suppress(OSError):  # it has ended, or is somebody else's
        for number in os.listdir(folder):
            with suppress(OSError):
                found = os.stat(f"{folder}/{number}")
                if (found.st_dev, found.st_ino) == pipe and _may_write(process, number):
                    return True
    return False


def _may_write(process: int, number: str) -> bool:
    with open(f"{_PROCESSES}/{process}/fdinfo/{number}", encoding="utf-8") as file:
        flags = next(line for line in file if line.startswith("flags:"))
    return int(flags.split()[1], 8) & os.O_ACCMODE in _WRITES
