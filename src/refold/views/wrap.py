"""Measures, cuts, wraps and folds text in terminal cells.

`wrap` breaks complete text into lines that fit the screen. `StreamWrapper` wraps text while it
arrives, and never changes printed text. `fold_lines` replaces the middle of long text.
`wrap_code` breaks lines of code.
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
    if width <= 0:
        return ""
    return _fitting_start(text, width - 1) + "…"


def break_lines(text: str, width: int) -> Iterator[str]:
    """Yield the lines of `text` in parts of at most `width` cells, without losing a character."""
    width = max(width, 2)
    for part in text.split("\n"):
        yield from _line_pieces(part, width)


def expand_tabs(text: str) -> str:
    return text.expandtabs(4) if "\t" in text else text


def collapse_padding(text: str) -> str:
    """Return `text` with a note in place of each long run of blanks or empty lines.

    Such a run could hide text from the user.
    """
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
    """Yield one line in parts of at most `width` cells."""
    if cells(text) <= width:
        yield text
        return
    if _is_narrow(text):
        yield from (text[start : start + width] for start in range(0, len(text), width))
        return
    row = list[str]()
    used = 0
    for letter, letter_cells in letters(text):
        if used + letter_cells > width:
            yield "".join(row)
            row, used = [], 0
        row.append(letter)
        used += letter_cells
    yield "".join(row)


def _padding_note(run: str) -> str:
    """Return the note that replaces a run of empty lines, of tabs or of spaces."""
    line_ends = run.count("\n")
    if line_ends:
        return f"\n… {line_ends - 1} empty lines …\n"
    kind = "tabs" if run[0] == "\t" else "spaces"
    return f" … {len(run)} {kind} … "


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
        self._line_width = max(width, _MAX_LETTER_CELLS)
        self._addresses = addresses
        self._row: list[Piece] = []
        self._used = 0  # cells of the row
        self._blank: list[Piece] = []  # the blanks after the row
        self._word: list[Piece] = []  # the word after these blanks
        self._last = ""  # the last letter of the word
        self.done: list[Line] = []

    def add(self, style: PieceStyle, text: str) -> None:
        """Add text. A word is collected until a blank, a line end or a wide letter follows it."""
        for part in _PART_PATTERN.findall(text):
            if part == "\n":
                self.end_row()
            elif part[0] in " \t":
                self._place_word()
                self._blank.append((style, part.expandtabs(4)))
            elif cells(part) == len(part):  # without wide letters
                self._extend_word(style, part)
            else:
                self._add_wide_part(style, part)

    def end_row(self) -> None:
        """End the row at a line end of the text. The row may be empty."""
        self._place_word()
        self.done.append(tuple(join_pieces(self._row)))
        self._row, self._used, self._blank = [], 0, []

    def _add_wide_part(self, style: PieceStyle, part: str) -> None:
        """Add text with wide letters: a row may be broken before and after each of them.

        Some punctuation marks may not begin a row, and some may not end one.
        """
        after_wide = False
        for letter, width in letters(part):
            is_wide = width > 1
            may_begin_row = letter[0] not in _NOT_FIRST_MARKS
            may_end_row = self._last not in _NOT_LAST_MARKS
            if (is_wide or after_wide) and may_begin_row and may_end_row:
                self._place_word()
            self._extend_word(style, letter)
            after_wide = is_wide

    def _extend_word(self, style: PieceStyle, text: str) -> None:
        self._word.append((style, text))
        self._last = text[-1]

    def _place_word(self) -> None:
        """Put the collected word on this row or the next.

        Blanks before a word that begins a row are dropped. A word that is wider than a row is
        broken, unless it is a URL that must stay whole.
        """
        if not self._word:
            return
        word, self._word = join_pieces(self._word), []
        self._last = ""
        text = "".join(part for _, part in word)
        width = cells(text)
        blank_width = sum(cells(part) for _, part in self._blank)
        if self._row and self._used + blank_width + width > self._line_width:
            self.done.append(tuple(join_pieces(self._row)))
            self._row, self._used = [], 0
            self._blank, blank_width = [], 0
        is_address = self._addresses and _ADDRESS_PATTERN.match(text)
        if width > self._line_width and not is_address:
            self._break_word(word)
        else:
            # At the start of a row, an indent may not fit before the word.
            if self._used + blank_width + width <= self._line_width:
                self._row += self._blank
                self._used += blank_width
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

    With `addresses`, a URL that is wider than `width` is not broken.
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


def truncate(row: Line, width: int) -> Line:
    """Return the row cut to `width` cells; "…" replaces the rest."""
    if sum(cells(text) for _, text in row) <= width:
        return row
    remaining_width = width
    pieces = list[Piece]()
    for style, text in row:
        if cells(text) >= remaining_width:
            # With the blank, `cut` writes "…" even if only later pieces do not fit.
            pieces.append((style, cut(f"{text} ", remaining_width)))
            break
        pieces.append((style, text))
        remaining_width -= cells(text)
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
        self._column = 0  # the cells that the unfinished row has
        self._word: list[Piece] = []  # the unfinished word
        self._blank = ""  # the blank before it

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
        """Add text to the unfinished word. Pieces of one style are joined."""
        if not text:
            return
        if self._word and self._word[-1][0] == style:
            text = self._word.pop()[1] + text
        self._word.append((style, text))

    def _end_line(self) -> list[Piece]:
        self._column, self._blank = 0, ""  # drop blanks at the end of a line
        return [("plain", "\n")]

    def _place_word(self) -> list[Piece]:
        """Return the unfinished word, after the blank before it or on a new row.

        Return [] if there is no word.
        """
        if not self._word:
            return []
        word_width = sum(cells(text) for _, text in self._word)
        end = self._column + len(self._blank) + word_width
        is_too_wide = self.width > 0 and end > self.width
        pieces: list[Piece] = []
        if is_too_wide and self._column > self.indent:
            pieces.append(("plain", "\n" + " " * self.indent))
            self._column = self.indent + word_width
        else:
            if self._blank:
                pieces.append(("plain", self._blank))
            self._column = end
        if self.width and self._column > self.width:
            # The terminal breaks such a wide word, so the cursor is in a later row.
            self._column = (self._column - 1) % self.width + 1
        pieces += self._word
        self._word, self._blank = [], ""
        return pieces


def wrap_line(line: Line, width: int, indent: int = 0) -> Line:
    """Wrap a line that refold itself wrote; `indent` spaces begin each further row.

    If the line consists of short items with dots between them, it is broken only at the dots.
    """
    line_text = "".join(text for _, text in line)
    if "\n" in line_text:
        rows = _split_at_line_feeds(line)
        first, *others = (wrap_line(row, width, indent) for row in rows)
        row_end: Piece = ("plain", "\n")
        return (*first, *(piece for row in others for piece in (row_end, *row)))
    if cells(line_text) <= width:
        return line
    items = line_text.split(_DOT_SEPARATOR)
    max_item_cells = width - indent - len("· ")
    keeps_items = len(items) > 1 and all(cells(item) <= max_item_cells for item in items)
    wrapper = StreamWrapper(width)
    wrapper.indent = indent
    pieces = list[Piece]()
    for style, text in line:
        pieces += wrapper.put(style, _protect_blanks(text) if keeps_items else text)
    pieces += wrapper.end()
    return tuple((style, text.replace(_UNBREAKABLE_BLANK, " ")) for style, text in pieces)


def wrap_rows(row: Line, width: int) -> list[Line]:
    """Return a line that refold itself wrote as rows. A word that is wider than a row is
    broken.
    """
    return [
        part
        for line_row in _split_at_line_feeds(wrap_line(row, width))
        for part in hard_wrap(line_row, width)
    ]


def _split_at_line_feeds(line: Line) -> list[Line]:
    rows: list[list[Piece]] = [[]]
    for style, text in line:
        first, *rest = text.split("\n")
        rows[-1].append((style, first))
        rows.extend([(style, part)] for part in rest)
    return [tuple(piece for piece in row if piece[1]) for row in rows]


def _protect_blanks(text: str) -> str:
    """Return the text with unbreakable blanks, except after the dots between its items.

    Rows are then broken only after these dots.
    """
    items = text.split(_DOT_SEPARATOR)
    unbreakable_items = (item.replace(" ", _UNBREAKABLE_BLANK) for item in items)
    return f"{_UNBREAKABLE_BLANK}· ".join(unbreakable_items)


def text_lines(text: str, width: int, style: Style = "plain") -> list[Line]:
    """Return the output of a tool as lines that fit: escaped, wrapped, and very long lines cut."""
    shown = expand_tabs(visible(text.rstrip("\n")))
    return [
        line(row, style) for part in shown.split("\n") for row in _output_rows(part, width)
    ]


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
    if len(lines) <= max_lines:
        return list(lines)
    hidden_count = len(lines) - (max_lines - 1)  # one line says how many are left out
    head = max_lines // 3
    gap = line(f"… {hidden_count + more} more lines{hint} …", "dim")
    return [*lines[:head], gap, *lines[head + hidden_count :]]


def _output_rows(text: str, width: int) -> Iterator[str]:
    """Yield one line of output as rows. A very long line ends with "…" in its last row."""
    # A much longer line is not broken completely, because it may have millions of characters.
    if len(text) < width * (_MAX_LINE_ROWS + 2):
        rows = list(break_lines(text, width))
        if len(rows) <= _MAX_LINE_ROWS:
            yield from rows
            return
    beginning = text[: width * _MAX_LINE_ROWS]
    first_rows = list(break_lines(beginning, width))[: _MAX_LINE_ROWS - 1]
    yield from first_rows
    shown_chars = sum(map(len, first_rows))
    rest = text[shown_chars : shown_chars + width * 2]  # more than fits, so that it is cut
    yield cut(rest, width)
