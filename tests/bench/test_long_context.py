"""The bench of long context: its tasks have the answers that it computes, and its stand-in errs as it says."""

import re
from collections.abc import Sequence
from pathlib import Path
from random import Random

import anyio
import pytest
from msgspec.structs import replace

from bench.long_context import code_questions, needles, router, rows
from bench.long_context.outcomes import as_routed, report, report_errors
from bench.long_context.stand_in import SKILLS, StandIn
from bench.long_context.task import MakeTask, Task
from bench.long_context.ways import (
    Engine,
    Outcome,
    Way,
    agent_without_models,
    ask,
    search,
)
from refold.provider.port import Request, TextDelta
from refold.rlm.material import Material, flat_text
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text

MAKERS = (*needles.MAKERS, *rows.MAKERS, *code_questions.MAKERS)


def make_task(make: MakeTask, tokens: int = 2_000) -> Task:
    return make(Random(1), "short", tokens)


def reply_to(task: Task, model: StandIn) -> str:
    """Return what the stand-in answers to all material in one request."""
    material = Material(dict(task.material), len(task.material), task.bytes)
    message = Message("user", (Text(flat_text(task.question, material)),))

    async def collect() -> str:
        request = Request(Log([StoredMessage(0, message)]))
        return "".join(
            [d.text async for d in model.stream(request) if isinstance(d, TextDelta)]
        )

    return anyio.run(collect)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_the_stand_in_model_answers_each_kind_of_task_correctly(make: MakeTask) -> None:
    task = make_task(make)

    assert task.answer
    assert task.is_right(reply_to(task, StandIn()))


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_the_stand_in_model_with_error_rate_1_answers_each_kind_of_task_wrongly(
    make: MakeTask,
) -> None:
    task = make_task(make)

    assert not task.is_right(reply_to(task, StandIn(error_rate=1.0)))


def test_the_stand_in_model_errs_at_its_error_rate_and_repeats_its_errors() -> None:
    tasks = [rows.counted_by_kind(Random(n), "short", 300) for n in range(200)]

    first, second = (
        [t.is_right(reply_to(t, StandIn(0.1))) for t in tasks] for _ in range(2)
    )

    assert first == second
    assert 8 <= first.count(False) <= 34


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_each_question_matches_exactly_one_skill_of_the_stand_in_model(
    make: MakeTask,
) -> None:
    question = make_task(make).question

    assert sum(bool(re.search(skill.question, question)) for skill in SKILLS) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7341", False),
        ("The code is 73412.", True),
        ("73412, or perhaps 73413", False),
        ('{"answer": "73412", "claims": [{"claim": "11111"}]}', True),
        ("", False),
    ],
)
def test_an_answer_is_right_if_it_names_exactly_the_expected_items(
    text: str, expected: bool
) -> None:
    task = Task("needle", "short", "What?", {}, frozenset({"73412"}), r"\b\d{5}\b")

    assert task.is_right(text) == expected


def test_search_returns_the_lines_with_the_rarest_words_of_the_question() -> None:
    material = {"a.log": "the pump hums\n" * 2_000 + "the gate of amber is 7\n"}

    lines = search("What is the gate of amber?", material).splitlines()

    assert "a.log:2001: the gate of amber is 7" in lines
    assert sum(map(len, lines)) < 8_000


def test_the_prompt_of_an_agent_without_leaf_models_names_final_but_not_map_lm() -> None:
    prompt = agent_without_models().prompt

    assert "map_lm" not in prompt
    assert "FINAL(value) ends your work" in prompt


def test_material_larger_than_the_window_gets_no_flat_answer(tmp_path: Path) -> None:
    task = make_task(needles.single, 4_000)

    outcome = anyio.run(ask, task, "flat", Engine(4_000, provider=StandIn()), tmp_path)

    assert (outcome.is_right, outcome.problem) == (False, "does not fit")


def test_the_modes_flat_and_search_answer_with_one_request_each(tmp_path: Path) -> None:
    task, model = make_task(needles.single), StandIn()
    engine = Engine(100_000, provider=model)

    outcomes = [anyio.run(ask, task, way, engine, tmp_path) for way in ("flat", "search")]

    assert [(outcome.is_right, outcome.calls) for outcome in outcomes] == [(True, 1)] * 2
    assert model.requests == 2
    assert outcomes[0].usage.input > task.bytes // 4 > outcomes[1].usage.input


@pytest.mark.slow  # starts the process that runs code
@pytest.mark.parametrize("way", ["recursive", "code"])
def test_a_count_is_right_only_in_the_recursive_mode_which_asks_leaf_models(
    way: Way, tmp_path: Path
) -> None:
    task = rows.counted_by_kind(Random(3), "middle", 8_000)

    outcome = anyio.run(ask, task, way, Engine(100_000, provider=StandIn()), tmp_path)

    assert outcome.problem == ""
    asks_models = way == "recursive"
    assert (outcome.is_right, outcome.leaves > 0) == (asks_models, asks_models)


def outcomes_of(tasks: Sequence[Task], right: bool) -> Sequence[Outcome]:
    return [
        Outcome(task, way, is_right=right, calls=1, leaves=3, seconds=1.0)
        for task in tasks
        for way in ("flat", "recursive", "code", "search")
    ]


def test_the_report_of_the_bench_counts_right_answers_by_mode_and_kind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    task = make_task(rows.counted_by_kind)
    right, wrong = outcomes_of([task] * 3, right=True), outcomes_of([task], right=False)

    report([*right, *wrong], Engine(100_000), None, "a model")
    report_errors([*right, *wrong], 0.1)

    text = capsys.readouterr().out
    assert text.count("3 of 4") == 5 + 4 + 1
    assert "30%–95%" in text
    assert "66%" in text  # 0.9 to the power of four


def test_the_router_takes_the_flat_outcome_of_a_short_task_and_the_recursive_one_of_a_long_task() -> (
    None
):
    short = make_task(rows.counted_by_kind, 300)
    large = replace(short, material={"a.log": "x" * 400_000})

    chosen = as_routed(outcomes_of([short, large], right=True), window=100_000)

    assert [outcome.way for outcome in chosen] == ["flat", "recursive"]


def test_the_router_has_sixty_labelled_tasks_of_both_kinds() -> None:
    tasks = router.read_tasks()

    assert [task.way for task in tasks].count("flat") == 30
    assert len({task.question for task in tasks}) == 60
    assert all(task.why for task in tasks)
