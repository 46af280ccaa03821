"""Puts a server's questions to the user: a form to fill in, or an address to open.

The schema of the form is read here, leniently and within limits; a field of an unknown kind
is dropped unless it is required. An answer is checked against the same form, or the
question is put again. No address is opened here. `connection` sends the answer back.
"""

from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import mcp_types as types
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.errors import BadInput, ToolFailed
from refold.mcp.channel import Elicitation
from refold.tools.contract import Context
from refold.values.display import AskedQuestion, FieldKind, Form, FormField, FormOption
from refold.values.forms import (
    BOUND_KEYS,
    FORMAT_HINTS,
    check_value,
    host_of,
    parse_answer,
)
from refold.values.text import escape_outside

_MAX_FIELDS, _MAX_OPTIONS = 100, 500
_MAX_CHARS = 1_000  # of a message, a name, an option or an address
_MAX_TRIES = 5  # invalid answers, before the question counts as cancelled
_FIELD_KINDS: Mapping[str, FieldKind] = {
    "string": "text", "integer": "integer", "number": "number", "boolean": "boolean",
}  # fmt: skip


class Asked(Struct, frozen=True):
    """The answer for the server. `unasked` says why the user was not asked; "" if they
    were.
    """

    result: types.ElicitResult
    unasked: str = ""


def cancel_result() -> types.ElicitResult:
    return types.ElicitResult(action="cancel")


async def ask(elicitation: Elicitation, context: Context) -> Asked:
    """Put the question to the user. Runs in the session's thread.

    A page is accepted by its server, too: the question is withdrawn when the page is done.
    """
    params, done = elicitation.params, elicitation.page_done
    form, question = (
        read_form(elicitation.server, params),
        describe_question(elicitation.server, params),
    )
    if done is None:
        return await _ask_form(form, question, context, params)
    asked = Asked(cancel_result())
    async with anyio.create_task_group() as group:
        group.start_soon(_withdraw_when, done, context)
        asked = await _ask_form(form, question, context, params)
        if elicitation.finish and asked.result.action == "accept" and not done.is_set():
            form = Form(elicitation.server, _PAGE_DONE_QUESTION)
            asked = await _ask_form(form, _PAGE_DONE_QUESTION, context, params)
        if done.is_set():
            asked = Asked(types.ElicitResult(action="accept"))
        done.set()  # the thread must end
    return asked


async def _withdraw_when(end: Event, context: Context) -> None:
    await anyio.to_thread.run_sync(end.wait, abandon_on_cancel=True)
    await context.withdraw()


async def _ask_form(
    form: Form, question: str, context: Context, params: types.ElicitRequestParams
) -> Asked:
    for _ in range(_MAX_TRIES):
        try:
            text = await context.put(AskedQuestion(question, form=form))
        except ToolFailed as error:
            return Asked(cancel_result(), str(error))
        try:
            answer = parse_answer(form, "" if text == _NO_ANSWER else text)
        except ValueError as error:  # a client that does not check what is typed
            context.progress(f"{error}\n")
            continue
        if answer.action != "accept" or isinstance(params, types.ElicitRequestURLParams):
            return Asked(types.ElicitResult(action=answer.action))
        content = {
            name: _typed_choice(params, name, v) for name, v in answer.content.items()
        }
        return Asked(types.ElicitResult(action="accept", content=content))
    return Asked(cancel_result(), f"{_MAX_TRIES} answers did not fit the form")


_PAGE_DONE_QUESTION = "Is the page done? The tool is called again then."
_NO_ANSWER = "(no answer)"  # as `ask_user` says it


def describe_question(server: str, params: types.ElicitRequestParams) -> str:
    """Describe the question, for a client that shows no forms, and for a notice."""
    message = escape_outside(params.message[:_MAX_CHARS])
    if isinstance(params, types.ElicitRequestURLParams):
        url = escape_outside(params.url[:_MAX_CHARS])
        return f"The MCP server {server} asks you to open {url}: {message}"
    names = map(escape_outside, _properties(params.requested_schema))
    fields = ", ".join(names)[:_MAX_CHARS]
    return f"The MCP server {server} asks: {message}{f' ({fields})' if fields else ''}"


def read_form(server: str, params: types.ElicitRequestParams) -> Form:
    """Return the question as shown to the user: all text of the server is escaped."""
    message = escape_outside(params.message[:_MAX_CHARS])
    if isinstance(params, types.ElicitRequestURLParams):
        return _read_address(Form(server, message), params.url)
    schema = _to_dict(params.requested_schema)
    properties = _properties(schema)
    required = schema.get("required")
    needed = cast("list[object]", required) if isinstance(required, list) else []
    if len(properties) > _MAX_FIELDS:
        problem = f"it has {len(properties):,} fields, at most {_MAX_FIELDS} are shown"
        return Form(server, message, problem=problem)
    fields = list[FormField]()
    for name, value in properties.items():
        try:
            field = _read_field(name, _to_dict(value))
        except BadInput as error:
            if name not in needed:
                continue
            problem = f"the field {escape_outside(name[:_MAX_CHARS])!r} {error}"
            return Form(server, message, problem=problem)
        fields.append(replace(field, required=name in needed))
    return Form(server, message, tuple(fields))


