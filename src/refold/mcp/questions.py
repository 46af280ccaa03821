"""Puts what a server asks to the user, by the same questions that tools ask.

A form becomes one question for each of its fields, after one that says which server asks and
lets the user decline. What is no form of a few short fields is declined without a question. An address is shown, and never opened. A session that no user attends
declines. `connection` has the answer that goes back.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import mcp_types as types
import msgspec
from msgspec import Meta, Struct

from refold.errors import BadInput, ToolFailed
from refold.tools.contract import Context
from refold.values.text import escape_outside

_ANSWER, _DECLINE, _SKIP = "answer", "decline", "skip"
_DEFAULT = "default: "
_MOST_FIELDS, _MOST_OPTIONS = 12, 100
_LONGEST = 1_000  # characters of a message, a name or an option
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
        names = f" ({', '.join(map(escape_outside, fields))})" if fields else ""
        if await context.ask(f"{message}{names}", (_ANSWER, _DECLINE)) != _ANSWER:
            return declined()
        content = dict[str, Value]()
        for name, schema in fields.items():
            given = await _field(server, name, schema, context, needed=name in required)
            if given is not None:
                content[name] = given
    except (ToolFailed, BadInput):
        return declined()
    return types.ElicitResult(action="accept", content=content)


class _Field(Struct, frozen=True):
    """What is read of a field's schema. What else a server writes there means nothing here."""

    type: Any = ""
    title: str = ""
    description: str = ""
    enum: Annotated[tuple[str | int | float, ...], Meta(max_length=_MOST_OPTIONS)] = ()
    default: Value = None


class _Form(Struct, frozen=True):
    properties: Annotated[dict[str, _Field], Meta(max_length=_MOST_FIELDS)] = {}
    required: tuple[str, ...] = ()


def _fields(schema: object) -> tuple[Mapping[str, _Field], Sequence[str]]:
    """Raises `BadInput` for what is no form, or one that is too long to be filled in."""
    said: object = schema
    if not isinstance(schema, dict):
        dump: Any = schema
        said = dump.model_dump(by_alias=True, exclude_none=True)
    try:
        form = msgspec.convert(said, _Form)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadInput(f"this is not a form: {error}") from error
    texts = [*form.properties, *(str(o) for f in form.properties.values() for o in f.enum)]
    if any(len(text) > _LONGEST for text in texts):
        raise BadInput(f"a name or an option has more than {_LONGEST:,} characters")
    return form.properties, form.required


async def _field(
    server: str, name: str, field: _Field, context: Context, *, needed: bool
) -> Value:
    about = (field.description or field.title or name)[:_LONGEST]
    offered = {escape_outside(str(each)): str(each) for each in field.enum}
    if field.type == "boolean":
        offered = {"yes": "yes", "no": "no"}
    options, unchanged = tuple(offered), ""
    if field.default is not None:
        # As a whole: what is not shown is not sent.
        unchanged = f"{_DEFAULT}{escape_outside(str(field.default))}"
        if len(unchanged) > _LONGEST:
            raise BadInput(f"the default has more than {_LONGEST:,} characters")
        options = (unchanged, *options)
    question = f"{server}, {escape_outside(name)}: {escape_outside(about)}"
    answer = await context.ask(question, options if needed else (*options, _SKIP))
    if field.default is not None and answer in (unchanged, _SKIP):
        return field.default
    if not needed and answer == _SKIP:
        return None
    return _value(offered.get(answer, answer), field)


def _value(answer: str, field: _Field) -> Value:
    """The server checks what is no number."""
    try:
        match field.type:
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
