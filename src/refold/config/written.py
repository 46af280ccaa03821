"""A document as TOML, for the files that refold writes itself. Comments are not kept.

What `tomllib` reads of the result is the document again.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from typing import Any, cast

from refold.config.credentials import quoted


def as_toml(document: Mapping[str, Any]) -> str:
    return "\n".join(_table(document, ())) + "\n"


def _table(table: Mapping[str, Any], name: tuple[str, ...]) -> Iterator[str]:
    plain = {k: v for k, v in table.items() if not isinstance(v, dict)}
    if name and (plain or not table):
        yield f"[{'.'.join(map(_name, name))}]"
    for key, value in plain.items():
        yield f"{_name(key)} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _table(cast("dict[str, Any]", value), (*name, key))


def _name(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else quoted(key)


def _value(value: object) -> str:
    match value:
        case str():
            return quoted(value)
        case bool():
            return str(value).lower()
        case datetime() | date() | time():
            return value.isoformat()
        case list() | tuple():
            items = cast("list[object]", value)
            return f"[{', '.join(map(_value, items))}]"
        case dict():
            pairs = cast("dict[str, object]", value).items()
            return f"{{{', '.join(f'{_name(k)} = {_value(v)}' for k, v in pairs)}}}"
        case _:
            return repr(value)  # of numbers, inf and nan too
