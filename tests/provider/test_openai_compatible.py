"""Servers with OpenAI's Chat API, each with a rule of its own."""

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
from msgspec.structs import replace

from refold.engine.answer_draft import Draft
from refold.errors import ProviderError
from refold.provider.catalog import connect, find
from refold.provider.port import CallDelta, Delta, Done, TextDelta, ThinkingDelta
from refold.provider.spec import ProviderSpec, Quirks
from refold.testing.providers import Reply
from refold.testing.wire_answers import SSE, answer, sse
from refold.testing.wire_server import Answer, wire_server
from refold.values.messages import Message, Thinking, ToolCall, ToolResult
from refold.values.usage import Usage
from tests.provider.strict_servers import rejection_reason
from tests.provider.test_history_validity import conversations
from tests.provider.wires import (
    CAT,
    CONVERSATION,
    KEY,
    PICTURES,
    TOOLS,
    message,
    read_deltas,
    request,
    stream_deltas,
    words,
)


def send_conversations(name: str, *talks: Sequence[Message]) -> list[list[dict[str, Any]]]:
    """Return the messages that one provider sends for each of these talks."""
    return [body["messages"] for body in request_bodies(name, *talks, pictures=PICTURES)]


def request_bodies(
    name: str, *talks: Sequence[Message], **options: Any
) -> list[dict[str, Any]]:
    """Return what one provider sends for each of these talks."""
    spec = find(name)

    async def main() -> list[list[dict[str, Any]]]:
        good = answer("openai-chat", Reply("Yes."))
        async with wire_server(*(good for _ in talks)) as server:
            there = replace(spec, base_url=server.url)
            async with aclosing(connect(there, {spec.key_env: KEY})) as provider:
                for conversation in talks:
                    await stream_deltas(provider, request(*conversation, **options))
            return [msgspec.json.decode(h.body) for h in server.heard]

    return anyio.run(main)


def mistral_refuses(messages: list[dict[str, Any]]) -> str:
    ids = [call["id"] for m in messages for call in m.get("tool_calls", ())]
    tool_call_ids = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
    if ids != tool_call_ids or len(set(ids)) != len(ids):
        return "calls and results do not match"
    if not all(re.fullmatch("[a-zA-Z0-9]{9}", id_) for id_ in ids):
        return "must be a-z, A-Z, 0-9, with a length of 9"
    for before, after in pairwise(messages):
        if (before["role"], after["role"]) == ("tool", "user"):
            return "Unexpected role 'user' after role 'tool'"
    return ""


def test_mistral_gets_short_ids_and_no_user_message_right_after_a_result() -> None:
    (messages,) = send_conversations("mistral", CONVERSATION)

    assert mistral_refuses(messages) == ""
    assert [m["role"] for m in messages] == [
        "user", "assistant", "tool", "tool", "assistant", "user", "user",
    ]  # fmt: skip


def test_unadapted_request_would_be_refused_by_mistral() -> None:
    (messages,) = send_conversations("groq", CONVERSATION)

    assert mistral_refuses(messages) != ""


@settings(deadline=None, max_examples=15)
@given(conversation=conversations())
def test_any_conversation_is_a_valid_request_for_mistral(
    conversation: Sequence[Message],
) -> None:
    (messages,) = send_conversations("mistral", conversation)

    assert mistral_refuses(messages) == ""


def test_mistral_gets_images_of_results_after_an_assistant_message() -> None:
    calls = [ToolCall(f"call-{n}", "look", Raw(b"{}")) for n in (1, 2)]
    results = [ToolResult(call.id, "a cat", images=(CAT,)) for call in calls]
    conversation = [
        message("user", "?", CAT),
        message("assistant", *calls),
        message("tool", *results),
    ]

    (records,) = send_conversations("mistral", conversation)
    (more,) = send_conversations("mistral", [*conversation, message("user", "And?")])

    assert [m["role"] for m in records] == [
        "user", "assistant", "tool", "tool", "assistant", "user",
    ]  # fmt: skip
    assert more[: len(records)] == records
    for messages in (records, more):
        assert mistral_refuses(messages) == ""
        assert str(messages).count("iVBORyBjYXQ=") == 3


def test_mistral_request_only_grows_at_its_end() -> None:
    records = send_conversations("mistral", *(CONVERSATION[:n] for n in (1, 3, 4, 5)))

    for shorter, longer in pairwise(records):
        assert longer[: len(shorter)] == shorter


def test_deepseek_gets_its_own_reasoning_back_but_not_that_of_other_providers() -> None:
    def call_messages(n: int, *thought: Thinking) -> list[Message]:
        call = ToolCall(f"call-{n}", "look", Raw(b"{}"))
        assistant_message = message("assistant", *thought, call)
        return [assistant_message, message("tool", ToolResult(f"call-{n}", "clouds"))]

    sealed = Thinking("sealed", "anthropic", Raw(b'{"signature":"s"}'))
    conversation = [
        message("user", "?"),
        *call_messages(1, Thinking("Clouds? \ud83d"), Thinking("Rain?")),
        *call_messages(2, sealed),
        message("assistant", Thinking("over"), "Yes."),
        message("user", "And?"),
    ]

    (messages,) = send_conversations("deepseek", conversation)

    values = [m.get("reasoning_content") for m in messages if m["role"] == "assistant"]
    assert values == ["Clouds? �\n\nRain?", "", None]


