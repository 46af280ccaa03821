"""Parses and checks what the user enters into a form of an MCP server.

A form (`display.Form`) is one question, whose answer is a `FormAnswer` as JSON. `parse_field`
converts and checks text that a user types, and `check_value` checks values that other clients
send. Pure. `mcp.questions` reads the schema of a server, and sends only values that were
checked in this module.
"""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from refold.values.display import (
    FieldKind,
    Form,
    FormAnswer,
    FormField,
    FormOption,
    FormValue,
)

MAX_VALUE_CHARS = 10_000  # of one answer text
_MAX_NUMBER_DIGITS = 9  # of the number of an option
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DATE_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:\d\d)?"
)
_YES = frozenset(("yes", "y", "true", "on", "1"))
_NO = frozenset(("no", "n", "false", "off", "0"))
# The JSON Schema keywords for the minimum and the maximum of a field.
BOUND_KEYS: Mapping[FieldKind, tuple[str, str]] = {
    "text": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "choices": ("minItems", "maxItems"),
}
FORMAT_HINTS: Mapping[str, str] = {
    "email": "an e-mail address",
    "uri": "an address such as https://example.org",
    "date": "a date, YYYY-MM-DD",
    "date-time": "a date and time, YYYY-MM-DD HH:MM",
}


def host_of(form: Form) -> str:
    """Return the host of the form's address, in ASCII; "" if the address is invalid.

    A user name before the host, which could look like another host, is left out.
    """
    try:
        host = urlsplit(form.url).hostname or ""
        return host.encode("idna").decode() if not host.isascii() else host
    except (ValueError, UnicodeError):
        return ""


def host_warning(form: Form) -> str:
    """Return a warning if the letters of the form's host could be taken for those of another
    host; otherwise "".
    """
    if not any(part.startswith("xn--") for part in host_of(form).split(".")):
        return ""
    return "the name of this host has letters that can look like others"


def problems_in(form: Form, content: Mapping[str, FormValue]) -> dict[str, str]:
    """Return what is wrong with the values in `content`, by field name; empty if nothing is."""
    problems = dict[str, str]()
    for field in form.fields:
        try:
            if field.name in content:
                check_value(field, content[field.name])
            elif field.required:
                problems[field.name] = "it is needed"
        except ValueError as error:
            problems[field.name] = str(error)
    unknown = content.keys() - {field.name for field in form.fields}
    return problems | dict.fromkeys(unknown, "the form has no such field")


def parse_answer(form: Form, text: str) -> FormAnswer:
    """Parse the answer of a client to `form`. An empty text means `cancel`.

    Raises `ValueError` for text that is not an answer, or has invalid values.
    """
    if not text.strip():
        return FormAnswer("cancel")
    try:
        answer = msgspec.json.decode(text, type=FormAnswer)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"the answer to the form cannot be read: {error}") from error
    if answer.action != "accept":
        return FormAnswer(answer.action)
    if form.problem:
        raise ValueError(f"the form cannot be accepted: {form.problem}")
    if problems := problems_in(form, answer.content):
        texts = (f"{name}: {problem}" for name, problem in problems.items())
        raise ValueError("; ".join(texts))
    return answer


def parse_field(field: FormField, typed: str) -> FormValue | None:
    """Return the value that a user typed, or None for blank text.

    Raises `ValueError` with a description of valid values if the text is invalid.
    """
    text = typed.strip()
    if not text:
        return None
    value: FormValue
    match field.kind:
        case "boolean":
            if text.lower() not in _YES | _NO:
                raise ValueError("answer yes or no")
            value = text.lower() in _YES
        case "integer" | "number":
            value = _parse_number(text, whole=field.kind == "integer")
        case "choice":
            value = _parse_option(field.options, text)
        case "choices":
            parts = (part.strip() for part in text.split(","))
            several = (_parse_option(field.options, part) for part in parts if part)
            value = list(dict.fromkeys(several))
        case "text":
            value = _with_offset(text) if field.format == "date-time" else text
    check_value(field, value)
    return value


def check_value(field: FormField, value: FormValue) -> None:
    """Raise `ValueError` with a description of valid values if the value is invalid."""
    match field.kind:
        case "boolean":
            fits = isinstance(value, bool)
        case "integer":
            fits = isinstance(value, int) and not isinstance(value, bool)
        case "number":
            fits = isinstance(value, int | float) and not isinstance(value, bool)
            fits = fits and math.isfinite(float(value))  # pyright: ignore[reportArgumentType]
        case "choice":
            fits = any(option.value == value for option in field.options)
        case "choices":
            known = {option.value for option in field.options}
            fits = isinstance(value, list) and known.issuperset(value)
        case "text":
            fits = isinstance(value, str) and _is_in_format(field.format, value)
    if not fits:
        raise ValueError(f"give {field_hint(field) or 'a text'}")
    _check_bounds(field, value)


def field_hint(field: FormField) -> str:
    """Return what a field accepts, such as "a whole number, 1 to 10"; "" if it accepts any
    text.
    """
    match field.kind:
        case "boolean":
            return "yes or no"
        case "integer" | "number":
            kind = "a whole number" if field.kind == "integer" else "a number"
            bounds = _bounds(field, unit="")
        case "choice":
            return f"one of {_labels(field.options)}"
        case "choices":
            kind = f"several of {_labels(field.options)}"
            bounds = _bounds(field, unit="of them")
        case "text":
            kind = FORMAT_HINTS.get(field.format, "")
            bounds = _bounds(field, unit="characters")
    return ", ".join(filter(None, (kind, bounds)))


