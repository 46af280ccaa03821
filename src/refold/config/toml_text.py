"""Finds the line of each key of a TOML text, and writes values as TOML.

The text must be valid TOML; this module does not check it. `toml_edit` changes a text.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, TypeAlias, cast

from refold.config.credentials import quote_toml

Names: TypeAlias = tuple[str, ...]

_BLANK_LINES = re.compile(r"(?:[ \t]*(?:#[^\n]*|\r)?\n)*[ \t]*")
_TABLE_START = re.compile(r"(\[\[?)[ \t]*")
_KEY_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEY_PATTERN = re.compile(rf"{_KEY_PART}(?:[ \t]*\.[ \t]*{_KEY_PART})*")
_EQUALS_SIGN = re.compile(r"[ \t]*=[ \t]*")
_REST_OF_LINE = re.compile(r"[^\n]*\n?")
# Tokens inside a value: a string, a bracket, a comment, the end of a line.
_VALUE_PIECE = re.compile(
    r"(?P<text>\"{3}(?:[^\\]|\\.)*?\"{3,5}|'{3}.*?'{3,5}|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')"
    r"|(?P<open>[\[{])|(?P<close>[\]}])|(?P<comment>#[^\n]*)|(?P<line>\n)"
    r"|[^\[\]{}\"'#\n]+",
    re.DOTALL,
)


def _statements(text: str) -> Iterator[tuple[Names, int]]:
    """Yield the path of each table and key, and its offset in the text.

    Stop at invalid TOML.
    """
    table: Names = ()  # the path of the table that began last
    index = _match_end(_BLANK_LINES, text, start=0)
    while index < len(text):
        table_start = _TABLE_START.match(text, index)
        key_start = table_start.end() if table_start else index
        key = _KEY_PATTERN.match(text, key_start)
        if key is None:
            return
        if table_start:
            path = table = _parse_key(key[0])
            end = key.end()
        else:
            path = (*table, *_parse_key(key[0]))
            value_start = _match_end(_EQUALS_SIGN, text, key.end())
            end = _value_end(text, value_start)
        yield path, index
        next_line = _match_end(_REST_OF_LINE, text, end)
        index = _match_end(_BLANK_LINES, text, next_line)


def lines_of(text: str) -> dict[Names, int]:
    """Return the number of the first line of each key and table, by its path."""
    lines: dict[Names, int] = {}
    line = 1
    counted_to = 0  # the offset up to which line ends were counted
    for path, start in _statements(text):
        line += text.count("\n", counted_to, start)
        counted_to = start
        for length in range(len(path), 0, -1):  # also the tables around it
            lines.setdefault(path[:length], line)
    return lines


def line_of(lines: dict[Names, int], path: Sequence[str]) -> int:
    """Return the line of the key at `path`, or of the table or value that contains it.

    Return 0 if the line is unknown.
    """
    for length in range(len(path), 0, -1):
        if line := lines.get(tuple(path[:length])):
            return line
    return 0


def _match_end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return match.end() if match else start


def _parse_key(key: str) -> Names:
    """Return the names in a key: `a."b.c"` has `a` and `b.c`."""
    inside: Any = tomllib.loads(f"{key} = 0")
    names = list[str]()
    while isinstance(inside, dict):
        ((name, inside),) = cast("dict[str, Any]", inside).items()
        names.append(name)
    return tuple(names)


def _value_end(text: str, index: int) -> int:
    """Return the index at which the value at `index` ends.

    It ends before the first line end or comment that is outside of brackets.
    """
    depth = 0
    while piece := _VALUE_PIECE.match(text, index):
        if not depth and piece.lastgroup in ("line", "comment"):
            break
        if piece.lastgroup == "open":
            depth += 1
        elif piece.lastgroup == "close":
            depth -= 1
        index = piece.end()
    return index


def as_toml(document: Mapping[str, Any]) -> str:
    return "\n".join(_table(document, ())) + "\n"


def _table(table: Mapping[str, Any], name: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of a table: its values first, then the tables in it.

    The header is left out if the table has no name, or contains only tables.
    """
    plain = {k: v for k, v in table.items() if not isinstance(v, dict)}
    if name and (plain or not table):
        yield f"[{'.'.join(map(name_in_toml, name))}]"
    for key, value in plain.items():
        yield f"{name_in_toml(key)} = {value_in_toml(value)}"
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _table(cast("dict[str, Any]", value), (*name, key))


def name_in_toml(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else quote_toml(key)


def value_in_toml(value: object) -> str:
    """Return the value as TOML, on one line."""
    match value:
        case str():
            return quote_toml(value)
        case bool():
            return str(value).lower()
        case datetime() | date() | time():
            return value.isoformat()
        case list() | tuple():
            values = map(value_in_toml, cast("list[object]", value))
            return "[" + ", ".join(values) + "]"
        case dict():
            items = cast("dict[str, object]", value).items()
            pairs = [f"{name_in_toml(name)} = {value_in_toml(v)}" for name, v in items]
            return "{" + ", ".join(pairs) + "}"
        case _:
            return repr(value)  # also of inf and nan
