"""Shows long output in the user's pager, or prints it if there is no terminal."""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

from refold import programs
from refold.console.printer import Printer
from refold.errors import RefoldError
from refold.programs import Programs
from refold.views.styled import Line

# Pagers that show colours without a flag.
_COLOR_PAGERS = ("most", "ov", "moar", "moor", "bat")


async def show_rows(rows: Sequence[Line], printer: Printer) -> None:
    """Show rows in the pager. Print them if they fit on the screen or without a terminal."""
    can_page = printer.capabilities.moves and os.isatty(0) and os.isatty(1)
    command: tuple[str, ...] = ()
    if can_page and len(rows) >= printer.capabilities.height():
        command = pager_command(os.environ)
    if command:
        await _run_pager(rows, command, printer)
    else:
        printer.print_lines(rows)


def pager_command(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command of the pager: $PAGER, or `less`; () if neither exists."""
    text = environ.get("PAGER", "").strip()
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise RefoldError(f"$PAGER is not a command: {error}") from error
    if words:
        return words
    return ("less", "-R") if _programs().find("less") else ()


def _programs() -> Programs:
    return Programs(os.environ)


def _shows_colors(command: Sequence[str], less: str) -> bool:
    """Return whether the pager shows colours.

    The pager `less` does so only with the option -R or -r, among its arguments or in $LESS. The
    argument `less` is the value of this variable.
    """
    name = Path(command[0]).name
    if name != "less":
        return name in _COLOR_PAGERS
    return any("r" in word.lower() for word in (less, *command[1:]))


def _without_style(_style: object, text: str) -> str:
    return text


async def _run_pager(
    rows: Sequence[Line], command: Sequence[str], printer: Printer
) -> None:
    """Run the pager with `rows` as its input, and wait until it exits."""
    # The same options as git's: colours are passed through, and a text that fits needs no
    # key.
    environ = {"LESS": "FRX", **programs.without_loader_variables(os.environ)}
    has_colors = _shows_colors(command, environ["LESS"])
    paint = printer.capabilities.paint if has_colors else _without_style
    lines = ("".join(paint(style, text) for style, text in row) for row in rows)
    text = "".join(f"{row_text}\n" for row_text in lines)
    printer.start_line()
    printer.clear_status()
    try:
        program = _programs().require(command[0])
        async with await programs.open_process(
            (program, *command[1:]), stdout=None, stderr=None, env=environ
        ) as running:
            assert running.stdin is not None  # stdin is a pipe
            try:
                await running.stdin.send(text.encode(errors="replace"))
                await running.stdin.aclose()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the user left the pager before it had read everything
            await running.wait()
    except OSError as error:
        raise RefoldError(f"{command[0]} could not be started: {error}") from error
    printer.note_typed_line()
