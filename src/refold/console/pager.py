"""Long output: through the user's pager if there is a terminal, printed otherwise."""

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
    """Show rows in the pager, or print them if they fit or there is no terminal."""
    can = printer.capabilities.moves and os.isatty(0) and os.isatty(1)
    command = (
        pager_command(os.environ)
        if can and len(rows) >= printer.capabilities.height()
        else ()
    )
    if command:
        await _run_pager(rows, command, printer)
    else:
        printer.print_lines(rows)


def pager_command(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the pager's command: $PAGER, or less if it is installed."""
    text = environ.get("PAGER", "").strip()
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise RefoldError(f"$PAGER is not a command: {error}") from error
    return words or (("less", "-R") if _programs().find("less") else ())


def _programs() -> Programs:
    return Programs(os.environ)


def _shows_colors(command: Sequence[str], less: str) -> bool:
    name = Path(command[0]).name
    if name != "less":
        return name in _COLOR_PAGERS
    return any("r" in word.lower() for word in (less, *command[1:]))


async def _run_pager(
    rows: Sequence[Line], command: Sequence[str], printer: Printer
) -> None:
    """Page harmless text with our colours; the pager has the terminal until it ends."""
    # As git does: colours are passed through, and a text that fits needs no key.
    environ = {"LESS": "FRX", **programs.without_loader_variables(os.environ)}
    painted = _shows_colors(command, environ["LESS"])
    text = "".join(
        "".join(
            printer.capabilities.paint(*piece) if painted else piece[1] for piece in row
        )
        + "\n"
        for row in rows
    )
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
                pass  # the pager was left before it had read everything
            await running.wait()
    except OSError as error:
        raise RefoldError(f"{command[0]} could not be started: {error}") from error
    printer.note_typed_line()
