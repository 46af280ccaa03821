"""Where in a line of JSON something stands, in words that fit into a settings file.

`message.content.0.text if type=message message.role=assistant`: names and
numbers of places, and what else has to be so in the line. What is not there is
null. What the found thing means is the reader's business.
"""

import re
from typing import Any, TypeAlias, cast

from msgspec import Struct

from refold.errors import BadInput

Steps: TypeAlias = tuple[str, ...]

_STEP = re.compile(r"[^\s.=]+")


class Where(Struct, frozen=True):
    """A place, and what else has to be so."""

    steps: Steps
    given: tuple[tuple[Steps, str], ...] = ()

    def found(self, line: Any) -> Any:
        """What stands there; None if nothing does or something else is not so."""
        if all(_word(_at(line, steps)) == wanted for steps, wanted in self.given):
            return _at(line, self.steps)
        return None


def where(text: str) -> Where:
    """The place that `text` names. Raises `BadInput` if it names none."""
    path, _, rest = text.strip().partition(" if ")
    pairs = [condition.partition("=") for condition in rest.split()]
    if not all(equals for _, equals, _ in pairs):
        raise BadInput(f"{text!r} is no place: after `if` stands name=value")
    given = tuple((_steps(name, text), wanted) for name, _, wanted in pairs)
    return Where(_steps(path.strip(), text), given)


def places(*texts: str) -> tuple[Where, ...]:
    return tuple(where(text) for text in texts if text)


def _steps(path: str, text: str) -> Steps:
    steps = tuple(path.split("."))
    if not all(_STEP.fullmatch(step) for step in steps):
        raise BadInput(
            f"{text!r} is no place in a line of JSON: write it as "
            "`message.text` or `message.text if type=answer`"
        )
    return steps


def _at(value: Any, steps: Steps) -> Any:
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


def _word(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case _:
            return ""
