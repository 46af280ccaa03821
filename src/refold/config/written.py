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
