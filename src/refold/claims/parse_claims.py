"""Finds the claims in an answer: JSON objects with `evidence`, or with `claim` and `required`.

Models write evidence as an object, as a line of text "path:12-14: quote", or as a list of
these. Evidence that cannot be parsed is kept, but supports nothing.
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
_CALL_PATTERN = re.compile(r"(?:child-\d+/)*(?:call-|c)\d+(?:\.\d+)*")
_LINES_PATTERN = re.compile(r"[Ll]?(\d{1,7})(?:[-–—][Ll]?(\d{1,7}))?")
_JSON_START_PATTERN = re.compile(r"[{\[](?=\s{0,200}[\"{\[])")
_EVIDENCE_PATTERN = re.compile(r'"evidence"', re.IGNORECASE)
_MAX_JSON_STARTS = 500  # possible starts of JSON in one answer
_MAX_VALUES = 200_000  # searched in one answer
_MAX_LINE_DIGITS = 7  # as in `_LINES_PATTERN`
UNREADABLE_CLAIM = "(the answer speaks of evidence in a form that cannot be read)"


def claims_in_answer(answer: str) -> tuple[Claim, ...]:
    """Return the claims of an answer, in order.

    Text that looks like evidence but is not valid JSON adds one claim that cannot be read.
    """
    claims = list[Claim]()
    other_text = list[str]()
    for value in _find_json(answer, other_text):
        for item in _objects(value):
            if _is_claim(item):
                claims.append(_claim(item, len(claims) + 1))
    if _EVIDENCE_PATTERN.search("".join(other_text)):
        claims.append(Claim(UNREADABLE_CLAIM))
    return tuple(dict.fromkeys(claims))  # each once


def evidence_in(value: object) -> tuple[Evidence, ...]:
    """Return the evidence in a value of any accepted form; () for an empty value."""
    if value is None or value in ("", [], {}):
        return ()
    if isinstance(value, list):
        return tuple(_to_evidence(part) for part in cast("list[object]", value))
    return (_to_evidence(value),)


def _to_evidence(value: object) -> Evidence:
    """Return the evidence in a JSON value: a text or an object.

    Return empty evidence, which supports nothing, for any other value.
    """
    match value:
        case str():
            return _from_text(value)
        case dict():
            return _from_map(cast("Mapping[str, Any]", value))
        case _:
            return Evidence()  # kept, but supports nothing


def unquote(quote: str) -> str:
    """Return `quote` without the quotation marks at both ends, if it has them."""
    text = quote.strip()
    inner = text[1:-1]
    if not inner:
        return text
    for opening, closing in _QUOTATION_MARKS:
        is_quoted = text[0] == opening and text[-1] == closing
        # A mark inside may end a first quotation, as in `"a" or "b"`.
        if is_quoted and opening not in inner and closing not in inner:
            return inner.strip()
    return text


def _find_json(answer: str, other_text: list[str]) -> Iterator[object]:
    """Yield the answer if it is JSON, otherwise each JSON value in it.

    The text between the values is added to `other_text`.
    """
    try:
        yield msgspec.json.decode(answer)
        return
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        pass
    decoder = json.JSONDecoder()
    position = 0  # where the next value is searched
    value_end = 0  # of the last value
    for _ in range(_MAX_JSON_STARTS):
        match = _JSON_START_PATTERN.search(answer, position)
        if match is None:
            break
        position = match.end()
        try:
            value, position = decoder.raw_decode(answer, match.start())
        except (ValueError, RecursionError):  # not JSON
            continue
        other_text.append(answer[value_end : match.start()])
        value_end = position
        yield value
    other_text.append(answer[value_end:])


def _objects(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects in a value, outer ones before inner ones.

    Objects in a field "evidence" are left out: they are evidence and not claims. At most
    `_MAX_VALUES` values are visited, because a model may write any number. The function is not
    recursive, because the value may be deep.
    """
    to_visit = [value]
    visited = 0  # number of values
    while to_visit and visited < _MAX_VALUES:
        visited += 1
        current = to_visit.pop()
        match current:
            case dict():
                item = cast("dict[str, Any]", current)
                yield item
                # The last one that is added is visited first.
                to_visit += [
                    item[name] for name in reversed(item) if name.casefold() != "evidence"
                ]
            case list():
                to_visit += reversed(cast("list[object]", current))
            case _:
                pass