@pytest.mark.parametrize("name", ["openai-chat", "openrouter", "groq", "xai", "vllm"])
def test_other_compatible_servers_get_no_reasoning_back(name: str) -> None:
    conversation = (message("user", "?"), message("assistant", Thinking("Hm."), "Yes."), message("user", "?"))  # fmt: skip

    assert "Hm." not in str(send_conversations(name, conversation))


def test_mistral_thinking_is_read_from_content_chunks() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    chunks = [
        {"choices": [{"delta": {"content": [bit]}}]}
        for bit in (thinking, {"type": "text", "text": "Yes."})
    ]
    end = {"choices": [{"delta": {"content": ""}, "finish_reason": "stop"}]}

    body = b"".join(sse(c) for c in (*chunks, end))
    deltas = read_deltas("openai-chat", Answer(body, headers=SSE))

    assert deltas[:-1] == [ThinkingDelta("Hm."), TextDelta("Yes.")]


SCHEMA = Raw(b'{"type":"object","properties":{"rain":{"type":"boolean"}}}')


@pytest.mark.parametrize(
    ("name", "effort"),
    [
        ("openrouter", {"reasoning": {"effort": "max"}}),
        ("groq", {"reasoning_effort": "max"}),
        ("mistral", {"reasoning_effort": "max"}),
        ("vllm", {"reasoning_effort": "max"}),
    ],
)
def test_each_server_gets_effort_in_its_own_field(
    name: str, effort: dict[str, Any]
) -> None:
    (body,) = request_bodies(name, CONVERSATION[:1], effort="max")

    fields = ("reasoning", "reasoning_effort")
    assert {f: body[f] for f in fields if f in body} == effort


@pytest.mark.parametrize(
    ("name", "sends_schema"),
    [("openrouter", True), ("xai", True), ("vllm", False), ("groq", False)],
)
def test_schema_is_sent_with_tools_only_if_the_server_still_allows_calls(
    name: str, sends_schema: bool
) -> None:
    (beside,) = request_bodies(name, CONVERSATION[:1], schema=SCHEMA, tools=TOOLS)
    (alone,) = request_bodies(name, CONVERSATION[:1], schema=SCHEMA)

    wanted = {"name": "answer", "schema": msgspec.json.decode(SCHEMA), "strict": False}
    format_ = {"type": "json_schema", "json_schema": wanted}
    assert beside.get("response_format") == (format_ if sends_schema else None)
    assert alone["response_format"] == format_


def run_answers(
    spec: ProviderSpec,
    *answers: Answer,
    conversation: Sequence[Message] = CONVERSATION[:1],
    **options: Any,
) -> tuple[list[list[Delta]], list[dict[str, Any]]]:
    """Return the deltas of each answer, and the request for it."""

    async def main() -> tuple[list[list[Delta]], list[dict[str, Any]]]:
        async with wire_server(*answers) as server:
            environ = {spec.url_env: server.url, spec.key_env: KEY}
            async with aclosing(connect(spec, environ)) as provider:
                deltas = [
                    await stream_deltas(provider, request(*conversation, **options))
                    for _ in answers
                ]
            return deltas, [msgspec.json.decode(h.body) for h in server.heard]

    return anyio.run(main)


def stream_answer(*deltas: dict[str, Any], **usage: Any) -> Answer:
    chunks = [{"choices": [{"delta": delta}]} for delta in deltas]
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": None}
    last = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2, **usage}}
    return Answer(b"".join(map(sse, [*chunks, end, last])), headers=SSE)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        ({"cost": 0.00042}, 0.00042),
        ({"cost": 0}, 0.0),
        ({"cost": 0.25, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.5}}, 0.75),
        ({"cost": 0.01, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.2}}, 0.01),
        ({"cost": {"total_cost": 0.1}}, None),  # Perplexity's
        ({}, None),
    ],
)  # fmt: skip
def test_openrouter_reports_the_cost_of_an_answer(
    usage: dict[str, Any], cost: float | None
) -> None:
    ((*_, done),), (body,) = run_answers(
        find("openrouter"), stream_answer({"content": "Yes."}, **usage)
    )

    assert done == Done(Usage(fresh=5, output=2), "end", cost=cost)
    assert body["usage"] == {"include": True}


