"""Asks the user a server's questions: a form to fill in, or a page to open.

The schema of a form is parsed leniently and within limits; a field of an unknown kind is
dropped unless it is required. An answer is checked against the form; if it is invalid, the
question is asked again. This module opens no page. `connection` sends the answer to the server.

A form with all its fields is one question, and its answer is one JSON text, so events, orders
and journals need no second kind of question. Separate questions for the fields could not be
checked together. If the user declines, the server gets "decline"; if the time is over, the user
left the question, or there is no user, it gets "cancel", as the protocol defines.
"""

from collections.abc import Mapping
from itertools import zip_longest
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
_MAX_TRIES = 5  # invalid answers after which the question counts as cancelled
_FIELD_KINDS: Mapping[str, FieldKind] = {
    "string": "text", "integer": "integer", "number": "number", "boolean": "boolean",
}  # fmt: skip


class Asked(Struct, frozen=True):
    """The answer for the server.

    `problem` says why there is no valid answer of the user, or is "".
    """

    result: types.ElicitResult
    problem: str = ""


def cancel_result() -> types.ElicitResult:
    return types.ElicitResult(action="cancel")


async def ask(elicitation: Elicitation, context: Context) -> Asked:
    """Ask the user a question of a server, and return the answer. Runs in the session's thread.

    If the question is a page, and the server reports that the user has finished the page, the
    question is withdrawn.
    """
    params, finished = elicitation.params, elicitation.page_finished
    form = read_form(elicitation.server, params)
    question = describe_question(elicitation.server, params)
    if finished is None:
        return await _ask_form(form, question, context, params)
    asked = Asked(cancel_result())
    async with anyio.create_task_group() as group:
        group.start_soon(_withdraw_when, finished, context)
        asked = await _ask_form(form, question, context, params)
        is_open = asked.result.action == "accept" and not finished.is_set()
        if elicitation.wait_for_page and is_open:
            done_form = Form(elicitation.server, _PAGE_DONE_QUESTION)
            asked = await _ask_form(done_form, _PAGE_DONE_QUESTION, context, params)
        if finished.is_set():
            asked = Asked(types.ElicitResult(action="accept"))
        finished.set()  # ends the thread that waits for it
    return asked


async def _withdraw_when(finished: Event, context: Context) -> None:
    """Wait until `finished` is set, and then withdraw the user's open question."""
    await anyio.to_thread.run_sync(finished.wait, abandon_on_cancel=True)
    await context.withdraw()


async def _ask_form(
    form: Form, question: str, context: Context, params: types.ElicitRequestParams
) -> Asked:
    """Ask until the answer fits the form. After `_MAX_TRIES` wrong answers, return "cancel".

    If `params` is a page to open, the form has no fields, and the answer has no content.
    """
    for _ in range(_MAX_TRIES):
        try:
            text = await context.put(AskedQuestion(question, form=form))
        except ToolFailed as error:
            return Asked(cancel_result(), problem=str(error))
        try:
            typed_text = "" if text == _NO_ANSWER else text
            answer = parse_answer(form, typed_text)
        except ValueError as error:  # the client did not check the typed text
            context.progress(f"{error}\n")
            continue
        if answer.action != "accept" or isinstance(params, types.ElicitRequestURLParams):
            return Asked(types.ElicitResult(action=answer.action))
        content = {
            name: _restore_type(params, name, value)
            for name, value in answer.content.items()
        }
        return Asked(types.ElicitResult(action="accept", content=content))
    problem = f"{_MAX_TRIES} answers did not fit the form"
    return Asked(cancel_result(), problem=problem)


_PAGE_DONE_QUESTION = "Is the page done? The tool is called again then."
_NO_ANSWER = "(no answer)"  # the same text as in `ask_user`


def describe_question(server: str, params: types.ElicitRequestParams) -> str:
    """Return the question as a sentence, for a client that shows no forms, and for notices."""
    message = escape_outside(params.message[:_MAX_CHARS])
    if isinstance(params, types.ElicitRequestURLParams):
        url = escape_outside(params.url[:_MAX_CHARS])
        return f"The MCP server {server} asks you to open {url}: {message}"
    names = map(escape_outside, _properties(params.requested_schema))
    fields = ", ".join(names)[:_MAX_CHARS]
    question = f"The MCP server {server} asks: {message}"
    return f"{question} ({fields})" if fields else question


def read_form(server: str, params: types.ElicitRequestParams) -> Form:
    """Return the question as a form, with all text of the server escaped.

    If the question cannot be shown, the form has a `problem`.
    """
    message = escape_outside(params.message[:_MAX_CHARS])
    if isinstance(params, types.ElicitRequestURLParams):
        return _read_address(Form(server, message), params.url)
    schema = _to_dict(params.requested_schema)
    properties = _properties(schema)
    required = _to_list(schema.get("required"))
    if len(properties) > _MAX_FIELDS:
        problem = f"it has {len(properties):,} fields, at most {_MAX_FIELDS} are shown"
        return Form(server, message, problem=problem)
    fields = list[FormField]()
    for name, value in properties.items():
        try:
            field = _read_field(name, _to_dict(value))
        except BadInput as error:
            if name not in required:
                continue
            problem = f"the field {escape_outside(name[:_MAX_CHARS])!r} {error}"
            return Form(server, message, problem=problem)
        fields.append(replace(field, required=name in required))
    return Form(server, message, tuple(fields))


