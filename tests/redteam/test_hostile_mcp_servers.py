"""Attacks by an MCP server on the user who answers its questions, and on rules about its calls."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec import json

from refold.mcp.as_tools import as_tools
from refold.mcp.manifests import RemoteTool
from refold.permissions.decide import decide
from refold.permissions.facts import Access, Facts
from refold.permissions.rules import parse
from refold.tools.contract import Reply
from tests.mcp.test_mcp_questions import User, elicit
from tests.mcp.test_mcp_sampling import Talk
from tests.mcp.test_mcp_sessions import Place

# Schemas of forms that no user is asked to fill in.
NO_FORMS: Mapping[str, object] = {
    "a field that is a number": {"properties": {"a": 5}},
    "a list of fields": {"properties": [1]},
    "no fields at all": {"properties": None},
    "options that are a number": {"properties": {"a": {"enum": 7}}},
    "options that are objects": {"properties": {"a": {"enum": [{"x": 1}]}}},
    "100,000 options": {"properties": {"a": {"enum": ["x"] * 100_000}}},
    "an option of a million letters": {"properties": {"a": {"enum": ["x" * 1_000_000]}}},
    "a name of a million letters": {"properties": {"a" * 1_000_000: {"type": "string"}}},
    "a default that is an object": {"properties": {"a": {"default": {"k": "v"}}}},
    "a number of required fields": {"properties": {"a": {"type": "string"}}, "required": 3},
    "100 fields": {"properties": {str(n): {"type": "string"} for n in range(100)}},
}
LONG = {"padding": "x" * 5_000, "to": "evil@example.org"}


def form(schema: object) -> object:
    from mcp_types import ElicitRequestFormParams

    return ElicitRequestFormParams.model_validate(
        {"message": "Your order?", "requestedSchema": schema}
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", NO_FORMS)
def test_no_user_is_asked_to_fill_in_what_is_no_form(name: str) -> None:
    user = User("answer")

    assert elicit(user, form(NO_FORMS[name])) == ("decline", None)
    assert user.asked == []


@pytest.mark.slow
def test_invisible_characters_of_an_option_are_written_out_and_sent_unchanged() -> None:
    option = "red\u202e\x1b[2J"
    user = User("answer", "red⟦U+202E⟧⟦U+001B⟧[2J")

    found = elicit(user, form({"properties": {"a": {"enum": [option]}}, "required": ["a"]}))

    assert found == ("accept", {"a": option})


@pytest.mark.slow
def test_a_default_that_is_not_shown_as_a_whole_is_not_sent() -> None:
    user = User("answer", "skip")

    found = elicit(user, form({"properties": {"a": {"default": "short" + "x" * 5_000}}}))

    assert found == ("decline", None)


@pytest.mark.slow
@pytest.mark.timeout(90)
@pytest.mark.parametrize(("answer", "asked"), [("decline", 1), ("answer", 20)])
def test_a_server_that_asks_again_and_again_is_not_put_to_the_user(
    tmp_path: Path, answer: str, asked: int
) -> None:
    talk = Talk(Place(tmp_path), "elicit-endless", answer, lines=())

    assert len(talk.questions) == asked
    assert len(talk.replies) == 30


def test_a_rule_sees_all_arguments_however_long_they_are() -> None:
    async def call(*_: object) -> Reply:
        return Reply("")

    (tool,) = as_tools({"s": [RemoteTool("send", "", "{}")]}, call).tools
    subject = tool.subject_of(tool.parse(json.encode(LONG)))
    access = Access(tool.name, tool.effect, subject)
    rules = [parse("mcp__s__send(*evil@example.org*)", "deny")]

    assert decide(access, "bypass", rules, Facts()).verdict == "deny"