def shown_value(field: FormField, value: FormValue | None) -> str:
    """Return the value of a field as the user reads it; "" for None."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(_label_of(field, item) for item in value)
        case _:
            return _label_of(field, value) if field.options else str(value)


def as_schema(form: Form) -> dict[str, Any]:
    """Return the form as the JSON Schema of an elicitation, for a client that shows it
    itself.
    """
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {field.name: _property(field) for field in form.fields},
    }
    if required := [field.name for field in form.fields if field.required]:
        schema["required"] = required
    return schema


def _property(field: FormField) -> dict[str, Any]:
    """Return the JSON Schema of a field."""
    json_types = {"text": "string", "choice": "string", "choices": "array"}
    schema: dict[str, Any] = {
        "type": json_types.get(field.kind, field.kind),
        "title": field.title,
        "description": field.about,
        "format": field.format,
    }
    options = [{"const": option.value, "title": option.label} for option in field.options]
    if field.kind == "choice":
        schema["oneOf"] = options
    elif field.kind == "choices":
        schema["items"] = {"anyOf": options}
    if field.kind in BOUND_KEYS:
        low_key, high_key = BOUND_KEYS[field.kind]
        schema[low_key] = _to_whole_number(field.low)
        schema[high_key] = _to_whole_number(field.high)
    schema["default"] = field.default
    return {name: value for name, value in schema.items() if value not in (None, "")}


def _parse_number(text: str, *, whole: bool) -> int | float:
    """Return the number that a user typed. Raises `ValueError`, with what to do."""
    try:
        return int(text) if whole else float(text)
    except ValueError:
        raise ValueError(f"give a {'whole ' if whole else ''}number") from None


def _parse_option(options: Sequence[FormOption], text: str) -> str:
    """Return the value of the option that `text` names: by its value, title or number.

    Values and titles are compared first, because a value may look like a number.
    """
    for option in options:
        if text in (option.value, option.title):
            return option.value
    if text.isascii() and text.isdigit() and len(text) <= _MAX_NUMBER_DIGITS:
        number = int(text)
        if 1 <= number <= len(options):
            return options[number - 1].value
    matching = [o.value for o in options if text.lower() == o.label.lower()]
    if len(matching) != 1:
        raise ValueError(f"choose from {_labels(options)}")
    return matching[0]


def _is_in_format(format_: str, text: str) -> bool:
    """Whether the text has this format of JSON Schema; True if the format is unknown."""
    if len(text) > MAX_VALUE_CHARS:
        return False
    try:
        match format_:
            case "email":
                return bool(_EMAIL.fullmatch(text))
            case "uri":
                parts = urlsplit(text)
                has_target = bool(parts.netloc or parts.path)
                return bool(parts.scheme) and has_target and " " not in text
            case "date":
                return bool(_DATE.fullmatch(text)) and bool(date.fromisoformat(text))
            case "date-time":
                match = _DATE_TIME.fullmatch(text)
                has_offset = match is not None and match[3]
                return bool(has_offset) and bool(datetime.fromisoformat(text))
            case _:
                return True
    except ValueError:
        return False


def _with_offset(text: str) -> str:
    """Return a date and time in the form of RFC 3339, with the local offset if `text` has none.

    Any other text is returned unchanged: `check_value` refuses it.
    """
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        return text
    try:
        moment = datetime.fromisoformat(text)
        is_complete = match[1] and match[3]  # it has seconds and an offset
        return text if is_complete else moment.astimezone().isoformat()
    except (ValueError, OverflowError):
        return text


def _check_bounds(field: FormField, value: FormValue) -> None:
    """Raise `ValueError` if a number, or the size of a text or list, is out of bounds."""
    if isinstance(value, bool) or field.kind == "choice":
        return
    size = len(value) if isinstance(value, str | list) else value
    is_too_small = field.low is not None and size < field.low
    is_too_large = field.high is not None and size > field.high
    if is_too_small or is_too_large:
        raise ValueError(f"give {field_hint(field)}")


def _bounds(field: FormField, unit: str) -> str:
    """Return the bounds of a field, such as "1 to 10 characters"; "" if it has none."""
    low, high = _to_whole_number(field.low), _to_whole_number(field.high)
    if low is not None and high is not None:
        bounds = f"{low} to {high}" if low != high else f"{low}"
    elif low:  # "0 or more" would say nothing
        bounds = f"{low} or more"
    elif high is not None:
        bounds = f"{high} or less"
    else:
        return ""
    return f"{bounds} {unit}" if unit else bounds


def _to_whole_number(limit: float | None) -> float | None:
    """Return the limit as an int if it has no fraction, so that it is written without ".0"."""
    return int(limit) if limit is not None and limit == int(limit) else limit


def _labels(options: Sequence[FormOption]) -> str:
    return ", ".join(option.label for option in options)


def _label_of(field: FormField, value: str | float) -> str:
    return next((o.label for o in field.options if o.value == value), str(value))
