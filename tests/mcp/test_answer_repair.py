"""One bad tool, prompt, resource or part of a result costs that one, and the rest is read."""

from typing import Any

import mcp_types as types
import pytest

from refold.mcp.answer_repair import repair, schema_as_sent

GOOD: dict[str, Any] = {"name": "good", "inputSchema": {"type": "object", "properties": {}}}
WORDS = {"type": "text", "text": "forty-two rows"}


def repair_result(result: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the result as the SDK gets it, and the remarks about it."""
    texts = list[str]()
    message = repair(
        types.JSONRPCResponse(jsonrpc="2.0", id=1, result=result), texts.append
    )
    assert isinstance(message, types.JSONRPCResponse)
    return message.result, texts


@pytest.mark.parametrize("key", ["tools", "prompts", "resources"])
def test_a_text_part_in_a_listing_is_left_out(key: str) -> None:
    good = {**GOOD, "uri": "file:///good"}

    result, texts = repair_result({key: [good, WORDS]})

    assert result[key] == [good]
    assert len(texts) == 1


@pytest.mark.parametrize(
    "schema",
    [
        {}, None, "text", [], {"type": "string"}, {"anyOf": [{"type": "object"}]},
        {"type": "object", "required": "text"}, {"type": "object", "properties": {"a": "text"}},
        {"type": "object", "properties": []}, {"type": ["object", "null"]},
    ],
)  # fmt: skip
def test_an_invalid_tool_schema_is_kept_as_sent_and_does_not_fail_the_listing(
    schema: object,
) -> None:
    result, texts = repair_result({"tools": [GOOD, {"name": "odd", "inputSchema": schema}]})

    good, odd = types.ListToolsResult.model_validate(result).tools
    assert (good.name, schema_as_sent(good.input_schema)) == ("good", GOOD["inputSchema"])
    assert (odd.name, odd.input_schema["type"]) == ("odd", "object")
    assert schema_as_sent(odd.input_schema) == schema
    assert texts == []


# The SDK would compare each result with it, and hold the interpreter meanwhile.
SLOW = {"type": "object", "properties": {"p": {"type": "string", "pattern": "^(a+)+$"}}}


@pytest.mark.parametrize(
    "more",
    [
        {"outputSchema": {"description": "no type"}}, {"outputSchema": 3}, {"outputSchema": SLOW}, {"description": 7},
        {"annotations": "none"}, {"icons": 1}, {"execution": []}, {"title": {}},
    ],
)  # fmt: skip
def test_invalid_unused_fields_of_a_tool_are_ignored(more: dict[str, object]) -> None:
    result, texts = repair_result({"tools": [{**GOOD, **more}]})

    (tool,) = types.ListToolsResult.model_validate(result).tools
    assert (tool.name, tool.output_schema) == ("good", None)
    assert texts == []


@pytest.mark.parametrize(
    ("key", "good", "bad", "words"),
    [
        ("tools", GOOD, {"name": 3}, "the tool 3 is left out: "),
        ("tools", GOOD, "text", "tool 2 of its list is left out: "),
        ("prompts", {"name": "p"}, {"name": "q", "arguments": 3}, "the prompt 'q' is left out: "),
        ("resources", {"uri": "a://b", "name": "r"}, {"name": "s"}, "the resource 's' is left out"),
    ],
)  # fmt: skip
def test_an_unreadable_entry_of_a_listing_is_omitted_and_reported(
    key: str, good: object, bad: object, words: str
) -> None:
    result, texts = repair_result({key: [good, bad]})

    assert result[key] == [good]
    assert [sentence.startswith(words) for sentence in texts] == [True]


@pytest.mark.parametrize(
    ("content", "beginnings"),
    [
        (
            [WORDS, {"type": "widget", "x": 1}],
            ["forty-two rows", "[a part of the kind 'widget', "],
        ),
        ([{"type": "image"}, WORDS], ["[a part of the kind 'image', ", "forty-two rows"]),
        ([WORDS, 7], ["forty-two rows", "[a part of the kind 'None', "]),
        ("forty-two rows", ["forty-two rows"]),
        (None, []),
    ],
)
def test_an_unknown_part_of_a_result_leaves_the_other_parts_readable(
    content: object, beginnings: list[str]
) -> None:
    repaired, _ = repair_result({"content": content})

    blocks = types.CallToolResult.model_validate(repaired).content
    read_texts = [block.text for block in blocks if isinstance(block, types.TextContent)]
    assert len(read_texts) == len(beginnings)
    for text, beginning in zip(read_texts, beginnings, strict=True):
        assert text.startswith(beginning)


def test_a_prompt_message_may_be_plain_text_and_an_unknown_part_becomes_a_note() -> None:
    messages = [
        {"role": "user", "content": "Hi."},
        {"role": "user", "content": {"type": "x"}},
    ]

    repaired, _ = repair_result({"messages": messages})

    read_messages = types.GetPromptResult.model_validate(repaired).messages
    assert [getattr(message.content, "text", "")[:9] for message in read_messages] == [
        "Hi.",
        "[a part o",
    ]


@pytest.mark.parametrize(
    "message",
    [
        types.JSONRPCResponse(
            jsonrpc="2.0", id=1, result={"tools": [GOOD], "content": [WORDS]}
        ),
        types.JSONRPCResponse(jsonrpc="2.0", id=1, result={"capabilities": {}}),
        types.JSONRPCNotification(jsonrpc="2.0", method="x", params={"content": 3}),
    ],
)
def test_a_valid_message_is_passed_on_unchanged(message: types.JSONRPCMessage) -> None:
    assert repair(message, lambda _: None) is message
