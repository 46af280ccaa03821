"""One conversation, as each provider gets it, literally."""

from itertools import pairwise
from typing import Any

import anyio
import pytest
from inline_snapshot import snapshot
from msgspec import Raw

from refold.provider.anthropic import message_to_wire, to_wire
from refold.provider.encoding_cache import Encoded
from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer
from refold.values.messages import Message, Thinking, ToolCall, ToolResult
from tests.provider.wires import (
    CAT,
    CONVERSATION,
    PICTURES,
    TOOLS,
    WIRES,
    message,
    open_wire,
    request,
    request_body,
    stream_deltas,
)

ALL = request(*CONVERSATION, system="Be brief.", tools=TOOLS)


def test_anthropic_gets_alternating_roles_with_content_blocks() -> None:
    assert request_body("anthropic", ALL) == snapshot(
        {
            "model": "m-1",
            "max_tokens": 32000,
            "stream": True,
            "cache_control": {"type": "ephemeral"},
            "system": [
                {
                    "type": "text",
                    "text": "Be brief.",
                    "cache_control": {"type": "ephemeral"},
                }
            ],
            "tools": [
                {
                    "name": "look",
                    "description": "Look out.",
                    "input_schema": {"type": "object", "properties": {}},
                },
                {
                    "name": "book",
                    "description": "Book a taxi.",
                    "input_schema": {"type": "object", "properties": {"to": {}}},
                    "cache_control": {"type": "ephemeral"},
                },
            ],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "text",
                            "text": "Will it rain?",
                            "cache_control": {"type": "ephemeral"},
                        }
                    ],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Look first.", "signature": "sig"},
                        {"type": "redacted_thinking", "data": "cmVk"},
                        {"type": "text", "text": "Let me look."},
                        {
                            "type": "tool_use",
                            "id": "call-3",
                            "name": "look",
                            "input": {"where": "up"},
                        },
                        {
                            "type": "tool_use",
                            "id": "call-4",
                            "name": "book",
                            "input": {"not_a_json_object": '{"to": '},
                        },
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "call-3",
                            "content": "clouds",
                        },
                        {
                            "type": "tool_result",
                            "tool_use_id": "call-4",
                            "content": "no JSON",
                            "is_error": True,
                        },
                        {"type": "text", "text": "[note] wrap up"},
                        {"type": "text", "text": "And then?"},
                    ],
                },
            ],
        }
    )


def test_openai_gets_one_message_for_each_result() -> None:
    assert request_body("openai-chat", ALL) == snapshot(
        {
            "model": "m-1",
            "stream": True,
            "stream_options": {"include_usage": True},
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "look",
                        "description": "Look out.",
                        "parameters": {"type": "object", "properties": {}},
                    },
                },
                {
                    "type": "function",
                    "function": {
                        "name": "book",
                        "description": "Book a taxi.",
                        "parameters": {"type": "object", "properties": {"to": {}}},
                    },
                },
            ],
            "tool_choice": "auto",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Will it rain?"},
                {
                    "role": "assistant",
                    "content": "Let me look.",
                    "tool_calls": [
                        {
                            "id": "call-3",
                            "type": "function",
                            "function": {"name": "look", "arguments": '{"where": "up"}'},
                        },
                        {
                            "id": "call-4",
                            "type": "function",
                            "function": {
                                "name": "book",
                                "arguments": '{"not_a_json_object":"{\\"to\\": "}',
                            },
                        },
                    ],
                },
                {"role": "tool", "tool_call_id": "call-3", "content": "clouds"},
                {"role": "tool", "tool_call_id": "call-4", "content": "no JSON"},
                {"role": "user", "content": "[note] wrap up"},
                {"role": "user", "content": "And then?"},
            ],
        }
    )


def test_responses_api_gets_items_and_its_own_reasoning_back() -> None:
    assert request_body("openai-responses", ALL) == snapshot(
        {
            "model": "m-1",
            "stream": True,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "reasoning": {"summary": "auto"},
            "instructions": "Be brief.",
            "tools": [
                {
                    "type": "function",
                    "name": "look",
                    "description": "Look out.",
                    "parameters": {"type": "object", "properties": {}},
                    "strict": False,
                },
                {
                    "type": "function",
                    "name": "book",
                    "description": "Book a taxi.",
                    "parameters": {"type": "object", "properties": {"to": {}}},
                    "strict": False,
                },
            ],
            "tool_choice": "auto",
            "input": [
                {"type": "message", "role": "user", "content": "Will it rain?"},
                {
                    "id": "rs_1",
                    "type": "reasoning",
                    "summary": [],
                    "encrypted_content": "eHg=",
                },
                {
                    "type": "message",
                    "role": "assistant",
                    "phase": "commentary",
                    "content": "Let me look.",
                },
                {
                    "type": "function_call",
                    "call_id": "call-3",
                    "name": "look",
                    "arguments": '{"where": "up"}',
                },
                {
                    "type": "function_call",
                    "call_id": "call-4",
                    "name": "book",
                    "arguments": '{"not_a_json_object":"{\\"to\\": "}',
                },
                {"type": "function_call_output", "call_id": "call-3", "output": "clouds"},
                {"type": "function_call_output", "call_id": "call-4", "output": "no JSON"},
                {"type": "message", "role": "user", "content": "[note] wrap up"},
                {"type": "message", "role": "user", "content": "And then?"},
            ],
        }
    )


