"""Text in terminal cells: its width, cut, wrapped and folded.

`wrap` breaks finished text into lines that fit the screen, `StreamWrapper` wraps text as it arrives
and never takes anything back, and `fold_lines` replaces the middle of long text by a line with the
number of lines left out. Graphemes (letters with marks, composed emoji) are never split; `wcwidth`
measures them by the rules that most terminals follow. Control characters must have been escaped
before (`escape`).
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from refold.views.escape import visible
from refold.views.styled import (
    Line,
    Piece,
    PieceStyle,
    Style,
    join_pieces,
    line,
    plain_text,
)

_PART_PATTERN = re.compile(r"\n|[ \t]+|[^ \t\n]+")
_ADDRESS_PATTERN = re.compile(r"\W{0,3}[a-z][a-z+]{1,9}://\S+")
# Chinese and Japanese marks that must not begin a row, and those that must not end one.
_NOT_FIRST = "、。，．：；！？）］｝」』】》〉〕…ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ"
_NOT_LAST = "（［｛「『【《〈〔"
_DOT_SEPARATOR = " · "
_UNBREAKABLE_BLANK = "\x1f"  # stands for a space without a break; not in visible text
MAX_RESULT_LINES = 20
_MAX_LINE_ROWS = 3  # of one very long line
CONTINUATION_MARK = "↳ "  # before a row that continues a line of code
_MIN_MARKED_CELLS = 8  # narrower rows have no mark
_PADDING_PATTERN = re.compile(r" {41,}|\t{11,}|(?:[ \t]*\n){7,}")
# Each takes one cell and joins with no other of them: most text needs no table, and the
# tables of `wcwidth` take longer to load than a prompt may take to appear.
_NARROW_CHARS = (
    "\x00-\u02ff\u2010-\u2027\u2030-\u205e\u2190-\u2319\u2500-\u25fc\u2800-\u28ff"
)
_ALL_NARROW = re.compile(f"[{_NARROW_CHARS}]*")
_OF_UNSURE_WIDTH = re.compile("[\U0001f3fb-\U0001f3ff\u200d\ufe0f\u20e3]")
_MAX_LETTER_CELLS = 2  # none takes more; what a font cannot join counts as several


def cells(text: str) -> int:
    if _is_narrow(text):
        return len(text)
    return sum(width for _, width in letters(text))


def letters(text: str) -> Iterator[tuple[str, int]]:
    """The graphemes of the text, each with its width in cells."""
    if _is_narrow(text):
        yield from ((letter, 1) for letter in text)
        return
    from wcwidth import iter_graphemes

    for cluster in iter_graphemes(text):
        width = _width(cluster)
        if width <= _MAX_LETTER_CELLS:
            yield cluster, width
        else:
            yield from ((letter, _width(letter)) for letter in cluster)


def with_stable_width(text: str) -> str:
    """`text` with emoji that every terminal draws in the same number of cells.

    Terminals disagree about skin tones, joined emoji, keycaps and the sign that asks for an
    emoji: of each such cluster the first character stays. A row that is erased must be as
    wide as it was counted.
    """
    if not _OF_UNSURE_WIDTH.search(text):
        return text
    return "".join(
        letter[0] if _OF_UNSURE_WIDTH.search(letter) else letter
        for letter, _ in letters(text)
    )


def cut(text: str, width: int) -> str:
    """`text` on at most `width` cells; "…" replaces the rest."""
    if len(text) <= width and cells(text) <= width:
        return text
    return _fitting_start(text, width - 1) + "…" if width > 0 else ""


def break_lines(text: str, width: int) -> Iterator[str]:
    """The lines of `text`, none wider than `width`. No character is lost or added."""
    width = max(width, 2)
    for part in text.split("\n"):
        yield from _pieces(part, width)


def expand_tabs(text: str) -> str:
    return text.expandtabs(4) if "\t" in text else text


def collapse_padding(text: str) -> str:
    """Replace long runs of blanks and empty lines, which may hide text, by their number."""
    return _PADDING_PATTERN.sub(lambda run: _padding_note(run[0]), text)


def _is_narrow(text: str) -> bool:
    return text.isascii() or _ALL_NARROW.fullmatch(text) is not None


def _fitting_start(text: str, width: int) -> str:
    """The longest start of the text that fits `width`."""
    if _is_narrow(text):
        return text[:width]
    start = list[str]()
    for letter, column_width in letters(text):
        width -= column_width
        if width < 0:
            break
        start.append(letter)
    return "".join(start)


def _pieces(text: str, width: int) -> Iterator[str]:
    if cells(text) <= width:
        yield text
        return
    if _is_narrow(text):
        yield from (text[start : start + width] for start in range(0, len(text), width))
        return
    row, used = list[str](), 0
    for letter, column_width in letters(text):
        if used + column_width > width:
            yield "".join(row)
            row, used = [], 0
        row.append(letter)
        used += column_width
    yield "".join(row)


def _padding_note(run: str) -> str:
    lines = run.count("\n")
    if lines:
        return f"\n… {lines - 1} empty lines …\n"
    return f" … {len(run)} {'tabs' if run[0] == chr(9) else 'spaces'} … "


def _width(letter: str) -> int:
    from wcwidth import wcswidth, wcwidth

    width = wcwidth(letter) if len(letter) == 1 else wcswidth(letter)
    return 1 if width < 0 else width  # a control character, which is written out before


class _Rows:
    def __init__(self, width: int, *, addresses: bool) -> None:
        self._line_width, self._addresses = max(width, 2), addresses
        self._row: list[Piece] = []
        self._used = 0
        self._blank: list[Piece] = []
        self._word: list[Piece] = []
        self._last = ""
        self.done: list[Line] = []

    def add(self, style: PieceStyle, text: str) -> None:
        for part in _PART_PATTERN.findall(text):
            if part == "\n":
                self.end_row()
            elif part[0] in " \t":
                self._place_word()
                self._blank.append((style, part.expandtabs(4)))
            elif cells(part) == len(part):
                self._extend_word(style, part)
            else:
                self._letters(style, part)

    def end_row(self) -> None:
        self._place_word()
        self.done.append(tuple(join_pieces(self._row)))
        self._row, self._used, self._blank = [], 0, []

    def _letters(self, style: PieceStyle, part: str) -> None:
        wide_before = False
        for letter, width in letters(part):
            may_break = (width > 1 or wide_before) and letter[0] not in _NOT_FIRST
            if may_break and self._last not in _NOT_LAST:
                self._place_word()
            self._extend_word(style, letter)
            wide_before = width > 1

    def _extend_word(self, style: PieceStyle, text: str) -> None:
        self._word.append((style, text))
        self._last = text[-1]

    def _place_word(self) -> None:
        """Put the word on this row or the next."""
        if not self._word:
            return
        word, self._word = join_pieces(self._word), []
        self._last = ""
        text = "".join(part for _, part in word)
        width, blank = cells(text), sum(cells(part) for _, part in self._blank)
        if self._used + blank + width > self._line_width and self._row:
            self.done.append(tuple(join_pieces(self._row)))
            self._row, self._used, blank = [], 0, 0
            self._blank = []
        if width > self._line_width and not (
            self._addresses and _ADDRESS_PATTERN.match(text)
        ):
            self._break(word)
        else:
            if self._used + blank + width <= self._line_width:
                self._row += self._blank
                self._used += blank
            self._row += word
            self._used += width
        self._blank = []

    def _break(self, word: list[Piece]) -> None:
        """Break a word that is wider than a row and starts one."""
        *whole, rest = hard_wrap(word, self._line_width)
        self.done += whole
        self._row, self._used = list(rest), sum(cells(text) for _, text in rest)


def wrap(pieces: Iterable[Piece], width: int, *, addresses: bool = True) -> list[Line]:
    """Wrap text to rows of at most `width` cells; only a lone URL may be wider.

    `addresses` false: URLs are broken, too.
    """
    rows = _Rows(width, addresses=addresses)
    for style, text in pieces:
        rows.add(style, text)
    rows.end_row()
    return rows.done


def hard_wrap(pieces: Iterable[Piece], width: int) -> list[Line]:
    """Break text anywhere into rows of `width` cells; nothing is lost or added."""
    rows: list[list[Piece]] = [[]]
    used = 0
    for style, text in pieces:
        if used + cells(text) <= width:
            rows[-1].append((style, text))
            used += cells(text)
            continue
        for letter, column_width in letters(text):
            if used + column_width > width and used:
                rows.append([])
                used = 0
            rows[-1].append((style, letter))
            used += column_width
    return [tuple(join_pieces(row)) for row in rows]


def wrap_code(pieces: Iterable[Piece], width: int) -> list[Line]:
    """Break a line of code into rows, after a blank if one is near the end of the row.

    Rows that continue the line begin with a mark, if there is room for it. Nothing is lost.
    """
    pieces = join_pieces(pieces)
    if sum(cells(text) for _, text in pieces) <= width:
        return [tuple(pieces)]
    mark: list[Piece] = []
    if width >= _MIN_MARKED_CELLS:
        mark = [("dim", CONTINUATION_MARK)]
    code: list[tuple[PieceStyle, str, int]] = [
        (style, letter, column_width)
        for style, text in pieces
        for letter, column_width in letters(text)
    ]
    rows, start = list[Line](), 0
    while start < len(code):
        before = mark if rows else []
        end = _row_end(code, start, width - cells(plain_text([tuple(before)])))
        row: list[Piece] = [(style, letter) for style, letter, _ in code[start:end]]
        rows.append(tuple(join_pieces([*before, *row])))
        start = end
    return rows


def _row_end(code: Sequence[tuple[PieceStyle, str, int]], start: int, width: int) -> int:
    """The index behind the last letter of the row of code that begins at `start`."""
    used, text_seen, after_blank = 0, False, start
    for index in range(start, len(code)):
        _, letter, column_width = code[index]
        if used + column_width > width and index > start:
            return after_blank if after_blank - start > (index - start) // 2 else index
        used += column_width
        text_seen = text_seen or letter != " "
        if letter == " " and text_seen:  # not in the indent
            after_blank = index + 1
    return len(code)


def truncate(row: Line, width: int) -> Line:
    """The start of a row; "…" replaces the rest."""
    left, pieces = width, list[Piece]()
    if sum(cells(text) for _, text in row) <= width:
        return row
    for style, text in row:
        if cells(text) >= left:  # a blank stands for later pieces, so that the end is cut
            pieces.append((style, cut(f"{text} ", left)))
            break
        pieces.append((style, text))
        left -= cells(text)
    return tuple(pieces)


class StreamWrapper:
    """Wraps text that arrives in pieces. `width` is the width of a line; 0: no wrapping.

    Text that was returned stays where it is: a word is held back until it is complete, and then
    put on this line or the next. A word wider than the screen is left to the terminal, so that a
    URL can still be copied.
    """

    def __init__(self, width: int = 0) -> None:
        self.width = width
        self.indent = 0  # of continuation lines
        self._column = 0
        self._word: list[Piece] = []
        self._blank = ""

    def put(self, style: PieceStyle, text: str) -> list[Piece]:
        """Add text of one style; returns what can be printed now."""
        pieces: list[Piece] = []
        start = 0
        for index, letter in enumerate(text):
            if letter in " \n":
                self._extend_word(style, text[start:index])
                pieces += self._place_word()
                start = index + 1
                if letter == "\n":
                    pieces += self._end_line()
                else:
                    self._blank += " "
        self._extend_word(style, text[start:])
        return pieces

    def end(self) -> list[Piece]:
        return self._place_word()

    def _extend_word(self, style: PieceStyle, text: str) -> None:
        if not text:
            return
        if self._word and self._word[-1][0] == style:
            text = self._word.pop()[1] + text
        self._word.append((style, text))

    def _end_line(self) -> list[Piece]:
        self._column, self._blank = 0, ""  # drop blanks at the end of a line
        return [("plain", "\n")]

    def _place_word(self) -> list[Piece]:
        if not self._word:
            return []
        width = sum(cells(text) for _, text in self._word)
        end = self._column + len(self._blank) + width
        pieces: list[Piece] = []
        if self.width and end > self.width and self._column > self.indent:
            pieces.append(("plain", "\n" + " " * self.indent))
            self._column = self.indent + width
        else:
            if self._blank:
                pieces.append(("plain", self._blank))
            self._column = end
        if self.width and self._column > self.width:  # the terminal breaks such a wide word
            self._column = (self._column - 1) % self.width + 1
        pieces += self._word
        self._word, self._blank = [], ""
        return pieces


def wrap_line(line: Line, width: int, indent: int = 0) -> Line:
    """Wrap a line of our own.

    Short items separated by dots are broken at the dots: "n no, and why" stays whole.
    """
    whole = "".join(text for _, text in line)
    if "\n" in whole:
        first, *rest = (wrap_line(row, width, indent) for row in _rows_of(line))
        end: Piece = ("plain", "\n")
        return (*first, *(piece for row in rest for piece in (end, *row)))
    if cells(whole) <= width:
        return line
    keep_items = _DOT_SEPARATOR in whole and all(
        cells(part) + 2 <= width - indent for part in whole.split(_DOT_SEPARATOR)
    )
    flow = StreamWrapper(width)
    flow.indent = indent
    pieces = [
        piece for style, text in line
        for piece in flow.put(style, _protect_blanks(text) if keep_items else text)
    ]  # fmt: skip
    pieces += flow.end()
    return tuple((style, text.replace(_UNBREAKABLE_BLANK, " ")) for style, text in pieces)


def wrap_rows(row: Line, width: int) -> list[Line]:
    """The rows of a line of our own; a word that is wider than a row is broken."""
    return [
        part
        for column_width in _rows_of(wrap_line(row, width))
        for part in hard_wrap(column_width, width)
    ]


def _rows_of(line: Line) -> list[Line]:
    rows: list[list[Piece]] = [[]]
    for style, text in line:
        first, *rest = text.split("\n")
        rows[-1].append((style, first))
        rows.extend([(style, part)] for part in rest)
    return [tuple(piece for piece in row if piece[1]) for row in rows]


def _protect_blanks(text: str) -> str:
    return f"{_UNBREAKABLE_BLANK}· ".join(
        part.replace(" ", _UNBREAKABLE_BLANK) for part in text.split(_DOT_SEPARATOR)
    )


def text_lines(text: str, width: int, style: Style = "plain") -> list[Line]:
    """Output of a tool as lines that fit: visible, wrapped, long lines cut."""
    shown = expand_tabs(visible(text.rstrip("\n")))
    return [line(row, style) for part in shown.split("\n") for row in _rows(part, width)]


def sentence_lines(text: str, width: int, style: Style = "plain") -> list[Line]:
    """As `text_lines`, for sentences: wrapped between words."""
    shown, max_cells = expand_tabs(visible(text.rstrip("\n"))), width * (_MAX_LINE_ROWS - 1)
    return [
        row
        for part in shown.split("\n")
        for row in (wrap_words if cells(part) <= max_cells else text_lines)(
            part, width, style
        )
    ]


def wrap_words(text: str, width: int, style: Style = "plain") -> list[Line]:
    """A sentence of ours, wrapped between words; a word that is too wide is broken."""
    rows = plain_text([wrap_line(line(text), width)]).split("\n")
    return [line(part, style) for row in rows for part in break_lines(row, width)]


def fold_lines(
    lines: Sequence[Line], max_lines: int = MAX_RESULT_LINES, hint: str = "", more: int = 0
) -> list[Line]:
    """Start and end of `lines`, `max_lines` in all; the end is the longer part.

    `more` lines that `lines` lacks are counted, too.
    """
    left = len(lines) - max_lines + 1
    if left <= 1:
        return list(lines)
    head = max_lines // 3
    gap = line(f"… {left + more} more lines{hint} …", "dim")
    return [*lines[:head], gap, *lines[head + left :]]


def _rows(text: str, width: int) -> Iterator[str]:
    rows = (
        list(break_lines(text, width)) if len(text) < width * (_MAX_LINE_ROWS + 2) else None
    )
    if rows is not None and len(rows) <= _MAX_LINE_ROWS:
        yield from rows
        return
    yield from list(break_lines(text[: width * _MAX_LINE_ROWS], width))[
        : _MAX_LINE_ROWS - 1
    ]
    start = sum(
        len(row)
        for row in list(break_lines(text[: width * _MAX_LINE_ROWS], width))[
            : _MAX_LINE_ROWS - 1
        ]
    )
    yield cut(text[start : start + width * 2], width)
