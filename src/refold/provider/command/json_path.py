"""Parses paths such as `message.text if type=answer`, which find a value in a line of JSON."""

import re
from typing import Any, TypeAlias, cast

from msgspec import Struct

from refold.errors import BadInput

Steps: TypeAlias = tuple[str, ...]


# jmespath is not used. Version 1.1 was measured: it needs 15 times as long to compile a path
# and six times as long to search. Its import takes longer than that of this whole module,
# and its errors name no setting.
class JsonPath(Struct, frozen=True):
    """A path in a JSON document, and conditions on other values in it."""

    steps: Steps
    conditions: tuple[tuple[Steps, str], ...] = ()

    def find(self, line: Any) -> Any:
        """Return the value at this path of the JSON object `line`.

        Return None if it does not exist, or if a condition of the path is not met.
        """
        for steps, wanted in self.conditions:
            if _condition_text(_follow_steps(line, steps)) != wanted:
                return None
        return _follow_steps(line, self.steps)


_STEP_PATTERN = r"[^\s.=]+"


def json_path(text: str) -> JsonPath:
    """Parse a path. Raises `BadInput` if `text` is not a valid path."""
    path, _, conditions_text = text.strip().partition(" if ")
    pairs = [condition.partition("=") for condition in conditions_text.split()]
    if not all(equals for _, equals, _ in pairs):
        raise BadInput(f"{text!r} is not a path: after `if` comes name=value")
    conditions = tuple((_steps(name, text), wanted) for name, _, wanted in pairs)
    return JsonPath(_steps(path.strip(), text), conditions)


def json_paths(*texts: str) -> tuple[JsonPath, ...]:
    return tuple(json_path(text) for text in texts if text)


def _steps(path: str, text: str) -> Steps:
    """Split `path`, a part of `text`, at its dots. Raises `BadInput` that quotes `text`."""
    steps = tuple(path.split("."))
    if not all(re.fullmatch(_STEP_PATTERN, step) for step in steps):
        raise BadInput(
            f"{text!r} is not a path in a line of JSON: write it as "
            "`message.text` or `message.text if type=answer`"
        )
    return steps


def _follow_steps(value: Any, steps: Steps) -> Any:
    """Return the value inside `value` to which `steps` lead, or None if there is none."""
    for step in steps:
        match value:
            case {}:
                value = cast("dict[str, Any]", value).get(step)
            case [*items] if re.fullmatch(r"-?\d{1,9}", step):
                place = int(step)
                value = items[place] if -len(items) <= place < len(items) else None
            case _:
                return None
    return value


def _condition_text(value: Any) -> str:
    """Return a value as a condition writes it, or "" for an object or list."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case _:
            return ""
