"""Runs the command line: a subcommand, a session in the terminal, or one task.

An error is printed as one sentence on stderr, and the exit code is 1. At the end the process
exits without finalizing the interpreter, to save time.
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

# Flags of one task, with their defaults. A session in the terminal accepts no other values.
_ONE_TASK_DEFAULTS = {
    "output_format": "text", "include_partial_messages": False, "timeout": None, "verify": False,
}  # fmt: skip


def run(arguments: Sequence[str]) -> None:
    """Run the command line `arguments`, and exit the process."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
        from refold.cli.completion import complete_line

        complete_line()
    replace_closed_streams()
    sys.stderr = open_notice_stream(2)
    try:
        code = main(arguments)
    except Exception as error:  # a bug: report it completely
        from refold.cli.crash_report import report_of

        code = 1
        print_lines(report_of(error, arguments))
    for stream in (sys.stdout, sys.stderr):
        # the reader of the stream has gone, or the stream was closed at the start
        with suppress(OSError, AttributeError):
            stream.flush()
    os._exit(code)


def main(arguments: Sequence[str]) -> int:
    """Run the command line `arguments`, and return the exit code.

    Expected errors are printed; only a bug raises an exception.
    """
    try:
        return _dispatch(parse(arguments))
    except (RefoldError, ReaderGone, KeyboardInterrupt, BaseExceptionGroup) as error:
        return _report_error(first(error))


def _report_error(error: BaseException) -> int:
    """Print an expected error, and return the exit code. Raise an unexpected error again."""
    match error:
        case RefoldError():
            print_error(error)
            return 1
        case ReaderGone():
            return 1
        case KeyboardInterrupt():
            return 130  # 128 + SIGINT, as a shell reports it
        case _:
            raise error


def _damage_text(error: Corrupt) -> str:
    """Return a text about a damaged journal.

    If the journal has undamaged lines, the text names the flags that copy them.
    """
    if error.line <= 1:
        return str(error)
    return (
        f"{error}; add --fork --at {error.line - 1} to continue in a copy of what stands "
        "before it"
    )


def _dispatch(args: Namespace) -> int:
    """Run the named subcommand, or a session if none is named. Return the exit code."""
    if not args.command:
        try:
            return session(args)
        except (Corrupt, BaseExceptionGroup) as error:
            damage = first(error)
            if not isinstance(damage, Corrupt) or isinstance(damage, WrongFormat):
                raise
            raise BadInput(_damage_text(damage)) from error
    with exit_on_interrupt():  # only while the module of the subcommand is imported
        subcommand = SUBCOMMANDS[args.command].load()
    return subcommand.run(args)


def _change_directory(directory: str) -> None:
    try:
        os.chdir(os.path.expanduser(directory))
    except OSError as error:
        raise BadInput(f"--cwd {directory!r}: {error.strerror}") from error


def session(args: Namespace) -> int:
    """Run a session in the terminal, or one task without a terminal. Return the exit code."""
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
    stops.listen()  # installed early, because the next import takes long
    from refold.cli.launch import task_of
    from refold.headless.print import run as headless

    return headless(task_of(args), stops)


def _run_in_terminal(args: Namespace) -> int:
    """Run a session in this terminal, or join the process that has the session open.

    Return the exit code.
    """
    for name, default in _ONE_TASK_DEFAULTS.items():
        if getattr(args, name) != default:
            flag = f"--{name.replace('_', '-')}"
            raise BadInput(f"{flag} is for one task without a terminal: add -p")
    if args.resume is PICK_SESSION and not _pick_session(args):
        return 0
    if args.steal:
        from refold.cli.launch import check_resume, find_session_directory

        check_resume(args)
        find_session_directory(args)
        if args.resume is not None and not _steal(args):
            from refold.cli.attach import join

            return join(str(args.resume), full=args.display == "full")
    with exit_on_interrupt():
        from refold.cli.interactive import run as interactive
    try:
        return interactive(args)
    except Held:
        # `args.held` is set if another process has the session to resume open
        may_join = args.held and not args.text
        if not may_join or not _offer_to_join(args.held):
            raise
    from refold.cli.attach import join

    return join(args.held, full=args.display == "full")


def _pick_session(args: Namespace) -> bool:
    """Let the user pick the session to resume. Return False if the user picks none."""
    from refold.cli.launch import settings_of
    from refold.cli.session_picker import pick_one

    # None: the list is shown with the settings of this directory
    args.resume = None
    picked = pick_one(settings_of(args).settings.terminal)
    if not picked:
        return False
    args.resume = picked
    return True


def _offer_to_join(session: str) -> bool:
    """Ask whether to join the process that has the session open.

    Return False if the user refuses, or if the process does not answer.
    """
    from refold.cli.steal import offer_to_join

    return offer_to_join(session)


def _steal(args: Namespace) -> bool:
    """Ask, and kill the process that has the session open.

    Return False if the user joins the process instead.
    """
    from refold.cli.steal import ask_and_steal

    return ask_and_steal(args)


def replace_closed_streams() -> None:
    """Replace the standard streams that were closed when the process started.

    Python sets such streams to None. The new stdin is empty, and writing to the new stdout
    fails as in a closed pipe.
    """
    _open_closed_descriptors()
    streams = vars(sys)  # `sys.stdin` is never None for a type checker
    if streams["stdin"] is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if streams["stdout"] is None:
        reading, writing = os.pipe()
        os.close(reading)  # without a reader, writing fails
        sys.stdout = os.fdopen(writing, "w", encoding="utf-8")


def open_notice_stream(number: int) -> TextIO:
    """Return a stream that writes notices to the descriptor `number` and ignores errors."""
    return TextIOWrapper(
        BufferedWriter(_NeverFailing(number, "w", closefd=False)),
        encoding=getattr(sys.stderr, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )


def _open_closed_descriptors() -> None:
    """Open /dev/null for each standard stream that is closed.

    Otherwise the next opened file would get the number of stdout, for example, and output would
    be written to that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            with suppress(OSError):
                opened = os.open(os.devnull, os.O_RDWR)
                os.set_inheritable(opened, True)


class _NeverFailing(FileIO):
    """A file that ignores errors when it is written to."""

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write `data`. Return how many bytes were written, or all of them after an error."""
        with suppress(OSError):
            if (written := super().write(data)) is not None:
                return written
        return memoryview(data).nbytes
