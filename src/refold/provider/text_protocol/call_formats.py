"""Recognizes JSON that is a tool call, in the forms that models write.

Inside a tag for calls, any JSON with a name is a call; if the call is invalid, its result
reports that to the model. Without a tag, the JSON must be a call of an offered tool and nothing
else, because the user may have asked for JSON. A call without a tag may name an unknown tool
only in the exact form that the prompt asks for: such a call does nothing, and its result lists
the tools.
"""

import json
import re
from collections.abc import Mapping
from itertools import chain
from typing import Any, Literal, NoReturn, TypeAlias, cast

import msgspec
from msgspec import Struct

from refold.values.text import clean
from refold.values.tools import ToolSpec


class ParsedCall(Struct, frozen=True):
    """A call in a text. `arguments` is JSON, or the raw text if the model wrote no JSON.

    `unknown_tool` says that the call has no tag and its tool was not offered. `why` is the
    reason for not making the call, or ""; with a reason, `arguments` is never an object.
    """

    name: str
    arguments: str
    unknown_tool: bool = False
    why: str = ""


TEXT_WIRE = "text"  # the wire under which the reason why a call is not made is stored
# No tool has this name, so a model that repeats the example makes no call.
EXAMPLE_CALL = ParsedCall("TOOL", '{"ARGUMENT": "VALUE"}')


Tools: TypeAlias = Mapping[str, ToolSpec]
Object: TypeAlias = dict[str, Any]

_NAME_KEYS = ("name", "tool", "tool_name", "function", "function_name", "action")
_ARGUMENT_KEYS = (
    "arguments", "parameters", "input", "args", "params", "tool_input", "action_input",
)  # fmt: skip
# The call is inside of one of these.
_WRAPPER_KEYS = ("function", "function_call", "tool_call", "tool_calls")
_EXTRA_KEYS = frozenset({"id", "type", "call_id", "tool_call_id", "index"})
CALL_KEYS = frozenset({*_NAME_KEYS, *_ARGUMENT_KEYS, *_WRAPPER_KEYS, *_EXTRA_KEYS})

# The beginning of JSON that may distinguish a call from other JSON.
_OPENING_PATTERN = re.compile(r"[\[{\s]*")
_KEY_PATTERN = re.compile(r'\s*"([^"\\]*)"')
_TEXT_VALUE_PATTERN = re.compile(r'\s*:\s*"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SCALAR_PATTERN = re.compile(r'\s*:\s*(?:"(?:[^"\\]|\\.)*"|[\w.+-]+)\s*,', re.DOTALL)

_PLAIN_NAME_PATTERN = re.compile(r"[A-Za-z_][\w.-]{0,63}")
_NAME_PATTERN = re.compile(
    rf"""["'](?:{"|".join(_NAME_KEYS)})["']\s*:\s*["']([^"'\n]{{1,64}})["']"""
)
_ARGUMENTS_PATTERN = re.compile(rf"""["'](?:{"|".join(_ARGUMENT_KEYS)})["']\s*:\s*""")


def calls_in(text: str, tools: Tools, *, tagged: bool) -> tuple[ParsedCall, ...]:
    """Return the calls in a JSON text, or () if it contains anything that is not a call.

    `tagged` says that the text is inside a tag for calls.
    """
    try:
        return _to_calls(parse_json(text), tools, tagged)
    except (ValueError, RecursionError):
        return ()


def arguments_in(text: str) -> str:
    """Return arguments as strict JSON, or unchanged if they cannot be parsed."""
    try:
        return _to_json(parse_json(text))
    except (ValueError, RecursionError):
        return clean(text)


def broken_call(text: str) -> ParsedCall | None:
    """Return a call for broken JSON, or None if the text names no tool.

    The call cannot be run. Its result reports the broken JSON to the model.
    """
    name_match = _NAME_PATTERN.search(text)
    if name_match is None:
        return None
    arguments_match = _ARGUMENTS_PATTERN.search(text)
    raw = text[arguments_match.end() :] if arguments_match else text
    return ParsedCall(name_match[1], _never_valid(raw.strip()))


def to_unmade_call(call: ParsedCall, reason: str) -> ParsedCall:
    return ParsedCall(call.name, _never_valid(call.arguments), why=reason)


def _never_valid(arguments: str) -> str:
    """Encode arguments so that no reader, not even `values.json_repair`, gets an object."""
    return msgspec.json.encode(msgspec.json.encode(clean(arguments)).decode()).decode()


def call_with(name: str, values: Mapping[str, str], tools: Tools) -> ParsedCall:
    """Return a call with arguments that are given as texts.

    Each text is converted to the type in the tool's schema.
    """
    tool = tools.get(name)
    schema: Any = msgspec.json.decode(tool.parameters) if tool else {}
    properties: Object = schema.get("properties", {})
    arguments = Object()
    for key, text in values.items():
        is_text = _is_text(properties.get(key))
        arguments[key] = text if is_text else _json_or_text(text)
    return ParsedCall(name, _to_json(arguments))


