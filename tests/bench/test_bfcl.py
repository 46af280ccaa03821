"""The BFCL bench: its data is read, and calls are compared as the leaderboard does."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from bench.bfcl import Counted, ask, count, is_right, questions, report
from refold.testing.providers import ScriptedProvider

AREA = {
    "id": "simple_python_0",
    "question": [[{"role": "user", "content": "How large is a triangle of 10 and 5?"}]],
    "function": [
        {
            "name": "math.area",
            "description": "Area of a triangle.",
            "parameters": {
                "type": "dict",
                "properties": {
                    "base": {"type": "integer"},
                    "height": {"type": "float"},
                    "unit": {"type": "string", "optional": True},
                },
                "required": ["base", "height"],
            },
        }
    ],
}
ANSWER = {
    "id": "simple_python_0",
    "ground_truth": [{"math.area": {"base": [10], "height": [5], "unit": ["units", ""]}}],
}


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "bfcl.whl"
    with zipfile.ZipFile(path, "w") as archive:
        data = "bfcl_eval/data"
        archive.writestr(f"{data}/BFCL_v4_simple_python.json", json.dumps(AREA))
        answers = f"{data}/possible_answer/BFCL_v4_simple_python.json"
        archive.writestr(answers, json.dumps(ANSWER))
        archive.writestr(f"{data}/BFCL_v4_irrelevance.json", json.dumps(AREA))
    return path


def test_functions_become_tools_with_json_schemas_and_names_without_dots(
    wheel: Path,
) -> None:
    (question,) = questions(wheel, "simple_python", 5)

    (tool,) = question.tools
    schema = msgspec.json.decode(tool.parameters)
    assert tool.name == "math_area"
    assert schema["type"] == "object"
    assert schema["properties"]["height"] == {"type": "number"}
    assert schema["properties"]["unit"] == {"type": "string"}


@pytest.mark.parametrize(
    ("calls", "right"),
    [
        ([("math_area", {"base": 10, "height": 5})], True),
        ([("math_area", {"base": 10, "height": 5.0, "unit": "Units."})], True),
        ([("math_area", {"base": 10, "height": 6})], False),
        ([("math_area", {"base": 10})], False),
        ([("math_area", {"base": 10, "height": 5, "depth": 1})], False),
        ([("area", {"base": 10, "height": 5})], False),
        ([("math_area", {"base": 10, "height": 5})] * 2, False),
        ([], False),
    ],
)
def test_a_call_is_scored_right_only_with_accepted_arguments(
    wheel: Path, calls: list[tuple[str, Mapping[str, Any]]], right: bool
) -> None:
    (question,) = questions(wheel, "simple_python", 5)

    assert is_right(question, calls) is right


def test_a_question_without_a_matching_function_is_right_only_without_a_call(
    wheel: Path,
) -> None:
    (question,) = questions(wheel, "irrelevance", 5)

    assert is_right(question, [])
    assert not is_right(question, [("math_area", {"base": 10, "height": 5})])


def test_the_calls_of_a_model_response_are_scored(wheel: Path) -> None:
    (question,) = questions(wheel, "simple_python", 5)
    arguments = '{"base": 10, "height": 5}'
    provider = ScriptedProvider([("math_area", arguments)])

    calls = anyio.run(ask, provider, "a", question)

    assert is_right(question, calls)


def test_report_counts_right_answers_per_category(
    wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same_question_twice = list(questions(wheel, "simple_python", 1)) * 2
    right = ("math_area", '{"base": 10, "height": 5}')
    provider = ScriptedProvider([right], "I do not know.")

    outcome = anyio.run(count, provider, "m", "simple_python", same_question_twice)
    report("a/m", [outcome, Counted("multiple", 0, 0, 0.0)])

    assert (outcome.right, outcome.tried) == (1, 2)
    output = capsys.readouterr()
    assert output.err == "simple_python_0: right\nsimple_python_0: wrong\n"
    assert [row.split()[:2] for row in output.out.splitlines()[-2:]] == [
        ["simple_python", "1/2"],
        ["multiple", "0/0"],
    ]
