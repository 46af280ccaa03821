"""One setting in a text of TOML set or taken out; comments and order stay as they were.

Pure: a text in, a text out. What cannot be changed so is an error and changes nothing.
Which file it is, and whether the value fits, is `writing`'s business.
"""

import re
import tomllib
from collections.abc import Callable
from typing import Any, cast

from refold.config.statements import Names, Statement, statements
from refold.config.written import name_in_toml, value_in_toml
from refold.errors import BadInput

BY_HAND = "refold config edit opens it"
# Words at the top that belong to the whole file: a blank line, or nothing, follows.
_HEADER = re.compile(r"(?:[ \t]*#[^\n]*\n)+(?=[ \t]*\r?\n|\Z)")


def with_value(text: str, path: Names, value: object) -> str:
    """`text` where `path` is `value`. Raises `BadInput` where it takes a person."""
    wanted = _changed(tomllib.loads(text), path, lambda at, name: at.update({name: value}))
    found = [*statements(text)]
    if same := [each for each in found if each.kind == "key" and each.path == path]:
        after = _in_place(text, same[0], value)
    elif around := _around(found, path):
        after = _inside(text, around, path, wanted)
    else:
        after = _added(text, found, path, value)
    return _checked(after, wanted, path)


def without(text: str, path: Names) -> str:
    """`text` where `path` is not set. Raises `BadInput` where it takes a person."""
    wanted = _changed(tomllib.loads(text), path, lambda at, name: at.pop(name, None))
    found = [*statements(text)]
    same = [each for each in found if each.path == path and _alone(each, found)]
    if same:
        after = text[: same[0].start] + text[same[0].end :]
    elif around := _around(found, path):
        after = _inside(text, around, path, wanted)
    else:
        after = text
    return _checked(after, wanted, path, bare=True)


def _alone(there: Statement, found: list[Statement]) -> bool:
    """A setting, or a table with nothing in it."""
    return there.kind == "key" or not any(
        each is not there and each.path[: len(there.path)] == there.path for each in found
    )


def _in_place(text: str, there: Statement, value: object) -> str:
    start, end = there.value
    return text[:start] + value_in_toml(value) + text[end:]


def _around(found: list[Statement], path: Names) -> Statement | None:
    """The table in one line that the setting stands in."""
    keys = (each for each in found if each.kind == "key")
    return next((each for each in keys if each.path == path[: len(each.path)]), None)


def _inside(text: str, around: Statement, path: Names, wanted: dict[str, Any]) -> str:
    inner: Any = wanted
    for name in around.path:
        inner = inner[name]
    return _in_place(text, around, inner)


def _added(text: str, found: list[Statement], path: Names, value: object) -> str:
    # Behind the last setting of the nearest table there is, by its name there.
    for length in range(len(path) - 1, 0, -1):
        table = next(
            (
                i
                for i, s in enumerate(found)
                if s.kind == "table" and s.path == path[:length]
            ),
            None,
        )
        if table is not None:
            last = table
            while last + 1 < len(found) and found[last + 1].kind == "key":
                last += 1
            return _behind(text, found[last].end, path[length:], value)
    if len(path) > 1 and not _dotted_above(found, path):
        table = ".".join(map(name_in_toml, path[:-1]))
        end = _line_end(text)
        gap = "" if not text else end if text.endswith("\n") else end + end
        return f"{text}{gap}[{table}]{end}{_line(path[-1:], value, end)}"
    above = [each for each in found if each.kind == "key" and each.key == each.path]
    if above:
        return _behind(text, above[-1].end, path, value)
    header = _HEADER.match(text)
    return _behind(text, header.end() if header else 0, path, value)


def _dotted_above(found: list[Statement], path: Names) -> bool:
    """Are others of its table written at the top, as limits.steps = 3?"""
    return any(
        each.kind == "key" and len(each.key) > 1 and each.path[:-1] == path[:-1]
        for each in found
        if each.key == each.path
    )


def _behind(text: str, at: int, names: Names, value: object) -> str:
    before, end = text[:at], _line_end(text)
    gap = "" if not before or before.endswith("\n") else end
    return f"{before}{gap}{_line(names, value, end)}{text[at:]}"


def _line(names: Names, value: object, end: str) -> str:
    return f"{'.'.join(map(name_in_toml, names))} = {value_in_toml(value)}{end}"


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _changed(
    document: dict[str, Any], path: Names, change: Callable[[dict[str, Any], str], object]
) -> dict[str, Any]:
    inside = document
    for name in path[:-1]:
        inner = inside.setdefault(name, {})
        if not isinstance(inner, dict):
            raise BadInput(
                f"{'.'.join(path)} cannot be set there: {name} is no table; {BY_HAND}"
            )
        inside = cast("dict[str, Any]", inner)
    change(inside, path[-1])
    return document


def _checked(after: str, wanted: dict[str, Any], path: Names, *, bare: bool = False) -> str:
    """A change that means something else than was meant is no change."""
    try:
        found = tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        found = None
    if found is None or (_bare(found) != _bare(wanted) if bare else found != wanted):
        raise BadInput(
            f"{'.'.join(path)} is written there in a way that takes a person to change: "
            f"{BY_HAND}"
        )
    return after


def _bare(found: dict[str, Any]) -> dict[str, Any]:
    """Without tables that hold nothing."""
    inner = {
        k: _bare(cast("dict[str, Any]", v)) if isinstance(v, dict) else v
        for k, v in found.items()
    }
    return {key: value for key, value in inner.items() if value != {}}