def _read_address(form: Form, url: str) -> Form:
    """Return the form with the page's address, or with a `problem` if that is invalid."""
    if len(url) > _MAX_CHARS:
        problem = f"its address has more than {_MAX_CHARS:,} characters"
        return replace(form, problem=problem)
    shown = replace(form, url=escape_outside(url))
    try:
        is_web = urlsplit(url).scheme in ("http", "https")
    except ValueError:
        is_web = False
    was_escaped = shown.url != url
    if not is_web or was_escaped or not host_of(shown):
        reason = f"{shown.url!r} is not an http or https address"
        return replace(form, problem=reason)
    return shown


def _properties(schema: object) -> dict[str, Any]:
    """Return the properties of a schema by name; {} for a schema without properties."""
    return _to_dict(_to_dict(schema).get("properties"))


def _to_dict(value: object) -> dict[str, Any]:
    """Return a part of a schema as a dict, even if the SDK has converted it to a model.

    Return {} for any other value.
    """
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    dump: Any = getattr(value, "model_dump", None)
    return dump(by_alias=True, exclude_none=True) if dump is not None else {}


def _to_list(value: object) -> list[object]:
    """Return the value if it is a list; [] for any other value."""
    return cast("list[object]", value) if isinstance(value, list) else []


def _read_field(name: str, part: Mapping[str, Any]) -> FormField:
    """Parse a field of a form. Raises `BadInput` with a text to put after the field's name."""
    kind, options = _read_kind(part)
    if len(name) > _MAX_CHARS or escape_outside(name) != name:
        raise BadInput("has a name that cannot be shown")
    if kind is None:
        raise BadInput(f"is of the type {str(part.get('type'))[:100]!r}, which no form has")
    low_key, high_key = BOUND_KEYS.get(kind, ("", ""))  # such as "minimum" and "maximum"
    format_ = _text(part.get("format"))
    field = FormField(
        name,
        kind,
        title=_text(part.get("title")),
        about=_text(part.get("description")),
        options=options,
        format=format_ if kind == "text" and format_ in FORMAT_HINTS else "",
        low=_number(part.get(low_key)),
        high=_number(part.get(high_key)),
    )
    return replace(field, default=_default(field, part.get("default")))


def _read_kind(part: Mapping[str, Any]) -> tuple[FieldKind | None, tuple[FormOption, ...]]:
    """Return the kind of a field, and its options. The kind is None if it is unknown."""
    if part.get("type") == "array":
        return "choices", _read_options(_to_dict(part.get("items")))
    if any(key in part for key in ("enum", "oneOf", "anyOf")):
        return "choice", _read_options(part)
    return _FIELD_KINDS.get(str(part.get("type"))), ()


def _read_options(part: Mapping[str, Any]) -> tuple[FormOption, ...]:
    """Parse the options of a field from `enum`, `enumNames`, `oneOf` or `anyOf`.

    Raises `BadInput` with a text to put after the field's name.
    """
    schemas = part.get("oneOf") or part.get("anyOf")
    if isinstance(schemas, list):
        entries = [_to_dict(entry) for entry in cast("list[object]", schemas)]
        pairs = [(entry.get("const"), entry.get("title")) for entry in entries]
    else:
        values, titles = _to_list(part.get("enum")), _to_list(part.get("enumNames"))
        pairs = list(zip_longest(values, titles))
    options = [
        FormOption(str(value), _text(title)) for value, title in pairs if _is_value(value)
    ]
    if not options:
        raise BadInput("has nothing to choose from")
    if len(options) > _MAX_OPTIONS:
        raise BadInput(f"has {len(options):,} choices, at most {_MAX_OPTIONS} are shown")
    if any(escape_outside(entry.value) != entry.value for entry in options):
        raise BadInput("has a choice that cannot be shown")
    return tuple(options)


def _is_value(value: object) -> bool:
    """Return whether the value can be an option: a number, or a text that is not too long."""
    if isinstance(value, str):
        return len(value) <= _MAX_CHARS
    return isinstance(value, int | float) and not isinstance(value, bool)


def _restore_type(params: types.ElicitRequestFormParams, name: str, value: Any) -> Any:
    """Return the chosen option in the type that it has in the schema.

    `value` is the option as a text, which the user chose; in the schema it may be a number. If
    the schema has no such option, return `value` itself.
    """
    field = _to_dict(_properties(params.requested_schema).get(name))
    return next((item for item in _to_list(field.get("enum")) if str(item) == value), value)


def _default(field: FormField, value: object) -> Any:
    """Return the default value of a field; None if it is invalid or cannot be shown in full."""
    if field.kind == "choice" and _is_value(value):
        value = str(value)
    try:
        default = msgspec.convert(value, str | int | float | bool | list[str])
        check_value(field, default)
    except ValueError:  # includes errors of msgspec
        return None
    return default if escape_outside(str(default)) == str(default) else None


def _text(value: object) -> str:
    """Return the value shortened and escaped if it is a text; "" for any other value."""
    return escape_outside(value[:_MAX_CHARS]) if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    """Return the value as a float; None if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)