def _is_claim(item: Mapping[str, Any]) -> bool:
    """Whether the object has evidence, or a claim for which evidence is required."""
    if _get_ignoring_case(item, "evidence") is not None:
        return True
    has_text = isinstance(_get_ignoring_case(item, "claim"), str)
    return has_text and _as_flag(_get_ignoring_case(item, "required"))


def _claim(item: Mapping[str, Any], number: int) -> Claim:
    """Return the claim in a JSON object; without a label it is named "claim NUMBER"."""
    label = f"claim {number}"
    for name in _LABEL_NAMES:
        text = _get_ignoring_case(item, name)
        if isinstance(text, str) and text.strip():
            label = text
            break
    evidence = evidence_in(_get_ignoring_case(item, "evidence", default=""))
    return Claim(label, evidence, _as_flag(_get_ignoring_case(item, "required")))


def _get_ignoring_case(item: Mapping[str, Any], name: str, default: object = None) -> Any:
    """Return the value of the key `name`, in whatever case it is written, or else `default`.

    A null under exactly this key is returned as "".
    """
    if name in item:
        return item[name] if item[name] is not None else ""
    for key, value in item.items():
        if key.casefold() == name:
            return value
    return default


def _first_text(item: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the text of the first of the fields `names` that has one, or ""."""
    texts = (_as_text(_get_ignoring_case(item, name)) for name in names)
    return next(filter(None, texts), "")


def _from_map(item: Mapping[str, Any]) -> Evidence:
    """Return the evidence in an object, whose fields may have several names."""
    texts = {field: _first_text(item, names) for field, names in _FIELD_NAMES.items()}
    if not texts["lines"]:
        ends = (_first_text(item, _START_NAMES), _first_text(item, _END_NAMES))
        texts["lines"] = "-".join(filter(None, ends))
    if not texts["lines"]:
        texts["path"], texts["lines"] = _split_lines(texts["path"])
    changed = _get_ignoring_case(item, "changed") is True
    nothing = _get_ignoring_case(item, "nothing") is True
    return Evidence(**texts, changed=changed, nothing=nothing)


def _as_flag(value: object) -> bool:
    return value is True or str(value).strip().casefold() in ("true", "yes", "1")


def _as_text(value: object) -> str:
    """Return a text, a number or a pair of numbers ("12-14") as text; "" for other values."""
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
    """Parse evidence that is one line of text.

    Its forms are `path:12-14: quote`, `path: quote`, `path:12`, `call-3: quote` and `$ command:
    quote`.
    """
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
    if _CALL_PATTERN.fullmatch(name):
        return Evidence(call=name, quote=quote)
    path, lines = _split_lines(name)
    path = unquote(path)
    has_space = path != "".join(path.split())
    is_file_name = ("/" in path or "." in path) and not has_space
    if not is_file_name:
        return Evidence(quote=unquote(text))
    return Evidence(path=path, lines=lines, quote=quote)


def _split_lines(path: str) -> tuple[str, str]:
    """Split `src/a.py:12-14` or `src/a.py#L12` into the path and the lines."""
    for mark in ("#", ":"):
        front, separator, back = path.rpartition(mark)
        has_lines = separator and front and _LINES_PATTERN.fullmatch(back.strip())
        if not has_lines:
            continue
        # In "src/a.py:12:5", the last number is a column, which does not count.
        file, _, line = front.rpartition(":")
        is_line_number = line.isdecimal() and len(line) <= _MAX_LINE_DIGITS
        if mark == ":" and file and is_line_number:
            return file.strip(), line
        return front.strip(), back.strip()
    return path, ""
