"""A cassette's file as values. Only a reader; `cassette_lines` says what stands there."""

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from refold.errors import BadInput, Overloaded, ProviderError, said_by
from refold.provider.cassette_lines import (
    DELTAS,
    ERRORS,
    VERSION,
    Calls,
    Plain,
    RecordedAnswer,
    RecordedRequest,
    nothing,
)
from refold.provider.named_file import read_whole
from refold.provider.port import CallDelta, Delta, ThinkingDelta
from refold.values.log import Log

_MOST = 256 * 1024 * 1024  # bytes: days of work


def read(file: Path) -> Calls:
    """All calls of a cassette. Raises `BadInput` that names the file and the line."""
    try:
        *lines, rest = read_whole(file, _MOST).split(b"\n")
    except OSError as error:
        raise BadInput(f"the cassette {file} cannot be read: {said_by(error)}") from error
    _check(file, lines)
    asked: dict[int, RecordedRequest] = {}
    answers: dict[int, RecordedAnswer] = {}
    for number, line in enumerate(lines[1:], start=2):
        try:
            found = json.loads(line)
            if "asked" in found:
                asked[found["asked"]] = _asked(found, number, asked)
            else:
                answers[found["answered"]] = _answered(found)
                at = found["answered"]
                asked[at] = replace(asked[at], answered_at=number)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise BadInput(
                f"the cassette {file}, line {number}, cannot be read "
                f"({type(error).__name__}: {error}): record it anew"
            ) from error
    ends = len(lines) + 1
    whole = (a if a.answered_at else replace(a, answered_at=ends) for a in asked.values())
    return Calls(tuple(whole), answers, ends if rest else 0)


def _check(file: Path, lines: list[bytes]) -> None:
    try:
        version = json.loads(lines[0])["cassette"]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise BadInput(
            f'{file} is no cassette: its first line should be {{"cassette": {VERSION}}}'
        ) from error
    if version != VERSION:
        raise BadInput(
            f"the cassette {file} is of version {version!r}, and this refold reads "
            f"version {VERSION}: record it anew"
        )


def _asked(
    found: dict[str, Plain], line: int, asked: Mapping[int, RecordedRequest]
) -> RecordedRequest:
    before = asked[found["as"]] if found["as"] else nothing()
    messages, same = before.messages, found["same"]
    if same < len(messages):
        messages = Log(messages[:same])
    for message in found["messages"]:
        messages = messages.plus(message)
    fields = {**before.fields, **found.get("request", {})}
    return RecordedRequest(fields, messages, found["asked"], line)


def _answered(found: dict[str, Plain]) -> RecordedAnswer:
    deltas = tuple(_delta(each) for each in found["deltas"])
    error = _error(found["error"]) if "error" in found else None
    return RecordedAnswer(found["answered"], deltas, error, found.get("stopped", False))


def _delta(found: dict[str, Plain]) -> Delta:
    kind, data = DELTAS[found["delta"]], found.get("data")
    fields = {k: v for k, v in found.items() if k not in ("delta", "data")}
    delta = msgspec.convert(fields, kind)
    if data is not None and isinstance(delta, ThinkingDelta | CallDelta):
        return replace(delta, data=Raw(data.encode("utf-8", "surrogateescape")))
    return delta


def _error(found: dict[str, Plain]) -> ProviderError:
    kind = ERRORS[found["kind"]]
    if kind is Overloaded:
        return Overloaded(found["words"], retry_after=found.get("retry_after"))
    return kind(found["words"])
