"""Measures, cuts, wraps and folds text in terminal cells.

`wrap` breaks complete text into lines that fit the screen. `StreamWrapper` wraps text while it
arrives, and never changes printed text. `fold_lines` replaces the middle of long text.
Graphemes (letters with marks, composed emoji) are never split; `wcwidth` measures them by the
rules that most terminals follow. Control characters must be escaped before (`escape`).
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
# Chinese and Japanese marks. A row must not begin with one of the first list, nor end with
# one of the second.
_NOT_FIRST_MARKS = (
    "、。，．：；！？）］｝」』】》〉〕…ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ"
)
_NOT_LAST_MARKS = "（［｛「『【《〈〔"
_DOT_SEPARATOR = " · "
# Stands for a space at which a row is not broken; it never occurs in visible text.
_UNBREAKABLE_BLANK = "\x1f"
MAX_RESULT_LINES = 20
_MAX_LINE_ROWS = 3  # rows for one very long line
CONTINUATION_MARK = "↳ "  # before a row that continues a line of code
_MIN_MARKED_CELLS = 8  # narrower rows have no mark
_PADDING_PATTERN = re.compile(r" {41,}|\t{11,}|(?:[ \t]*\n){7,}")
# Each of these characters takes one cell and never joins with another one. Most text has
# only such characters. It needs no table of `wcwidth`, which takes longer to load than a
# prompt may take to appear.
_NARROW_CHARS = (
    "\x00-\u02ff\u2010-\u2027\u2030-\u205e\u2190-\u2319\u2500-\u25fc\u2800-\u28ff"
)
_ALL_NARROW = re.compile(f"[{_NARROW_CHARS}]*")
# Emoji parts that terminals measure differently: see `with_stable_width`.
_UNSTABLE_PATTERN = re.compile("[\U0001f3fb-\U0001f3ff\u200d\ufe0f\u20e3]")
_MAX_LETTER_CELLS = 2  # a wider grapheme is counted letter by letter, as fonts draw it


def cells(text: str) -> int:
    if _is_narrow(text):
        return len(text)
    return sum(width for _, width in letters(text))


def letters(text: str) -> Iterator[tuple[str, int]]:
    """Yield the graphemes of the text, each with its width in cells."""
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
    """Return `text` with emoji that every terminal draws in the same number of cells.

    Terminals disagree about the width of skin tones, joined emoji, keycaps and emoji selectors.
    Of each grapheme with one of these, only the first character stays. refold must know the
    width of a row to erase it.
    """
    if not _UNSTABLE_PATTERN.search(text):
        return text
    return "".join(
        letter[0] if _UNSTABLE_PATTERN.search(letter) else letter
        for letter, _ in letters(text)
    )


def cut(text: str, width: int) -> str:
    """Return `text` cut to at most `width` cells; "…" replaces the rest."""
    if len(text) <= width and cells(text) <= width:
        return text
    return _fitting_start(text, width - 1) + "…" if width > 0 else ""


def break_lines(text: str, width: int) -> Iterator[str]:
    """Yield the lines of `text` in parts of at most `width` cells, without losing a character."""
    width = max(width, 2)
    for part in text.split("\n"):
        yield from _line_pieces(part, width)


def expand_tabs(text: str) -> str:
    return text.expandtabs(4) if "\t" in text else text


def collapse_padding(text: str) -> str:
    """Return `text` with long runs of blanks or empty lines, which may hide text, as numbers."""
    return _PADDING_PATTERN.sub(lambda run: _padding_note(run[0]), text)


def _is_narrow(text: str) -> bool:
    return text.isascii() or _ALL_NARROW.fullmatch(text) is not None


def _fitting_start(text: str, width: int) -> str:
    """Return the longest beginning of the text that fits into `width` cells."""
    if _is_narrow(text):
        return text[:width]
    start = list[str]()
    for letter, letter_cells in letters(text):
        width -= letter_cells
        if width < 0:
            break
        start.append(letter)
    return "".join(start)


def _line_pieces(text: str, width: int) -> Iterator[str]:
    if cells(text) <= width:
        yield text
        return
    if _is_narrow(text):
        yield from (text[start : start + width] for start in range(0, len(text), width))
        return
    row, used = list[str](), 0
    for letter, letter_cells in letters(text):
        if used + letter_cells > width:
            yield "".join(row)
            row, used = [], 0
        row.append(letter)
        used += letter_cells
    yield "".join(row)


def _padding_note(run: str) -> str:
    lines = run.count("\n")
    if lines:
        return f"\n… {lines - 1} empty lines …\n"
    return f" … {len(run)} {'tabs' if run[0] == chr(9) else 'spaces'} … "


def _width(letter: str) -> int:
    from wcwidth import wcswidth, wcwidth

    width = wcwidth(letter) if len(letter) == 1 else wcswidth(letter)
    # A control character has a negative width, but is escaped before it is printed.
    return 1 if width < 0 else width


class _Rows:
    """Collects styled text in rows. `done` are the finished rows.

    With `addresses`, a URL that is wider than a row is not broken.
    """

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
                self._add_wide_part(style, part)

    def end_row(self) -> None:
        self._place_word()
        self.done.append(tuple(join_pieces(self._row)))
        self._row, self._used, self._blank = [], 0, []

    def _add_wide_part(self, style: PieceStyle, part: str) -> None:
        """Add text with wide letters: a row may be broken before and after each of them."""
        wide_before = False
        for letter, width in letters(part):
            may_break = (width > 1 or wide_before) and letter[0] not in _NOT_FIRST_MARKS
            if may_break and self._last not in _NOT_LAST_MARKS:
                self._place_word()
            self._extend_word(style, letter)
            wide_before = width > 1

    def _extend_word(self, style: PieceStyle, text: str) -> None:
        self._word.append((style, text))
        self._last = text[-1]

    def _place_word(self) -> None:
        """Put the collected word on this row or the next."""
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
            self._break_word(word)
        else:
            if self._used + blank + width <= self._line_width:
                self._row += self._blank
                self._used += blank
            self._row += word
            self._used += width
        self._blank = []

    def _break_word(self, word: list[Piece]) -> None:
        """Break a word that begins a row and is wider than the row."""
        *whole, rest = hard_wrap(word, self._line_width)
        self.done += whole
        self._row, self._used = list(rest), sum(cells(text) for _, text in rest)


def wrap(pieces: Iterable[Piece], width: int, *, addresses: bool = True) -> list[Line]:
    """Wrap text to rows of at most `width` cells.

    With `addresses`, a URL that is wider stays on one row.
    """
    rows = _Rows(width, addresses=addresses)
    for style, text in pieces:
        rows.add(style, text)
    rows.end_row()
    return rows.done


def hard_wrap(pieces: Iterable[Piece], width: int) -> list[Line]:
    """Break text into rows of `width` cells, also within words; nothing is lost or added."""
    rows: list[list[Piece]] = [[]]
    used = 0
    for style, text in pieces:
        if used + cells(text) <= width:
            rows[-1].append((style, text))
            used += cells(text)
            continue
        for letter, letter_cells in letters(text):
            if used + letter_cells > width and used:
                rows.append([])
                used = 0
            rows[-1].append((style, letter))
            used += letter_cells
    return [tuple(join_pieces(row)) for row in rows]


def wrap_code(pieces: Iterable[Piece], width: int) -> list[Line]:
    """Break a line of code into rows, if possible after a blank near the end of the row.

    Rows that continue the line begin with a mark, if they are wide enough: a hanging indent
    would look like another level of Python. In the line terminal, code of a response is not
    broken by this function but by the terminal, so that it can be copied as one line.
    """
    pieces = join_pieces(pieces)
    if sum(cells(text) for _, text in pieces) <= width:
        return [tuple(pieces)]
    mark: list[Piece] = []
    if width >= _MIN_MARKED_CELLS:
        mark = [("dim", CONTINUATION_MARK)]
    code: list[tuple[PieceStyle, str, int]] = [
        (style, letter, letter_cells)
        for style, text in pieces
        for letter, letter_cells in letters(text)
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
    """Return the index at which the row that begins at `start` ends, in a line of code.

    The row ends after its last blank, if that is in its second half.
    """
    used, text_seen, after_blank = 0, False, start
    for index in range(start, len(code)):
        _, letter, letter_cells = code[index]
        if used + letter_cells > width and index > start:
            return after_blank if after_blank - start > (index - start) // 2 else index
        used += letter_cells
        text_seen = text_seen or letter != " "
        if letter == " " and text_seen:  # only after the indent
            after_blank = index + 1
    return len(code)


def truncate(row: Line, width: int) -> Line:
    """Return the row cut to `width` cells; "…" replaces the rest."""
    left, pieces = width, list[Piece]()
    if sum(cells(text) for _, text in row) <= width:
        return row
    for style, text in row:
        if cells(text) >= left:
            # With the blank, `cut` writes "…" even if only later pieces do not fit.
            pieces.append((style, cut(f"{text} ", left)))
            break
        pieces.append((style, text))
        left -= cells(text)
    return tuple(pieces)


class StreamWrapper:
    """Wraps text that arrives in pieces. If `width` is 0, text is not wrapped.

    A word is held back until it is complete, and then put on this row or the next; so returned
    text never changes. A word that is wider than the screen is broken by the terminal: so a URL
    can still be copied.
    """

    def __init__(self, width: int = 0) -> None:
        self.width = width
        self.indent = 0  # cells before each row that continues a line
        self._column = 0
        self._word: list[Piece] = []
        self._blank = ""

    def put(self, style: PieceStyle, text: str) -> list[Piece]:
        """Add text of one style. Return the pieces that can be printed now."""
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
    """Wrap a line that refold itself wrote; `indent` spaces begin each further row.

    If the line consists of short items with dots between them, it is broken only at the dots.
    """
    whole = "".join(text for _, text in line)
    if "\n" in whole:
        first, *rest = (wrap_line(row, width, indent) for row in _rows_of(line))
        end: Piece = ("plain", "\n")
        return (*first, *(piece for row in rest for piece in (end, *row)))
    if cells(whole) <= width:
        return line
    keep_items = _DOT_SEPARATOR in whole and all(
        cells(part) + len("· ") <= width - indent for part in whole.split(_DOT_SEPARATOR)
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
    """Return a line that refold itself wrote as rows. A word that is wider than a row is
    broken.
    """
    return [
        part
        for line_row in _rows_of(wrap_line(row, width))
        for part in hard_wrap(line_row, width)
    ]


def _rows_of(line: Line) -> list[Line]:
    """Return the line in parts, split at its line feeds."""
    rows: list[list[Piece]] = [[]]
    for style, text in line:
        first, *rest = text.split("\n")
        rows[-1].append((style, first))
        rows.extend([(style, part)] for part in rest)
    return [tuple(piece for piece in row if piece[1]) for row in rows]


def _protect_blanks(text: str) -> str:
    """Return the text with unbreakable blanks, except after a dot: rows are broken only there."""
    return f"{_UNBREAKABLE_BLANK}· ".join(
        part.replace(" ", _UNBREAKABLE_BLANK) for part in text.split(_DOT_SEPARATOR)
    )


def text_lines(text: str, width: int, style: Style = "plain") -> list[Line]:
    """Return the output of a tool as lines that fit: escaped, wrapped, and very long lines cut."""
    shown = expand_tabs(visible(text.rstrip("\n")))
    return [line(row, style) for part in shown.split("\n") for row in _rows(part, width)]


def sentence_lines(text: str, width: int, style: Style = "plain") -> list[Line]:
    """Return sentences as lines that fit, as `text_lines` does, but wrapped between words."""
    shown = expand_tabs(visible(text.rstrip("\n")))
    max_cells = width * (_MAX_LINE_ROWS - 1)  # wider lines are cut
    rows: list[Line] = []
    for part in shown.split("\n"):
        to_rows = wrap_words if cells(part) <= max_cells else text_lines
        rows += to_rows(part, width, style)
    return rows


def wrap_words(text: str, width: int, style: Style = "plain") -> list[Line]:
    """Wrap a sentence that refold itself wrote between words. A word that is too wide is
    broken.
    """
    rows = plain_text([wrap_line(line(text), width)]).split("\n")
    return [line(part, style) for row in rows for part in break_lines(row, width)]


def fold_lines(
    lines: Sequence[Line], max_lines: int = MAX_RESULT_LINES, hint: str = "", more: int = 0
) -> list[Line]:
    """Return `lines`; if there are more than `max_lines`, one line replaces those in the
    middle.

    That line says how many are left out, with `hint`. It adds `more` to the number, for lines
    that are not in `lines`. More lines stay at the end than at the start.
    """
    hidden_count = len(lines) - max_lines + 1
    if hidden_count <= 1:
        return list(lines)
    head = max_lines // 3
    gap = line(f"… {hidden_count + more} more lines{hint} …", "dim")
    return [*lines[:head], gap, *lines[head + hidden_count :]]


def _rows(text: str, width: int) -> Iterator[str]:
    """Yield one line of output as rows. A very long line ends with "…" in its last row."""
    if len(text) < width * (_MAX_LINE_ROWS + 2):
        rows = list(break_lines(text, width))
        if len(rows) <= _MAX_LINE_ROWS:
            yield from rows
            return
    rows = list(break_lines(text[: width * _MAX_LINE_ROWS], width))
    first_rows = rows[: _MAX_LINE_ROWS - 1]
    yield from first_rows
    start = sum(map(len, first_rows))
    yield cut(text[start : start + width * 2], width)
