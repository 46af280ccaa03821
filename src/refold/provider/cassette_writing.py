"""The lines of a cassette as bytes, to be written. Pure; `cassette` has the file."""

import json
from collections.abc import Iterable

from msgspec.structs import replace

from refold.errors import Overloaded
from refold.provider.cassette_lines import DELTAS, ERRORS, Plain, RecordedAnswer
from refold.provider.cassette_requests import Mask, fields_of, masked, unmasked
from refold.provider.port import CallDelta, Delta, TextDelta, ThinkingDelta


def line_of(value: dict[str, Plain]) -> bytes:
    """One line, with its end."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return written.encode() + b"\n"
    except UnicodeEncodeError:  # half a character; escaped it can be written
        return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def answer_to_line(answer: RecordedAnswer, mask: Mask = unmasked) -> bytes:
    """The line of an answer. Deltas are joined first, so that the mask sees whole texts."""
    deltas = [
        {"delta": _kind_of(delta), **fields_of(delta, mask)}
        for delta in joined(answer.deltas)
    ]
    line: dict[str, Plain] = {"answered": answer.number, "deltas": deltas}
    if (error := answer.error) is not None:
        kind = next(name for name, kind in ERRORS.items() if isinstance(error, kind))
        told = {"kind": kind, "words": masked(str(error), mask)}
        wait = error.retry_after if isinstance(error, Overloaded) else None
        line["error"] = told if wait is None else {**told, "retry_after": wait}
    return line_of({**line, "stopped": True} if answer.stopped else line)


def joined(deltas: Iterable[Delta]) -> tuple[Delta, ...]:
    """Neighbours that mean the same as one are one. The order stays."""
    found: list[Delta] = []
    for delta in deltas:
        one = _as_one(found[-1], delta) if found else None
        if one is None:
            found.append(delta)
        else:
            found[-1] = one
    return tuple(found)


def _kind_of(delta: Delta) -> str:
    return next(name for name, kind in DELTAS.items() if type(delta) is kind)


def _as_one(first: Delta, second: Delta) -> Delta | None:
    match first, second:
        case TextDelta(before), TextDelta(after):
            return TextDelta(before + after)
        case ThinkingDelta(before, wire, data), ThinkingDelta(after) if not (
            bytes(data) or wire
        ):
            return replace(second, text=before + after)
        case CallDelta(index, before, _, _, "", data), CallDelta(
            again, after, "", "", "", more
        ) if index == again and not bytes(data) and not bytes(more):
            return replace(first, arguments=before + after)
        case _:
            return None
