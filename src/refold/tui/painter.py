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
_ERASE_SCREEN = "\x1b[0m\x1b[2J"
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
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
    text, written_rows, has_scrolled = "", frozenset[int](), False
    if Painted(frame.rows, frame.cursor, width) != before:
        text, written_rows, has_scrolled = _frame_text(frame, width, before, capabilities)
    uploads, placements = "", ""
    if images is not None:
        uploads, placements = images.frame_sequences(
            frame.rows, written_rows, moved=has_scrolled
        )
    if placements:  # the cursor must return to its place in the text
        text = f"{text}{_SAVE_CURSOR}{placements}{_RESTORE_CURSOR}"
    return f"{uploads}{_BEGIN}{text}{_END}" if text else uploads


def _frame_text(
    frame: Frame, width: int, before: Painted | None, capabilities: TerminalCapabilities
) -> tuple[str, frozenset[int], bool]:
    """Return the text to write, the rows that it writes, and whether the terminal scrolls."""
    parts, written_rows = list[str](), set[int]()
    has_same_width = before is not None and before.width == width
    old_rows: list[Line | None] = list(before.rows) if before and has_same_width else []
    if not has_same_width or len(old_rows) != len(frame.rows):
        parts.append(_ERASE_SCREEN)
        old_rows = [()] * len(frame.rows)
    scroll_sequence, old_rows = _scroll(old_rows, frame.rows)
    if scroll_sequence:
        parts.append(scroll_sequence)
    for index, row in enumerate(frame.rows):
        if row == old_rows[index]:
            continue
        written_rows.add(index)
        text = "".join(capabilities.paint(*piece) for piece in row)
        is_full = sum(cells(text) for _, text in row) >= width
        # At the last column, erasing to the end of the row would erase its last
        # character.
        parts.append(f"\x1b[{index + 1};1H{text}{'' if is_full else _ERASE_LINE}")
    has_changed = bool(parts)
    if frame.cursor is None:
        was_hidden = before is not None and before.cursor is None
        if has_changed or not was_hidden:
            parts.append(_HIDE_CURSOR)
    else:
        cursor_row, column = frame.cursor
        column = min(column, width - 1)
        parts.append(f"\x1b[{cursor_row + 1};{column + 1}H{_SHOW_CURSOR}")
        if has_changed:  # otherwise the cursor is seen moving
            parts.insert(0, _HIDE_CURSOR)
    return "".join(parts), frozenset(written_rows), scroll_sequence != ""


def _scroll(
    old_lines: Sequence[Line | None], new_lines: Sequence[Line]
) -> tuple[str, list[Line | None]]:
    """Return the sequence that scrolls the terminal up, and the rows that it shows then.

    The terminal scrolls by the smallest distance that puts enough rows of the change to their
    new place. The sequence is "" if scrolling saves no painting.
    """
    rows = list(old_lines)
    first = _first_change(rows, new_lines) if rows else None
    if first is None:
        return "", rows
    last = len(new_lines) - 1  # the last row that differs
    while last > first and rows[last] == new_lines[last]:
        last -= 1
    for distance in range(1, last - first + 1):
        source = first + distance  # the row that would move to `first`
        moved_count = 0
        while (
            source + moved_count <= last
            and rows[source + moved_count] == new_lines[first + moved_count]
        ):
            moved_count += 1
        has_text = any(new_lines[first : first + moved_count])
        if moved_count >= _MIN_SCROLLED_ROWS and has_text:
            end = source + moved_count  # the row after the scrolled region
            line_feeds = "\n" * distance  # at its last row, every terminal scrolls
            sequence = f"\x1b[{first + 1};{end}r\x1b[{end};1H{line_feeds}\x1b[r"
            moved_rows = rows[source:end]
            empty_rows: list[Line | None] = [()] * distance
            return sequence, [*rows[:first], *moved_rows, *empty_rows, *rows[end:]]
    return "", rows


def _first_change(
    old_lines: Sequence[Line | None], new_lines: Sequence[Line]
) -> int | None:
    """Return the index of the first row that differs, or None."""
    return next(
        (index for index, row in enumerate(new_lines) if old_lines[index] != row), None
    )
