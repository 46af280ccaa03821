"""Where each statement of a TOML text is: its table, its key, and its value.

To report the line of a setting, and to change one while the rest stays unchanged. The text
must be valid TOML: `tomllib` checks that.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from refold.config.credentials import quoted

Names: TypeAlias = tuple[str, ...]

_BLANK = re.compile(r"(?:[ \t]*(?:#[^\n]*|\r)?\n)*[ \t]*")
_HEAD = re.compile(r"(\[\[?)[ \t]*")
_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEY = re.compile(rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*")
_EQUALS = re.compile(r"[ \t]*=[ \t]*")
_REST = re.compile(r"[^\n]*\n?")
# Tokens inside a value: a string, a bracket, a comment, the end of a line.
_PIECE = re.compile(
    r"(?P<text>\"{3}(?:[^\\]|\\.)*?\"{3,5}|'{3}.*?'{3,5}|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')"
    r"|(?P<open>[\[{])|(?P<close>[\]}])|(?P<comment>#[^\n]*)|(?P<line>\n)"
    r"|[^\[\]{}\"'#\n]+",
    re.DOTALL,
)


class Statement(NamedTuple):
    """`path` is whole, with its table. Offsets are those of characters in the text."""

    kind: Literal["key", "table", "tables"]
    path: Names
    key: Names  # as it is written there, without the table
    line: int  # from 1
    start: int  # of its first line
    value: tuple[int, int]
    end: int  # behind the end of its last line


def statements(text: str) -> Iterator[Statement]:
    """All statements, in order. Ends early at invalid TOML."""
    at, table, lines = 0, cast("Names", ()), _Lines(text)
    while (at := _end(_BLANK, text, at)) < len(text):
        start = text.rfind("\n", 0, at) + 1
        if head := _HEAD.match(text, at):
            key = _KEY.match(text, head.end())
            if key is None:
                return
            table, end = _names(key[0]), _end(_REST, text, key.end())
            kind = "table" if head[1] == "[" else "tables"
            yield Statement(kind, table, table, lines.of(at), start, (end, end), end)
        else:
            key = _KEY.match(text, at)
            equals = _EQUALS.match(text, key.end()) if key else None
            if key is None or equals is None:
                return
            names, value = _names(key[0]), (equals.end(), _value_end(text, equals.end()))
            end = _end(_REST, text, value[1])
            yield Statement("key", (*table, *names), names, lines.of(at), start, value, end)
        at = end


def lines_of(text: str) -> dict[Names, int]:
    """The first line of each key and table."""
    found: dict[Names, int] = {}
    for each in statements(text):
        for length in range(len(each.path), 0, -1):
            found.setdefault(each.path[:length], each.line)
    return found


def line_of(lines: dict[Names, int], path: Sequence[str]) -> int:
    """The line of the key, or of the table or value that contains it; 0: unknown."""
    for length in range(len(path), 0, -1):
        if line := lines.get(tuple(path[:length])):
            return line
    return 0


class _Lines:
    """Line numbers of offsets that are asked for in order, in one pass."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._line = text, 0, 1

    def of(self, at: int) -> int:
        self._line += self._text.count("\n", self._at, at)
        self._at = at
        return self._line


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _names(key: str) -> Names:
    inside: Any = tomllib.loads(f"{key} = 0")
    names = list[str]()
    while isinstance(inside, dict):
        ((name, inside),) = cast("dict[str, Any]", inside).items()
        names.append(name)
    return tuple(names)


def _value_end(text: str, at: int) -> int:
    start, depth = at, 0
    while piece := _PIECE.match(text, at):
        if not depth and piece.lastgroup in ("line", "comment"):
            break
        depth += (piece.lastgroup == "open") - (piece.lastgroup == "close")
        at = piece.end()
    return start + len(text[start:at].rstrip(" \t\r"))


def as_toml(document: Mapping[str, Any]) -> str:
    return "\n".join(_table(document, ())) + "\n"


def _table(table: Mapping[str, Any], name: tuple[str, ...]) -> Iterator[str]:
    plain = {k: v for k, v in table.items() if not isinstance(v, dict)}
    if name and (plain or not table):
        yield f"[{'.'.join(map(name_in_toml, name))}]"
    for key, value in plain.items():
        yield f"{name_in_toml(key)} = {value_in_toml(value)}"
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _table(cast("dict[str, Any]", value), (*name, key))


def name_in_toml(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else quoted(key)


def value_in_toml(value: object) -> str:
    match value:
        case str():
            return quoted(value)
        case bool():
            return str(value).lower()
        case datetime() | date() | time():
            return value.isoformat()
        case list() | tuple():
            items = cast("list[object]", value)
            return f"[{', '.join(map(value_in_toml, items))}]"
        case dict():
            pairs = cast("dict[str, object]", value).items()
            return f"{{{', '.join(f'{name_in_toml(k)} = {value_in_toml(v)}' for k, v in pairs)}}}"
        case _:
            return repr(value)  # of numbers, inf and nan too
