"""What a patch asks for, file by file, out of the text that a model wrote.

Two formats are read: sections between `*** Begin Patch` and `*** End Patch`, and
unified diffs (`unified`). What is asked is only read here; finding the places in the
files is `hunks`' business, changing them `apply_patch`'s.
"""

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from refold.errors import ToolFailed

BEGIN, END = "*** Begin Patch", "*** End Patch"
_ADD, _UPDATE, _DELETE = "*** Add File:", "*** Update File:", "*** Delete File:"
_MOVE, _END_OF_FILE = "*** Move to:", "*** End of File"
_KINDS: tuple[tuple[Literal["add", "update", "delete"], str], ...] = (
    ("add", _ADD),
    ("update", _UPDATE),
    ("delete", _DELETE),
)
_NUMBERS = r"-\d+(?:,\d+)? \+\d+(?:,\d+)? @@"

Row: TypeAlias = tuple[str, str]  # " ", "+" or "-", and the line without it


class Hunk(Struct, frozen=True):
    """Lines that stay, go and come. `line` is where in the patch it begins, from 1.

    `headers` are lines that stand somewhere before it, the outermost first; `at` is the
    line number it claims, or 0. `final` says how the last line ends from now on: with a
    line end or not; None for as before.
    """

    line: int
    rows: tuple[Row, ...]
    headers: tuple[str, ...] = ()
    at: int = 0
    at_end: bool = False
    final: bool | None = None

    @property
    def old(self) -> list[str]:
        return [text for sign, text in self.rows if sign != "+"]


class Section(Struct, frozen=True):
    """What becomes of one file. `content` is that of a new one."""

    kind: Literal["add", "update", "delete"]
    path: str
    moved_to: str = ""
    hunks: tuple[Hunk, ...] = ()
    content: str = ""
    executable: bool | None = None


def read_patch(patch: str) -> tuple[Section, ...]:
    """Raises `ToolFailed` for what cannot be read to its end."""
    lines = patch.replace("\r\n", "\n").split("\n")
    starts = [at for at, line in enumerate(lines) if line.rstrip() == BEGIN]
    if starts:
        found = _marked(lines, starts[0] + 1)
    else:
        from refold.tools.unified import unified

        found = unified(lines)
    if not found:
        raise ToolFailed(
            f"The patch names no file. Write it between {BEGIN} and {END}, with "
            f"{_UPDATE} PATH, {_ADD} PATH or {_DELETE} PATH; or write a unified diff."
        )
    return found


def without_blank_end(rows: Sequence[Row], blanks: int) -> tuple[Row, ...]:
    """`rows` without the last lines, up to `blanks`, that are empty and only stay."""
    many = len(rows)
    while blanks and many and rows[many - 1] == (" ", ""):
        many, blanks = many - 1, blanks - 1
    return tuple(rows[:many])


def unclear(line: int, text: str, why: str) -> ToolFailed:
    return ToolFailed(f"Line {line} of the patch, {text[:80]!r}, {why}")


def _marked(lines: Sequence[str], at: int) -> tuple[Section, ...]:
    found = list[Section]()
    while at < len(lines):
        line = lines[at].strip()
        if line == END:
            return tuple(found)
        if not line:
            at += 1
            continue
        start = at
        at = _next_marker(lines, at + 1)
        found.append(_section(lines, start, at))
    raise ToolFailed(f"The patch has no {END}: it was cut off. Write it again, whole.")


def _next_marker(lines: Sequence[str], at: int) -> int:
    """Where this section ends: no line of a file stands there without a sign before it."""
    inner = (_MOVE, _END_OF_FILE)
    while at < len(lines) and (
        not lines[at].startswith("*** ") or lines[at].startswith(inner)
    ):
        at += 1
    return at


def _section(lines: Sequence[str], start: int, end: int) -> Section:
    line = lines[start]
    kind, path = _opened(start + 1, line)
    body = [(number, lines[number - 1]) for number in range(start + 2, end + 1)]
    if kind == "add":
        return Section("add", path, content=_added(body))
    if kind == "delete":
        for number, text in body:
            if text.strip():
                raise unclear(number, text, "stands after a deleted file.")
        return Section("delete", path)
    moved = body[0][1].removeprefix(_MOVE).strip() if body and _moves(body[0][1]) else ""
    hunks = _hunks(body[1:] if moved else body)
    if not hunks and not moved:
        raise unclear(start + 1, line, "is followed by no change.")
    return Section("update", path, moved, hunks)


def _opened(number: int, line: str) -> tuple[Literal["add", "update", "delete"], str]:
    for kind, marker in _KINDS:
        if line.startswith(marker):
            if path := line.removeprefix(marker).strip():
                return kind, path
            raise unclear(number, line, "names no file.")
    raise unclear(number, line, f"is neither {_UPDATE} nor {_ADD} nor {_DELETE} nor {END}.")


def _moves(line: str) -> bool:
    return line.startswith(_MOVE) and bool(line.removeprefix(_MOVE).strip())


def _added(body: Sequence[tuple[int, str]]) -> str:
    while body and not body[-1][1]:
        body = body[:-1]
    for number, text in body:
        if text and not text.startswith("+"):
            raise unclear(number, text, "must begin with +: every line of a new file does.")
    return "".join(f"{text[1:]}\n" for _, text in body)


def _hunks(body: Sequence[tuple[int, str]]) -> tuple[Hunk, ...]:
    found, headers, rows = list[Hunk](), list[str](), list[Row]()
    begun = blanks = 0

    def close(*, at_end: bool = False) -> None:
        nonlocal begun, blanks
        if rows or at_end:
            kept = tuple(rows) if at_end else without_blank_end(rows, blanks)
            if kept:
                found.append(Hunk(begun, kept, tuple(headers), at_end=at_end))
                headers.clear()
        rows.clear()
        begun, blanks = begun if headers else 0, 0

    for number, line in body:
        if line.startswith("@@"):
            close()
            begun = begun or number
            if header := _header(line):
                headers.append(header)
        elif line.startswith(_END_OF_FILE):
            close(at_end=True)
        elif not line.startswith("\\"):  # "\ No newline at end of file": kept anyway
            begun = begun or number
            rows.append(_row(number, line))
            blanks = 0 if line else blanks + 1
    close()
    if headers:
        raise ToolFailed(
            f"The hunk at line {begun} of the patch, {headers[0][:80]!r}, has no lines: "
            "after @@ come lines that begin with a space, + or -."
        )
    return tuple(found)


def _header(line: str) -> str:
    text = line[2:].strip()
    return re.sub(f"^{_NUMBERS}", "", text).strip() if re.match(_NUMBERS, text) else text


def _row(number: int, line: str) -> Row:
    if line and line[0] not in " +-":
        raise unclear(number, line, "must begin with a space, + or -.")
    return (line[:1] or " ", line[1:])
