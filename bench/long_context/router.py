"""Scores the router, which decides between a flat and a recursive answer, on 60 labelled questions.

The questions were labelled before the router was run on them. After that, neither the router nor the labels were changed because of
the result.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.table import show
from refold.evaluation.report import interval
from refold.rlm.router import Size, Way, route


class LabelledTask(Struct, frozen=True):
    """A question and its label: `way` is the cheapest way that can be right, and `why` explains it."""

    question: str
    tokens: int
    files: int
    window: int
    way: Way
    why: str


def read_tasks() -> Sequence[LabelledTask]:
    text = Path(__file__).with_name("router_tasks.yaml").read_text(encoding="utf-8")
    return msgspec.yaml.decode(text, type=list[LabelledTask])


def is_right(task: LabelledTask) -> bool:
    return route(task.question, Size(task.tokens, task.files, task.window)).way == task.way


def report() -> None:
    tasks = read_tasks()
    rows = list[tuple[object, ...]]()
    for name, some in (
        ("all", tasks),
        ("labelled flat", [task for task in tasks if task.way == "flat"]),
        ("labelled recursive", [task for task in tasks if task.way == "recursive"]),
    ):
        right = sum(map(is_right, some))
        low, high = interval(right, len(some))
        rows.append((name, f"{right} of {len(some)}", f"{low:.0%}–{high:.0%}"))
    show("the router", ["right", "95 %"], rows)
    for task in tasks:
        if not is_right(task):
            print(
                f"  wrong: {task.question} ({task.tokens:,} tokens, {task.files} files: {task.way}, {task.why})"
            )


if __name__ == "__main__":
    report()
