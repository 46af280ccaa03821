"""Painting: after any sequence of frames, the terminal shows the last one."""

from typing import cast

import pyte
from hypothesis import given
from hypothesis import strategies as some

from refold.console.capabilities import TerminalCapabilities
from refold.tui.painter import Painted, paint
from refold.tui.view import Frame
from refold.views.styled import Line, line
from refold.views.wrap import cells

LOOK = TerminalCapabilities(color=True)
WIDTH, HEIGHT = 12, 8
ROW = some.text(some.sampled_from("ab 日é"), max_size=WIDTH).map(
    lambda text: line(text[: WIDTH // 2] if cells(text) > WIDTH else text, "strong")
)
ROWS = some.lists(ROW, min_size=HEIGHT, max_size=HEIGHT)


def frame(rows: list[Line], cursor: tuple[int, int] | None = None) -> Frame:
    return Frame(tuple(rows), cursor)


def display(screen: pyte.Screen) -> list[str]:
    return [row.rstrip() for row in cast("list[str]", screen.display)]


def text(row: Line) -> str:
    return "".join(part for _, part in row).rstrip()


@given(
    some.lists(ROWS, min_size=1, max_size=6),
    some.lists(some.integers(0, HEIGHT), max_size=6),
)
def test_after_any_frames_the_terminal_shows_the_last_one(
    frames: list[list[Line]], shifts: list[int]
) -> None:
    screen = pyte.Screen(WIDTH, HEIGHT)
    stream = pyte.Stream(screen)
    for by, rows in zip(shifts, list(frames), strict=False):  # frames that moved up
        frames.append([*frames[-1][by:], *rows[:by]])
    before: Painted | None = None
    for rows in frames:
        stream.feed(paint(frame(rows), WIDTH, before, LOOK))
        before = Painted(tuple(rows), None, WIDTH)

        assert display(screen) == [text(row) for row in rows]


def test_no_row_is_written_again_for_an_unchanged_frame() -> None:
    rows = tuple(line(f"row {n}") for n in range(HEIGHT))
    before = Painted(rows, (1, 2), WIDTH)

    assert paint(Frame(rows, (1, 2)), WIDTH, before, LOOK) == ""
    assert "row" not in paint(Frame(rows, (1, 3)), WIDTH, before, LOOK)


def test_rows_that_moved_up_are_scrolled_instead_of_painted_again() -> None:
    rows = [line(f"row {n}") for n in range(HEIGHT + 1)]
    before = Painted(tuple(rows[:HEIGHT]), None, WIDTH)

    out = paint(frame(rows[1:]), WIDTH, before, LOOK)

    assert [n for n in range(HEIGHT + 1) if f"row {n}" in out] == [HEIGHT]
