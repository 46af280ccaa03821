"""Defines a task, and how a stand-in for a model solves tasks of its kind."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TypeAlias, cast

from msgspec import Struct

Match: TypeAlias = re.Match[str]
Items: TypeAlias = Sequence[str]


class Task(Struct, frozen=True):
    """A question about `material`, which are texts by their paths.

    A right answer has exactly the items `answer`. `item_pattern` matches an item.
    """

    kind: str
    size: str
    question: str
    material: Mapping[str, str]
    answer: frozenset[str]
    item_pattern: str

    @property
    def bytes(self) -> int:
        return sum(len(text.encode()) for text in self.material.values())

    def is_right(self, text: str) -> bool:
        """Return whether exactly the items of the answer are in `text`.

        Items that the question names may be in it, too.
        """
        items = self._items_in(to_answer(text))
        question_items = self._items_in(self.question)
        return items - (question_items - self.answer) == self.answer

    def _items_in(self, text: str) -> frozenset[str]:
        return frozenset(
            match[match.lastindex or 0] for match in re.finditer(self.item_pattern, text)
        )


class Skill(Struct, frozen=True):
    """How the stand-in answers questions that `question` matches.

    `read` returns the items from a text. `program` returns a program that computes them. Without
    `program`, the program of `pieces` asks models about pieces of the material and joins their
    answers, and that of `words` uses the wordings in a text that was printed. `needs` returns
    words to search for.
    """

    question: re.Pattern[str]
    read: Callable[[Match, str], Items]
    program: Callable[[Match], str] | None = None
    pieces: Callable[[Match], str] | None = None
    words: Callable[[Match, str], str] | None = None
    needs: Callable[[Match], Items] | None = None


MakeTask: TypeAlias = Callable[[Random, str, int], Task]  # size and about how many tokens


def to_answer(text: str) -> str:
    """Return the answer in a final value, which may be a JSON object with evidence."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    if isinstance(value, dict):
        value = cast("dict[str, object]", value).get("answer", "")
    return value if isinstance(value, str) else json.dumps(value)


def in_files(lines: Sequence[str], size: str) -> Mapping[str, str]:
    """Return the lines in one file if the material is short, else in eight."""
    count = 1 if size == "short" else 8
    step = -(-len(lines) // count)
    return {
        f"day{number + 1}.log": "\n".join(lines[number * step : (number + 1) * step]) + "\n"
        for number in range(count)
    }
