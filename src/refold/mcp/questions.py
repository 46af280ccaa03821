"""Puts what a server asks to the user, by the same questions that tools ask.

A form becomes one question for each of its fields, after one that says which server asks and
lets the user decline. An address is shown, and never opened. A session that no user attends
declines. `connection` has the answer that goes back.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import mcp_types as types

from refold.errors import ToolFailed
from refold.tools.contract import Context
from refold.values.text import escape_outside

_ANSWER, _DECLINE, _SKIP = "answer", "decline", "skip"
_DEFAULT = "default: "
_MOST_FIELDS = 12
_LONGEST = 1_000  # characters of a message
_TRUE = frozenset(("yes", "true", "y", "1", "on"))

Value = str | int | float | bool | list[str] | None


def declined() -> types.ElicitResult:
    return types.ElicitResult(action="decline")


async def elicited(
    server: str, params: types.ElicitRequestParams, context: Context
) -> types.ElicitResult:
    """The user's answer. Runs where the session runs."""
    message = f"The MCP server {server} asks: {escape_outside(params.message[:_LONGEST])}"
    try:
        if isinstance(params, types.ElicitRequestURLParams):
            opened = f"{message}\nIt wants you to open {escape_outside(params.url[:_LONGEST])} in your browser"
            taken = await context.ask(opened, ("done", _DECLINE))
            return types.ElicitResult(action="accept") if taken == "done" else declined()
        fields, required = _fields(params.requested_schema)
        if len(fields) > _MOST_FIELDS:
            return declined()
        names = f" ({', '.join(map(escape_outside, fields))})" if fields else ""
        if await context.ask(f"{message}{names}", (_ANSWER, _DECLINE)) != _ANSWER:
            return declined()
        content = dict[str, Value]()
        for name, schema in fields.items():
            given = await _field(server, name, schema, context, needed=name in required)
            if given is not None:
                content[name] = given
    except ToolFailed:
        return declined()
    return types.ElicitResult(action="accept", content=content)


def _fields(schema: object) -> tuple[Mapping[str, Mapping[str, Any]], Sequence[str]]:
    said: object = schema
    if not isinstance(schema, dict):
        dump: Any = schema
        said = dump.model_dump(by_alias=True, exclude_none=True)
    found = cast("dict[str, Any]", said)
    return found.get("properties", {}), found.get("required", [])


async def _field(
    server: str, name: str, schema: Mapping[str, Any], context: Context, *, needed: bool
) -> Value:
    about = str(schema.get("description") or schema.get("title") or name)[:_LONGEST]
    options = tuple(str(each) for each in schema.get("enum", ()))
    if schema.get("type") == "boolean":
        options = ("yes", "no")
    default: Value = schema.get("default")
    unchanged = f"{_DEFAULT}{default}"[:_LONGEST]
    if default is not None:
        options = (unchanged, *options)
    question = f"{server}, {escape_outside(name)}: {escape_outside(about)}"
    answer = await context.ask(question, options if needed else (*options, _SKIP))
    if default is not None and answer in (unchanged, _SKIP):
        return default
    if not needed and answer == _SKIP:
        return None
    return _value(answer, schema)


def _value(answer: str, schema: Mapping[str, Any]) -> Value:
    """The server checks what is no number."""
    try:
        match schema.get("type"):
            case "boolean":
                return answer.strip().lower() in _TRUE
            case "integer":
                return int(answer)
            case "number":
                return float(answer)
            case "array":
                return [part.strip() for part in answer.split(",")]
            case _:
                return answer
    except ValueError:
        return answer
