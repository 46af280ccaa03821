"""From the command line to the door that was asked for.

Whatever goes wrong on the way in is one sentence on stderr and exit code 1. The
process ends at once when its work is done: what must survive is on the disk by
then, and taking an interpreter apart helps nobody.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TextIO

from refold.cli.flags import DOORS, parse
from refold.cli.out import Gone
from refold.errors import RefoldError, first


def run(arguments: Sequence[str]) -> None:
    """Do what was asked and end the process. Never returns but for tests."""
    code = main(arguments)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # gone, or closed from the start
            stream.flush()
    os._exit(code)


def main(arguments: Sequence[str]) -> int:
    """Do what was asked; gives the exit code."""
    try:
        return _dispatch(parse(arguments))
    except (RefoldError, Gone, KeyboardInterrupt, BaseExceptionGroup) as error:
        return _told(first(error))


def _told(error: BaseException) -> int:
    match error:
        case RefoldError():
            sys.stderr.write(f"refold: {error}\n")
            return 1
        case Gone():
            return 1
        case KeyboardInterrupt():
            return 130
        case _:  # a bug of ours; whoever reports it needs all of it
            raise error


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()  # None: it was closed at the start


def _dispatch(found: Namespace) -> int:
    if not found.command:
        return _session(found)
    # Only the one that was asked for is loaded.
    module, name = DOORS[found.command]
    door: Callable[[Namespace], int] = getattr(import_module(f"refold.cli.{module}"), name)
    return door(found)


def _session(found: Namespace) -> int:
    if found.version:
        from refold import __version__

        sys.stdout.write(f"refold {__version__}\n")
        return 0
    terminal = _is_terminal(sys.stdin) and _is_terminal(sys.stdout)
    if found.print or not terminal or found.input_format != "text":
        from refold.cli.headless import run as headless

        return headless(found)
    from refold.cli.interactive import run as interactive

    return interactive(found)
