"""The findings of `refold doctor`: a line for each, and what to do about it."""

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from refold.views.escape import escape_to_one_line
from refold.views.styled import plain_text
from refold.views.wrap import wrap_words

State: TypeAlias = Literal["ok", "warning", "wrong"]
_STATE_MARKS: dict[State, str] = {"ok": "ok     ", "warning": "warning", "wrong": "WRONG  "}
_NAME_CELLS = 10  # cells of the longest name
_MIN_TEXT_CELLS = 20  # cells for a sentence, also where the screen has no more


class Finding(Struct, frozen=True):
    """`do` is what the user can do about it, or ""."""

    about: str
    state: State
    said: str
    do: str = ""


def finding_lines(findings: Iterable[Finding], width: int = 0) -> Iterator[str]:
    """Yield the lines of all findings. `width` is the width of a line; 0 means no wrapping."""
    for finding in findings:
        start = f"{_STATE_MARKS[finding.state]}  {finding.about:<{_NAME_CELLS}}  "
        for text in (finding.said, finding.do) if finding.do else (finding.said,):
            for row in _rows(escape_to_one_line(text), width - len(start) if width else 0):
                yield f"{start}{row}".rstrip()
                start = " " * len(start)


def summary(findings: Iterable[Finding]) -> str:
    states = [finding.state for finding in findings]
    wrong, warnings = states.count("wrong"), states.count("warning")
    if not wrong and not warnings:
        return "No problems found."
    counts = [_count(wrong, "thing is wrong", "things are wrong")] if wrong else []
    counts += [_count(warnings, "warning", "warnings")] if warnings else []
    return f"{', '.join(counts)}."


def _count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


def _rows(text: str, width: int) -> list[str]:
    return (
        plain_text(wrap_words(text, max(width, _MIN_TEXT_CELLS))).split("\n")
        if width
        else [text]
    )
