"""Which way the router chooses, on tasks that were labelled before it was written."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from refold.rlm.router import Route, Size, route, whole_material_words
from tests.documents import read_pages

TASKS: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("router_tasks.yaml").read_text(encoding="utf-8")
)


def chosen_way(task: dict[str, Any]) -> str:
    size = Size(task["tokens"], task["files"], task["window"])
    return route(task["question"], size).way


def test_the_router_has_thirty_labelled_tasks_with_reasons() -> None:
    ways = [task["way"] for task in TASKS]

    assert (len(ways), ways.count("flat") >= 12, ways.count("recursive") >= 12) == (
        30, True, True,
    )  # fmt: skip
    assert sum(task.get("unseen", False) for task in TASKS) == 8
    assert all(task["why"] for task in TASKS)


def test_the_router_is_right_on_at_least_26_of_30_tasks() -> None:
    wrong = [task["question"] for task in TASKS if chosen_way(task) != task["way"]]

    assert len(wrong) <= 4, wrong


def test_the_router_is_right_on_at_least_6_of_8_unseen_tasks() -> None:
    unseen = [task for task in TASKS if task.get("unseen")]

    assert sum(chosen_way(task) == task["way"] for task in unseen) >= 6


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (2_000, Route("flat", "about 2,000 tokens are read at a glance")),
        (
            2_001,
            Route(
                "recursive",
                "'How many' asks for something over all of the material (about 2,001 "
                "tokens), which code finds exactly and a reader guesses",
            ),
        ),
        (
            40_001,
            Route(
                "recursive",
                "about 40,001 tokens are more than a third of the window of 120,000",
            ),
        ),
    ],
)
def test_the_router_decides_by_size_and_keywords_and_names_the_reason(
    tokens: int, expected: Route
) -> None:
    assert route("How many errors are there?", Size(tokens, 1, 120_000)) == expected


def test_counting_in_more_than_ten_files_is_routed_recursive() -> None:
    text = "How many errors are there?"

    assert route(text, Size(400, 10, 120_000)).way == "flat"
    assert route(text, Size(400, 11, 120_000)).way == "recursive"
    assert route("Who wrote it?", Size(400, 11, 120_000)).way == "flat"


def test_a_lookup_is_routed_flat_up_to_a_third_of_the_window() -> None:
    text = "Who wrote it?"

    assert route(text, Size(40_000, 9, 120_000)) == Route(
        "flat", "about 40,000 tokens fit, and the question asks for one thing"
    )
    assert route(text, Size(40_001, 9, 120_000)).way == "recursive"


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("COUNT them", "COUNT"),
        ("how\n  many are there", "how many"),
        ("the account of the count's son", "count"),
        ("Who is percent?", ""),
        ("", ""),
    ],
)
def test_keywords_match_as_complete_words_in_any_case(question: str, words: str) -> None:
    assert whole_material_words(question) == words


def test_keywords_of_a_very_long_question_are_found() -> None:
    assert whole_material_words("how many " + "a " * 100_000) == "how many"
    assert whole_material_words("compare " + "a " * 20_000) == ""


HARD: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("router_hard_tasks.yaml").read_text(encoding="utf-8")
)


def test_the_rlm_page_states_the_score_of_the_router_on_unseen_misleading_questions() -> (
    None
):
    """The score on questions that did not shape the router is the one that counts."""
    page = read_pages("guides/rlm", "reference/rlm")
    unseen = [task for task in HARD if task.get("unseen")]

    right = sum(chosen_way(task) == task["way"] for task in unseen)

    assert f"{right} of {len(unseen)}" in page