def fits_a_tool(call: ParsedCall, tools: Tools) -> bool:
    """Whether a call is of an offered tool, with all required and no unknown arguments."""
    tool = tools.get(call.name)
    try:
        arguments: Any = parse_json(call.arguments)
        schema: Any = msgspec.json.decode(tool.parameters) if tool else None
    except ValueError:
        return False
    return _fits_schema(arguments, schema)


def may_be_call(head: str, tools: Tools, *, unknown_tools: bool) -> bool:
    """Whether JSON without a tag can be a call if it begins with `head`.

    `unknown_tools` says whether it may be a call of a tool that was not offered. If the result
    is False, it stays False for every longer `head`.
    """
    opening = _OPENING_PATTERN.match(head)
    first_key = opening.end() if opening else 0
    offset = first_key
    while key := _KEY_PATTERN.match(head, offset):
        name_match = None
        if key[1] in _NAME_KEYS:
            name_match = _TEXT_VALUE_PATTERN.match(head, key.end())
        if name_match and name_match[1].strip() in tools:
            return True
        if name_match and "\\" not in name_match[1]:
            # A call of an unknown tool must have exactly the form that the prompt asks for.
            is_first_key = offset == first_key
            if not unknown_tools or not is_first_key or key[1] != "name":
                return False
            if not _PLAIN_NAME_PATTERN.fullmatch(name_match[1].strip()):
                return False
            return _may_become(head[name_match.end() :], ',"arguments"')
        if key[1] not in CALL_KEYS:
            return False
        value = _SCALAR_PATTERN.match(head, key.end())
        if value is None:  # another kind of value, or incomplete; only the colon is certain
            return _may_become(head[key.end() :], ":")
        offset = value.end()
    # The next key is incomplete.
    return any(_may_become(head[offset:], f'"{key}"') for key in CALL_KEYS)


def is_example(call: ParsedCall) -> bool:
    return (call.name, call.arguments) == (EXAMPLE_CALL.name, EXAMPLE_CALL.arguments)


def _may_become(text: str, name: str) -> bool:
    """Whether `text` begins with `name` or `name` with `text`, ignoring white space."""
    written = "".join(text.split())
    return written.startswith(name) or name.startswith(written)


def _fits_schema(arguments: Any, schema: Any) -> bool:
    """Whether the arguments are an object with all required properties and no unknown ones."""
    match arguments, schema:
        case {}, {}:  # two objects; the pattern {} matches any object
            known: Object = schema.get("properties", {})
            return set(schema.get("required", ())) <= set(arguments) <= set(known)
        case _:
            return False


def _to_calls(value: Any, tools: Tools, tagged: bool) -> tuple[ParsedCall, ...]:
    """Return the calls in a list, in a wrapper or in an object; () if it has anything else."""
    match value:
        case [*items]:
            calls_by_item = [_to_calls(item, tools, tagged) for item in items]
            # If one item is not a call, the list is not one of calls.
            if () in calls_by_item:
                return ()
            return tuple(chain.from_iterable(calls_by_item))
        case {**fields}:
            for name in _WRAPPER_KEYS:
                inner = fields.get(name)
                if isinstance(inner, dict | list) and not _has_unknown_fields(
                    fields, {name}, tagged
                ):
                    return _to_calls(inner, tools, tagged)
            call = _to_call(cast("Object", fields), tools, tagged)
            return (call,) if call else ()
        case _:
            return ()


def _to_call(fields: Object, tools: Tools, tagged: bool) -> ParsedCall | None:
    """Return the call that a JSON object describes, or None if it describes none.

    If not `tagged`, the object must have no other fields and its arguments must be an object;
    for an unknown tool, it must have exactly the fields `name` and `arguments`.
    """
    name_key = next((k for k in _NAME_KEYS if isinstance(fields.get(k), str)), "")
    arguments_key = next((k for k in _ARGUMENT_KEYS if k in fields), "")
    name = fields[name_key].strip() if name_key else ""
    if not name:
        return None
    arguments = fields.get(arguments_key)
    if not arguments_key and name in tools:
        arguments = _sibling_arguments(fields, name_key, tools[name])
    if isinstance(arguments, str):
        arguments = _unpack(arguments)
    if not tagged:
        if not isinstance(arguments, dict):
            return None
        call_keys = {name_key, arguments_key}
        if arguments_key and _has_unknown_fields(fields, call_keys, tagged):
            return None
    unknown_tool = not tagged and name not in tools
    if unknown_tool:
        has_exact_keys = list(fields) == ["name", "arguments"]
        if not has_exact_keys or not _PLAIN_NAME_PATTERN.fullmatch(name):
            return None
    if arguments is None:
        arguments = {}
    return ParsedCall(clean(name), _to_json(arguments), unknown_tool)


