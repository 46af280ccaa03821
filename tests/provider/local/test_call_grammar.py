"""The grammar allows one call, written on one line, and nothing else."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from refold.provider.local.call_grammar import call_grammar
from refold.values.tools import ToolSpec


def spec(name: str, properties: dict[str, Any], *required: str) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSpec(name, "it does something", Raw(msgspec.json.encode(schema)))


TEXT = {"type": "string", "description": "any"}


def test_grammar_allows_each_call_on_one_line_with_its_arguments_in_order() -> None:
    finish = spec("finish", {"answer": TEXT}, "answer")
    change = spec(
        "change", {"all": {"type": "boolean"}, "old": TEXT, "new": TEXT}, "old", "new"
    )

    root, *values = call_grammar((finish, change)).split("\n")

    assert root == (
        r'root ::= "{\"tool\": \"" ('
        r'"finish\", \"arguments\": {" "\"answer\": " string "}}" | '
        r'"change\", \"arguments\": {" "\"old\": " string ", " "\"new\": " string '
        r'(", \"all\": " boolean)? "}}")'
    )
    assert [value.partition(" ")[0] for value in values] == [
        "string", "boolean", "integer", "number",
    ]  # fmt: skip


def test_enum_values_are_json_literals_in_the_grammar() -> None:
    turn = spec("turn", {"to": {"enum": ["left", 'the "other"', 3]}}, "to")

    root = call_grammar((turn,)).partition("\n")[0]

    assert root.endswith(r'"\"to\": " ("\"left\"" | "\"the \\\"other\\\"\"" | "3") "}}")')


@pytest.mark.parametrize(
    "tool",
    [
        spec("no_arguments", {}),
        spec("optional", {"path": TEXT}),
        spec("list", {"paths": {"type": "array", "items": TEXT}}, "paths"),
        spec("limited", {"path": {"type": "string", "maxLength": 3}}, "path"),
        spec("either", {"path": {"type": ["string", "null"]}}, "path"),
        spec("other", {"path": TEXT, "more": {"type": "object"}}, "path"),
    ],
    ids=lambda tool: tool.name,
)
def test_tool_that_the_grammar_cannot_express_leaves_no_grammar(tool: ToolSpec) -> None:
    plain = spec("plain", {"path": TEXT}, "path")

    assert call_grammar((plain, tool)) == ""


def test_call_grammar_is_empty_without_tools() -> None:
    assert call_grammar(()) == ""
