"""Paints frames: writes only what differs from the frame on the terminal.

If rows have moved up together, the terminal scrolls them. A frame is written between the marks
of a synchronized update, so that a half-painted frame is never visible. `image_painter` returns
the sequences for images.
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
_SAVE_CURSOR, _RESTORE_CURSOR = "\x1b7", "\x1b8"
_MIN_SCROLLED_ROWS = 3  # moved rows from which scrolling costs less than painting


class Painted(Struct, frozen=True):
    """The frame that is on the terminal."""

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
    """Return the text that makes the terminal show this frame; "" if it already does.

    Without `before`, the frame on the terminal is unknown, and everything is painted.
    """
    text, written, has_scrolled = "", frozenset[int](), False
    if Painted(frame.rows, frame.cursor, width) != before:
        text, written, has_scrolled = _frame_text(frame, width, before, capabilities)
    uploads, placements = ("", "")
    if images is not None:
        uploads, placements = images.frame_sequences(
            frame.rows, written, moved=has_scrolled
        )
    if placements:  # the cursor must return to its place in the text
        text = f"{text}{_SAVE_CURSOR}{placements}{_RESTORE_CURSOR}"
    return f"{uploads}{_BEGIN}{text}{_END}" if text else uploads


def _frame_text(
    frame: Frame, width: int, before: Painted | None, capabilities: TerminalCapabilities
) -> tuple[str, frozenset[int], bool]:
    """Return the text to write, the rows that it writes, and whether the terminal scrolls."""
    parts, written = list[str](), set[int]()
    has_same_width = before is not None and before.width == width
    shown: list[Line | None] = list(before.rows) if before and has_same_width else []
    if not has_same_width or len(shown) != len(frame.rows):
        parts.append("\x1b[0m\x1b[2J")
        shown = [()] * len(frame.rows)
    part_count = len(parts)
    shown = _scroll(shown, frame.rows, parts)
    has_scrolled = len(parts) > part_count
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
    return "".join(parts), frozenset(written), has_scrolled


def _scroll(
    old_lines: Sequence[Line | None], new_lines: Sequence[Line], parts: list[str]
) -> list[Line | None]:
    """Let the terminal scroll if that saves painting. Return the rows that it shows then.

    The sequence for it is added to `parts`.
    """
    rows = list(old_lines)
    first = _first_change(rows, new_lines) if rows else None
    if first is None:
        return rows
    last = len(new_lines) - 1
    while last > first and rows[last] == new_lines[last]:
        last -= 1
    for distance in range(1, last - first + 1):
        equal_count = 0
        while (
            first + equal_count + distance <= last
            and rows[first + equal_count + distance] == new_lines[first + equal_count]
        ):
            equal_count += 1
        if equal_count >= _MIN_SCROLLED_ROWS and any(
            new_lines[first : first + equal_count]
        ):
            end = first + equal_count + distance - 1
            down = "\n" * distance  # at the last row of the region, every terminal scrolls
            parts.append(f"\x1b[{first + 1};{end + 1}r\x1b[{end + 1};1H{down}\x1b[r")
            return [
                *rows[:first],
                *rows[first + distance : end + 1],
                *([()] * distance),
                *rows[end + 1 :],
            ]
    return rows


def _first_change(
    old_lines: Sequence[Line | None], new_lines: Sequence[Line]
) -> int | None:
    """Return the index of the first row that differs, or None."""
    return next(
        (index for index, row in enumerate(new_lines) if old_lines[index] != row), None
    )
