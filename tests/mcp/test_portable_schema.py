"""Schemas of tools as every provider takes them."""

from typing import Any

import pytest

from refold.errors import BadInput
from refold.mcp.portable_schema import to_portable

TEXT, NUMBER = {"type": "string"}, {"type": "number"}


def test_alternatives_at_the_top_become_one_object_that_says_what_they_were() -> None:
    either = [{"required": ["x"]}, {"required": ["y"]}]
    sent = to_portable(
        {"type": "object", "oneOf": either, "properties": {"x": TEXT, "y": TEXT}}
    )

    assert sent == {
        "type": "object",
        "properties": {"x": TEXT, "y": TEXT},
        "description": 'The arguments also have to match {"oneOf": [{"required": ["x"]}, '
        '{"required": ["y"]}]}',
    }


@pytest.mark.parametrize(
    ("schema", "properties", "required"),
    [
        ({"anyOf": [{"properties": {"x": TEXT}}, {"properties": {"y": TEXT}}]},
         {"x": TEXT, "y": TEXT}, None),
        ({"allOf": [{"properties": {"x": TEXT}, "required": ["x"]}], "required": ["z"]},
         {"x": TEXT}, ["z", "x"]),
        ({"oneOf": [{"properties": {"x": TEXT}, "required": ["x", "k"]},
                    {"properties": {"x": NUMBER}, "required": ["k"]}]},
         {"x": {"anyOf": [TEXT, NUMBER]}}, ["k"]),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x": TEXT}, "required": ["x"]}}},
         {"x": TEXT}, ["x"]),
        ({"$ref": "#/anyOf/0", "anyOf": [{"$ref": "#"}]}, {}, None),  # it ends
        ({"not": {"required": ["x"]}, "properties": {"x": TEXT}}, {"x": TEXT}, None),
        ({"properties": {"x": True, "y": False}}, {"x": {}}, None),
        ({"properties": {"x": TEXT}, "required": "x"}, {"x": TEXT}, None),
        ({}, {}, None),
    ],
)  # fmt: skip
def test_no_alternative_and_no_reference_is_left_at_the_top(
    schema: dict[str, Any], properties: object, required: object
) -> None:
    sent = to_portable(schema)

    assert (sent["type"], sent["properties"], sent.get("required")) == (
        "object",
        properties,
        required,
    )
    assert {"anyOf", "oneOf", "allOf", "not", "$ref"} & set(sent) == set()


def test_a_list_says_what_is_in_it_wherever_it_is() -> None:
    nothing = {"type": "array"}
    schema = {
        "properties": {
            "a": nothing, "b": {"items": nothing, "type": ["array", "null"]},
            "c": {"anyOf": [nothing, TEXT]}, "type": nothing, "d": {"enum": [nothing]},
        },
        "$defs": {"e": {"properties": {"f": nothing}}},
    }  # fmt: skip

    something: dict[str, Any] = {"type": "array", "items": {}}
    assert to_portable(schema) == {
        "type": "object",
        "properties": {
            "a": something, "b": {"items": something, "type": ["array", "null"]},
            "c": {"anyOf": [something, TEXT]}, "type": something, "d": {"enum": [nothing]},
        },
        "$defs": {"e": {"properties": {"f": something}}},
    }  # fmt: skip


def test_long_alternatives_are_not_repeated_in_words() -> None:
    sent = to_portable({"anyOf": [{"properties": {f"name{n}": TEXT for n in range(100)}}]})

    assert len(sent["properties"]) == 100
    assert "description" not in sent


@pytest.mark.parametrize("properties", [3, [], {"x": "text"}])
def test_properties_that_are_none_are_refused(properties: object) -> None:
    with pytest.raises(BadInput, match="of its schema"):
        to_portable({"properties": properties})


@pytest.mark.parametrize("key", ["allOf", "anyOf"])
def test_references_that_name_one_another_are_refused(key: str) -> None:
    """They would take longer with each of them, without end."""
    schema = {"type": "object", key: [{"$ref": "#"}] * 500}

    with pytest.raises(BadInput, match="joins more than 200"):
        to_portable(schema)


def test_a_schema_that_refers_to_itself_is_written() -> None:
    schema = {"properties": {"a": {"type": "string"}}, "anyOf": [{"$ref": "#"}]}

    assert to_portable(schema)["properties"] == {"a": {"type": "string"}}
