"""Checks JSON that a model wrote: against a schema, and for duplicate keys.

Parsers disagree on which of two equal keys counts, so arguments with equal keys are refused.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, cast

import msgspec
from msgspec import Raw

_MAX_PROBLEMS = 3  # reported at once
_MAX_PROBLEM_CHARS = 200  # of one of them
# A fenced block as models write it, with or without text around it.
_FENCE_PATTERN = r"(?sm)^[ \t]*```(?:json)?[ \t]*\n(.*?)^[ \t]*```[ \t]*$"
_MAX_KEYWORDS = 100_000  # in one check of a bounded schema
_SAMPLE_VALUES: tuple[object, ...] = (None, {}, [], "", 0)


class _Validator(Protocol):
    def iter_errors(self, instance: object) -> Iterable[Any]:
        """Yield the errors of `instance`; none if it matches the schema."""
        ...


class Schema:
    """A JSON Schema. Raises `ValueError` if it is invalid, or cannot be resolved.

    References are resolved within the schema; nothing is fetched. A `bounded` schema was
    written by a model's code. It may have no patterns, and a check may take only a limited
    number of steps, because it runs in this process.
    """

    def __init__(self, schema: Raw, *, bounded: bool = False) -> None:
        from jsonschema import SchemaError  # imported late: it takes 60 ms
        from jsonschema.validators import validator_for
        from referencing import Registry

        try:
            decoded: Any = msgspec.json.decode(schema)
            if not isinstance(decoded, dict):
                raise ValueError("a JSON Schema is an object")
            if bounded:
                _check_patterns(decoded)
            validator_class = cast("Any", validator_for)(decoded)
            validator_class.check_schema(decoded)
        except RecursionError as error:
            raise ValueError("it is nested too deep to be followed") from error
        except (msgspec.DecodeError, SchemaError) as error:
            reason = str(error)
            if isinstance(error, SchemaError):
                reason = f"{error.json_path}: {error.message}"
            raise ValueError(reason) from error
        self._steps = 0
        if bounded:
            validator_class = _with_count(validator_class, self._count_step)
        self._validator = cast(
            "_Validator", validator_class(decoded, registry=cast("Any", Registry)())
        )
        # A reference that leads nowhere is found only when a value is checked.
        for value in _SAMPLE_VALUES:
            self._errors(value)

    def problem(self, answer: str) -> str:
        """Return a sentence that says what is wrong with an answer; "" if the answer
        matches.
        """
        try:
            errors = self._errors(value_in(answer))
        except ValueError as error:
            return str(error)
        problems = [
            f"{error.json_path}: {error.message[:_MAX_PROBLEM_CHARS]}"
            for error in errors[:_MAX_PROBLEMS]
        ]
        unlisted = len(errors) - _MAX_PROBLEMS
        if unlisted > 0:
            problems.append(f"and {unlisted} more")
        return "; ".join(problems)

    def _errors(self, value: object) -> list[Any]:
        """Return the errors of a value. Raises `ValueError` if the schema cannot be
        followed.
        """
        from referencing.exceptions import Unresolvable

        self._steps = 0
        try:
            return list(self._validator.iter_errors(value))
        except Unresolvable as error:
            raise ValueError(
                f"the schema refers to what it does not hold: {error}"
            ) from error
        except RecursionError as error:
            raise ValueError("the schema refers to itself without end") from error
        # The validator followed a reference to a value that is neither an object nor a bool.
        except (AttributeError, TypeError) as error:
            raise ValueError(
                "the schema refers to something that is not a schema"
            ) from error

    def _count_step(self) -> None:
        """Count the check of one keyword. Raise `ValueError` if there were too many."""
        self._steps += 1
        if self._steps > _MAX_KEYWORDS:
            raise ValueError("the schema takes too long to follow: make it simpler")


def _with_count(validator_class: Any, count_step: Callable[[], None]) -> Any:
    """Return a subclass of `validator_class` that calls `count_step` before it checks a
    keyword.
    """
    from jsonschema import validators

    def make_counting(check: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
        """Return a check of one keyword that counts a step, and then does what `check` does."""

        def count_and_check(*arguments: Any) -> Iterator[Any]:
            count_step()
            errors = check(*arguments)
            yield from errors or ()  # a check without errors may return None

        return count_and_check

    checks = validator_class.VALIDATORS
    counting_checks = {keyword: make_counting(check) for keyword, check in checks.items()}
    return cast("Any", validators).extend(validator_class, counting_checks)


def _check_patterns(schema: Any) -> None:
    """Raise `ValueError` if the schema has a regular expression: matching could take
    forever.
    """
    to_visit = [schema]
    while to_visit:
        match to_visit.pop():
            case {"pattern": str()} | {"patternProperties": dict()}:
                raise ValueError(
                    "a pattern is not followed here: look at the answer by code"
                )
            case dict() | list() as container:  # pyright: ignore[reportUnknownVariableType] - of JSON
                to_visit += container.values() if isinstance(container, dict) else container
            case _:
                pass


def value_in(answer: str) -> Any:
    """Return the JSON value of an answer, or of its only fenced block of JSON.

    Raises `ValueError` if it has none.
    """
    fenced: list[str] = re.findall(_FENCE_PATTERN, answer)
    text = fenced[0] if len(fenced) == 1 else answer
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from error


class _Repeated(Exception):
    """Raised with the repeated key."""


def find_repeated_key(data: bytes | Raw) -> str | None:
    """Return the first key that occurs twice in one object of the JSON `data`; None if none
    does.
    """
    import json  # rarely needed, and would slow the start

    try:
        json.loads(bytes(data), object_pairs_hook=_refuse_repeated_key)
    except _Repeated as repeated:
        return str(repeated)
    except (ValueError, RecursionError):
        pass  # the decoder reports it
    return None


def keys_are_unique(data: bytes | Raw, decoded_value: object) -> bool:
    """Check quickly whether all keys are unique.

    If the result is False, the keys may still be unique: `find_repeated_key` decides.

    A decoder drops the earlier of two equal keys, and with it at least one colon. So if the
    text has as many colons as the decoded value, no key was dropped.
    """
    text = bytes(data)
    # An escaped colon is counted in the decoded value, but not in the text.
    may_escape_colon = b"\\u003" in text
    return not may_escape_colon and text.count(b":") == _colons(decoded_value)


def _colons(decoded_value: object) -> int:
    """Count the colons in the value as JSON: one for each key, and those in strings."""
    count = 0
    to_visit = [decoded_value]
    while to_visit:
        value = to_visit.pop()
        match value:
            case str():
                count += value.count(":")
            case dict():
                fields = cast("dict[str, object]", value)
                count += len(fields)
                to_visit += fields.keys()
                to_visit += fields.values()
            case list():
                to_visit += cast("list[object]", value)
            case _:
                pass
    return count


def _refuse_repeated_key(pairs: list[tuple[str, Any]]) -> None:
    """Raise `_Repeated` for the first key that occurs twice in `pairs`, the fields of one
    object.
    """
    seen = set[str]()
    for key, _ in pairs:
        if key in seen:
            raise _Repeated(key)
        seen.add(key)