def test_gemini_gets_parts_with_their_signatures() -> None:
    assert request_body("gemini", ALL) == snapshot(
        {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "tools": [
                {
                    "functionDeclarations": [
                        {
                            "name": "look",
                            "description": "Look out.",
                            "parametersJsonSchema": {"type": "object", "properties": {}},
                        },
                        {
                            "name": "book",
                            "description": "Book a taxi.",
                            "parametersJsonSchema": {
                                "type": "object",
                                "properties": {"to": {}},
                            },
                        },
                    ]
                }
            ],
            "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
            "contents": [
                {"role": "user", "parts": [{"text": "Will it rain?"}]},
                {
                    "role": "model",
                    "parts": [
                        {"text": "Let me look.", "thoughtSignature": "dGV4dA=="},
                        {
                            "functionCall": {
                                "id": "g-1",
                                "name": "look",
                                "args": {"where": "up"},
                            },
                            "thoughtSignature": "Y2FsbA==",
                        },
                        {
                            "functionCall": {
                                "name": "book",
                                "args": {"not_a_json_object": '{"to": '},
                            }
                        },
                    ],
                },
                {
                    "role": "user",
                    "parts": [
                        {
                            "functionResponse": {
                                "id": "g-1",
                                "name": "look",
                                "response": {"output": "clouds"},
                            }
                        },
                        {
                            "functionResponse": {
                                "name": "book",
                                "response": {"error": "no JSON"},
                            }
                        },
                        {"text": "[note] wrap up"},
                        {"text": "And then?"},
                    ],
                },
            ],
        }
    )


def test_ollama_gets_the_window_size_and_arguments_as_objects() -> None:
    assert request_body("ollama", ALL) == snapshot(
        {
            "model": "m-1",
            "stream": True,
            "options": {"num_ctx": 4096},
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "look",
                        "description": "Look out.",
                        "parameters": {"type": "object", "properties": {}},
                    },
                },
                {
                    "type": "function",
                    "function": {
                        "name": "book",
                        "description": "Book a taxi.",
                        "parameters": {"type": "object", "properties": {"to": {}}},
                    },
                },
            ],
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Will it rain?"},
                {
                    "role": "assistant",
                    "content": "Let me look.",
                    "tool_calls": [
                        {
                            "id": "call-3",
                            "function": {"name": "look", "arguments": {"where": "up"}},
                        },
                        {
                            "id": "call-4",
                            "function": {
                                "name": "book",
                                "arguments": {"not_a_json_object": '{"to": '},
                            },
                        },
                    ],
                },
                {
                    "role": "tool",
                    "content": "clouds",
                    "tool_name": "look",
                    "tool_call_id": "call-3",
                },
                {
                    "role": "tool",
                    "content": "no JSON",
                    "tool_name": "book",
                    "tool_call_id": "call-4",
                },
                {"role": "user", "content": "[note] wrap up"},
                {"role": "user", "content": "And then?"},
            ],
        }
    )


def test_tools_stay_in_the_request_when_calls_are_forbidden_except_on_ollama() -> None:
    model_request = request(CONVERSATION[0], tools=TOOLS, tool_choice="none")

    data = {wire: request_body(wire, model_request) for wire in WIRES}

    assert data["anthropic"]["tool_choice"] == {"type": "none"}
    assert data["openai-chat"]["tool_choice"] == "none"
    assert data["openai-responses"]["tool_choice"] == "none"
    assert data["gemini"]["toolConfig"] == {"functionCallingConfig": {"mode": "NONE"}}
    assert [len(str(data[w]).split("Look out.")) for w in WIRES] == [2, 2, 2, 2, 1]


def test_output_limit_has_its_own_field_on_each_wire() -> None:
    data = {w: request_body(w, request(CONVERSATION[0], max_output=99)) for w in WIRES}

    assert data["anthropic"]["max_tokens"] == 99
    assert data["openai-chat"]["max_tokens"] == 99  # not OpenAI's own server
    assert data["openai-responses"]["max_output_tokens"] == 99
    assert data["gemini"]["generationConfig"]["maxOutputTokens"] == 99
    assert data["ollama"]["options"] == {"num_ctx": 4096, "num_predict": 99}


