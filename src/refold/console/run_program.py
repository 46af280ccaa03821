"""Runs a program for the user, in the terminal or with its output printed as text."""

import codecs
import os
import subprocess
from collections.abc import Sequence

import anyio
from msgspec.structs import replace

from refold import programs
from refold.commands.command_context import ProgramOutput
from refold.console import pty
from refold.console.printer import Printer
from refold.errors import RefoldError
from refold.values.kept_output import Printed
from refold.views.escape import Visible

_END_BYTES = 256 * 1024  # stored from the start, and from the end
_REST_SECONDS = 0.5  # for reading the rest of the output after its exit


async def run_program(
    command: Sequence[str],
    directory: str,
    printer: Printer,
    display: pty.CommandDisplay | None = None,
) -> ProgramOutput:
    """Run a program in `directory`, and return its exit code and its output.

    The output is shown by `display`, or printed if `display` is None. A display shows the
    output in the message about the program, so `in_message` of the result is true. Without a
    terminal, the program gets pipes.
    """
    if display is not None:
        result = await pty.run_in_pty(command, directory, os.environ, display)
        output = _program_output(
            result.code, result.printed, full_screen=result.full_screen
        )
        return replace(output, in_message=True)
    printer.start_line()
    printer.clear_status()
    if printer.capabilities.moves and os.isatty(0) and os.isatty(1):
        result = await pty.run_in_pty(command, directory, os.environ)
        printer.note_typed_line()
        return _program_output(result.code, result.printed, full_screen=result.full_screen)
    return await _run_piped(command, directory, printer)


async def _run_piped(
    command: Sequence[str], directory: str, printer: Printer
) -> ProgramOutput:
    """Run a command and print its output. Return its exit code, and parts of the output."""
    printed = Printed(_END_BYTES)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    escaper = Visible()
    # The lines of a script are for refold, not for the command.
    stdin = None if os.isatty(0) else subprocess.DEVNULL
    try:
        running = await programs.open_process(
            command, cwd=directory, stdin=stdin, stderr=subprocess.STDOUT
        )
    except (OSError, ValueError) as error:
        raise RefoldError(f"{command[0]} could not be started: {error}") from error

    async def read() -> None:
        assert running.stdout is not None  # stdout is a pipe
        async for piece in running.stdout:
            printed.add(piece)
            printer.print_pieces((("plain", escaper.add(decoder.decode(piece))),))
        output_ended.set()

    output_ended = anyio.Event()
    code = 0
    async with running, anyio.create_task_group() as group:
        group.start_soon(read)
        code = await running.wait()
        with anyio.move_on_after(_REST_SECONDS):
            await output_ended.wait()
        group.cancel_scope.cancel()
    # The decoder and the escaper may still hold the beginning of a character.
    rest = escaper.add(decoder.decode(b"", final=True)) + escaper.end()
    printer.print_pieces((("plain", rest),))
    printer.start_line()
    return _program_output(code, printed)


def _program_output(
    code: int, printed: Printed, *, full_screen: bool = False
) -> ProgramOutput:
    """Return the start and the end of what was printed, as text."""
    start = printed.start.decode(errors="replace")
    end = printed.end.decode(errors="replace")
    return ProgramOutput(code, start, end, printed.dropped, full_screen)
