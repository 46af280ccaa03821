"""Shows the findings of `refold doctor`, each as a line with advice."""

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from refold.views.escape import escape_to_one_line
from refold.views.styled import plain_text
from refold.views.wrap import wrap_words

State: TypeAlias = Literal["ok", "warning", "wrong"]
_STATE_MARKS: dict[State, str] = {"ok": "ok     ", "warning": "warning", "wrong": "WRONG  "}
_NAME_CELLS = 10  # the width of the longest name
_MIN_TEXT_CELLS = 20  # for a sentence, even on a narrower screen


class Finding(Struct, frozen=True):
    """The result of one check. `do` is what the user can do about a problem, or ""."""

    about: str
    state: State
    said: str
    do: str = ""


def finding_lines(findings: Iterable[Finding], width: int = 0) -> Iterator[str]:
    """Yield the lines of all findings, wrapped at `width` cells; with 0, they are not wrapped."""
    for finding in findings:
        start = f"{_STATE_MARKS[finding.state]}  {finding.about:<{_NAME_CELLS}}  "
        text_width = width - len(start) if width else 0
        rows = _rows(escape_to_one_line(finding.said), text_width)
        if finding.do:
            rows += _rows(escape_to_one_line(finding.do), text_width)
        first, *others = rows
        yield f"{start}{first}".rstrip()
        indent = " " * len(start)
        yield from (f"{indent}{row}".rstrip() for row in others)


def summary(findings: Iterable[Finding]) -> str:
    """Return the numbers of problems and warnings as a sentence."""
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
    """Return the rows of a wrapped text. With `width` 0, it is not wrapped."""
    if not width:
        return [text]
    return plain_text(wrap_words(text, max(width, _MIN_TEXT_CELLS))).split("\n")
