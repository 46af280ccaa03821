"""Validation of answers against a schema, and invalid schemas."""

import msgspec
import pytest
from msgspec import Raw

from refold.values.json_check import Schema, value_in


def schema(**options: object) -> Schema:
    return Schema(Raw(msgspec.json.encode(options)))


TREE = {"$defs": {"node": {"type": "object", "required": ["n"],
        "properties": {"next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"}  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ('{"n": 1, "next": {"n": 2}}', ""),
        ('  {"n": 1}\n', ""),
        ('```json\n{"n": 1}\n```', ""),
        ('```\n{"n": 1}\n```\n', ""),
        ('{"n": 1, "next": {}}', "$.next: 'n' is a required property"),
        ("7", "$: 7 is not of type 'object'"),
        ('Here it is: {"n": 1}', "it is not JSON ("),
        ('Here you go:\n```json\n{"n": 1}\n```\nThat is it.', ""),
        ('```json\n{"n": 1}\n```\nor\n```json\n{"n": 2}\n```', "it is not JSON ("),
        ("```python\nn = 1\n```", "it is not JSON ("),
        ("", "it is not JSON ("),
        ("[" * 100_000, "it is not JSON ("),
    ],
)
def test_schema_problem_names_the_path_in_the_answer(answer: str, problem: str) -> None:
    result = schema(**TREE).problem(answer)

    assert result.startswith(problem)
    assert bool(result) == bool(problem)


def test_a_few_problems_are_named_and_the_rest_counted() -> None:
    problem = schema(items={"type": "string"}).problem("[1, 2, 3, 4, 5]")

    assert problem.startswith("$[0]: 1 is not of type 'string'; $[1]: ")
    assert problem.endswith("; and 2 more")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"type": 7}, r"\$\.type: 7 is not valid"),
        ({"$ref": "#/nope"}, "refers to what it does not hold"),
        ({"$ref": "http://localhost:1/x"}, "refers to what it does not hold"),
        ({"$ref": "#"}, "without end"),
    ],
)
def test_invalid_schema_is_refused_when_it_is_read(
    value: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        schema(**value)


def test_schema_with_an_unknown_reference_for_items_is_reported_with_the_answer() -> None:
    """Only an answer that has items leads to the reference."""
    answer_schema = schema(type="array", items={"$ref": "other.json"})

    assert "refers to what it does not hold" in answer_schema.problem("[1]")


def test_value_is_read_from_the_only_code_fence() -> None:
    assert value_in("```json\n[1]\n```") == [1]


def test_schema_nested_too_deeply_is_refused() -> None:
    deep = b'{"allOf":[' * 5_000 + b"{}" + b"]}" * 5_000

    with pytest.raises(ValueError, match="too deep"):
        Schema(Raw(deep))


def doubling_schema(times: int) -> str:
    """Return a schema in which each part refers to the next one twice."""
    parts = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(times)}
    return msgspec.json.encode(
        {"$defs": {**parts, f"a{times}": {}}, "$ref": "#/$defs/a0"}
    ).decode()


@pytest.mark.parametrize(
    ("written", "why"),
    [
        pytest.param(
            doubling_schema(40), "takes too long to follow", marks=pytest.mark.slow
        ),
        ('{"items": {"pattern": "^(a+)+$"}}', "a pattern is not followed here"),
        ('{"patternProperties": {"^(a+)+$": {}}}', "a pattern is not followed here"),
        ('{"$ref": "#/x", "x": 5}', "refers to something that is not a schema"),
        ('{"$ref": "#/x", "x": [5]}', "refers to something that is not a schema"),
    ],
)
def test_schema_from_model_code_with_unbounded_keywords_is_refused(
    written: str, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        Schema(Raw(written.encode()), bounded=True)


def test_schema_from_model_code_validates_like_any_other() -> None:
    text = '{"properties": {"pattern": {"type": "string"}}, "required": ["pattern"]}'
    bounded = Schema(Raw(text.encode()), bounded=True)

    assert bounded.problem('{"pattern": "a"}') == ""
    assert bounded.problem("{}") == Schema(Raw(text.encode())).problem("{}") != ""
