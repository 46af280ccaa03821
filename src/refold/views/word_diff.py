"""Shows a diff in the colours of its language, with the changed words highlighted. Pure.

Removed and added lines are paired in order. If the lines of a pair have little in common, no
words are highlighted. On a wide screen, the lines of a pair are side by side.
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
_MAX_PAIRS = 400  # pairs of lines of one diff that are compared
_MAX_LEXED_ROWS = 500  # of one diff; in later rows only the sign is coloured
# Token kinds that keep their colour in a changed line; others have the colour of its sign.
_LEXED_STYLES: frozenset[Style] = frozenset(
    {"keyword", "number", "comment", "name", "builtin"}
)
# Old and new lines are side by side if the width is in this range. A terminal of 140 cells
# has this width; text for a file has a greater one.
_COLUMNS_ROOM = range(132, 2_000)
_COLUMN_BORDER: Piece = ("border", " │ ")


def diff_rows(text: str) -> list[str]:
    """Return the lines of a unified diff, with tabs expanded and control characters escaped."""
    return [expand_tabs(visible(row)) for row in text.split("\n")] if text else []


def diff_lines(text: str, path: str = "") -> list[Line]:
    """Return the lines of a unified diff, styled. The name `path` decides the language."""
    return _color_rows(diff_rows(text), path)


def numbered_diff(rows: Sequence[str], path: str, width: int) -> list[Line]:
    """Return a unified diff with line numbers, in two columns if the screen is wide enough."""
    columns = diff_in_columns(rows, path, width)
    if columns:
        return columns
    return [part for row in diff_with_numbers(rows, path) for part in wrap_code(row, width)]


def diff_in_columns(rows: Sequence[str], path: str, width: int) -> list[Line]:
    """Return a diff with the old lines at the left, the new ones at the right, and line
    numbers.

    Return [] if the screen is too narrow for two columns, or if one side has no lines.
    """
    signs = {row[:1] for row in rows}
    if width not in _COLUMNS_ROOM or not {"+", "-"} <= signs:
        return []
    half = (width - cells(_COLUMN_BORDER[1])) // 2
    result = list[Line]()
    for old, new in _sides(rows, path):
        if new is None:  # one line for both sides
            result += wrap_code(old, width)
            continue
        for left, right in zip_longest(
            wrap_code(old, half), wrap_code(new, half), fillvalue=()
        ):
            blank = " " * (half - sum(cells(text) for _, text in left))
            result.append((*left, ("plain", blank), _COLUMN_BORDER, *right))
    return result


def _sides(rows: Sequence[str], path: str) -> Iterator[tuple[Line, Line | None]]:
    """Yield pairs of an old line and a new line; () stands for no line.

    If the second item is None, the first is shown across both columns: it is a gap between
    hunks.
    """
    width, old, new = _number_width(rows), 0, 0
    gone, come = list[Line](), list[Line]()
    last = gone
    for number, (row, shown) in enumerate(zip(rows, _color_rows(rows, path), strict=True)):
        match row[:1]:
            case "-":
                last = gone
                gone.append((("dim", f"{old:>{width}} "), *shown))
                old += 1
                continue
            case "+":
                last = come
                come.append((("dim", f"{new:>{width}} "), *shown))
                new += 1
                continue
            case "\\":  # a note about the line before it
                last.append((("dim", " " * (width + 1)), *shown))
                continue
            case sign:
                yield from zip_longest(gone, come, fillvalue=())
                gone, come = list[Line](), list[Line]()
        if head := _HUNK_PATTERN.fullmatch(row):
            old, new = map(_first_line_number, head.group(1, 2))
            if number:  # lines between two hunks are left out
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
    """Yield the lines of a unified diff with line numbers, and without hunk headers.

    A removed line has its old number, every other line its new one.
    """
    width, old, new = _number_width(rows), 0, 0
    for number, (row, shown) in enumerate(zip(rows, _color_rows(rows, path), strict=True)):
        if head := _HUNK_PATTERN.fullmatch(row):
            old, new = map(_first_line_number, head.group(1, 2))
            if number:  # lines between two hunks are left out
                yield line(f"{'…':>{width}}", "dim")
            continue
        sign = row[:1]
        counted = sign in ("+", "-", " ")
        label = str(old if sign == "-" else new) if counted else ""
        yield (("dim", f"{label:>{width}} "), *shown)
        if sign in ("-", " "):
            old += 1
        if sign in ("+", " "):
            new += 1


def _number_width(rows: Sequence[str]) -> int:
    """Return the number of digits of the largest line number in a diff."""
    heads = map(_HUNK_PATTERN.fullmatch, rows)
    last = max(
        (max(map(_last_line_number, head.group(1, 2))) for head in heads if head), default=0
    )
    return len(str(last))


def _first_line_number(lines: str) -> int:
    return int(lines.split(",")[0])


def _last_line_number(lines: str) -> int:
    """Return the last line number of a range in a hunk header: 7 for "5,3" (3 lines from line
    5).
    """
    first, count = map(int, lines.split(","))
    return first + count - 1


def _color_rows(rows: Sequence[str], path: str) -> list[Line]:
    """Return the lines with the colours of the language of `path`, and changed words
    highlighted.
    """
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
    """Highlights the lines of a diff in order. Old and new lines have separate lexer states."""

    def __init__(self, path: str) -> None:
        self._language = language_of(path) if path else ""
        self._old, self._new = Highlighter(self._language), Highlighter(self._language)

    def read(self, row: str) -> Sequence[Piece]:
        """Return the tokens of a row's code; () for other rows and for unknown languages."""
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
    """Return one line with the colours of `tokens` and the highlighted words of `edits`.

    `side` is the style of words that have not changed.
    """
    pieces, place, ends = list[Piece](), 0, _ends(edits)
    for style, text in tokens:
        base = style if style in _LEXED_STYLES else side
        begin, end = place, place + len(text)
        while place < end:
            edit_end, edit_style = next(pair for pair in ends if pair[0] > place)
            part = text[place - begin : edit_end - begin]
            pieces.append((base if edit_style == side else edit_style, part))
            place += len(part)
    return join_pieces(pieces)


