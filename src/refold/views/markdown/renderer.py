"""Prints the Markdown text of a model while it arrives.

A paragraph is printed row by row, code line by line, and any other block when it is finished.
Nothing is printed twice, and the result does not depend on how the text was cut into pieces. A
row is printed when later text can no longer change it: no emphasis, code or link is open in it.
The last row of a paragraph waits, because an underline can still make it a heading. The text
must be escaped before (`escape`).
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
_MAX_PENDING_CHARS = 4_000  # of an unfinished line; more are printed before it ends
# The first characters of a line, which decide which block the line begins.
_OPENING_CHARS = 60
_MIN_TEXT_CELLS = 10  # for text, however deeply nested
# Text that could close a mark which is still open, after a word and, for code, after a space.
# A row is settled, so it can be printed, if none of these texts would change it.
_MARK_CLOSERS = {
    "*": ("x*", "x**", "x***"), "_": ("x_", "x__"), "~": ("x~~",),
    "`": ("x`", "x``", "x```", "`", "``", "```"), "[": ("x](u)", "x](u", "x](<u>)"),
    "](": ("x)", "x))", 'x")', "x')", "x>)"),
}  # fmt: skip
_MAX_RULE_CELLS = 40
_UNLIMITED_CELLS = 1 << 30
_FEW_STOPS, _CHARS_FOR_STOP = 50, 8
_LINE_END: Piece = ("plain", "\n")
# Styles of headings, by level; deeper ones have the last style. Without styles the marks
# are printed.
_HEADING_STYLES: tuple[Style, ...] = ("title", "heading", "subheading")


class MarkdownRenderer:
    """Prints a Markdown text while it arrives.

    `width` is the width of a line, or a function that returns it for each block; 0 means that
    lines are not wrapped. Without `marks`, the text is wrapped but not parsed. Without
    `styled`, the marks of emphasis stay visible. `links` says that the terminal opens links,
    `symbols` that it shows more than ASCII. Without `breaks_code`, the terminal breaks long
    lines of code: then the user can copy each as one line.
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
        self._styled, self._symbols = styled, symbols
        self._breaks_code = breaks_code
        self._blocks, self._spans = BlockParser(), Spans(SpanOptions(styled, links))
        self._marks = self._spans if styled else Spans(SpanOptions())
        self._code: Highlighter | None = None
        self._pending: list[str] = []  # pieces of the unfinished line
        self._size = 0  # characters of the unfinished line that are pending
        self._line_begun = False  # whether its start has been printed
        self._open: _OpenParagraph | None = None
        self._unseen = 0  # characters since the rows were last laid out
        self._wait = 0  # characters until the rows are laid out again

    @property
    def whole_rows(self) -> bool:
        """Whether only complete rows are printed, so that other output may come between them."""
        return self._flow is None

    @property
    def pending_text(self) -> str:
        """The last words of the unfinished block, on one line."""
        pending = "".join(self._pending[-40:])
        return " ".join(f"{self._blocks.last[-200:]} {pending[-200:]}".split())[-120:]

    def add(self, text: str) -> list[Piece]:
        """Add text. Return the pieces that can be printed now."""
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
        row_chars = min(self._line_width() or MAX_PROSE_CELLS, MAX_PROSE_CELLS)
        if self._unseen >= max(row_chars, self._wait):
            pieces += self._take_settled_rows()
        return pieces

    def end(self) -> list[Piece]:
        """End the text. Return the pieces that were held back."""
        if self._flow is not None:
            return self._flow.end()
        pieces = self._end_line() if self._pending else []
        return [*pieces, *self._render_leaves(self._blocks.end())]

    def preview_end(self) -> list[Piece]:
        """Return what `end` would return now, without ending the text."""
        clone = copy(self)
        clone._blocks, clone._pending = deepcopy(self._blocks), [*self._pending]
        clone._code = None  # its state is valid only for whole lines
        return clone.end()

    def _buffer(self, text: str) -> list[Piece]:
        """Add a part of a line to the buffer. Return the pieces that can be printed already."""
        if not text:
            return []
        self._pending.append(text)
        self._size += len(text)
        if self._size < _MAX_PENDING_CHARS:
            if self._size > _OPENING_CHARS or self._line_begun or not self._blocks.last:
                return []
            start = "".join(self._pending)
            return self._render_leaves(self._blocks.end_paragraph_early(start))
        pending, pieces = "".join(self._pending), list[Piece]()
        while len(pending) >= _MAX_PENDING_CHARS:
            end = pending.rfind(" ", 1, _MAX_PENDING_CHARS) + 1 or _MAX_PENDING_CHARS
            pieces += self._take_line(pending[:end])
            pending, self._line_begun = pending[end:], True
        self._pending, self._size = [pending] if pending else [], len(pending)
        return pieces

    def _end_line(self) -> list[Piece]:
        """End the line that is in the buffer. Return the pieces that can now be printed."""
        line = "".join(self._pending)
        self._pending, self._size = [], 0
        pieces = self._take_line(line) if line or not self._line_begun else []
        self._line_begun = False
        return pieces

    def _take_line(self, line: str) -> list[Piece]:
        take = self._blocks.add_to_line if self._line_begun else self._blocks.add_line
        return self._render_leaves(take(line))

    def _render_leaves(self, leaves: list[Leaf]) -> list[Piece]:
        """Return the pieces of blocks, without the rows of a paragraph that were printed
        before.
        """
        pieces: list[Piece] = []
        for leaf in leaves:
            begun, self._open = self._open, None
            if begun is None:
                pieces += self._lay_out(leaf, self._line_width())
                continue
            # Rows that were printed stay a paragraph, even if an underline follows.
            kind = "words" if leaf.kind in ("heading", "table") else leaf.kind
            rows = self._lay_out(replace(leaf, kind=kind), begun.width, after=begun.rows)
            pieces += rows
            if rows:
                continue
            unclaimed_rows = begun.rows - self._row_count(leaf, begun.width)
            if unclaimed_rows > 0:
                # They were printed and belong to the next block: the header of a table.
                self._open = _OpenParagraph(begun.width, unclaimed_rows)
        return pieces

    def _lay_out(
        self, leaf: Leaf, width: int, *, after: int = 0, before: int | None = None
    ) -> list[Piece]:
        """Return the rows of a block from the index `after` on, up to but without `before`.

        The earlier rows are printed already.
        """
        pieces: list[Piece] = []
        around = _Margin(leaf, width, symbols=self._symbols)
        if leaf.gap >= 0 and not after:
            pieces += (around.gap, _LINE_END)
        for number, row in enumerate(self._rows(leaf, width and around.text_cells)):
            if after <= number and (before is None or number < before):
                pieces += around.rest if number else around.first
                pieces += row
                pieces.append(_LINE_END)
        return pieces

    def _row_count(self, leaf: Leaf, width: int) -> int:
        column_width = _Margin(leaf, width, symbols=self._symbols).text_cells
        return len(_wrap_prose(self._spans.parse_paragraph(leaf.lines), column_width))

    def _take_settled_rows(self) -> list[Piece]:
        """Return the rows of the unfinished paragraph that can no longer change. Count them as
        printed.
        """
        self._unseen = self._wait = 0
        line_width = self._open.width if self._open else self._line_width()
        leaf = self._open_paragraph(line_width) if line_width else None
        if leaf is None:
            return []
        printed = self._open.rows if self._open else 0
        width = _Margin(leaf, line_width, symbols=self._symbols).text_cells
        fits_on_a_row = len(leaf.lines[0]) <= min(width, MAX_PROSE_CELLS)
        if len(leaf.lines) == 1 and fits_on_a_row:
            return []
        # Each call parses the paragraph again, so if it has many marks, the next call waits
        # for more text.
        many = count_stops("\n".join(leaf.lines)) - _FEW_STOPS
        self._wait = max(0, _CHARS_FOR_STOP * many)
        settled = self._count_settled(leaf, width)
        if settled <= printed:
            return []
        self._open = _OpenParagraph(line_width, settled)
        return self._lay_out(leaf, line_width, after=printed, before=settled)

    def _open_paragraph(self, width: int) -> Leaf | None:
        """Return the unfinished paragraph, together with the unfinished line.

        Return None if there is none, or if it can still become another block.
        """
        pending = "".join(self._pending)
        if not pending and not self._blocks.in_paragraph:
            return None  # the usual case after a line of code or an empty line
        if self._line_begun or (
            pending and len(pending) < min(width, _OPENING_CHARS) and not self._open
        ):
            return None
        blocks = deepcopy(self._blocks)
        if pending and blocks.add_line(pending):
            return None  # the line ends the paragraph, or begins another block
        leaves = blocks.end()
        if not leaves or leaves[0].kind != "words" or leaves[0].lines[0].startswith("["):
            return None  # no paragraph, or one that may define a link
        *lines, last = leaves[0].lines
        # Text after a "|" may become cells of a table, and an unfinished word may become too
        # long for its row. Neither is returned.
        start = last.partition("|")[0]
        if pending or start != last:
            start = start.rpartition(" ")[0]
        if start:
            lines.append(start)
        return replace(leaves[0], lines=tuple(lines)) if lines else None

    def _count_settled(self, leaf: Leaf, width: int) -> int:
        """Return how many rows of the unfinished paragraph can no longer change."""
        rows = _wrap_prose(self._spans.parse_paragraph(leaf.lines), width)
        *lines, last = leaf.lines
        count = len(rows) - 1
        # The parsed text lacks marks that were closed.
        shown = "".join(
            text
            for style, text in self._marks.parse_paragraph(leaf.lines)
            if style != "code"
        )
        for mark, closers in _MARK_CLOSERS.items():
            if mark not in shown:
                continue
            for closer in closers:
                # The next word, on this line or on a line of its own.
                next_words = last + (" " if self._pending else "\n") + closer
                new_rows = _wrap_prose(
                    self._spans.parse_paragraph((*lines, *next_words.split("\n"))), width
                )
                pairs = zip(rows[:count], new_rows, strict=False)
                changed = (index for index, (old, new) in enumerate(pairs) if old != new)
                count = next(changed, min(count, len(new_rows)))
        return count

    def _rows(self, leaf: Leaf, width: int) -> Iterator[Line]:
        """Yield the rows of a block without its margin. A `width` of 0 is unlimited."""
        match leaf.kind:
            case "words":
                yield from _wrap_prose(self._spans.parse_paragraph(leaf.lines), width)
            case "heading":
                yield from _wrap_prose(self._heading(leaf), width)
            case "rule":
                column_width = min(width or _MAX_RULE_CELLS, _MAX_RULE_CELLS)
                yield (("dim", ("─" if self._symbols else "-") * column_width),)
            case "table":
                yield from table_lines(
                    leaf.lines,
                    width,
                    self._spans.parse_cell,
                    headed=leaf.headed,
                    symbols=self._symbols,
                )
            case _:
                yield from self._code_rows(leaf, width)

    def _heading(self, leaf: Leaf) -> list[Piece]:
        """Return the pieces of a heading. Its `#` signs are left out if styles can show it."""
        words = " ".join(leaf.lines)
        if self._styled:
            style = _HEADING_STYLES[min(leaf.level, len(_HEADING_STYLES)) - 1]
            return self._spans.parse_phrase(words, style)
        return [
            ("heading", f"{'#' * leaf.level} "),
            *self._spans.parse_phrase(words, "heading"),
        ]

    def _code_rows(self, leaf: Leaf, width: int) -> Iterator[Line]:
        """Yield the rows of a line of code, or of the line that begins or ends a code block."""
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
    """The unfinished paragraph; `rows` of its rows are already printed, at the screen width
    `width`.
    """

    width: int
    rows: int


