"""Which JSON is a tool call: the shapes that models write, and no others.

Inside a call tag anything with a name is a call; if it is wrong, its result tells the
model. Without a tag it must be a call of an offered tool and nothing else, because the
user may have asked for JSON. Only in the format that the prompt asks for may the tool be
unknown: running such a call does nothing, and its result lists the tools.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, NoReturn, TypeAlias, cast

import msgspec
from msgspec import Struct

from refold.values.text import clean
from refold.values.tools import ToolSpec


class ParsedCall(Struct, frozen=True):
    """`arguments` are JSON; the raw text if what was written is not JSON.

    `unknown_tool`: without a tag, and of a tool that was not offered. `why`: the reason
    why it is not made; then its arguments are never an object.
    """

    name: str
    arguments: str
    unknown_tool: bool = False
    why: str = ""


WIRE = "text"  # in a call that is not made, the data of this wire is the reason
# No tool has this name, so a model that repeats the example makes no call.
EXAMPLE = ParsedCall("TOOL", '{"ARGUMENT": "VALUE"}')


Tools: TypeAlias = Mapping[str, ToolSpec]
Object: TypeAlias = dict[str, Any]

_NAME = ("name", "tool", "tool_name", "function", "function_name", "action")
_ARGUMENTS = (
    "arguments", "parameters", "input", "args", "params", "tool_input", "action_input",
)  # fmt: skip
_AROUND = ("function", "function_call", "tool_call", "tool_calls")  # the call is inside
_BESIDE = frozenset({"id", "type", "call_id", "tool_call_id", "index"})
KEYS = frozenset({*_NAME, *_ARGUMENTS, *_AROUND, *_BESIDE})

# The beginning of JSON, as far as it tells a call from other JSON.
_OPENED = re.compile(r"[\[{\s]*")
_KEY = re.compile(r'\s*"([^"\\]*)"')
_TEXT = re.compile(r'\s*:\s*"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SCALAR = re.compile(r'\s*:\s*(?:"(?:[^"\\]|\\.)*"|[\w.+-]+)\s*,', re.DOTALL)

_PLAIN = re.compile(r"[A-Za-z_][\w.-]{0,63}")
_NAMED = re.compile(rf"""["'](?:{"|".join(_NAME)})["']\s*:\s*["']([^"'\n]{{1,64}})["']""")
_GIVEN = re.compile(rf"""["'](?:{"|".join(_ARGUMENTS)})["']\s*:\s*""")


def calls_in(text: str, tools: Tools, *, tagged: bool) -> tuple[ParsedCall, ...]:
    """The calls in a JSON value; none if one of them is no call."""
    try:
        return _calls(decoded(text), tools, tagged)
    except (ValueError, RecursionError):
        return ()


def arguments_in(text: str) -> str:
    """The arguments, as JSON if they parse."""
    try:
        return _written(decoded(text))
    except (ValueError, RecursionError):
        return clean(text)


def broken_call(text: str) -> ParsedCall | None:
    """A call whose JSON is broken: it cannot be run, but its result can tell the model."""
    named = _NAMED.search(text)
    if named is None:
        return None
    given = _GIVEN.search(text)
    raw = text[given.end() :] if given else text
    return ParsedCall(named[1], _never_valid(raw.strip()))


def unmade(call: ParsedCall, why: str) -> ParsedCall:
    return ParsedCall(call.name, _never_valid(call.arguments), why=why)


def _never_valid(arguments: str) -> str:
    """These can never be valid arguments. An object in a string may be decoded once: see
    `values.json_repair`.
    """
    return msgspec.json.encode(msgspec.json.encode(clean(arguments)).decode()).decode()


def call_with(name: str, given: Mapping[str, str], tools: Tools) -> ParsedCall:
    """A call whose arguments came as texts: each gets the type that the tool wants."""
    tool = tools.get(name)
    schema: Any = msgspec.json.decode(tool.parameters) if tool else {}
    wanted: Object = schema.get("properties", {})
    read = {k: v if _is_text(wanted.get(k)) else _read(v) for k, v in given.items()}
    return ParsedCall(name, _written(read))


def fits(call: ParsedCall, tools: Tools) -> bool:
    """Is it a call of an offered tool, with all required arguments and no unknown ones?"""
    tool = tools.get(call.name)
    try:
        given: Any = decoded(call.arguments)
        schema: Any = msgspec.json.decode(tool.parameters) if tool else None
    except ValueError:
        return False
    return _holds(given, schema)


def may_be_call(head: str, tools: Tools, *, unknown_tools: bool) -> bool:
    """May JSON without a tag that begins like this be a call?

    `unknown_tools`: may it be of a tool that was not offered? Once the answer is no, it
    stays no with more text.
    """
    opened = _OPENED.match(head)
    at = begin = opened.end() if opened else 0
    while key := _KEY.match(head, at):
        named = _TEXT.match(head, key.end()) if key[1] in _NAME else None
        if named and named[1].strip() in tools:
            return True
        if named and "\\" not in named[1]:
            may = unknown_tools and at == begin and key[1] == "name"
            may = may and bool(_PLAIN.fullmatch(named[1].strip()))
            return may and _agree(head[named.end() :], ',"arguments"')
        if key[1] not in KEYS:
            return False
        value = _SCALAR.match(head, key.end())
        if value is None:
            return _agree(head[key.end() :], ":")
        at = value.end()
    return any(_agree(head[at:], f'"{key}"') for key in KEYS)


def is_example(call: ParsedCall) -> bool:
    return (call.name, call.arguments) == (EXAMPLE.name, EXAMPLE.arguments)


def _agree(text: str, wanted: str) -> bool:
    """Does one begin with the other, apart from white space?"""
    written = "".join(text.split())
    return written.startswith(wanted) or wanted.startswith(written)


def _holds(given: Any, schema: Any) -> bool:
    """Is it an object with all required properties and no unknown ones?"""
    match given, schema:
        case {}, {}:
            known: Object = schema.get("properties", {})
            return set(schema.get("required", ())) <= set(given) <= set(known)
        case _:
            return False


def _calls(value: Any, tools: Tools, tagged: bool) -> tuple[ParsedCall, ...]:
    match value:
        case [*items]:
            found = [_calls(item, tools, tagged) for item in items]
            return tuple(c for calls in found for c in calls) if all(found) else ()
        case {**found}:
            for name in _AROUND:
                inner = found.get(name)
                if isinstance(inner, dict | list) and not _foreign(found, {name}, tagged):
                    return _calls(inner, tools, tagged)
            call = _call(cast("Object", found), tools, tagged)
            return (call,) if call else ()
        case _:
            return ()


def _call(found: Object, tools: Tools, tagged: bool) -> ParsedCall | None:
    named = next((k for k in _NAME if isinstance(found.get(k), str)), "")
    given = next((k for k in _ARGUMENTS if k in found), "")
    name = found.get(named, "").strip()
    if not name:
        return None
    arguments = found.get(given)
    if not given and name in tools:
        arguments = _beside(found, named, tools[name])
    if isinstance(arguments, str):
        arguments = _unpacked(arguments)
    unknown_tool = not tagged and name not in tools
    if not tagged:
        foreign = given and _foreign(found, {named, given}, tagged)
        if foreign or not isinstance(arguments, dict):
            return None
    if unknown_tool and not (
        list(found) == ["name", "arguments"] and _PLAIN.fullmatch(name)
    ):
        return None
    return ParsedCall(
        clean(name), _written({} if arguments is None else arguments), unknown_tool
    )


def _beside(found: Object, named: str, tool: ToolSpec) -> Object | None:
    """Arguments next to the name instead of in their own object."""
    given = {k: v for k, v in found.items() if k != named}
    schema: Any = msgspec.json.decode(tool.parameters)
    fit = (
        set(schema.get("required", ())) <= given.keys() <= set(schema.get("properties", ()))
    )
    return given if fit and given else None


def _foreign(found: Mapping[str, Any], known: set[str], tagged: bool) -> bool:
    return not tagged and not found.keys() <= known | _BESIDE


def _is_text(schema: Any) -> bool:
    match schema:
        case {"type": str(kind)}:
            return kind == "string"
        case _:
            return True


def _read(text: str) -> Any:
    try:
        return decoded(text.strip())
    except (ValueError, RecursionError):
        return text


def _unpacked(text: str) -> Any:
    """Arguments that came as a JSON string."""
    try:
        found = decoded(text)
    except (ValueError, RecursionError):
        return text
    return cast("Object", found) if isinstance(found, dict) else text


def _written(value: Any) -> str:
    return clean(json.dumps(value, ensure_ascii=False))


_STRUCTURE = re.compile(r"[\s,:\d.+\-eEtrufalsnTFNo]*")  # with what numbers and words have
_STRING = re.compile(r'[^"\\]*')
_CLOSES = {"{": "}", "[": "]"}
# An unfinished string is skipped, too, or each of its quotes would be tried.
_MENDED = re.compile(
    r'("(?:[^"\\]|\\.)*(?:"|\\?\Z))|,(?=\s*[}\]])|\b(?:True|False|None)\b', re.DOTALL
)
_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}


class Scan:
    """`state` is "open" until the value is "whole" or something is "wrong"."""

    def __init__(self) -> None:
        self.state: Literal["open", "whole", "wrong"] = "open"
        self._awaited: list[str] = []
        self._in_string = self._escaped = False

    def feed(self, text: str, at: int) -> int:
        """Continue at `at`; returns how far it came, at most to what is wrong."""
        while at < len(text) and self.state == "open":
            at = self._string(text, at) if self._in_string else self._structure(text, at)
        return at

    def _string(self, text: str, at: int) -> int:
        if self._escaped:
            self._escaped = False
            return at + 1
        at = _end(_STRING, text, at)
        if at < len(text):
            self._escaped = text[at] == "\\"
            self._in_string = self._escaped
            at += 1
        return at

    def _structure(self, text: str, at: int) -> int:
        at = _end(_STRUCTURE, text, at)
        if at == len(text):
            return at
        match text[at]:
            case '"':
                self._in_string = True
            case "{" | "[" as opening:
                self._awaited.append(_CLOSES[opening])
            case closing if self._awaited and closing == self._awaited[-1]:
                self._awaited.pop()
                if not self._awaited:
                    self.state = "whole"
            case _:
                self.state = "wrong"
                return at
        return at + 1


def decoded(text: str) -> Any:
    """The value. Raises `ValueError` if it is not JSON.

    Line breaks in strings, trailing commas and Python's True, False and None are
    accepted, because they can mean only one thing.
    """
    try:
        return _loads(text)
    except ValueError:
        return _loads(_MENDED.sub(_mended, text))


def _loads(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_constant=_refused)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _mended(found: re.Match[str]) -> str:
    return found[1] or _JSON_WORDS.get(found[0], "")


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
