"""Shows a diff in the colours of its language, with the changed words highlighted. Pure.

Removed and added lines are paired in order. If the lines of a pair have little in common, no
words are highlighted. On a wide screen, the lines of a pair are side by side.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, zip_longest

from refold.views.escape import visible
from refold.views.highlight import Highlighter, language_of
from refold.views.styled import Line, Piece, PieceStyle, Style, join_pieces, line
from refold.views.wrap import cells, expand_tabs
from refold.views.wrap_code import wrap_code

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
_TWO_COLUMN_WIDTHS = range(132, 2_000)
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
    if width not in _TWO_COLUMN_WIDTHS or not {"+", "-"} <= signs:
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

    The removed lines of a change are paired with its added lines. An unchanged line is on both
    sides. If the second item is None, the first is shown across both columns: it is a gap
    between hunks.
    """
    number_width = _number_width(rows)
    old_number = new_number = 0
    removed, added = list[Line](), list[Line]()  # the lines of the change at this place
    last_side = removed
    for index, (row, shown) in enumerate(zip(rows, _color_rows(rows, path), strict=True)):
        sign = row[:1]
        if sign == "-":
            removed.append((("dim", f"{old_number:>{number_width}} "), *shown))
            last_side = removed
            old_number += 1
            continue
        if sign == "+":
            added.append((("dim", f"{new_number:>{number_width}} "), *shown))
            last_side = added
            new_number += 1
            continue
        if sign == "\\":  # a note about the line before it
            last_side.append((("dim", " " * (number_width + 1)), *shown))
            continue
        yield from zip_longest(removed, added, fillvalue=())
        removed, added = list[Line](), list[Line]()
        if head := _HUNK_PATTERN.fullmatch(row):
            old_number, new_number = map(_first_line_number, head.group(1, 2))
            if index:  # lines between two hunks are left out
                yield line(f"{'…':>{number_width}}", "dim"), None
        elif sign == "@":
            yield shown, None
        else:
            old_line: Line = (("dim", f"{old_number:>{number_width}} "), *shown)
            new_line: Line = (("dim", f"{new_number:>{number_width}} "), *shown)
            yield old_line, new_line
            old_number += 1
            new_number += 1
    yield from zip_longest(removed, added, fillvalue=())


def diff_with_numbers(rows: Sequence[str], path: str = "") -> Iterator[Line]:
    """Yield the lines of a unified diff with line numbers, and without hunk headers.

    A removed line has its old number, every other line its new one.
    """
    number_width = _number_width(rows)
    old_number = new_number = 0
    for index, (row, shown) in enumerate(zip(rows, _color_rows(rows, path), strict=True)):
        if head := _HUNK_PATTERN.fullmatch(row):
            old_number, new_number = map(_first_line_number, head.group(1, 2))
            if index:  # lines between two hunks are left out
                yield line(f"{'…':>{number_width}}", "dim")
            continue
        label = ""
        match row[:1]:
            case "-":
                label = str(old_number)
                old_number += 1
            case "+":
                label = str(new_number)
                new_number += 1
            case " ":
                label = str(new_number)
                old_number += 1
                new_number += 1
            case _:  # a note about a line has no number
                pass
        yield (("dim", f"{label:>{number_width}} "), *shown)


def _number_width(rows: Sequence[str]) -> int:
    """Return the number of digits of the largest line number in a diff."""
    largest = 0
    for row in rows:
        if head := _HUNK_PATTERN.fullmatch(row):
            old_range, new_range = head.group(1, 2)
            last_numbers = (_last_line_number(old_range), _last_line_number(new_range))
            largest = max(largest, *last_numbers)
    return len(str(largest))


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
    changes = dict[int, Line]()  # lines with highlighted words, by their index
    for removed, added in islice(_pairs(rows), _MAX_PAIRS):
        if pair := highlight_changes(rows[removed][1:], rows[added][1:]):
            changes[removed], changes[added] = pair
    syntax = _Syntax(path)
    lines = list[Line]()
    for index, row in enumerate(rows):
        sign = row[:1]
        style = _SIGN_STYLES.get(sign, "dim")
        tokens = syntax.read(row) if index < _MAX_LEXED_ROWS else ()
        change = changes.get(index, ())
        if tokens or change:
            # Without tokens or without changes, the whole line is one piece.
            whole = line(row[1:], style)
            lines.append(((style, sign), *_merge(tokens or whole, change or whole, style)))
        else:
            lines.append(line(row, style))
    return lines


class _Syntax:
    """Highlights the lines of a diff in order. Old and new lines have separate lexer states."""

    def __init__(self, path: str) -> None:
        self._language = language_of(path) if path else ""
        self._old, self._new = Highlighter(self._language), Highlighter(self._language)

    def read(self, row: str) -> Sequence[Piece]:
        """Return the tokens of an old or a new line; () for other rows and for unknown languages.

        Each side of the diff has its own highlighter. Both read the unchanged lines, which are not
        coloured, and both restart at the next hunk.
        """
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
    edit_ends = _ends(edits)
    pieces = list[Piece]()
    position = 0
    for token_style, text in tokens:
        base_style = token_style if token_style in _LEXED_STYLES else side
        token_start = position
        token_end = token_start + len(text)
        # A token is divided where an edit ends.
        while position < token_end:
            edit_end, edit_style = next(edit for edit in edit_ends if edit[0] > position)
            part = text[position - token_start : edit_end - token_start]
            pieces.append((base_style if edit_style == side else edit_style, part))
            position += len(part)
    return join_pieces(pieces)


def _ends(pieces: Sequence[Piece]) -> list[tuple[int, PieceStyle]]:
    """Return the position at which each piece ends, and the style of the piece."""
    ends = list[tuple[int, PieceStyle]]()
    position = 0
    for style, text in pieces:
        position += len(text)
        ends.append((position, style))
    return ends


def highlight_changes(old: str, new: str) -> tuple[Line, Line] | None:
    """Return an old and a new line with the changes highlighted; None if they are not similar.

    Long lines are not compared, so the result is None, too.
    """
    old_words, new_words = _WORD_PATTERN.findall(old), _WORD_PATTERN.findall(new)
    if not old_words or not new_words:
        return None
    if max(len(old_words), len(new_words)) > _MAX_WORDS:
        return None
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(None, old_words, new_words, autojunk=False)
    same_chars = sum(
        len("".join(old_words[start : start + size]))
        for start, _, size in matcher.get_matching_blocks()
    )
    similarity = 2 * same_chars / (len(old) + len(new))
    if similarity < _MIN_SIMILARITY:
        return None
    old_pieces, new_pieces = list[Piece](), list[Piece]()
    for kind, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        removed = "".join(old_words[old_start:old_end])
        added = "".join(new_words[new_start:new_end])
        if removed:
            old_pieces.append(("gone" if kind == "equal" else "gone_word", removed))
        if added:
            new_pieces.append(("added" if kind == "equal" else "added_word", added))
    return tuple(old_pieces), tuple(new_pieces)


def _pairs(rows: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield pairs of indexes: of a removed line, and of the added line that replaces it.

    In a run of removed lines followed by added lines, the lines are paired in their order.
    """
    removed, added = list[int](), list[int]()
    for index, row in enumerate([*rows, " "]):  # the blank row ends the last run
        is_removed = row.startswith("-")
        if row.startswith("+"):
            added.append(index)
        elif is_removed and not added:
            removed.append(index)
        elif not row.startswith("\\"):  # a note about a line does not end a run
            yield from zip(removed, added, strict=False)
            removed = [index] if is_removed else list[int]()
            added = list[int]()
