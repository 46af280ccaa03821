"""Makes material of any size with a known answer, and programs that find the answer.

A line is a little more than 16 tokens. The programs are like those of a good model.
"""

import random
from collections.abc import Callable

from msgspec import Struct

from tests.rlm.acting_by_code import as_code

LINE_TOKENS = 16  # roughly
_WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath")


class Task(Struct, frozen=True):
    name: str
    context: str
    answer: str
    program: tuple[str, ...]  # the answers of the model, in their order
    leaves: int = 0  # how many leaves the program asks


def tasks(tokens: int) -> list[Task]:
    return [
        make(max(100, tokens // LINE_TOKENS)) for make in (needle, count, aggregate, join)
    ]


def needle(lines: int) -> Task:
    """Make a task: the material hides one sentence, which a model has to understand."""
    log = _log(lines)
    log[lines * 2 // 3] = "At noon the keeper said that the code of the gate is 7341."
    return Task(
        "needle",
        "\n".join(log),
        "7341",
        (
            as_code("print(type(context), len(context)); print(context[:200])"),
            as_code(
                "import re\n"
                "odd = [l for l in context.splitlines() if not re.match(r'\\d+ ', l)]\n"
                "print(len(odd), odd[:3])"
            ),
            as_code("FINAL(lm(odd[0], 'What is the code? Answer with the number.'))"),
        ),
        leaves=1,
    )


def count(lines: int) -> Task:
    log = _log(lines)
    many = sum(" ERROR " in line for line in log)
    return Task(
        "count",
        "\n".join(log),
        str(many),
        (
            as_code(
                "n = sum(' ERROR ' in l for l in context.splitlines())\nprint(n)",
                "FINAL(n)",
            ),
        ),
    )


def aggregate(lines: int) -> Task:
    """Make a task: leaves count in pieces of the material, and code adds up the counts."""
    log = _log(lines)
    total = sum("shouted" in line for line in log)
    return Task(
        "aggregate",
        "\n".join(log),
        str(total),
        (
            as_code(
                "lines = context.splitlines()\n"
                "size = -(-len(lines) // 40)\n"
                "parts = ['\\n'.join(lines[i:i + size]) for i in range(0, len(lines), size)]\n"
                "print(len(parts))"
            ),
            as_code(
                "found = map_lm(parts, 'How many shouted?', {'type': 'integer'})\n"
                "print(found[:5])",
                "FINAL(sum(found))",
            ),
        ),
        leaves=min(40, -(-lines // -(-lines // 40))),
    )


def join(lines: int) -> Task:
    """Make a task: find pairs of lines, anywhere in the material, with the same number."""
    log = _log(lines)
    some = random.Random(2)
    places = some.sample(range(lines), 20)
    for n, position in enumerate(places[:10]):
        log[position] = f"order {5000 + n} was made by customer {n}"
    for n, position in enumerate(places[10:]):
        log[position] = f"order {5000 + 2 * n} was sent to town {n}"
    return Task(
        "join",
        "\n".join(log),
        '[["0","0"],["2","1"],["4","2"],["6","3"],["8","4"]]',
        (
            as_code(
                "import re\n"
                "by = dict(re.findall(r'order (\\d+) was made by customer (\\d+)', context))\n"
                "to = dict(re.findall(r'order (\\d+) was sent to town (\\d+)', context))\n"
                "print(len(by), len(to))"
            ),
            as_code("FINAL(sorted([by[o], to[o]] for o in by.keys() & to.keys()))"),
        ),
    )


def answering(text: str) -> str:
    """Return the answer of a leaf to a question of these programs."""
    if "What is the code?" in text:
        return text.split("gate is ")[1].split(".")[0]
    return str(sum("shouted" in line for line in text.splitlines()[1:-2]))


def _log(lines: int) -> list[str]:
    some = random.Random(1)
    pick: Callable[[tuple[str, ...]], str] = some.choice
    return [
        f"{n} {pick(('INFO', 'WARN', 'ERROR'))} {pick(_WORDS)} {pick(('spoke', 'shouted'))} to "
        f"{pick(_WORDS)} about the {pick(_WORDS)} at {some.randrange(10_000)}"
        for n in range(lines)
    ]
