"""Prints the Markdown text of a model while it arrives.

A paragraph is printed row by row, code line by line, and any other block when it is finished.
Nothing is printed twice, and the result does not depend on how the text was cut into pieces. A
row is printed when later text can no longer change it: no emphasis, code or link is open in it.
The last row of a paragraph waits, because an underline can still make it a heading. The text
must be escaped before (`escape`).
"""

from collections.abc import Callable, Iterator
from copy import copy, deepcopy
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from refold.views.highlight import Highlighter
from refold.views.markdown.blocks import BlockParser, Container, Leaf
from refold.views.markdown.spans import SpanOptions, Spans, count_stops
from refold.views.markdown.tables import table_lines
from refold.views.styled import Line, Piece, Style
from refold.views.wrap import StreamWrapper, wrap
from refold.views.wrap_code import wrap_code

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
# A paragraph with more stops than this is laid out again less often.
_FEW_STOPS = 50
_CHARS_FOR_STOP = 8  # that must arrive for each further stop
_MAX_PREVIEW_CHARS = 120  # of `pending_text`
_MAX_PREVIEW_SOURCE_CHARS = 200  # from which it is made; blanks between words are dropped
_MAX_PREVIEW_PIECES = 40  # of the unfinished line that are joined for it
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
        self._plain_wrapper = (
            None if marks else StreamWrapper(min(self._line_width(), MAX_PROSE_CELLS))
        )
        self._styled, self._symbols = styled, symbols
        self._breaks_code = breaks_code
        self._blocks, self._spans = BlockParser(), Spans(SpanOptions(styled, links))
        self._styled_spans = self._spans if styled else Spans(SpanOptions())
        self._code: Highlighter | None = None
        self._pending: list[str] = []  # pieces of the unfinished line
        self._pending_chars = 0  # characters of the unfinished line that are pending
        self._line_begun = False  # whether its start has been printed
        self._printed: _PrintedRows | None = None  # of the unfinished paragraph
        self._new_chars = 0  # characters since the rows were last laid out
        self._min_new_chars = 0  # that must arrive before the rows are laid out again

    @property
    def whole_rows(self) -> bool:
        """Whether only complete rows are printed, so that other output may come between them."""
        return self._plain_wrapper is None

    @property
    def pending_text(self) -> str:
        """The last words of the unfinished block, on one line."""
        pending = "".join(self._pending[-_MAX_PREVIEW_PIECES:])
        last_line = self._blocks.last[-_MAX_PREVIEW_SOURCE_CHARS:]
        words = f"{last_line} {pending[-_MAX_PREVIEW_SOURCE_CHARS:]}".split()
        return " ".join(words)[-_MAX_PREVIEW_CHARS:]

    def add(self, text: str) -> list[Piece]:
        """Add text. Return the pieces that can be printed now."""
        if self._plain_wrapper is not None:
            return self._plain_wrapper.put("plain", text)
        first, *rest = text.split("\n")
        pieces = self._buffer(first)
        self._new_chars += len(first)
        for part in rest:
            pieces += self._end_line()
            if self._new_chars >= self._min_new_chars:
                pieces += self._take_settled_rows()
            pieces += self._buffer(part)
            self._new_chars += len(part) + 1
        row_chars = min(self._line_width() or MAX_PROSE_CELLS, MAX_PROSE_CELLS)
        if self._new_chars >= max(row_chars, self._min_new_chars):
            pieces += self._take_settled_rows()
        return pieces

    def end(self) -> list[Piece]:
        """End the text. Return the pieces that were held back."""
        if self._plain_wrapper is not None:
            return self._plain_wrapper.end()
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
        self._pending_chars += len(text)
        if self._pending_chars >= _MAX_PENDING_CHARS:
            return self._take_long_line()
        is_line_start = self._pending_chars <= _OPENING_CHARS and not self._line_begun
        if is_line_start and self._blocks.last:
            start = "".join(self._pending)
            return self._render_leaves(self._blocks.end_paragraph_early(start))
        return []

    def _take_long_line(self) -> list[Piece]:
        """Return the pieces of a line that is too long to wait for its end.

        The line is taken in parts. A part ends after a blank, if there is one. The rest stays
        pending.
        """
        pending, pieces = "".join(self._pending), list[Piece]()
        while len(pending) >= _MAX_PENDING_CHARS:
            last_blank = pending.rfind(" ", 1, _MAX_PENDING_CHARS)
            end = last_blank + 1 if last_blank > 0 else _MAX_PENDING_CHARS
            pieces += self._take_line(pending[:end])
            self._line_begun = True
            pending = pending[end:]
        self._pending = [pending] if pending else []
        self._pending_chars = len(pending)
        return pieces

    def _end_line(self) -> list[Piece]:
        """End the line that is in the buffer. Return the pieces that can now be printed."""
        line = "".join(self._pending)
        self._pending, self._pending_chars = [], 0
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
            printed, self._printed = self._printed, None
            if printed is None:
                pieces += self._lay_out(leaf, self._line_width())
                continue
            # Rows that were printed stay a paragraph, even if an underline follows.
            kind = "words" if leaf.kind in ("heading", "table") else leaf.kind
            rows = self._lay_out(
                replace(leaf, kind=kind), printed.width, start=printed.count
            )
            pieces += rows
            if rows:
                continue
            unclaimed_count = printed.count - self._row_count(leaf, printed.width)
            if unclaimed_count > 0:
                # These rows were printed, but are the header of the next block, a table.
                self._printed = _PrintedRows(printed.width, unclaimed_count)
        return pieces

    def _lay_out(
        self, leaf: Leaf, width: int, *, start: int = 0, end: int | None = None
    ) -> list[Piece]:
        """Return the rows `start` to `end` of a block, with its margin; None means all.

        The empty line before the block is returned with its first row.
        """
        pieces: list[Piece] = []
        margin = _Margin(leaf, width, symbols=self._symbols)
        has_gap = leaf.gap >= 0
        if has_gap and not start:
            pieces += (margin.gap, _LINE_END)
        text_width = margin.text_cells if width else 0  # 0: unlimited
        rows = list(self._rows(leaf, text_width))
        for index, row in enumerate(rows[start:end], start):
            pieces += margin.rest if index else margin.first
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
        self._new_chars = self._min_new_chars = 0
        printed = self._printed
        line_width = self._line_width() if printed is None else printed.width
        # Without a width, rows are not wrapped, so none of them is complete.
        leaf = self._unfinished_paragraph(line_width) if line_width else None
        if leaf is None:
            return []
        printed_count = 0 if printed is None else printed.count
        width = _Margin(leaf, line_width, symbols=self._symbols).text_cells
        fits_on_a_row = len(leaf.lines[0]) <= min(width, MAX_PROSE_CELLS)
        if len(leaf.lines) == 1 and fits_on_a_row:
            return []
        # Each call parses the paragraph again, so if it has many marks, the next call waits
        # for more text.
        excess_stops = count_stops("\n".join(leaf.lines)) - _FEW_STOPS
        self._min_new_chars = max(0, _CHARS_FOR_STOP * excess_stops)
        settled_count = self._count_settled(leaf, width)
        if settled_count <= printed_count:
            return []
        self._printed = _PrintedRows(line_width, settled_count)
        return self._lay_out(leaf, line_width, start=printed_count, end=settled_count)

    def _unfinished_paragraph(self, width: int) -> Leaf | None:
        """Return the unfinished paragraph, together with the unfinished line.

        Return None if no paragraph is unfinished, or if it can still become another block.
        """
        pending = "".join(self._pending)
        if not pending and not self._blocks.in_paragraph:
            return None  # the usual case after a line of code or an empty line
        if self._line_begun:
            return None
        # The start of the line may still become a list item, a heading or a fence.
        is_undecided = 0 < len(pending) < min(width, _OPENING_CHARS)
        if is_undecided and self._printed is None:
            return None
        blocks = deepcopy(self._blocks)
        if pending and blocks.add_line(pending):
            return None  # the line ends the paragraph, or begins another block
        leaves = blocks.end()
        if not leaves or leaves[0].kind != "words":
            return None
        paragraph = leaves[0]
        if paragraph.lines[0].startswith("["):
            return None  # it may define a link
        *lines, last = paragraph.lines
        # Text after a "|" may become cells of a table, and an unfinished word may become too
        # long for its row. Neither is returned.
        stable_text = last.partition("|")[0]
        if pending or stable_text != last:
            stable_text = stable_text.rpartition(" ")[0]
        if stable_text:
            lines.append(stable_text)
        return replace(paragraph, lines=tuple(lines)) if lines else None

    def _count_settled(self, leaf: Leaf, width: int) -> int:
        """Return how many rows of the unfinished paragraph can no longer change.

        Each text that could close an open mark is added in turn. The first rows that stay the
        same with all of these texts are settled. The last row never is.
        """
        rows = _wrap_prose(self._spans.parse_paragraph(leaf.lines), width)
        *lines, last = leaf.lines
        count = len(rows) - 1
        # The next word comes on this line or on a line of its own.
        separator = " " if self._pending else "\n"
        # The styled text lacks marks that were closed.
        shown = "".join(
            text
            for style, text in self._styled_spans.parse_paragraph(leaf.lines)
            if style != "code"
        )
        for mark, closers in _MARK_CLOSERS.items():
            if mark not in shown:
                continue
            for closer in closers:
                end = f"{last}{separator}{closer}".split("\n")
                new_pieces = self._spans.parse_paragraph((*lines, *end))
                new_rows = _wrap_prose(new_pieces, width)
                count = _count_equal_rows(rows[:count], new_rows)
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
        """Return the pieces of a heading, without `#` signs if styles can show its level."""
        words = " ".join(leaf.lines)
        if self._styled:
            style = _HEADING_STYLES[min(leaf.level, len(_HEADING_STYLES)) - 1]
            return self._spans.parse_phrase(words, style)
        return [
            ("heading", f"{'#' * leaf.level} "),
            *self._spans.parse_phrase(words, "heading"),
        ]

    def _code_rows(self, leaf: Leaf, width: int) -> Iterator[Line]:
        """Yield the rows of a line of code, or of the line that begins or ends a code block.

        A block that ends without a fence has no row for its end.
        """
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
        if width and self._breaks_code:
            yield from wrap_code(pieces, width)
        else:
            yield tuple(pieces)


