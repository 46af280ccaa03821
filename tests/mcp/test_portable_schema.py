"""Schemas of tools as every provider takes them."""

from typing import Any

import pytest

from refold.errors import BadInput
from refold.mcp.portable_schema import to_portable

TEXT, NUMBER = {"type": "string"}, {"type": "number"}


def test_top_level_alternatives_become_one_object_that_describes_them() -> None:
    either = [{"required": ["x"]}, {"required": ["y"]}]
    portable = to_portable(
        {"type": "object", "oneOf": either, "properties": {"x": TEXT, "y": TEXT}}
    )

    assert portable == {
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
def test_alternatives_and_references_at_the_top_level_are_merged_into_an_object(
    schema: dict[str, Any], properties: object, required: object
) -> None:
    portable = to_portable(schema)

    assert (portable["type"], portable["properties"], portable.get("required")) == (
        "object",
        properties,
        required,
    )
    assert {"anyOf", "oneOf", "allOf", "not", "$ref"} & set(portable) == set()


def test_every_array_schema_gets_a_schema_for_its_items() -> None:
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


def test_long_alternatives_are_not_repeated_in_the_description() -> None:
    portable = to_portable(
        {"anyOf": [{"properties": {f"name{n}": TEXT for n in range(100)}}]}
    )

    assert len(portable["properties"]) == 100
    assert "description" not in portable


@pytest.mark.parametrize("more", [{}, {"anyOf": [{"required": ["a"]}]}])
def test_a_description_that_is_no_text_is_left_out(more: dict[str, Any]) -> None:
    portable = to_portable({"properties": {"a": TEXT}, "description": 7, **more})

    assert portable["properties"] == {"a": TEXT}
    assert portable.get("description") != 7


@pytest.mark.parametrize("properties", [3, [], {"x": "text"}])
def test_invalid_properties_of_a_tool_schema_are_refused(properties: object) -> None:
    with pytest.raises(BadInput, match="of its schema"):
        to_portable({"properties": properties})


@pytest.mark.parametrize("key", ["allOf", "anyOf"])
def test_a_schema_that_joins_too_many_references_is_refused(key: str) -> None:
    """Each additional reference would multiply the time that a check takes."""
    schema = {"type": "object", key: [{"$ref": "#"}] * 500}

    with pytest.raises(BadInput, match="joins more than 200"):
        to_portable(schema)


def test_a_schema_whose_top_level_refers_to_itself_is_converted() -> None:
    schema = {"properties": {"a": {"type": "string"}}, "anyOf": [{"$ref": "#"}]}

    assert to_portable(schema)["properties"] == {"a": {"type": "string"}}