def _ends(pieces: Sequence[Piece]) -> list[tuple[int, PieceStyle]]:
    """Return the position at which each piece ends, and the style of the piece."""
    ends, place = list[tuple[int, PieceStyle]](), 0
    for style, text in pieces:
        place += len(text)
        ends.append((place, style))
    return ends


def highlight_changes(old: str, new: str) -> tuple[Line, Line] | None:
    """Return an old and a new line with the changes highlighted; None if they are not similar."""
    before, after = _WORD_PATTERN.findall(old), _WORD_PATTERN.findall(new)
    if not before or not after or max(len(before), len(after)) > _MAX_WORDS:
        return None
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(None, before, after, autojunk=False)
    same_chars = sum(
        len("".join(before[start : start + size]))
        for start, _, size in matcher.get_matching_blocks()
    )
    if same_chars * 2 < _MIN_SIMILARITY * (len(old) + len(new)):
        return None
    gone, come = list[Piece](), list[Piece]()
    for kind, start, end, new_start, new_end in matcher.get_opcodes():
        removed, added = "".join(before[start:end]), "".join(after[new_start:new_end])
        if removed:
            gone.append(("gone" if kind == "equal" else "gone_word", removed))
        if added:
            come.append(("added" if kind == "equal" else "added_word", added))
    return tuple(gone), tuple(come)


def _pairs(rows: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield pairs of indexes: of a removed line, and of the added line that replaces it."""
    gone, come = list[int](), list[int]()
    for number, row in enumerate([*rows, " "]):  # the blank row ends the last pairs
        is_removed = row.startswith("-")
        if row.startswith("+"):
            come.append(number)
        elif is_removed and not come:
            gone.append(number)
        elif not row.startswith("\\"):
            yield from zip(gone, come, strict=False)
            gone, come = [number] if is_removed else [], []
