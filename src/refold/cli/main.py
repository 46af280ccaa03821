"""Runs what the command line asks for: a subcommand, a session in the terminal, or one task.

An error is one sentence on stderr and exit code 1. The process ends at once when its work
is done: everything that must survive is on disk by then, and tearing the interpreter down
takes time.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING, TextIO

from refold.cli.flags import PICK_SESSION, parse
from refold.cli.import_interrupts import exit_on_interrupt
from refold.cli.subcommands import SUBCOMMANDS
from refold.errors import BadInput, Corrupt, Held, RefoldError, WrongFormat, first
from refold.headless.streams import ReaderGone, print_error, print_lines, write

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# The flags that a session in the terminal ignores, with their defaults.
_ONE_TASK = {
    "output_format": "text", "include_partial_messages": False, "timeout": None, "verify": False,
}  # fmt: skip


def run(arguments: Sequence[str]) -> None:
    """Run the command line and end the process. Returns only in tests."""
    if "_ARGCOMPLETE" in os.environ:  # a shell completes this line
        from refold.cli.completion import complete_line

        complete_line()
    replace_closed_streams()
    sys.stderr = open_notice_stream(2)
    try:
        code = main(arguments)
    except Exception as error:  # a bug; a report needs all of it
        from refold.cli.crash_report import report_of

        code = 1
        print_lines(report_of(error, arguments))
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # gone, or closed from the start
            stream.flush()
    os._exit(code)


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code. Raises only on bugs."""
    try:
        return _dispatch(parse(arguments))
    except (RefoldError, ReaderGone, KeyboardInterrupt, BaseExceptionGroup) as error:
        return _report_error(first(error))


def _report_error(error: BaseException) -> int:
    match error:
        case RefoldError():
            print_error(error)
            return 1
        case ReaderGone():
            return 1
        case KeyboardInterrupt():
            return 130
        case _:
            raise error


def _recovery_advice(error: Corrupt) -> str:
    if error.line <= 1:
        return str(error)
    return (
        f"{error}; add --fork --at {error.line - 1} to continue in a copy of what stands "
        "before it"
    )


def _dispatch(args: Namespace) -> int:
    if not args.command:
        try:
            return session(args)
        except (Corrupt, BaseExceptionGroup) as error:
            damage = first(error)
            if not isinstance(damage, Corrupt) or isinstance(damage, WrongFormat):
                raise
            raise BadInput(_recovery_advice(damage)) from error
    with exit_on_interrupt():  # only the module of this subcommand
        subcommand = SUBCOMMANDS[args.command].load()
    return subcommand.run(args)


def _change_directory(directory: str) -> None:
    try:
        os.chdir(os.path.expanduser(directory))
    except OSError as error:
        raise BadInput(f"--cwd {directory!r}: {error.strerror}") from error


def session(args: Namespace) -> int:
    """Run a session in the terminal, or one task without a terminal."""
    if args.version:
        from refold._version import __version__

        write(f"refold {__version__}\n")
        return 0
    if args.cwd:
        _change_directory(args.cwd)
    if args.init_config or args.list_agents:
        from refold.cli.agents import run_flag

        return run_flag(args)
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if terminal and not args.print and args.input_format == "text":
        return _run_in_terminal(args)
    from refold.headless.stop_signals import StopSignals

    stops = StopSignals()
    stops.listen()  # the next import takes long
    from refold.cli.launch import task_of
    from refold.headless.print import run as headless

    return headless(task_of(args), stops)


def _run_in_terminal(args: Namespace) -> int:
    for name, unsaid in _ONE_TASK.items():
        if getattr(args, name) != unsaid:
            flag = f"--{name.replace('_', '-')}"
            raise BadInput(f"{flag} is for one task without a terminal: add -p")
    if args.resume is PICK_SESSION:
        from refold.cli.launch import settings_of
        from refold.cli.session_picker import pick_one

        args.resume = None  # so that settings are those of this directory
        if not (picked := pick_one(settings_of(args).settings.terminal)):
            return 0
        args.resume = picked
    if args.steal:
        from refold.cli.launch import check_resume, find_session_directory

        check_resume(args)
        find_session_directory(args)
        if args.resume is not None and not _steal(args):
            from refold.cli.attach import join

            return join(args.resume, full=args.display == "full")
    with exit_on_interrupt():
        from refold.cli.interactive import run as interactive
    try:
        return interactive(args)
    except Held:
        if args.text or not (args.held and _offer_to_join(args.held)):
            raise
    from refold.cli.attach import join

    return join(args.held, full=args.display == "full")


def _offer_to_join(session: str) -> bool:
    from refold.cli.steal import offer_to_join

    return offer_to_join(session)


def _steal(args: Namespace) -> bool:
    from refold.cli.steal import ask_and_steal

    return ask_and_steal(args)


def replace_closed_streams() -> None:
    """Replace the standard streams that were closed at the start; Python sets them to None.

    The input is at its end, the output a pipe that was closed by its reader.
    """
    _open_closed_descriptors()
    names = vars(sys)
    if names["stdin"] is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if names["stdout"] is None:
        reading, writing = os.pipe()
        os.close(reading)
        sys.stdout = os.fdopen(writing, "w", encoding="utf-8")


def open_notice_stream(number: int) -> TextIO:
    """Return a stream for notices, which ignores a full disk and a closed pipe."""
    return TextIOWrapper(
        BufferedWriter(_NeverFailing(number, "w", closefd=False)),
        encoding=getattr(sys.stderr, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )


def _open_closed_descriptors() -> None:
    """Open /dev/null for each standard stream that is closed.

    Otherwise a file of ours would get its number, and programs would write to it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            with suppress(OSError):
                os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


class _NeverFailing(FileIO):
    def write(self, data: "ReadableBuffer", /) -> int:
        with suppress(OSError):
            if (written := super().write(data)) is not None:
                return written
        return memoryview(data).nbytes
