"""Paints frames: writes what differs from the frame that the terminal shows, and no more.

When rows have moved up as a whole, the terminal is asked to scroll them. A frame is written
in one piece, between the marks of a synchronized update, so no half of it is ever seen.
`image_painter` returns the sequences for the images of a frame.
"""

from collections.abc import Sequence

from msgspec import Struct

from refold.console.capabilities import TerminalCapabilities
from refold.tui.image_painter import ImagePainter
from refold.tui.view import Frame
from refold.views.styled import Line
from refold.views.wrap import cells

_ERASE_LINE = "\x1b[K"
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_SAVE_CURSOR, _RESTORE_CURSOR = "\x1b7", "\x1b8"  # save and restore the cursor
_MIN_SCROLLED_ROWS = 3  # moved rows from which scrolling costs less


class Painted(Struct, frozen=True):
    """What the terminal shows."""

    rows: tuple[Line, ...]
    cursor: tuple[int, int] | None
    width: int


def paint(
    frame: Frame,
    width: int,
    before: Painted | None,
    capabilities: TerminalCapabilities,
    images: ImagePainter | None = None,
) -> str:
    """Return what to write so that the terminal shows this frame; "" if it does already.

    Without `before`, everything is painted.
    """
    text, written, moved = "", frozenset[int](), False
    if Painted(frame.rows, frame.cursor, width) != before:
        text, written, moved = _frame_text(frame, width, before, capabilities)
    uploads, placements = ("", "")
    if images is not None:
        uploads, placements = images.frame_sequences(frame.rows, written, moved=moved)
    if placements:  # the cursor returns to its place in the text
        text = f"{text}{_SAVE_CURSOR}{placements}{_RESTORE_CURSOR}"
    return f"{uploads}{_BEGIN}{text}{_END}" if text else uploads


def _frame_text(
    frame: Frame, width: int, before: Painted | None, capabilities: TerminalCapabilities
) -> tuple[str, frozenset[int], bool]:
    """Return what to write, the rows written, and whether the terminal scrolled."""
    parts, written = list[str](), set[int]()
    known = before is not None and before.width == width
    shown: list[Line | None] = list(before.rows) if before and known else []
    if not known or len(shown) != len(frame.rows):
        parts.append("\x1b[0m\x1b[2J")
        shown = [()] * len(frame.rows)
    begun = len(parts)
    shown = _scroll(shown, frame.rows, parts)
    moved = len(parts) > begun
    for index, row in enumerate(frame.rows):
        if row != shown[index]:
            written.add(index)
            text = "".join(capabilities.paint(*piece) for piece in row)
            full = sum(cells(text) for _, text in row) >= width
            # At the last column, erasing to the end of the row would erase its last
            # character.
            parts.append(f"\x1b[{index + 1};1H{text}{'' if full else _ERASE_LINE}")
    changed = bool(parts)
    if frame.cursor is None:
        if changed or before is None or before.cursor is not None:
            parts.append("\x1b[?25l")
    else:
        row, column = frame.cursor
        parts.append(f"\x1b[{row + 1};{min(column, width - 1) + 1}H\x1b[?25h")
        if changed:
            parts.insert(0, "\x1b[?25l")
    return "".join(parts), frozenset(written), moved


def _scroll(
    old_lines: Sequence[Line | None], new_lines: Sequence[Line], parts: list[str]
) -> list[Line | None]:
    """Scroll the terminal if that saves painting; return the rows it shows then."""
    rows = list(old_lines)
    if not rows or (first := _first_change(rows, new_lines)) is None:
        return rows
    last = len(new_lines) - 1
    while last > first and rows[last] == new_lines[last]:
        last -= 1
    for by in range(1, last - first + 1):
        same = 0
        while (
            first + same + by <= last and rows[first + same + by] == new_lines[first + same]
        ):
            same += 1
        if same >= _MIN_SCROLLED_ROWS and any(new_lines[first : first + same]):
            end = first + same + by - 1
            down = "\n" * by  # at the last row of the region: every terminal scrolls then
            parts.append(f"\x1b[{first + 1};{end + 1}r\x1b[{end + 1};1H{down}\x1b[r")
            return [
                *rows[:first],
                *rows[first + by : end + 1],
                *([()] * by),
                *rows[end + 1 :],
            ]
    return rows


def _first_change(
    old_lines: Sequence[Line | None], new_lines: Sequence[Line]
) -> int | None:
    return next(
        (index for index, row in enumerate(new_lines) if old_lines[index] != row), None
    )
