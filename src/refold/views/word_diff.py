"""A diff in the colours of its language, with the changed words highlighted. Pure.

Removed and added lines are paired in order. If two lines have little in common, no words are
highlighted: all of it changed. Where there is room, a pair stands side by side.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from refold.views.escape import visible
from refold.views.highlight import Highlighter, language_of
from refold.views.styled import Line, Piece, PieceStyle, Style, join_pieces, line
from refold.views.wrap import cells, expand_tabs, wrap_code

_SIGN_STYLES: Mapping[str, Style] = {"+": "added", "-": "gone", "@": "hunk", "\\": "dim"}
_HUNK_PATTERN = re.compile(r"@@ -(\d+,\d+) \+(\d+,\d+) @@")
_WORD_PATTERN = re.compile(r"\w+|\s+|.")
_MIN_SIMILARITY = 0.5  # of two lines that count as one changed line
_MAX_WORDS = 200  # longer lines are not compared
_MAX_PAIRS = 400  # of one diff
_MAX_LEXED_ROWS = 500  # of one diff; later rows have only the colour of their sign
# In a changed line; other kinds of tokens have the colour of its sign.
_LEXED_STYLES: frozenset[Style] = frozenset(
    {"keyword", "number", "comment", "name", "builtin"}
)
# In how many cells both sides are shown: from a terminal of 140, and in no file.
_COLUMNS_ROOM = range(132, 2_000)
_COLUMN_BORDER: Piece = ("border", " │ ")


def diff_rows(text: str) -> list[str]:
    """The rows of a unified diff as they can be shown."""
    return [expand_tabs(visible(row)) for row in text.split("\n")] if text else []


def diff_lines(text: str, path: str = "") -> list[Line]:
    """A unified diff of any length, of this file."""
    return _color_rows(diff_rows(text), path)


def numbered_diff(rows: Sequence[str], path: str, width: int) -> list[Line]:
    """A unified diff with line numbers, in two columns if there is room."""
    return diff_in_columns(rows, path, width) or [
        part for row in diff_with_numbers(rows, path) for part in wrap_code(row, width)
    ]


def diff_in_columns(rows: Sequence[str], path: str, width: int) -> list[Line]:
    """The old lines at the left and the new ones at the right, with their numbers.

    Empty if there is no room for two columns, or nothing on one of the sides.
    """
    signs = {row[:1] for row in rows}
    if width not in _COLUMNS_ROOM or not {"+", "-"} <= signs:
        return []
    half = (width - cells(_COLUMN_BORDER[1])) // 2
    result = list[Line]()
    for old, new in _sides(rows, path):
        if new is None:  # not of a side
            result += wrap_code(old, width)
            continue
        for left, right in zip_longest(
            wrap_code(old, half), wrap_code(new, half), fillvalue=()
        ):
            blank = " " * (half - sum(cells(text) for _, text in left))
            result.append((*left, ("plain", blank), _COLUMN_BORDER, *right))
    return result


def _sides(rows: Sequence[str], path: str) -> Iterator[tuple[Line, Line | None]]:
    """Yield the old and the new line of each row; None if the row has no line on that side."""
    width, old, new = _number_width(rows), 0, 0
    gone, come = list[Line](), list[Line]()
    last = gone
    for number, (row, shown) in enumerate(zip(rows, _color_rows(rows, path), strict=True)):
        match row[:1]:
            case "-" | "+" as sign:
                last = gone if sign == "-" else come
                last.append((("dim", f"{old if sign == '-' else new:>{width}} "), *shown))
                old, new = old + (sign == "-"), new + (sign == "+")
                continue
            case "\\":
                last.append((("dim", " " * (width + 1)), *shown))
                continue
            case sign:
                yield from zip_longest(gone, come, fillvalue=())
                gone, come = list[Line](), list[Line]()
        if head := _HUNK_PATTERN.fullmatch(row):
            old, new = (int(part.split(",")[0]) for part in head.group(1, 2))
            if number:
                yield line(f"{'…':>{width}}", "dim"), None
        elif sign == "@":
            yield shown, None
        else:
            yield (
                (("dim", f"{old:>{width}} "), *shown), (("dim", f"{new:>{width}} "), *shown),
            )  # fmt: skip
            old, new = old + 1, new + 1
    yield from zip_longest(gone, come, fillvalue=())


def diff_with_numbers(rows: Sequence[str], path: str = "") -> Iterator[Line]:
    """The rows of a unified diff with line numbers in place of the hunk headers.

    A removed line has its old number, every other line its new one.
    """
    width, old, new = _number_width(rows), 0, 0
    for number, (row, shown) in enumerate(zip(rows, _color_rows(rows, path), strict=True)):
        if head := _HUNK_PATTERN.fullmatch(row):
            old, new = (int(part.split(",")[0]) for part in head.group(1, 2))
            if number:
                yield line(f"{'…':>{width}}", "dim")
            continue
        sign = row[:1]
        counted = sign in ("+", "-", " ")
        label = str(old if sign == "-" else new) if counted else ""
        yield (("dim", f"{label:>{width}} "), *shown)
        old += counted and sign != "+"
        new += counted and sign != "-"


def _number_width(rows: Sequence[str]) -> int:
    heads = map(_HUNK_PATTERN.fullmatch, rows)
    last = max(
        (max(map(_last_line_number, head.group(1, 2))) for head in heads if head), default=0
    )
    return len(str(last))


def _last_line_number(lines: str) -> int:
    """The last line of the range "5,3", which has 3 lines from line 5."""
    first, count = map(int, lines.split(","))
    return first + count - 1


def _color_rows(rows: Sequence[str], path: str) -> list[Line]:
    words, syntax = dict[int, Line](), _Syntax(path)
    for number, (gone, come) in enumerate(_pairs(rows)):
        if number >= _MAX_PAIRS:
            break
        if both := highlight_changes(rows[gone][1:], rows[come][1:]):
            words[gone], words[come] = both
    lines = list[Line]()
    for number, row in enumerate(rows):
        style = _SIGN_STYLES.get(row[:1], "dim")
        tokens = syntax.read(row) if number < _MAX_LEXED_ROWS else ()
        changed = words.get(number, ())
        if tokens or changed:
            text = line(row[1:], style)
            merged = _merge(tokens or text, changed or text, style)
            lines.append(((style, row[:1]), *merged))
        else:
            lines.append(line(row, style))
    return lines


class _Syntax:
    """Highlights the lines of a file's diff in order, each side in a state of its own."""

    def __init__(self, path: str) -> None:
        self._language = language_of(path) if path else ""
        self._old, self._new = Highlighter(self._language), Highlighter(self._language)

    def read(self, row: str) -> Sequence[Piece]:
        """The tokens of a changed line; nothing for others and for unknown languages."""
        if not self._language:
            return ()
        match row[:1]:
            case "@":
                self._old.restart()
                self._new.restart()
            case " ":
                self._old.style_line(row[1:])
                self._new.style_line(row[1:])
            case "-":
                return self._old.style_line(row[1:])
            case "+":
                return self._new.style_line(row[1:])
            case _:
                pass
        return ()


