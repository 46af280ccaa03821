"""Print the text of a model as Markdown while it arrives.

A paragraph is printed row by row, code line by line, any other block when it is finished,
and nothing is ever reprinted; the result does not depend on how the text was cut into
pieces. A row is printed once nothing that follows can change it: no mark of emphasis, code
or a link is open in it. The last row of a paragraph waits, because an underline can make it
a heading. Text must have been escaped before (`escape`).
"""

from collections.abc import Callable, Iterator
from copy import copy, deepcopy

from msgspec import Struct
from msgspec.structs import replace

from refold.views.highlight import Highlighter
from refold.views.markdown.blocks import BlockParser, Container, Leaf
from refold.views.markdown.spans import SpanOptions, Spans, count_stops
from refold.views.markdown.tables import table_lines
from refold.views.styled import Line, Piece, Style
from refold.views.wrap import StreamWrapper, wrap, wrap_code

MAX_PROSE_CELLS = 100  # longer lines are hard to read; code and tables may be wider
_MAX_PENDING_CHARS = 4_000  # buffered of a line without an end
_OPENING_CHARS = 60  # at the start of a line, which decide what block it begins
_MIN_TEXT_CELLS = 10  # for text, however deeply nested
# Text that could close an open mark, after a word and, for code, after a space. A row is
# settled if none of these changes it.
_MARK_CLOSERS = {
    "*": ("x*", "x**", "x***"), "_": ("x_", "x__"), "~": ("x~~",),
    "`": ("x`", "x``", "x```", "`", "``", "```"), "[": ("x](u)", "x](u", "x](<u>)"),
    "](": ("x)", "x))", 'x")', "x')", "x>)"),
}  # fmt: skip
_MAX_RULE_CELLS = 40
_FEW_STOPS, _CHARS_FOR_STOP = 50, 8
_LINE_END: Piece = ("plain", "\n")
# By level; deeper ones look like the last. Without styles their marks are printed.
_HEADING_STYLES: tuple[Style, ...] = ("title", "heading", "subheading")


