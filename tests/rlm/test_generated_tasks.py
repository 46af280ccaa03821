"""Questions about material far larger than a window, answered by programs.

The answer must be right, the root must read a bounded number of tokens however much
material there is, and exactly the models are called that the program names.
"""

from pathlib import Path

import pytest

from refold.rlm.worker_port import Workers
from refold.testing.providers import ScriptedProvider
from tests.rlm.acting_by_code import CodeSession, Leaf, material, observations
from tests.rlm.generated import Task, answering, tasks

MOST_READ = 4_000  # characters that the root reads, of its prompt and all outputs


def run_of(task: Task, workers: Workers | None = None) -> CodeSession:
    return CodeSession(
        ScriptedProvider(*task.program),
        Leaf(answering),
        workers=workers,
        repl_options=material(context=task.context),
    )


def check(task: Task, run: CodeSession) -> None:
    view = run.run("Find out.")

    assert (view.turn.outcome, view.turn.answer) == ("final", task.answer), observations(
        view
    )
    assert len(run.leaf.heard) == task.leaves
    last = run.model.heard[-1]
    read = sum(len(s.message.text) for s in last.messages) + len(last.system)
    assert read < MOST_READ


@pytest.mark.parametrize("task", tasks(32_000), ids=lambda task: task.name)
def test_code_answers_questions_about_material_larger_than_the_window(task: Task) -> None:
    check(task, run_of(task))


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [32_000, 1_000_000, 10_000_000])
def test_sandboxed_code_answers_questions_about_material_of_any_size(
    tokens: int, tmp_path: Path
) -> None:
    from tests.rlm.walled_python import workers

    for task in tasks(tokens):
        with workers(tmp_path) as result:
            check(task, run_of(task, result))
