"""JSON as it is written in a file: where its parts stand, and how it is laid out.

For who changes one part and leaves every other letter as it is.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

_WHITE = " \t\r\n"


class Span(Struct, frozen=True):
    """A value stands at text[start:end]."""

    start: int
    end: int


class Layout(Struct, frozen=True):
    """`unit` is one step of indentation, None where all stands on one line."""

    unit: str | None
    plain: bool  # letters beyond ASCII stand as they are
    tight: bool  # no blank after "," and ":" on one line

    def text(self, value: Any, depth: int) -> str:
        """`value` as it would be written at this depth. The first line is not indented."""
        if self.unit is None:
            separators = (",", ":") if self.tight else (", ", ": ")
            return json.dumps(value, ensure_ascii=not self.plain, separators=separators)
        found = json.dumps(value, ensure_ascii=not self.plain, indent=self.unit)
        return found.replace("\n", f"\n{self.unit * depth}")


def members(text: str, start: int) -> Mapping[str, Span]:
    """The values of the object that begins at `start`, by their names."""
    found, at = dict[str, Span](), _white(text, start + 1)
    while text[at] != "}":
        key = _value(text, at)
        name, at = cast("str", json.loads(text[at : key.end])), key.end
        value = _value(text, _white(text, _white(text, at) + 1))
        found[name] = value
        at = _next(text, value.end)
    return found


def elements(text: str, start: int) -> list[Span]:
    """The values of the array that begins at `start`."""
    found, at = list[Span](), _white(text, start + 1)
    while text[at] != "]":
        found.append(_value(text, at))
        at = _next(text, found[-1].end)
    return found


def layout(text: str) -> Layout:
    """How an object is laid out, as its beginning shows."""
    top = _white(text, 0)
    before = text[top + 1 : _white(text, top + 1)]
    unit = before.rpartition("\n")[2] if "\n" in before else None
    plain = not (text.isascii() and "\\u" in text)
    return Layout(unit, plain, tight='": ' not in text)


def _value(text: str, at: int) -> Span:
    _, end = json.JSONDecoder().raw_decode(text, at)
    return Span(at, end)


def _next(text: str, at: int) -> int:
    at = _white(text, at)
    return _white(text, at + 1) if text[at] == "," else at


def _white(text: str, at: int) -> int:
    while at < len(text) and text[at] in _WHITE:
        at += 1
    return at
