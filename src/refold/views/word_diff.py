"""A diff that highlights the changed words within their lines. Pure.

Removed and added lines are paired in order. If two lines have little in common, nothing is
highlighted: all of it changed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from refold.views.escape import visible
from refold.views.styled import Line, Piece, Style, line
from refold.views.wrap import expand_tabs

_SIGN_STYLES: Mapping[str, Style] = {"+": "added", "-": "gone", "@": "hunk", "\\": "dim"}
_HUNK_PATTERN = re.compile(r"@@ -(\d+,\d+) \+(\d+,\d+) @@")
_WORD_PATTERN = re.compile(r"\w+|\s+|.")
_MIN_SIMILARITY = 0.5  # of two lines that count as one changed line
_MAX_WORDS = 200  # longer lines are not compared
_MAX_PAIRS = 400  # of one diff


def diff_lines(text: str) -> list[Line]:
    """The rows of a unified diff of any length."""
    return _color_rows(
        [expand_tabs(visible(row)) for row in text.split("\n")] if text else []
    )


def diff_with_numbers(rows: Sequence[str]) -> Iterator[Line]:
    """The rows of a unified diff with line numbers in place of the hunk headers.

    A removed line has its old number, every other line its new one.
    """
    heads = [_HUNK_PATTERN.fullmatch(row) for row in rows]
    last = max((max(map(_last, head.group(1, 2))) for head in heads if head), default=0)
    wide, old, new = len(str(last)), 0, 0
    for number, (row, shown) in enumerate(zip(rows, _color_rows(rows), strict=True)):
        if head := heads[number]:
            old, new = (int(part.split(",")[0]) for part in head.group(1, 2))
            if number:
                yield line(f"{'…':>{wide}}", "dim")
            continue
        sign = row[:1]
        counted = sign in ("+", "-", " ")
        label = str(old if sign == "-" else new) if counted else ""
        yield (("dim", f"{label:>{wide}} "), *shown)
        old += counted and sign != "+"
        new += counted and sign != "-"


def _last(lines: str) -> int:
    """The last line of the range "5,3", which has 3 lines from line 5."""
    first, count = map(int, lines.split(","))
    return first + count - 1


def _color_rows(rows: Sequence[str]) -> list[Line]:
    lines = [line(row, _SIGN_STYLES.get(row[:1], "dim")) for row in rows]
    for number, (gone, come) in enumerate(_pairs(rows)):
        if number >= _MAX_PAIRS:
            break
        if both := highlight_changes(rows[gone][1:], rows[come][1:]):
            lines[gone] = (("gone", "-"), *both[0])
            lines[come] = (("added", "+"), *both[1])
    return lines


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
    """Index pairs: a removed line and the added line that replaces it."""
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
