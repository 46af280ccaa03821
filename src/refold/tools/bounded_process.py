"""Runs one of refold's functions in a separate process, with limits of time and memory.

It is for libraries that read untrusted files: a few kilobytes can take gigabytes, run forever
or crash the process. Commands of a model run in `place`.
"""

import sys
from collections.abc import Callable
from tempfile import TemporaryFile

from refold import programs
from refold.plugins import trusted_path

MAX_SECONDS = 20.0
MAX_MEMORY_BYTES = 1024 * 1024 * 1024  # of address space
BOUNDS_TEXT = f"more than {MAX_MEMORY_BYTES >> 20} MB of memory or {MAX_SECONDS:.0f} s"
_RUN_SCRIPT = (
    "import sys; sys.path[:] = sys.argv[4:]; from importlib import import_module; "
    "getattr(import_module(sys.argv[1]), sys.argv[2])(sys.argv[3])"
)
_CANNOT_READ = 3


class LimitExceeded(Exception):
    """The process exceeded its memory or time limit, or crashed."""


class CannotRead(Exception):
    """Raised if the function in the process called `exit_unreadable`. The message is its
    reason.
    """


def run_bounded(function: Callable[[str], None], content: bytes, argument: str) -> str:
    """Run `function(argument)` with `content` as its standard input. Return what it prints.

    `function` must be at the top level of a module, because the new process imports it.
    """
    with TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        call = (function.__module__, function.__name__, argument)
        command = [sys.executable, "-I", "-c", _RUN_SCRIPT, *call, *trusted_path()]
        try:
            process = programs.run(
                command, MAX_SECONDS, stdin=file, env={}, memory=MAX_MEMORY_BYTES
            )
        except (OSError, programs.TimedOut) as error:
            raise LimitExceeded(BOUNDS_TEXT) from error
    if not process.returncode:
        return process.stdout.decode(errors="replace")
    why = process.stderr.decode(errors="replace").strip().splitlines()
    if process.returncode == _CANNOT_READ and why:
        raise CannotRead(why[-1])
    raise LimitExceeded(BOUNDS_TEXT)


def exit_unreadable(reason: str) -> None:
    """Exit the process in which this runs, and report that the input is invalid."""
    sys.stderr.write(" ".join(reason.split()))
    sys.exit(_CANNOT_READ)