DETAILS = [
    {"type": "reasoning.text", "text": "Clo", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.text", "text": "uds?", "index": 0, "signature": None},
    {"type": "reasoning.text", "signature": "c2ln", "index": 0},
    {"type": "reasoning.encrypted", "data": "eHg=", "id": "a", "index": 1},
    {"type": "reasoning.encrypted", "data": "eXk=", "id": "b", "index": 1},
]
WHOLE = [
    {
        "type": "reasoning.text",
        "text": "Clouds?",
        "format": "anthropic-claude-v1",
        "index": 0,
        "signature": "c2ln",
    },
    *DETAILS[3:],
]


def answer_calls(answer: Message) -> list[Message]:
    results = [ToolResult(call.id, "clouds") for call in answer.calls]
    return [message("user", "?"), answer, message("tool", *results)]


def draft_message(deltas: list[Delta]) -> Message:
    draft = Draft(1, "openrouter/m", lambda _model, _usage: None)
    for delta in deltas:
        draft.add(delta)
    whole = draft.to_answer()
    assert whole is not None
    return whole.message


def test_openrouter_gets_its_complete_reasoning_back_and_other_servers_do_not() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "look", "arguments": "{}"}}
    thought = [
        {"reasoning": detail.get("text"), "reasoning_details": [detail]}
        for detail in DETAILS
    ]
    spoken = stream_answer(
        *thought[:3], {"content": "Let me look."}, {"tool_calls": [call]}, *thought[3:]
    )

    ((deltas,), _) = run_answers(find("openrouter"), spoken)
    result = draft_message(deltas)
    (again,) = send_conversations("openrouter", answer_calls(result))
    (other,) = send_conversations("groq", answer_calls(result))

    text = "".join(d.text for d in deltas if isinstance(d, ThinkingDelta))
    assert text == "Clouds?"
    assert again[1]["reasoning_details"] == WHOLE
    assert "reasoning_details" not in str(other)
    assert rejection_reason("openai-chat", {"messages": again}) == ""


def test_reasoning_details_are_read_as_thinking_and_not_stored_for_other_servers() -> None:
    spoken = stream_answer(*({"reasoning_details": [detail]} for detail in DETAILS))

    ((deltas,), _) = run_answers(find("groq"), spoken)

    assert deltas[:-1] == [ThinkingDelta("Clo"), ThinkingDelta("uds?")]


def test_refused_reasoning_is_left_out_of_all_later_requests() -> None:
    sealed = Thinking("", "openrouter", Raw(msgspec.json.encode(WHOLE)))
    assistant_message = message("assistant", sealed, ToolCall("call-1", "look", Raw(b"{}")))
    no = Answer(b'{"error":{"message":"Invalid `signature` in `thinking` block"}}', 400)
    good = stream_answer({"content": "Yes."})
    spec = find("openrouter")

    async def main() -> list[bool]:
        async with wire_server(no, good, good) as server:
            environ = {spec.url_env: server.url, spec.key_env: KEY}
            async with aclosing(connect(spec, environ)) as provider:
                for _ in range(2):
                    await stream_deltas(provider, request(*answer_calls(assistant_message)))
            return [b"reasoning_details" in h.body for h in server.heard]

    assert anyio.run(main) == [True, False, False]


@pytest.mark.parametrize("data", [b"null", b"{}", b"[", b'"x"'])
def test_unreadable_reasoning_is_not_sent_back(data: bytes) -> None:
    assistant_message = message("assistant", Thinking("", "openrouter", Raw(data)), "Yes.")

    (records,) = send_conversations(
        "openrouter", [message("user", "?"), assistant_message, message("user", "?")]
    )

    assert "reasoning_details" not in records[1]


# One that does not stream.

SILENT = ProviderSpec(
    "silent", "openai-chat", "Silent", "http://127.0.0.1:1", "SILENT_URL", "SILENT_KEY",
    quirks=Quirks(stream=False, details="silent"),
)  # fmt: skip
ANSWER: dict[str, Any] = {
    "model": "gpt-1",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "Let me look. ☂",
                "reasoning_content": "Clouds?",
                "tool_calls": [
                    {"id": "a", "function": {"name": "look", "arguments": "{}"}},
                    {"id": "a", "function": {"name": "book", "arguments": '{"n":1}'}},
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2, "cost": 0.5},
}
JSON = {"content-type": "application/json"}


def test_server_without_streaming_gives_the_same_deltas_at_once() -> None:
    body = msgspec.json.encode(ANSWER)
    cut = tuple(body[start : start + 9] for start in range(0, len(body), 9))

    ((deltas,), (data,)) = run_answers(SILENT, Answer(cut, headers=JSON))

    assert deltas == [
        ThinkingDelta("Clouds?"),
        TextDelta("Let me look. ☂"),
        CallDelta(0, "{}", "a", "look"),
        CallDelta(1, '{"n":1}', "a", "book"),
        Done(Usage(fresh=5, output=2), "calls", "gpt-1", cost=0.5),
    ]
    assert data["stream"] is False
    assert "stream_options" not in data


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"choices":[', b'{"choices":[]}', b'{"error":{"message":"broken"}}'],
)
def test_incomplete_answer_without_streaming_is_an_error(body: bytes) -> None:
    with pytest.raises(ProviderError):
        run_answers(SILENT, Answer(body, headers=JSON))


def test_emoji_in_an_answer_without_streaming_is_intact() -> None:
    said_at_once = {"choices": [{"finish_reason": "stop", "message": {"content": "abc🌧️."}}]}

    ((deltas,), _) = run_answers(
        SILENT, Answer(msgspec.json.encode(said_at_once), headers=JSON)
    )

    assert words(deltas) == "abc🌧️."
