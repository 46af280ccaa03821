"""An answer that has to match a JSON Schema: the value in it, and what is wrong with it."""

import re
from collections.abc import Iterable
from typing import Any, Protocol, cast

import msgspec
from msgspec import Raw

_PROBLEMS = 3  # are enough to tell at once
# A block as models like to write one, with words around it or not.
_FENCED = re.compile(
    r"^[ \t]*```(?:json)?[ \t]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE
)
# A reference that leads nowhere shows as soon as something is looked at.
_SAMPLES: tuple[object, ...] = (None, {}, [], "", 0)


class _Validator(Protocol):
    def iter_errors(self, instance: object) -> Iterable[Any]: ...


class Schema:
    """Raises `ValueError` for what is no JSON Schema, or cannot be followed.

    References lead into the schema itself; nothing is ever fetched.
    """

    def __init__(self, schema: Raw) -> None:
        from jsonschema import SchemaError  # 60 ms, so only who asks for a shape pays
        from jsonschema.validators import validator_for
        from referencing import Registry

        try:
            found: Any = msgspec.json.decode(schema)
            if not isinstance(found, dict):
                raise ValueError("a JSON Schema is an object")
            make = cast("Any", validator_for)(found)
            make.check_schema(found)
        except RecursionError as error:
            raise ValueError("it is nested too deep to be followed") from error
        except (msgspec.DecodeError, SchemaError) as error:
            told = isinstance(error, SchemaError)
            why = f"{error.json_path}: {error.message}" if told else str(error)
            raise ValueError(why) from error
        self._validator = cast("_Validator", make(found, registry=cast("Any", Registry)()))
        for value in _SAMPLES:
            self._errors(value)

    def problem(self, answer: str) -> str:
        """What is wrong with an answer, in words; "" where it matches."""
        try:
            errors = self._errors(value_in(answer))
        except ValueError as error:
            return str(error)
        told = [f"{error.json_path}: {error.message[:200]}" for error in errors[:_PROBLEMS]]
        more = f"; and {len(errors) - _PROBLEMS} more" if len(errors) > _PROBLEMS else ""
        return "; ".join(told) + more

    def _errors(self, value: object) -> list[Any]:
        from referencing.exceptions import Unresolvable

        try:
            return list(self._validator.iter_errors(value))
        except Unresolvable as error:
            raise ValueError(
                f"the schema refers to what it does not hold: {error}"
            ) from error
        except RecursionError as error:
            raise ValueError("the schema refers to itself without end") from error


def value_in(answer: str) -> Any:
    """The JSON value that an answer is, or that its only fenced block of JSON holds.

    Raises `ValueError` where there is none.
    """
    fenced: list[str] = _FENCED.findall(answer)
    text = fenced[0] if len(fenced) == 1 else answer
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(f"it is no JSON ({error})") from error