class _Margin:
    """The left margin of a block: marks of quotes, marks of list items, and indents.

    `first` is the margin of the first row, `rest` that of the other rows, `gap` that of the
    empty line before the block. `text_cells` is the width that remains for text.
    """

    def __init__(self, leaf: Leaf, width: int, *, symbols: bool) -> None:
        self._bar, self._dot = ("│ ", "•") if symbols else ("> ", "")
        rest = [self._margin_piece(container, first=False) for container in leaf.around]
        hidden = 0  # outer containers for which the screen is too narrow
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
        self.text_cells = max(width - _margin_cells(self.rest), 2)

    def _margin_piece(self, container: Container, *, first: bool) -> Piece:
        """Return the bar of a quote (its sign is ""), or the mark or indent of a list item."""
        if not container.sign:
            return ("dim", self._bar)
        sign = (self._dot or container.sign) if container.sign in "-+*" else container.sign
        shown = first and container.begins
        return ("plain", f"{sign} " if shown else " " * (len(sign) + 1))


def _margin_cells(margin: list[Piece]) -> int:
    return sum(len(text) for _, text in margin)


def _wrap_prose(pieces: list[Piece], width: int) -> list[Line]:
    return wrap(pieces, min(width, MAX_PROSE_CELLS) if width else _UNLIMITED_CELLS)
