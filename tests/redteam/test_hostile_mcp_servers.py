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
from refold.values.display import FormAnswer
from tests.mcp.test_mcp_questions import User, accept, elicit
from tests.mcp.test_mcp_sampling import Talk
from tests.mcp.test_mcp_sessions import Place

# Schemas of forms of which nothing can be filled in, or need be.
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
    "a format that is a list": {"properties": {"a": {"type": "string", "format": []}}},
    "a number of required fields": {"properties": {"a": {"type": "string"}}, "required": 3},
    "100 fields": {"properties": {str(n): {"type": "string"} for n in range(100)}},
}
DECLINE = FormAnswer("decline").encode()
LONG = {"padding": "x" * 5_000, "to": "evil@example.org"}


def form(schema: object) -> object:
    from mcp_types import ElicitRequestFormParams

    return ElicitRequestFormParams.model_validate(
        {"message": "Your order?", "requestedSchema": schema}
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", NO_FORMS)
def test_an_invalid_mcp_form_is_shown_short_and_sends_no_values(name: str) -> None:
    user = User(accept())

    assert elicit(user, form(NO_FORMS[name])) == ("accept", {}, "")
    assert len(json.encode(user.forms)) < 5_000


@pytest.mark.slow
def test_a_form_option_with_invisible_characters_cannot_be_accepted() -> None:
    option = "red\u202e\x1b[2J"
    user = User(accept(a=option), DECLINE)

    answer = elicit(
        user, form({"properties": {"a": {"enum": [option]}}, "required": ["a"]})
    )

    assert answer == ("decline", None, "")
    assert user.forms[0].problem == "the field 'a' has a choice that cannot be shown"


@pytest.mark.slow
def test_a_form_default_that_is_not_shown_completely_is_not_sent() -> None:
    user = User(accept())

    answer = elicit(user, form({"properties": {"a": {"default": "short" + "x" * 5_000}}}))

    assert answer == ("accept", {}, "")


@pytest.mark.slow
@pytest.mark.timeout(90)
@pytest.mark.parametrize(("answer", "asked"), [(DECLINE, 3), (accept(), 20)])
def test_questions_of_an_mcp_server_are_limited_in_number(
    tmp_path: Path, answer: str, asked: int
) -> None:
    conversation = Talk(Place(tmp_path), "elicit-endless", answer, lines=())

    assert len(conversation.questions) == asked
    assert len(conversation.replies) == 30


def test_a_deny_rule_matches_long_arguments_of_an_mcp_call() -> None:
    async def call(*_: object) -> Reply:
        return Reply("")

    (tool,) = as_tools({"s": [RemoteTool("send", "", "{}")]}, call).tools
    subject = tool.subject_of(tool.parse(json.encode(LONG)))
    access = Access(tool.name, tool.effect, subject)
    rules = [parse("mcp__s__send(*evil@example.org*)", "deny")]

    assert decide(access, "bypass", rules, Facts()).verdict == "deny"