def _merge(tokens: Sequence[Piece], edits: Sequence[Piece], side: Style) -> list[Piece]:
    """Put the highlighted words over the tokens of the same text."""
    pieces, place, ends = list[Piece](), 0, _ends(edits)
    for style, text in tokens:
        base = style if style in _LEXED_STYLES else side
        end = place + len(text)
        while place < end:
            stop, word = next(pair for pair in ends if pair[0] > place)
            part = text[len(text) - (end - place) :][: stop - place]
            pieces.append((base if word == side else word, part))
            place += len(part)
    return join_pieces(pieces)


def _ends(pieces: Sequence[Piece]) -> list[tuple[int, PieceStyle]]:
    """The end of each piece, and its style."""
    ends, place = list[tuple[int, PieceStyle]](), 0
    for style, text in pieces:
        place += len(text)
        ends.append((place, style))
    return ends


def highlight_changes(old: str, new: str) -> tuple[Line, Line] | None:
    """Two lines with their changed words highlighted; None if they are not similar."""
    before, after = _WORD_PATTERN.findall(old), _WORD_PATTERN.findall(new)
    if not before or not after or max(len(before), len(after)) > _MAX_WORDS:
        return None
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(None, before, after, autojunk=False)
    same = sum(
        len(word)
        for a, _, size in matcher.get_matching_blocks()
        for word in before[a : a + size]
    )
    if same * 2 < _MIN_SIMILARITY * (len(old) + len(new)):
        return None
    gone, come = list[Piece](), list[Piece]()
    for kind, a, b, c, d in matcher.get_opcodes():
        gone.append(("gone" if kind == "equal" else "gone_word", "".join(before[a:b])))
        come.append(("added" if kind == "equal" else "added_word", "".join(after[c:d])))
    return tuple(p for p in gone if p[1]), tuple(p for p in come if p[1])


def _pairs(rows: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Pairs of indexes: a removed line and the added line that replaces it."""
    gone, come = list[int](), list[int]()
    for number, row in enumerate([*rows, " "]):
        if row.startswith("+"):
            come.append(number)
            continue
        if row.startswith("\\") or (row.startswith("-") and not come):
            gone += [number] if row.startswith("-") else []
            continue
        yield from zip(gone, come, strict=False)
        gone, come = [number] if row.startswith("-") else [], []
