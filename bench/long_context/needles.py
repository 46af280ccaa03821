"""Makes tasks that ask for facts in lines that look alike: the kinds of RULER (Hsieh et al. 2024).

A fact is a key of two words and a number. `single` asks for one key, `multi_key` also hides other keys, `multi_value` gives the key
four numbers, and `multi_query` asks for four keys.
"""

import re
from random import Random

from msgspec import Struct

from bench.long_context.task import Items, Match, Skill, Task, in_files

_NAMES = (
    "amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty", "knoll", "larch",
    "marsh", "north", "oasis", "plain", "quarry", "ridge", "shore", "tarn", "upland", "vale", "weir", "yew",
)  # fmt: skip
_LINE_TOKENS = 16  # the average, roughly
_CODE_LINE = re.compile(r"code of the (\w+ \w+) gate is (\d{5})")
_NUMBER_PATTERN = r"\b\d{5}\b"


class _Hidden(Struct, frozen=True):
    """How many keys a task asks for, how many values each has, the share of lines with other keys."""

    keys: int = 1
    values: int = 1
    others: float = 0.0


def single(random: Random, size: str, tokens: int) -> Task:
    return _task("needle", _Hidden(), random, size, tokens)


def multi_key(random: Random, size: str, tokens: int) -> Task:
    return _task("needle, many keys", _Hidden(others=0.05), random, size, tokens)


def multi_value(random: Random, size: str, tokens: int) -> Task:
    return _task("needle, four values", _Hidden(values=4), random, size, tokens)


def multi_query(random: Random, size: str, tokens: int) -> Task:
    return _task("needle, four keys", _Hidden(keys=4), random, size, tokens)


def _task(kind: str, needles: _Hidden, random: Random, size: str, tokens: int) -> Task:
    lines = [_noise(random) for _ in range(max(20, tokens // _LINE_TOKENS))]
    pairs = [f"{one} {two}" for one in _NAMES for two in _NAMES if one != two]
    chosen = random.sample(pairs, needles.keys)
    hidden = [key for key in chosen for _ in range(needles.values)]
    decoys = [key for key in pairs if key not in chosen]
    hidden_decoys = random.sample(
        decoys, min(len(decoys), int(len(lines) * needles.others))
    )
    numbers = [
        str(n)
        for n in random.sample(range(10_000, 100_000), len(hidden) + len(hidden_decoys))
    ]
    places = random.sample(range(len(lines)), len(numbers))
    for place, key, number in zip(places, hidden + hidden_decoys, numbers, strict=True):
        lines[place] = f"At noon the keeper wrote: the code of the {key} gate is {number}."
    gates = ", of the ".join(f"{key} gate" for key in chosen)
    question = f"What are all codes of the {gates}? Answer with the numbers alone."
    answer = frozenset(numbers[: len(hidden)])
    return Task(kind, size, question, in_files(lines, size), answer, _NUMBER_PATTERN)


def _noise(random: Random) -> str:
    one, two = random.sample(_NAMES, 2)
    verb = random.choice(("checked", "oiled", "painted", "moved", "counted"))
    return f"At {random.randrange(24):02}:{random.randrange(60):02} the pump of {one} was {verb} by the crew of {two}."


def _read_numbers(match: Match, text: str) -> Items:
    wanted = set(_keys(match))
    return [number for key, number in _CODE_LINE.findall(text) if key in wanted]


def _keys(match: Match) -> Items:
    return re.findall(r"(\w+ \w+) gate", match[1])


SKILLS = (
    Skill(
        re.compile(r"What are all codes of the (.*)\?"),
        _read_numbers,
        needs=lambda match: ["code", *(word for key in _keys(match) for word in key.split())],
    ),
)  # fmt: skip
MAKERS = (single, multi_key, multi_value, multi_query)