def _read_address(form: Form, url: str) -> Form:
    if len(url) > _MAX_CHARS:
        problem = f"its address has more than {_MAX_CHARS:,} characters"
        return replace(form, problem=problem)
    shown = replace(form, url=escape_outside(url))
    try:
        web = urlsplit(url).scheme in ("http", "https")
    except ValueError:
        web = False
    if not web or not host_of(shown) or shown.url != url:
        reason = f"{shown.url!r} is not an http or https address"
        return replace(form, problem=reason)
    return shown


def _properties(schema: object) -> dict[str, Any]:
    return _to_dict(_to_dict(schema).get("properties"))


def _to_dict(value: object) -> dict[str, Any]:
    """Return a part of a schema as a dict; the SDK may have made a model of it."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    dump: Any = getattr(value, "model_dump", None)
    return dump(by_alias=True, exclude_none=True) if dump is not None else {}


def _read_field(name: str, part: Mapping[str, Any]) -> FormField:
    """Read a field. Raises `BadInput`, in words that follow the name of the field."""
    kind, options = _read_kind(part)
    if len(name) > _MAX_CHARS or escape_outside(name) != name:
        raise BadInput("has a name that cannot be shown")
    if kind is None:
        raise BadInput(f"is of the type {str(part.get('type'))[:100]!r}, which no form has")
    low, high = (_number(part.get(key)) for key in BOUND_KEYS.get(kind, ("", "")))
    format_ = _text(part.get("format"))
    field = FormField(
        name,
        kind,
        title=_text(part.get("title")),
        about=_text(part.get("description")),
        options=options,
        format=format_ if kind == "text" and format_ in FORMAT_HINTS else "",
        low=low,
        high=high,
    )
    return replace(field, default=_default(field, part.get("default")))


def _read_kind(part: Mapping[str, Any]) -> tuple[FieldKind | None, tuple[FormOption, ...]]:
    if part.get("type") == "array":
        return "choices", _read_options(_to_dict(part.get("items")))
    if any(key in part for key in ("enum", "oneOf", "anyOf")):
        return "choice", _read_options(part)
    return _FIELD_KINDS.get(str(part.get("type"))), ()


def _read_options(part: Mapping[str, Any]) -> tuple[FormOption, ...]:
    """Read options from `enum`, with or without `enumNames`, or from `oneOf` or `anyOf`."""
    titled = part.get("oneOf") or part.get("anyOf")
    if isinstance(titled, list):
        entries = [_to_dict(entry) for entry in cast("list[object]", titled)]
        pairs = [(entry.get("const"), entry.get("title")) for entry in entries]
    else:
        values, names = part.get("enum"), part.get("enumNames")
        listed = cast("list[object]", values) if isinstance(values, list) else []
        titles = cast("list[object]", names) if isinstance(names, list) else []
        pairs = [(v, titles[n] if n < len(titles) else "") for n, v in enumerate(listed)]
    options = [FormOption(str(v), _text(title)) for v, title in pairs if _is_value(v)]
    if not options:
        raise BadInput("has nothing to choose from")
    if len(options) > _MAX_OPTIONS:
        raise BadInput(f"has {len(options):,} choices, at most {_MAX_OPTIONS} are shown")
    if any(escape_outside(entry.value) != entry.value for entry in options):
        raise BadInput("has a choice that cannot be shown")
    return tuple(options)


def _is_value(value: object) -> bool:
    text = isinstance(value, str) and len(value) <= _MAX_CHARS
    return text or (isinstance(value, int | float) and not isinstance(value, bool))


def _typed_choice(params: types.ElicitRequestFormParams, name: str, value: Any) -> Any:
    """Return the choice with the schema's type: some servers offer numbers."""
    values = _to_dict(_properties(params.requested_schema).get(name)).get("enum")
    listed: Sequence[object] = (
        cast("list[object]", values) if isinstance(values, list) else ()
    )
    return next((item for item in listed if str(item) == value), value)


def _default(field: FormField, value: object) -> Any:
    """Return a default if it is valid and can be shown completely."""
    if field.kind == "choice" and _is_value(value):
        value = str(value)
    try:
        default = msgspec.convert(value, str | int | float | bool | list[str])
        check_value(field, default)
    except ValueError:  # of msgspec, too
        return None
    return default if escape_outside(str(default)) == str(default) else None


def _text(value: object) -> str:
    return escape_outside(value[:_MAX_CHARS]) if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)