class MarkdownRenderer:
    """`width` is the width of a line, or a function that returns it for each block; 0: any width.

    With `marks` false the text is not parsed, only wrapped. Without `styled`, the marks of emphasis
    stay visible. `links`: the terminal opens links; `signs`: it shows more than ASCII. Without
    `breaks_code`, the terminal breaks long lines of code, and copies each as one line.
    """

    def __init__(
        self,
        width: int | Callable[[], int] = 0,
        *,
        marks: bool = True,
        styled: bool = True,
        links: bool = False,
        symbols: bool = True,
        breaks_code: bool = True,
    ) -> None:
        self._line_width = width if callable(width) else lambda: width
        self._flow = (
            None if marks else StreamWrapper(min(self._line_width(), MAX_PROSE_CELLS))
        )
        self._styled, self._signs = styled, symbols
        self._breaks_code = breaks_code
        self._blocks, self._spans = BlockParser(), Spans(SpanOptions(styled, links))
        self._marks = self._spans if styled else Spans(SpanOptions())
        self._code: Highlighter | None = None
        self._pending: list[str] = []  # of the unfinished line
        self._size, self._going_on = 0, False
        self._open: _OpenParagraph | None = None
        self._unseen = 0  # characters since its rows were last laid out
        self._wait = 0  # characters until they are laid out again

    @property
    def whole_rows(self) -> bool:
        """Whether only whole rows are printed, so that other output may come between."""
        return self._flow is None

    @property
    def pending_text(self) -> str:
        """The last words of the block that is not finished yet."""
        pending = "".join(self._pending[-40:])
        return " ".join(f"{self._blocks.last[-200:]} {pending[-200:]}".split())[-120:]

    def add(self, text: str) -> list[Piece]:
        if self._flow is not None:
            return self._flow.put("plain", text)
        first, *rest = text.split("\n")
        pieces = self._buffer(first)
        self._unseen += len(first)
        for part in rest:
            pieces += self._end_line()
            if self._unseen >= self._wait:
                pieces += self._take_settled_rows()
            pieces += self._buffer(part)
            self._unseen += len(part) + 1
        row = min(
            self._line_width() or MAX_PROSE_CELLS, MAX_PROSE_CELLS
        )  # about one more row
        if self._unseen >= max(row, self._wait):
            pieces += self._take_settled_rows()
        return pieces

    def end(self) -> list[Piece]:
        """Return what was held back."""
        if self._flow is not None:
            return self._flow.end()
        pieces = self._end_line() if self._pending else []
        return [*pieces, *self._render_leaves(self._blocks.end())]

    def preview_end(self) -> list[Piece]:
        """What `end` would return now; more text may still be added."""
        clone = copy(self)
        clone._blocks, clone._pending = deepcopy(self._blocks), [*self._pending]
        clone._code = None  # its state is for whole lines only
        return clone.end()

    def _buffer(self, text: str) -> list[Piece]:
        """Buffer part of a line. A line that gets too long is printed before it ends."""
        if not text:
            return []
        self._pending.append(text)
        self._size += len(text)
        if self._size < _MAX_PENDING_CHARS:
            early = (
                self._size <= _OPENING_CHARS and not self._going_on and self._blocks.last
            )
            start = "".join(self._pending) if early else ""
            return (
                self._render_leaves(self._blocks.end_paragraph_early(start))
                if start
                else []
            )
        pending, pieces = "".join(self._pending), list[Piece]()
        while len(pending) >= _MAX_PENDING_CHARS:
            end = pending.rfind(" ", 1, _MAX_PENDING_CHARS) + 1 or _MAX_PENDING_CHARS
            pieces += self._take_line(pending[:end])
            pending, self._going_on = pending[end:], True
        self._pending, self._size = [pending] if pending else [], len(pending)
        return pieces

    def _end_line(self) -> list[Piece]:
        line = "".join(self._pending)
        self._pending, self._size = [], 0
        pieces = self._take_line(line) if line or not self._going_on else []
        self._going_on = False
        return pieces

    def _take_line(self, line: str) -> list[Piece]:
        take = self._blocks.add_to_line if self._going_on else self._blocks.add_line
        return self._render_leaves(take(line))

    def _render_leaves(self, leaves: list[Leaf]) -> list[Piece]:
        pieces: list[Piece] = []
        for leaf in leaves:
            begun, self._open = self._open, None
            if begun is None:
                pieces += self._lay_out(leaf, self._line_width())
                continue
            # Printed rows stay a paragraph even if an underline makes it a heading.
            kind = "words" if leaf.kind in ("heading", "table") else leaf.kind
            rows = self._lay_out(replace(leaf, kind=kind), begun.width, after=begun.rows)
            pieces += rows
            if not rows and (left := begun.rows - self._row_count(leaf, begun.width)) > 0:
                self._open = _OpenParagraph(begun.width, left)  # of the head of a table
        return pieces

    def _lay_out(
        self, leaf: Leaf, width: int, *, after: int = 0, before: int | None = None
    ) -> list[Piece]:
        """The rows of a block from `after`, the number of printed ones, to `before`."""
        pieces: list[Piece] = []
        around = _Margin(leaf, width, symbols=self._signs)
        if leaf.gap >= 0 and not after:
            pieces += (around.gap, _LINE_END)
        for number, row in enumerate(self._rows(leaf, width and around.left)):
            if after <= number and (before is None or number < before):
                pieces += around.rest if number else around.first
                pieces += row
                pieces.append(_LINE_END)
        return pieces

    def _row_count(self, leaf: Leaf, width: int) -> int:
        column_width = _Margin(leaf, width, symbols=self._signs).left
        return len(_wrap_prose(self._spans.parse_paragraph(leaf.lines), column_width))

    def _take_settled_rows(self) -> list[Piece]:
        """The rows of the open paragraph that can no longer change."""
        self._unseen = self._wait = 0
        line_width = self._open.width if self._open else self._line_width()
        leaf = self._open_paragraph(line_width) if line_width else None
        if leaf is None:
            return []
        printed = self._open.rows if self._open else 0
        width = _Margin(leaf, line_width, symbols=self._signs).left
        if (
            sum(map(len, leaf.lines)) <= min(width, MAX_PROSE_CELLS)
            and len(leaf.lines) == 1
        ):
            return []
        # The paragraph is parsed again each time: the more marks, the less often.
        many = count_stops("\n".join(leaf.lines)) - _FEW_STOPS
        self._wait = max(0, _CHARS_FOR_STOP * many)
        settled = self._count_settled(leaf, width)
        if settled <= printed:
            return []
        self._open = _OpenParagraph(line_width, settled)
        return self._lay_out(leaf, line_width, after=printed, before=settled)

    def _open_paragraph(self, width: int) -> Leaf | None:
        """The unfinished paragraph, with the unfinished line."""
        pending = "".join(self._pending)
        if not pending and not self._blocks.in_paragraph:
            return None  # the usual case after a line of code or an empty one
        if self._going_on or (
            pending and len(pending) < min(width, _OPENING_CHARS) and not self._open
        ):
            return None
        blocks = deepcopy(self._blocks)
        if pending and blocks.add_line(pending):
            return None  # the line ends it, or begins another block
        leaves = blocks.end()
        if not leaves or leaves[0].kind != "words" or leaves[0].lines[0].startswith("["):
            return None  # no paragraph, or one that may define a link
        *lines, last = leaves[0].lines
        # What follows may be cells of a table.
        whole, last = not pending, last.partition("|")[0]
        if not whole or last != leaves[0].lines[-1]:
            # An unfinished word may get too long for its row.
            last = last[: last.rfind(" ")] if " " in last else ""
        lines += [last] if last else []
        return replace(leaves[0], lines=tuple(lines)) if lines else None

    def _count_settled(self, leaf: Leaf, width: int) -> int:
        """The number of rows that stay the same, whatever follows."""
        rows = _wrap_prose(self._spans.parse_paragraph(leaf.lines), width)
        *lines, last = leaf.lines
        count = len(rows) - 1
        # Closed marks are not in the parsed text.
        shown = "".join(
            text
            for style, text in self._marks.parse_paragraph(leaf.lines)
            if style != "code"
        )
        for closers in (
            endings for mark, endings in _MARK_CLOSERS.items() if mark in shown
        ):
            for closer in closers:
                # The next word, on this line or on one of its own.
                next_words = last + (" " if self._pending else "\n") + closer
                new_rows = _wrap_prose(
                    self._spans.parse_paragraph((*lines, *next_words.split("\n"))), width
                )
                same = zip(rows[:count], new_rows, strict=False)
                least = min(count, len(new_rows))
                count = next((index for index, (a, b) in enumerate(same) if a != b), least)
        return count

    def _rows(self, leaf: Leaf, width: int) -> Iterator[Line]:
        match leaf.kind:
            case "words":
                yield from _wrap_prose(self._spans.parse_paragraph(leaf.lines), width)
            case "heading":
                yield from _wrap_prose(self._heading(leaf), width)
            case "rule":
                column_width = min(width or _MAX_RULE_CELLS, _MAX_RULE_CELLS)
                yield (("dim", ("─" if self._signs else "-") * column_width),)
            case "table":
                yield from table_lines(
                    leaf.lines,
                    width,
                    self._spans.parse_cell,
                    headed=leaf.headed,
                    symbols=self._signs,
                )
            case _:
                yield from self._code_rows(leaf, width)

    def _heading(self, leaf: Leaf) -> list[Piece]:
        words = " ".join(leaf.lines)
        if self._styled:
            style = _HEADING_STYLES[min(leaf.level, len(_HEADING_STYLES)) - 1]
            return self._spans.parse_phrase(words, style)
        return [
            ("heading", f"{'#' * leaf.level} "),
            *self._spans.parse_phrase(words, "heading"),
        ]

    def _code_rows(self, leaf: Leaf, width: int) -> Iterator[Line]:
        text = leaf.lines[0].expandtabs(4)
        pieces: list[Piece] = [("dim", text)]
        if leaf.kind == "fence":
            info = text.lstrip("`~")
            self._code = Highlighter(info) if self._styled else None
        elif leaf.kind == "closed":
            self._code = None
            if not text:
                return
        else:
            pieces = self._code.style_line(text) if self._code else [("code", text)]
        breaks = width and self._breaks_code
        yield from wrap_code(pieces, width) if breaks else [tuple(pieces)]


