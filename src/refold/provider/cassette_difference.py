"""Where a request is not as the recorded one: the first place, and both values. Pure."""

import json
from collections.abc import Iterator
from itertools import zip_longest
from typing import TypeAlias

from refold.provider.cassette_lines import Plain, RecordedRequest
from refold.provider.cassette_requests import PlainRequests
from refold.provider.port import Request
from refold.values.log import Log
from refold.values.messages import Spoken


def first_difference(
    recorded: RecordedRequest, asked: RecordedRequest, ignoring: frozenset[str]
) -> str | None:
    """Where `asked` is not as `recorded`, in the order of the fields; None: nowhere."""
    default = (
        PlainRequests().plain(Request(Log[Spoken]())).fields
    )  # for fields younger than it
    for name in Request.__struct_fields__:
        if name in ignoring or name == "trace":
            continue
        if name == "messages":
            if recorded.messages == asked.messages:
                continue
            there: Plain = list(recorded.messages)
            here: Plain = list(asked.messages)
        else:
            there = recorded.fields.get(name, default[name])
            here = asked.fields.get(name)
        if (found := _difference(name, there, here)) is not None:
            path, was, now = found
            return f"{path}: recorded {_shown(was, now)}, asked {_shown(now, was)}"
    return None


_Pair: TypeAlias = tuple[str, Plain, Plain]
_NOTHING = object()


def _difference(path: str, was: Plain, now: Plain) -> _Pair | None:
    match was, now:
        case dict(), dict():
            pairs = _of_fields(path, _fields(was), _fields(now))
        case list(), list():
            pairs = _of_items(path, _items(was), _items(now))
        case _:
            return None if was == now else (path, was, now)
    return next((found for pair in pairs if (found := _difference(*pair))), None)


def _of_fields(path: str, was: dict[str, Plain], now: dict[str, Plain]) -> Iterator[_Pair]:
    for name in {**was, **now}:
        where = f"{path}.{name}" if name.isidentifier() else f"{path}[{name!r}]"
        yield where, was.get(name, _NOTHING), now.get(name, _NOTHING)


def _of_items(path: str, was: list[Plain], now: list[Plain]) -> Iterator[_Pair]:
    for n, pair in enumerate(zip_longest(was, now, fillvalue=_NOTHING)):
        yield f"{path}[{n}]", *pair


def _fields(value: Plain) -> dict[str, Plain]:
    return value


def _items(value: Plain) -> list[Plain]:
    return value


def _shown(value: Plain, other: Plain) -> str:
    """`value`, cut to where it is not as `other`."""
    if value is _NOTHING:
        return "nothing"
    if not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return text if len(text) <= 60 else f"{text[:59]}…"
    differs = 0
    if isinstance(other, str):
        pairs = zip(value, other, strict=False)
        differs = next(
            (n for n, (a, b) in enumerate(pairs) if a != b), min(len(value), len(other))
        )
    start = max(differs - 20, 0)
    cut = value[start : differs + 40]
    before, after = "…" if start else "", "…" if differs + 40 < len(value) else ""
    return repr(f"{before}{cut}{after}")
