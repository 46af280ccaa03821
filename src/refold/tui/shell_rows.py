"""Makes the rows of a `!command`: while it runs, and of the message about it afterwards. Pure."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from refold.views.escape import visible
from refold.views.screen.blocks import MessageBlock
from refold.views.shell_message import read_shell_message
from refold.views.styled import Line, line
from refold.views.wrap import fold_lines, text_lines, wrap_words

INDENT_CELLS = 4  # of a result below its command
_MIN_OUTPUT_CELLS = 8  # for the output, even on a narrower screen
_MAX_TAIL_ROWS = 12  # of the newest output, while it runs
_MAX_ROWS = 20  # of the output of a command that has ended
_RUNNING_HINT = "Esc stops it · Enter gives it the terminal"


class RunningShell(Struct, frozen=True):
    """A running `!command` and its newest output."""

    command: str
    printed: str = ""


def shell_output_width(width: int) -> int:
    """Return how many cells wide a command's output may be on a screen of `width` cells."""
    return max(width - INDENT_CELLS, _MIN_OUTPUT_CELLS)


def running_shell_rows(item: RunningShell, width: int) -> list[Line]:
    rows = text_lines(item.printed, shell_output_width(width), "dim")[-_MAX_TAIL_ROWS:]
    return _shell_rows(item.command, [*rows, line(_RUNNING_HINT, "dim")], width)


def shell_message_rows(
    item: MessageBlock, width: int, hint: str, *, whole: bool
) -> list[Line]:
    """Return the rows of the message about a `!command`: the command and its output.

    Unless `whole` is true, a long output is folded, and `hint` says how to see all of it.
    """
    printed, ending = read_shell_message(_command_text(item), item.words)
    rows = text_lines(printed, shell_output_width(width), "dim") or [
        line("no output", "dim")
    ]
    if not whole:
        rows = fold_lines(rows, _MAX_ROWS, hint)
    if ending not in ("", "exit code 0"):
        rows = [*rows, line(ending, "warn")]
    return _shell_rows(_command_text(item), rows, width)


def shell_message_text(item: MessageBlock) -> str:
    """Return the command and its output as text, to be searched or copied."""
    printed, _ = read_shell_message(_command_text(item), item.words)
    return f"{item.user_text}\n{printed}"


def indent_result(rows: Sequence[Line], indent: int) -> Iterator[Line]:
    """Yield the rows of a result, indented below the command by `indent` cells more than usual."""
    for index, row in enumerate(rows):
        yield (("dim", " " * indent + ("    " if index else "  └ ")), *row)


def _command_text(item: MessageBlock) -> str:
    return item.user_text.removeprefix("!")


def _shell_rows(command: str, body: Sequence[Line], width: int) -> list[Line]:
    """Return the rows of a `!command`, and `body` indented below them."""
    command_rows = [
        row
        for part in visible(command.strip("\n")).split("\n")
        for row in wrap_words(part, width - 2, "person")
    ]
    head: list[Line] = [
        (("person", "  " if index else "! "), *row)
        for index, row in enumerate(command_rows)
    ]
    return [*head, *indent_result(body, indent=0)]