class _PrintedRows(Struct, frozen=True):
    """The number of rows of the unfinished paragraph that are already printed.

    The rows were laid out for the screen width `width`.
    """

    width: int
    count: int


class _Margin:
    """The left margin of a block: marks of quotes, marks of list items, and indents.

    `first` is the margin of the first row, `rest` that of the other rows, `gap` that of the
    empty line before the block. `text_cells` is the width that remains for text.
    """

    def __init__(self, leaf: Leaf, width: int, *, symbols: bool) -> None:
        self._bar, self._dot = ("│ ", "•") if symbols else ("> ", "")
        margin = [self._margin_piece(container, first=False) for container in leaf.around]
        hidden_count = _count_hidden(margin, width - _MIN_TEXT_CELLS) if width else 0
        self.rest = margin[hidden_count:]
        self.first = [
            self._margin_piece(container, first=True)
            for container in leaf.around[hidden_count:]
        ]
        # The empty line shows the outer containers that are around it, too: `leaf.gap` of them,
        # of which some may be hidden.
        shown_in_gap = max(leaf.gap - hidden_count, 0)
        gap_text = "".join(text for _, text in self.rest[:shown_in_gap])
        self.gap: Piece = ("dim", gap_text.rstrip())
        self.text_cells = max(width - _margin_cells(self.rest), 2)

    def _margin_piece(self, container: Container, *, first: bool) -> Piece:
        """Return the bar of a quote (its sign is ""), or the mark or indent of a list item."""
        if not container.sign:
            return ("dim", self._bar)
        sign = container.sign
        if self._dot and sign in "-+*":
            sign = self._dot
        shows_sign = first and container.begins
        return ("plain", f"{sign} " if shows_sign else " " * (len(sign) + 1))


def _count_hidden(margin: list[Piece], max_cells: int) -> int:
    """Return how many outer containers must be hidden so that the margin fits.

    The innermost container is never hidden.
    """
    hidden_count = 0
    while (
        hidden_count < len(margin) - 1 and _margin_cells(margin[hidden_count:]) > max_cells
    ):
        hidden_count += 1
    return hidden_count


def _margin_cells(margin: list[Piece]) -> int:
    return sum(len(text) for _, text in margin)


def _wrap_prose(pieces: list[Piece], width: int) -> list[Line]:
    """Return text as rows that are easy to read. With `width` 0, it is not wrapped."""
    return wrap(pieces, min(width, MAX_PROSE_CELLS) if width else _UNLIMITED_CELLS)


def _count_equal_rows(old_rows: list[Line], new_rows: list[Line]) -> int:
    """Return how many rows are the same, from the first row to the first that differs."""
    pairs = zip(old_rows, new_rows, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
