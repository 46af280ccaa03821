"""Which JSON is a call: the shapes that models write calls in, and no others.

Where a tag says that it is a call, anything with a name is one, and what is
wrong with it the seam will tell the model. Without a tag it has to be a call of
an offered tool and nothing else: a person may have asked for JSON. Only in the
very words that we ask for calls in may it be of a tool that there is not: to run
that does no harm, and its maker is told which there are.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Struct

from refold.provider.text_protocol.scan import decoded
from refold.values.clean import clean
from refold.values.tools import ToolSpec


class ParsedCall(Struct, frozen=True):
    """`arguments` are JSON; a text where what was written was none.

    `strange`: without a tag, and of a tool that there is not. `why`: it is not to be
    made, and what was wrong with it; then its arguments are never an object.
    """

    name: str
    arguments: str
    strange: bool = False
    why: str = ""


WIRE = "text"  # whose `data`, in a call that is not made, is the reason
# No tool has this name, lest whoever repeats what it was told has made a call.
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

# How JSON begins, as far as that tells a call from what is none.
_OPENED = re.compile(r"[\[{\s]*")
_KEY = re.compile(r'\s*"([^"\\]*)"')
_TEXT = re.compile(r'\s*:\s*"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SCALAR = re.compile(r'\s*:\s*(?:"(?:[^"\\]|\\.)*"|[\w.+-]+)\s*,', re.DOTALL)

_PLAIN = re.compile(r"[A-Za-z_][\w.-]{0,63}")
_NAMED = re.compile(rf"""["'](?:{"|".join(_NAME)})["']\s*:\s*["']([^"'\n]{{1,64}})["']""")
_GIVEN = re.compile(rf"""["'](?:{"|".join(_ARGUMENTS)})["']\s*:\s*""")


def calls_in(text: str, tools: Tools, *, tagged: bool) -> tuple[ParsedCall, ...]:
    """The calls that a JSON value stands for. None of them, if one is no call."""
    try:
        return _calls(decoded(text), tools, tagged)
    except (ValueError, RecursionError):
        return ()


def arguments_in(text: str) -> str:
    """What was written as arguments, as JSON if it can be read."""
    try:
        return _written(decoded(text))
    except (ValueError, RecursionError):
        return clean(text)


def broken_call(text: str) -> ParsedCall | None:
    """A call whose JSON is broken, so that its maker can be told. It cannot be run."""
    named = _NAMED.search(text)
    if named is None:
        return None
    given = _GIVEN.search(text)
    raw = text[given.end() :] if given else text
    # As a JSON text it could never be arguments: not even by chance is it run.
    return ParsedCall(named[1], msgspec.json.encode(clean(raw.strip())).decode())


def unmade(call: ParsedCall, why: str) -> ParsedCall:
    # As a JSON text it could never be arguments: not even by chance is it run.
    said = msgspec.json.encode(clean(call.arguments)).decode()
    return ParsedCall(call.name, said, why=why)


def call_with(name: str, given: Mapping[str, str], tools: Tools) -> ParsedCall:
    """A call whose arguments came as texts: each is read as what the tool wants."""
    tool = tools.get(name)
    schema: Any = msgspec.json.decode(tool.parameters) if tool else {}
    wanted: Object = schema.get("properties", {})
    read = {k: v if _is_text(wanted.get(k)) else _read(v) for k, v in given.items()}
    return ParsedCall(name, _written(read))


def fits(call: ParsedCall, tools: Tools) -> bool:
    """Is it a call of an offered tool, with what it needs and nothing unknown?"""
    tool = tools.get(call.name)
    try:
        given: Any = decoded(call.arguments)
        schema: Any = msgspec.json.decode(tool.parameters) if tool else None
    except ValueError:
        return False
    return _holds(given, schema)


def may_be_call(head: str, tools: Tools, *, strange: bool) -> bool:
    """May JSON without a tag that begins so be a call, or is it clear that it is none?

    `strange`: it may be of a tool that there is not. What is clear stays clear,
    however it goes on.
    """
    opened = _OPENED.match(head)
    at = begin = opened.end() if opened else 0
    while key := _KEY.match(head, at):
        named = _TEXT.match(head, key.end()) if key[1] in _NAME else None
        if named and named[1].strip() in tools:
            return True
        if named and "\\" not in named[1]:
            may = strange and at == begin and key[1] == "name"
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
    """Does the one begin with the other, blanks aside?"""
    written = "".join(text.split())
    return written.startswith(wanted) or wanted.startswith(written)


def _holds(given: Any, schema: Any) -> bool:
    """Is it an object with what is needed, and nothing unknown?"""
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
    strange = not tagged and name not in tools
    if not tagged:
        foreign = given and _foreign(found, {named, given}, tagged)
        if foreign or not isinstance(arguments, dict):
            return None
    if strange and not (list(found) == ["name", "arguments"] and _PLAIN.fullmatch(name)):
        return None
    return ParsedCall(
        clean(name), _written({} if arguments is None else arguments), strange
    )


def _beside(found: Object, named: str, tool: ToolSpec) -> Object | None:
    """Arguments that stand beside the name and not in an object of their own."""
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
    """Arguments that came as a string of JSON."""
    try:
        found = decoded(text)
    except (ValueError, RecursionError):
        return text
    return cast("Object", found) if isinstance(found, dict) else text


def _written(value: Any) -> str:
    return clean(json.dumps(value, ensure_ascii=False))
