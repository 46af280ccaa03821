"""A question of the model with its options, and what somebody who typed something chose.

Pure. Who shows it, and reads what is typed, is a door's business.
"""

import re
from collections.abc import Iterator, Sequence

from refold.values.asked import Asking, Option
from refold.views.cells import untabbed
from refold.views.escape import on_one_line, visible
from refold.views.folding import in_words
from refold.views.styled import Line

_NUMBERS = re.compile(r"\d+(?:[\s,;]+\d+)*")


def question_lines(asked: Asking, number: int, of: int, room: int) -> list[Line]:
    """The question, and under it the options by their numbers."""
    which = f" ({number} of {of})" if of > 1 else ""
    said = untabbed(visible(asked.question)).split("\n")
    return [
        (("warn", "? "), ("strong", f"The model asks you{which}")),
        *((("plain", "  "), *row) for part in said for row in in_words(part, room - 2)),
        *(
            row
            for at, each in enumerate(asked.options, 1)
            for row in _option(at, each, room)
        ),
    ]


def hint(asked: Asking) -> str:
    """What can be typed."""
    if not asked.options:
        return "your answer (Enter for none)"
    last = len(asked.options)
    number = f"1-{last}" if last > 1 else "1"
    several = ", several with commas," if asked.many and last > 1 else ""
    return f"{number}{several} or words (Enter for no answer)"


def chosen(typed: str, asked: Asking) -> str | None:
    """The answer, in the words of the options. None if these numbers name no option."""
    words = typed.strip()
    if not asked.options or not _NUMBERS.fullmatch(words):
        return words
    numbers = [int(each) for each in re.findall(r"\d+", words)]
    known = all(1 <= number <= len(asked.options) for number in numbers)
    if not known or (len(numbers) > 1 and not asked.many):
        return None
    return ", ".join(_labels(numbers, asked.options))


def _labels(numbers: Sequence[int], options: Sequence[Option]) -> list[str]:
    return [options[number - 1].label for number in dict.fromkeys(numbers)]


def _option(number: int, option: Option, room: int) -> Iterator[Line]:
    yield (("accent", f"  {number} "), ("plain", on_one_line(option.label)))
    if option.about:
        for row in in_words(on_one_line(option.about), room - 4, "dim"):
            yield (("dim", "    "), *row)
