"""Servers that speak OpenAI's Chat API, each with a rule of its own."""

import re
from collections.abc import Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from msgspec import Raw
from test_history_is_always_valid import conversations
from wires import CONVERSATION, heard, message, request, said

from refold.provider.catalog import connect, find
from refold.provider.port import TextDelta, ThinkingDelta
from refold.testing.scripted import Reply
from refold.testing.wire_answers import SSE, answer, sse
from refold.testing.wire_server import Answer, wire_server
from refold.values.messages import Message, Thinking, ToolCall, ToolResult


def asked(name: str, *talks: Sequence[Message]) -> list[list[dict[str, Any]]]:
    """The messages that one provider sends for each of these talks."""
    spec = find(name)

    async def use() -> list[list[dict[str, Any]]]:
        good = answer("openai-chat", Reply("Yes."))
        async with wire_server(*(good for _ in talks)) as server:
            environ = {spec.url_env: server.url, spec.key_env: "k"}
            async with aclosing(connect(spec, environ)) as provider:
                for talk in talks:
                    await heard(provider, request(*talk))
            return [msgspec.json.decode(h.body)["messages"] for h in server.heard]

    return anyio.run(use)


def mistral_refuses(messages: list[dict[str, Any]]) -> str:
    ids = [call["id"] for m in messages for call in m.get("tool_calls", ())]
    answered = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
    if ids != answered or len(set(ids)) != len(ids):
        return "calls and results do not match"
    if not all(re.fullmatch("[a-zA-Z0-9]{9}", id_) for id_ in ids):
        return "must be a-z, A-Z, 0-9, with a length of 9"
    for before, after in pairwise(messages):
        if (before["role"], after["role"]) == ("tool", "user"):
            return "Unexpected role 'user' after role 'tool'"
    return ""


def test_mistral_gets_short_ids_and_no_words_right_after_a_result() -> None:
    (messages,) = asked("mistral", CONVERSATION)

    assert mistral_refuses(messages) == ""
    assert [m["role"] for m in messages] == [
        "user", "assistant", "tool", "tool", "assistant", "user", "user",
    ]  # fmt: skip


def test_others_would_have_sent_mistral_what_it_refuses() -> None:
    (messages,) = asked("groq", CONVERSATION)

    assert mistral_refuses(messages) != ""


@settings(deadline=None, max_examples=15)
@given(talk=conversations())
def test_any_conversation_is_valid_for_mistral(talk: Sequence[Message]) -> None:
    (messages,) = asked("mistral", talk)

    assert mistral_refuses(messages) == ""


def test_what_mistral_is_sent_only_grows_at_the_end() -> None:
    sent = asked("mistral", *(CONVERSATION[:n] for n in (1, 3, 4, 5)))

    for shorter, longer in pairwise(sent):
        assert longer[: len(shorter)] == shorter


def test_deepseek_gets_its_thinking_back_with_its_calls_and_no_one_elses() -> None:
    def called(n: int, *thought: Thinking) -> list[Message]:
        call = ToolCall(f"call-{n}", "look", Raw(b"{}"))
        answered = message("assistant", *thought, call)
        return [answered, message("tool", ToolResult(f"call-{n}", "clouds"))]

    sealed = Thinking("sealed", "anthropic", Raw(b'{"signature":"s"}'))
    talk = [
        message("user", "?"),
        *called(1, Thinking("Clouds? \ud83d"), Thinking("Rain?")),
        *called(2, sealed),
        message("assistant", Thinking("over"), "Yes."),
        message("user", "And?"),
    ]

    (messages,) = asked("deepseek", talk)

    found = [m.get("reasoning_content") for m in messages if m["role"] == "assistant"]
    assert found == ["Clouds? �\n\nRain?", "", None]


@pytest.mark.parametrize("name", ["openai-chat", "openrouter", "groq", "xai", "vllm"])
def test_others_get_no_thinking_at_all(name: str) -> None:
    talk = (message("user", "?"), message("assistant", Thinking("Hm."), "Yes."), message("user", "?"))  # fmt: skip

    assert "Hm." not in str(asked(name, talk))


def test_mistrals_models_that_think_say_things_in_bits() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    chunks = [
        {"choices": [{"delta": {"content": [bit]}}]}
        for bit in (thinking, {"type": "text", "text": "Yes."})
    ]
    end = {"choices": [{"delta": {"content": ""}, "finish_reason": "stop"}]}

    body = b"".join(sse(c) for c in (*chunks, end))
    found = said("openai-chat", Answer(body, headers=SSE))

    assert found[:-1] == [ThinkingDelta("Hm."), TextDelta("Yes.")]