SHOWN = (
    message("user", "What is this?", CAT),
    message("assistant", ToolCall("call-3", "look", Raw(b"{}"))),
    message("tool", ToolResult("call-3", "a cat", images=(CAT,))),
    *CONVERSATION[3:],
)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("conversation", [CONVERSATION, SHOWN], ids=["words", "pictures"])
def test_request_body_only_ever_grows_at_its_end(
    wire: WireName, conversation: tuple[Message, ...]
) -> None:
    bodies = [
        talk_in(
            request_body(wire, request(*conversation[:n], tools=TOOLS, pictures=PICTURES))
        )
        for n in (1, 3, 4, 5)
    ]

    for shorter, longer in pairwise(map(_blocks, bodies)):
        assert longer[: len(shorter)] == shorter


@pytest.mark.parametrize("wire", WIRES)
def test_invalid_unicode_is_replaced_before_sending(wire: WireName) -> None:
    odd = request(
        message("user", "half \ud83d", " \n", "nul \0"),
        message("assistant", "", ToolCall("call-1", "an odd/name", Raw(b'{"a":"\\ud83d\\u0000"}'))),
        message("tool", ToolResult("call-1", "")),
        message("assistant", " ", Thinking("cut off", wire)),
        message("user", " "),
        system="half \ud83d",
    )  # fmt: skip

    text = str(request_body(wire, odd))

    assert "half �" in text
    assert "nul �" in text
    assert "an_odd_name" in text
    assert "a': '��" in text or 'a":"��' in text
    assert "cut off" not in text
    assert "(no words)" in text


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b"null", b'"x"', b"\xff", b"[" * 9999])
def test_arguments_that_are_not_an_object_are_sent_as_a_marked_object(raw: bytes) -> None:
    call = message("assistant", ToolCall("call-1", "look", Raw(raw)))

    (piece,) = message_to_wire(call)

    assert b'"input":{' in piece.body
    assert (b"not_a_json_object" in piece.body) == bool(raw)


def test_nul_escaped_in_arguments_is_replaced() -> None:
    call = message("assistant", ToolCall("call-1", "look", Raw(b'{"a":"x\\u0000"}')))

    (piece,) = message_to_wire(call)

    assert '"input":{"a":"x�"}' in piece.body.decode()


def test_thinking_is_never_the_last_block_of_a_message() -> None:
    thought = Thinking("Hm.", "anthropic", Raw(b'{"signature":"s"}'))

    pieces = [*message_to_wire(message("assistant", "Well.", thought))]

    assert [p.body for p in pieces] == [b'{"type":"text","text":"Well."}']
    assert [*message_to_wire(message("assistant", thought))] == []


def test_cache_marks_are_set_in_the_request_and_not_in_encoded_messages() -> None:
    joined = Encoded(message_to_wire).join(ALL.messages)

    assert b"cache_control" not in joined
    assert to_wire(ALL, joined).count(b"cache_control") == 3


@pytest.mark.parametrize("wire", WIRES)
def test_two_sessions_on_one_provider_do_not_mix_messages(wire: WireName) -> None:
    ours = request(message("user", "ours"), message("assistant", "A"), message("user", "?"))
    other = request(
        message("user", "other"), message("assistant", "A"), message("user", "?")
    )
    assert [s.seq for s in ours.messages] == [s.seq for s in other.messages]

    async def main() -> list[bytes]:
        replies = [answer(wire, Reply("Yes.")) for _ in range(4)]
        async with open_wire(wire, *replies) as (provider, server):
            for item in (ours, other, ours, other):
                await stream_deltas(provider, item)
            return [h.body for h in server.heard]

    bodies = anyio.run(main)

    assert [b'"ours"' in b for b in bodies] == [True, False, True, False]
    assert [b'"other"' in b for b in bodies] == [False, True, False, True]


def talk_in(body: dict[str, Any]) -> list[Any]:
    return next(body[n] for n in ("messages", "input", "contents") if n in body)


def _blocks(messages: list[dict[str, Any]]) -> list[Any]:
    """Messages as a flat list: a message may take more blocks at its end.

    Marks for a cache are left out: they say where to look, and are no content.
    """
    return [
        (m.get("role"), {k: v for k, v in block.items() if k != "cache_control"})
        for m in messages
        for block in next(
            (m[n] for n in ("content", "parts") if isinstance(m.get(n), list)), [m]
        )
    ]