class _OpenParagraph(Struct, frozen=True):
    """A paragraph, and how many of its rows are printed, for this width."""

    width: int
    rows: int


class _Margin:
    """The left margin of a block: bars of quotes, signs and indents of list items."""

    def __init__(self, leaf: Leaf, width: int, *, symbols: bool) -> None:
        self._bar, self._dot = ("│ ", "•") if symbols else ("> ", "")
        rest = [self._margin_piece(container, first=False) for container in leaf.around]
        hidden = 0  # outer containers that are not shown for lack of room
        while (
            len(rest) - hidden > 1
            and width
            and _margin_cells(rest[hidden:]) > width - _MIN_TEXT_CELLS
        ):
            hidden += 1
        self.rest = rest[hidden:]
        self.first = [
            self._margin_piece(container, first=True) for container in leaf.around[hidden:]
        ]
        shared = "".join(text for _, text in rest[hidden : max(leaf.gap, hidden)])
        self.gap: Piece = ("dim", shared.rstrip())
        self.left = max(width - _margin_cells(self.rest), 2)

    def _margin_piece(self, container: Container, *, first: bool) -> Piece:
        if not container.sign:
            return ("dim", self._bar)
        sign = (self._dot or container.sign) if container.sign in "-+*" else container.sign
        shown = first and container.begins
        return ("plain", f"{sign} " if shown else " " * (len(sign) + 1))


def _margin_cells(margin: list[Piece]) -> int:
    return sum(len(text) for _, text in margin)


def _wrap_prose(pieces: list[Piece], width: int) -> list[Line]:
    return wrap(pieces, min(width, MAX_PROSE_CELLS)) if width else wrap(pieces, 1 << 30)