def _sibling_arguments(fields: Object, name_key: str, tool: ToolSpec) -> Object | None:
    """Return the fields beside the name if they match the tool's schema, otherwise None.

    Some models write arguments there, instead of in an object.
    """
    arguments = {k: v for k, v in fields.items() if k != name_key}
    schema: Any = msgspec.json.decode(tool.parameters)
    return arguments if arguments and _fits_schema(arguments, schema) else None


def _has_unknown_fields(fields: Mapping[str, Any], names: set[str], tagged: bool) -> bool:
    return not tagged and not fields.keys() <= names | _EXTRA_KEYS


def _is_text(schema: Any) -> bool:
    """Whether the schema of a property says that it is text, or names no single type."""
    match schema:
        case {"type": str(kind)}:
            return kind == "string"
        case _:
            return True


def _json_or_text(text: str) -> Any:
    """Return the value if the text is JSON, and otherwise the text unchanged."""
    try:
        return parse_json(text.strip())
    except (ValueError, RecursionError):
        return text


def _unpack(text: str) -> Any:
    """Decode an object that was sent as a string of JSON. Return any other text unchanged."""
    try:
        value = parse_json(text)
    except (ValueError, RecursionError):
        return text
    return cast("Object", value) if isinstance(value, dict) else text


def _to_json(value: Any) -> str:
    return clean(json.dumps(value, ensure_ascii=False))


# Also matches the characters of numbers and of words such as true.
_STRUCTURE_PATTERN = re.compile(r"[\s,:\d.+\-eEtrufalsnTFNo]*")
_STRING_PATTERN = re.compile(r'[^"\\]*')
_CLOSING_BRACKETS = {"{": "}", "[": "]"}
# An unfinished string is skipped, too, or the search would try each of its quotes.
_MENDABLE_PATTERN = re.compile(
    r'("(?:[^"\\]|\\.)*(?:"|\\?\Z))|,(?=\s*[}\]])|\b(?:True|False|None)\b', re.DOTALL
)
_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}


class Scan:
    """Finds the end of a JSON value that arrives in pieces.

    `state` is "open" until the value is complete ("whole") or has an error ("wrong").
    """

    def __init__(self) -> None:
        self.state: Literal["open", "whole", "wrong"] = "open"
        self._awaited: list[str] = []
        self._in_string = self._escaped = False

    def feed(self, text: str, offset: int) -> int:
        """Continue at `offset`. Return the offset of an error, or after the last character."""
        while offset < len(text) and self.state == "open":
            offset = (
                self._scan_string(text, offset)
                if self._in_string
                else self._scan_structure(text, offset)
            )
        return offset

    def _scan_string(self, text: str, offset: int) -> int:
        """Continue inside a string. Return the offset after its end or after a backslash."""
        if self._escaped:
            self._escaped = False
            return offset + 1
        end = _end_of_match(_STRING_PATTERN, text, offset)
        if end == len(text):
            return end
        self._escaped = text[end] == "\\"
        self._in_string = self._escaped  # otherwise the character is the closing quote
        return end + 1

    def _scan_structure(self, text: str, offset: int) -> int:
        """Continue outside of strings. Return the offset after the next quote or bracket."""
        offset = _end_of_match(_STRUCTURE_PATTERN, text, offset)
        if offset == len(text):
            return offset
        match text[offset]:
            case '"':
                self._in_string = True
            case "{" | "[" as opening:
                self._awaited.append(_CLOSING_BRACKETS[opening])
            case closing if self._awaited and closing == self._awaited[-1]:
                self._awaited.pop()
                if not self._awaited:
                    self.state = "whole"
            case _:
                self.state = "wrong"
                return offset
        return offset + 1


def parse_json(text: str) -> Any:
    """Parse JSON that may have small errors. Raises `ValueError` if it is not JSON.

    Line breaks in strings, trailing commas and Python's True, False and None are accepted,
    because they can mean only one thing.
    """
    try:
        return _loads(text)
    except ValueError:
        return _loads(_MENDABLE_PATTERN.sub(_repair_match, text))


def _loads(text: str) -> Any:
    """Decode JSON that may have line breaks in strings. Raises `ValueError`, also for NaN."""
    try:
        return json.loads(text, strict=False, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _repair_match(match: re.Match[str]) -> str:
    """Return the correct JSON for a match: a string, a word of Python, or a trailing comma."""
    return match[1] or _JSON_WORDS.get(match[0], "")


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _end_of_match(pattern: re.Pattern[str], text: str, offset: int) -> int:
    match = pattern.match(text, offset)
    return match.end() if match else offset
