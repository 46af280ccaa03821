"""Runs a function of ours over some bytes in a process of its own, with bounds of time and memory.

For libraries that read what others wrote: a few kilobytes can take gigabytes, for ever, or the
process with them. Commands of a model run in `place`.
"""

import sys
from collections.abc import Callable
from tempfile import TemporaryFile

from refold import programs
from refold.plugins import trusted_path

SECONDS = 20.0
MEMORY = 1024 * 1024 * 1024  # bytes of address space
BOUNDS = f"more than {MEMORY >> 20} MB of memory or {SECONDS:.0f} s"
_RUN = (
    "import sys; sys.path[:] = sys.argv[4:]; from importlib import import_module; "
    "getattr(import_module(sys.argv[1]), sys.argv[2])(sys.argv[3])"
)
_CANNOT = 3


class LimitExceeded(Exception):
    """It takes more memory or time than it may, or it crashed."""


class CannotRead(Exception):
    """The function said `cannot`; the message is what it said."""


def printed(function: Callable[[str], None], content: bytes, argument: str) -> str:
    """What `function(argument)` prints, with `content` as its input.

    It is a function of a module, which is imported in the new process.
    """
    with TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        named = (function.__module__, function.__name__, argument)
        words = [sys.executable, "-I", "-c", _RUN, *named, *trusted_path()]
        try:
            done = programs.run(words, SECONDS, stdin=file, env={}, memory=MEMORY)
        except (OSError, programs.TimedOut) as error:
            raise LimitExceeded(BOUNDS) from error
    if not done.returncode:
        return done.stdout.decode(errors="replace")
    why = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode == _CANNOT and why:
        raise CannotRead(why[-1])
    raise LimitExceeded(BOUNDS)


def cannot(why: str) -> None:
    """End this process: the input is not what it should be."""
    sys.stderr.write(" ".join(why.split()))
    sys.exit(_CANNOT)
