"""Finds the claims in an answer: JSON objects with `evidence`, or with a required `claim`.

Evidence comes as models write it: a map, a line of text "path:12-14: quote", or a list of
those. Evidence that cannot be parsed is kept as evidence that supports nothing.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from refold.values.claims import Claim, Evidence

_LABEL_NAMES = (
    "claim", "description", "name", "title", "risk", "statement", "finding", "summary", "text",
)  # fmt: skip
_FIELD_NAMES: Mapping[str, Sequence[str]] = {
    "path": ("path", "file", "filename", "file_path", "location", "source"),
    "lines": ("lines", "line", "line_range", "range", "line_number", "line_numbers"),
    "quote": ("quote", "snippet", "excerpt", "quoted", "text", "content", "output"),
    "call": ("call", "call_id", "command", "cmd", "tool_call"),
}
_START_NAMES = ("line_start", "start_line", "start", "first")
_END_NAMES = ("line_end", "end_line", "end", "last")
_QUOTATION_MARKS = ('""', "''", "``", "“”", "‘’", "«»")
_A_CALL = re.compile(r"(?:child-\d+/)*(?:call-|c)\d+(?:\.\d+)*")
_LINES_PATTERN = re.compile(r"[Ll]?(\d{1,7})(?:[-–—][Ll]?(\d{1,7}))?")
_JSON_START_PATTERN = re.compile(r"[{\[](?=\s{0,200}[\"{\[])")
_EVIDENCE_PATTERN = re.compile(r'"evidence"', re.IGNORECASE)
_MOST_BLOCKS = 500  # starts of JSON in one answer
_MAX_VALUES = 200_000  # searched in one answer
UNREADABLE_CLAIM = "(the answer speaks of evidence in a form that cannot be read)"


def claims_in_answer(answer: str) -> tuple[Claim, ...]:
    """The claims of an answer, in their order."""
    claims, rest = list[Claim](), list[str]()
    for value in _find_json(answer, rest):
        for item in _objects(value):
            if _is_claim(item):
                claims.append(_claim(item, len(claims) + 1))
    unread = (Claim(UNREADABLE_CLAIM),) if _EVIDENCE_PATTERN.search("".join(rest)) else ()
    return tuple(dict.fromkeys((*claims, *unread)))


def evidence_in(value: object) -> tuple[Evidence, ...]:
    """The evidence of a claim, in any of its forms."""
    if value is None or value in ("", [], {}):
        return ()
    if isinstance(value, list):
        return tuple(_to_evidence(part) for part in cast("list[object]", value))
    return (_to_evidence(value),)


def _to_evidence(value: object) -> Evidence:
    match value:
        case str():
            return _from_text(value)
        case dict():
            return _from_map(cast("Mapping[str, Any]", value))
        case _:
            return Evidence()  # kept, but supports nothing


def unquote(quote: str) -> str:
    """`quote` without the quotation marks around all of it."""
    text = quote.strip()
    for first, last in _QUOTATION_MARKS:
        inner = text[1:-1]
        if inner and text[0] == first and text[-1] == last and not {first, last} & {*inner}:
            return inner.strip()
    return text


def _find_json(answer: str, lines: list[str]) -> Iterator[object]:
    """The answer, if it is JSON; otherwise all JSON in it. `lines` gets what is not JSON."""
    try:
        yield msgspec.json.decode(answer)
        return
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        pass
    decoder, position, read = json.JSONDecoder(), 0, 0
    for _ in range(_MOST_BLOCKS):
        begins = _JSON_START_PATTERN.search(answer, position)
        if begins is None:
            break
        position = begins.end()
        try:
            value, position = decoder.raw_decode(answer, begins.start())
        except (ValueError, RecursionError):  # not JSON
            continue
        lines.append(answer[read : begins.start()])
        read = position
        yield value
    lines.append(answer[read:])


def _objects(value: object) -> Iterator[Mapping[str, Any]]:
    """All objects in a value, outer ones first. Not recursive: the value may be deep."""
    left, looked_at = [value], 0
    while left and looked_at < _MAX_VALUES:
        looked_at += 1
        value = left.pop()
        match value:
            case dict():
                item = cast("dict[str, Any]", value)
                yield item
                left += [
                    item[name] for name in reversed(item) if name.casefold() != "evidence"
                ]
            case list():
                left += reversed(cast("list[object]", value))
            case _:
                pass


def _is_claim(item: Mapping[str, Any]) -> bool:
    """Whether the object has evidence, or is a claim that requires it."""
    return _get_ignoring_case(item, "evidence") is not None or (
        isinstance(_get_ignoring_case(item, "claim"), str)
        and _as_flag(_get_ignoring_case(item, "required"))
    )


def _claim(item: Mapping[str, Any], number: int) -> Claim:
    texts = (_get_ignoring_case(item, name) for name in _LABEL_NAMES)
    label = next((t for t in texts if isinstance(t, str) and t.strip()), f"claim {number}")
    required = _as_flag(_get_ignoring_case(item, "required"))
    return Claim(label, evidence_in(_get_ignoring_case(item, "evidence", "")), required)


def _get_ignoring_case(item: Mapping[str, Any], name: str, default: object = None) -> Any:
    if name in item:
        return item[name] if item[name] is not None else ""
    return next((v for k, v in item.items() if k.casefold() == name), default)


def _from_map(item: Mapping[str, Any]) -> Evidence:
    texts = {
        field: next((t for n in names if (t := _as_text(_get_ignoring_case(item, n)))), "")
        for field, names in _FIELD_NAMES.items()
    }
    if not texts["lines"]:
        ends = [
            next((t for n in ns if (t := _as_text(_get_ignoring_case(item, n)))), "")
            for ns in (_START_NAMES, _END_NAMES)
        ]
        texts["lines"] = "-".join(filter(None, ends))
    if not texts["lines"]:
        texts["path"], texts["lines"] = _split_lines(texts["path"])
    changed, nothing = (
        _get_ignoring_case(item, "changed") is True,
        _get_ignoring_case(item, "nothing") is True,
    )
    return Evidence(**texts, changed=changed, nothing=nothing)


def _as_flag(value: object) -> bool:
    return value is True or str(value).strip().casefold() in ("true", "yes", "1")


def _as_text(value: object) -> str:
    match value:
        case str():
            return value.strip()
        case bool():
            return ""
        case int():
            return str(value)
        case [int() as first]:
            return str(first)
        case [int() as first, int() as last]:
            return f"{first}-{last}"
        case _:
            return ""


def _from_text(text: str) -> Evidence:
    """`path:12-14: quote`, `path: quote`, `path:12`, `call-3: quote` or `$ command: quote`."""
    text = text.strip()
    head, colon, rest = text.partition(": ")
    if not colon:
        head, colon, rest = text.partition(":\n")
    if not colon and text.endswith(":"):
        head = text[:-1]
    quote = unquote(rest)
    if head.startswith("$ "):
        return Evidence(call=head[2:].strip(), quote=quote)
    name = unquote(head)
    if _A_CALL.fullmatch(name):
        return Evidence(call=name, quote=quote)
    path, lines = _split_lines(name)
    path = unquote(path)
    if not ("/" in path or "." in path) or path != "".join(path.split()):
        return Evidence(quote=unquote(text))  # not a file name
    return Evidence(path=path, lines=lines, quote=quote)


def _split_lines(path: str) -> tuple[str, str]:
    """`src/a.py:12-14` or `src/a.py#L12` as the path and the lines."""
    for mark in ("#", ":"):
        front, separator, back = path.rpartition(mark)
        if separator and front and _LINES_PATTERN.fullmatch(back.strip()):
            first = front.rpartition(":")  # a column follows the line: only the line counts
            if mark == ":" and first[0] and first[2].isdecimal() and len(first[2]) < 8:
                return first[0].strip(), first[2]
            return front.strip(), back.strip()
    return path, ""
