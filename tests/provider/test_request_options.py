"""Images, effort, a schema and a cache key, as each provider gets them."""

from base64 import b64encode
from contextlib import aclosing
from typing import Any

import anyio
import msgspec
import pytest
from inline_snapshot import snapshot
from msgspec import Raw

from refold.provider.catalog import connect
from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer
from refold.testing.wire_server import wire_server
from refold.values.messages import Image, Text, Thinking, ToolCall, ToolResult
from tests.provider.strict_servers import rejection_reason
from tests.provider.wires import (
    BLOB,
    CAT,
    PICTURES,
    TOOLS,
    WIRES,
    message,
    request,
    request_body,
    spec_of,
    stream_deltas,
)

DOG = Image("b" * 64, "image/png", "dog.png")  # its bytes are not there
SCHEMA = Raw(b'{"type":"object","properties":{"rain":{"type":"boolean"}}}')
SHOWN = (
    message("user", "What is", CAT, "this?", DOG),
    message(
        "assistant",
        ToolCall("call-1", "look", Raw(b"{}")),
        ToolCall("call-2", "look", Raw(b"{}")),
    ),
    message(
        "tool",
        ToolResult("call-1", "a cat", images=(CAT, DOG)),
        ToolResult("call-2", "", failed=True, images=(CAT,)),
    ),
    message("user", "And then?"),
)
ALL = request(
    *SHOWN,
    pictures=PICTURES,
    effort="max",
    schema=SCHEMA,
    session="s-1",
    tools=TOOLS[:1],
)
DATA = b64encode(PICTURES[BLOB]).decode()


def test_anthropic_request_has_images_and_maximum_thinking() -> None:
    assert request_body("anthropic", ALL) == snapshot(
        {
            "model": "m-1",
            "max_tokens": 64000,
            "stream": True,
            "cache_control": {"type": "ephemeral"},
            "tools": [
                {
                    "name": "look",
                    "description": "Look out.",
                    "input_schema": {"type": "object", "properties": {}},
                    "cache_control": {"type": "ephemeral"},
                }
            ],
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {
                "effort": "max",
                "format": {
                    "type": "json_schema",
                    "schema": {
                        "type": "object",
                        "properties": {"rain": {"type": "boolean"}},
                    },
                },
            },
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is"},
                        {
                            "type": "image",
                            "source": {
                                "type": "base64",
                                "media_type": "image/png",
                                "data": "iVBORyBjYXQ=",
                            },
                        },
                        {"type": "text", "text": "this?"},
                        {
                            "type": "text",
                            "text": "[image dog.png, which cannot be shown here]",
                            "cache_control": {"type": "ephemeral"},
                        },
                    ],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "tool_use", "id": "call-1", "name": "look", "input": {}},
                        {"type": "tool_use", "id": "call-2", "name": "look", "input": {}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "call-1",
                            "content": [
                                {
                                    "type": "text",
                                    "text": "a cat\n\n[image dog.png, which cannot be shown here]",
                                },
                                {
                                    "type": "image",
                                    "source": {
                                        "type": "base64",
                                        "media_type": "image/png",
                                        "data": "iVBORyBjYXQ=",
                                    },
                                },
                            ],
                        },
                        {
                            "type": "tool_result",
                            "tool_use_id": "call-2",
                            "content": "(no words)",
                            "is_error": True,
                        },
                        {
                            "type": "image",
                            "source": {
                                "type": "base64",
                                "media_type": "image/png",
                                "data": "iVBORyBjYXQ=",
                            },
                        },
                        {"type": "text", "text": "And then?"},
                    ],
                },
            ],
        }
    )


def test_responses_request_has_images_and_maximum_effort() -> None:
    assert request_body("openai-responses", ALL) == snapshot(
        {
            "model": "m-1",
            "stream": True,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "reasoning": {"summary": "auto", "effort": "max"},
            "prompt_cache_key": "s-1",
            "text": {
                "format": {
                    "type": "json_schema",
                    "name": "answer",
                    "schema": {
                        "type": "object",
                        "properties": {"rain": {"type": "boolean"}},
                    },
                    "strict": False,
                }
            },
            "tools": [
                {
                    "type": "function",
                    "name": "look",
                    "description": "Look out.",
                    "parameters": {"type": "object", "properties": {}},
                    "strict": False,
                }
            ],
            "tool_choice": "auto",
            "input": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "What is"},
                        {
                            "type": "input_image",
                            "image_url": "data:image/png;base64,iVBORyBjYXQ=",
                            "detail": "auto",
                        },
                        {"type": "input_text", "text": "this?"},
                        {
                            "type": "input_text",
                            "text": "[image dog.png, which cannot be shown here]",
                        },
                    ],
                },
                {
                    "type": "function_call",
                    "call_id": "call-1",
                    "name": "look",
                    "arguments": "{}",
                },
                {
                    "type": "function_call",
                    "call_id": "call-2",
                    "name": "look",
                    "arguments": "{}",
                },
                {
                    "type": "function_call_output",
                    "call_id": "call-1",
                    "output": [
                        {
                            "type": "input_text",
                            "text": "a cat\n\n[image dog.png, which cannot be shown here]",
                        },
                        {
                            "type": "input_image",
                            "image_url": "data:image/png;base64,iVBORyBjYXQ=",
                            "detail": "auto",
                        },
                    ],
                },
                {
                    "type": "function_call_output",
                    "call_id": "call-2",
                    "output": [
                        {
                            "type": "input_image",
                            "image_url": "data:image/png;base64,iVBORyBjYXQ=",
                            "detail": "auto",
                        }
                    ],
                },
                {"type": "message", "role": "user", "content": "And then?"},
            ],
        }
    )


def test_chat_request_has_images_of_results_after_all_results() -> None:
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
                }
            ],
            "tool_choice": "auto",
            "reasoning_effort": "max",
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is"},
                        {
                            "type": "image_url",
                            "image_url": {"url": "data:image/png;base64,iVBORyBjYXQ="},
                        },
                        {"type": "text", "text": "this?"},
                        {
                            "type": "text",
                            "text": "[image dog.png, which cannot be shown here]",
                        },
                    ],
                },
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "call-1",
                            "type": "function",
                            "function": {"name": "look", "arguments": "{}"},
                        },
                        {
                            "id": "call-2",
                            "type": "function",
                            "function": {"name": "look", "arguments": "{}"},
                        },
                    ],
                },
                {
                    "role": "tool",
                    "tool_call_id": "call-1",
                    "content": "a cat\n\n[image dog.png, which cannot be shown here]",
                },
                {"role": "tool", "tool_call_id": "call-2", "content": ""},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "[shown by call-1]"},
                        {
                            "type": "image_url",
                            "image_url": {"url": "data:image/png;base64,iVBORyBjYXQ="},
                        },
                        {"type": "text", "text": "[shown by call-2]"},
                        {
                            "type": "image_url",
                            "image_url": {"url": "data:image/png;base64,iVBORyBjYXQ="},
                        },
                    ],
                },
                {"role": "user", "content": "And then?"},
            ],
        }
    )


def test_gemini_request_has_images_inside_results() -> None:
    assert request_body("gemini", ALL) == snapshot(
        {
            "tools": [
                {
                    "functionDeclarations": [
                        {
                            "name": "look",
                            "description": "Look out.",
                            "parametersJsonSchema": {"type": "object", "properties": {}},
                        }
                    ]
                }
            ],
            "generationConfig": {
                "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "XHIGH"},
                "responseMimeType": "application/json",
                "responseJsonSchema": {
                    "type": "object",
                    "properties": {"rain": {"type": "boolean"}},
                },
            },
            "contents": [
                {
                    "role": "user",
                    "parts": [
                        {"text": "What is"},
                        {"inlineData": {"mimeType": "image/png", "data": "iVBORyBjYXQ="}},
                        {"text": "this?"},
                        {"text": "[image dog.png, which cannot be shown here]"},
                    ],
                },
                {
                    "role": "model",
                    "parts": [
                        {
                            "functionCall": {"name": "look", "args": {}},
                            "thoughtSignature": "skip_thought_signature_validator",
                        },
                        {"functionCall": {"name": "look", "args": {}}},
                    ],
                },
                {
                    "role": "user",
                    "parts": [
                        {
                            "functionResponse": {
                                "name": "look",
                                "response": {
                                    "output": "a cat\n\n[image dog.png, which cannot be shown here]"
                                },
                                "parts": [
                                    {
                                        "inlineData": {
                                            "mimeType": "image/png",
                                            "data": "iVBORyBjYXQ=",
                                        }
                                    }
                                ],
                            }
                        },
                        {
                            "functionResponse": {
                                "name": "look",
                                "response": {"error": ""},
                                "parts": [
                                    {
                                        "inlineData": {
                                            "mimeType": "image/png",
                                            "data": "iVBORyBjYXQ=",
                                        }
                                    }
                                ],
                            }
                        },
                        {"text": "And then?"},
                    ],
                },
            ],
        }
    )


def test_ollama_request_has_images_and_thinking_on() -> None:
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
                }
            ],
            "think": True,
            "messages": [
                {
                    "role": "user",
                    "content": "What is\n\nthis?\n\n[image dog.png, which cannot be shown here]",
                    "images": ["iVBORyBjYXQ="],
                },
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [
                        {"id": "call-1", "function": {"name": "look", "arguments": {}}},
                        {"id": "call-2", "function": {"name": "look", "arguments": {}}},
                    ],
                },
                {
                    "role": "tool",
                    "content": "a cat\n\n[image dog.png, which cannot be shown here]",
                    "images": ["iVBORyBjYXQ="],
                    "tool_name": "look",
                    "tool_call_id": "call-1",
                },
                {
                    "role": "tool",
                    "content": "",
                    "images": ["iVBORyBjYXQ="],
                    "tool_name": "look",
                    "tool_call_id": "call-2",
                },
                {"role": "user", "content": "And then?"},
            ],
        }
    )


@pytest.mark.parametrize("wire", WIRES)
def test_strict_server_accepts_images_and_options(wire: WireName) -> None:
    assert rejection_reason(wire, request_body(wire, ALL)) == ""


# Images


@pytest.mark.parametrize("wire", WIRES)
def test_image_without_text_is_a_message(wire: WireName) -> None:
    data = request_body(wire, request(message("user", CAT), pictures=PICTURES))

    assert DATA in str(data)
    assert "(no words)" not in str(data)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("image", "words"),
    [
        (DOG, "[image dog.png, which cannot be shown here]"),
        (Image(BLOB, "image/svg+xml"), "[image image/svg+xml, which cannot be shown here]"),
        (Image(BLOB, "image/bmp", " \ud83d"), "[image �, which cannot be shown here]"),
    ],
)  # fmt: skip
def test_image_that_cannot_be_shown_is_described(
    wire: WireName, image: Image, words: str
) -> None:
    call = message("assistant", ToolCall("call-1", "look", Raw(b"{}")))
    tool_message = message("tool", ToolResult("call-1", "a dog", images=(image,)))

    data = request_body(
        wire, request(message("user", "?", image), call, tool_message, pictures=PICTURES)
    )

    text = str(data).replace("\\n", "\n")
    assert text.count(words) == 2
    assert f"a dog\n\n{words}" in text
    assert DATA not in text


@pytest.mark.parametrize(
    ("model", "nested"),
    [("gemini-2.5-pro", False), ("gemini-3.8-flash", True), ("gemma-4-31b-it", False)],
)
def test_older_gemini_gets_images_beside_the_results(model: str, nested: bool) -> None:
    body = request_body("gemini", request(*SHOWN[:3], pictures=PICTURES, model=model))

    kinds = [list(part)[-1] for part in body["contents"][2]["parts"]]
    inside = [
        "parts" in part["functionResponse"]
        for part in body["contents"][2]["parts"]
        if "functionResponse" in part
    ]
    assert inside == [nested, nested]
    assert kinds[2:] == ([] if nested else ["inlineData", "inlineData"])


# Effort


def thinking(model: str, effort: str, **options: Any) -> dict[str, Any]:
    """Return what is sent to Anthropic about thinking."""
    body = request_body(
        "anthropic", request(SHOWN[0], model=model, effort=effort, **options)
    )
    return {
        name: body[name]
        for name in ("max_tokens", "thinking", "output_config")
        if name in body
    }


def test_claude_with_budget_thinking_gets_a_budget_with_room_for_the_answer() -> None:
    def thinking_options(room: int, budget: int) -> dict[str, Any]:
        enabled = {"type": "enabled", "budget_tokens": budget}
        return {"max_tokens": room, "thinking": enabled}

    old = "claude-sonnet-4-5"

    assert thinking(old, "") == {"max_tokens": 32_000}
    assert thinking(old, "low") == thinking_options(32_000, 2_048)
    assert thinking(old, "max") == thinking_options(32_000, 24_576)
    assert thinking(old, "low", max_output=99) == thinking_options(2_147, 2_048)
    assert thinking(old, "max", max_output=20_000) == thinking_options(32_000, 24_576)
    assert thinking(old, "max", max_output=50_000) == thinking_options(50_000, 24_576)


@pytest.mark.parametrize("effort", ["low", "medium", "high", "max"])
def test_newer_claude_thinks_adaptively_with_effort(effort: str) -> None:
    much = effort in ("high", "max")

    assert thinking("claude-sonnet-5-5", effort) == {
        "max_tokens": 64_000 if much else 32_000,
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": effort},
    }
    assert thinking("claude-sonnet-5-5", effort, max_output=99)["max_tokens"] == 99


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("claude-3-7-sonnet-latest", "enabled"),
        ("claude-opus-4-20250514", "enabled"),
        ("claude-opus-4-1-20250805", "enabled"),
        ("claude-haiku-4-5", "enabled"),
        ("claude-opus-4-6", "adaptive"),
        ("claude-sonnet-4-6", "adaptive"),
        ("claude-fable-5-2", "adaptive"),
        ("one-of-a-relative", "adaptive"),
    ],
)
def test_each_claude_generation_gets_its_own_kind_of_thinking(
    model: str, text: str
) -> None:
    assert thinking(model, "low")["thinking"]["type"] == text


def test_calls_that_began_without_thinking_continue_without_thinking() -> None:
    """The user raised the effort within the turn, or another provider began it."""
    thought = Thinking("Hm.", "anthropic", Raw(b'{"signature":"s"}'))
    sealed = Thinking("Hm.", "openai-responses", Raw(b'{"type":"reasoning"}'))

    def row(n: int, *parts: Any) -> list[Any]:
        call = ToolCall(f"call-{n}", "look", Raw(b"{}"))
        return [
            message("assistant", *parts, call),
            message("tool", ToolResult(f"call-{n}", "clouds")),
            message("user", "[note]"),
        ]

    def thinks(*messages: Any, model: str = "claude-sonnet-4-5") -> bool:
        model_request = request(message("user", "?"), *messages, effort="low", model=model)
        return "thinking" in request_body("anthropic", model_request)

    conversation = [*row(1), message("assistant", "Yes."), message("user", "And?")]
    assert thinks(*row(1, thought))
    assert thinks(*row(1, thought), *row(2))  # it thinks once, before all of them
    assert not thinks(*row(1))
    assert not thinks(*row(1, sealed))
    assert not thinks(*row(1, "Let me look.", thought))
    assert not thinks(*row(1), *row(2))
    assert thinks(*conversation)
    assert thinks(*conversation, *row(2, thought))
    assert not thinks(*conversation, *row(2))
    assert thinks(*row(1), model="claude-sonnet-5-5")


@pytest.mark.parametrize(
    ("model", "effort", "expected"),
    [
        ("gemini-3.8-flash", "low", {"thinkingLevel": "LOW"}),
        ("gemini-3.8-flash", "max", {"thinkingLevel": "XHIGH"}),
        ("gemini-flash-latest", "high", {"thinkingLevel": "HIGH"}),
        ("gemini-2.5-flash", "low", {"thinkingBudget": 2_048}),
        ("gemini-2.5-flash-lite", "max", {"thinkingBudget": 24_576}),
        ("gemini-2.5-pro", "max", {"thinkingBudget": 32_768}),
        ("gemini-2.5-pro", "", {}),
    ],
)
def test_gemini_gets_a_thinking_level_or_a_budget(
    model: str, effort: str, expected: dict[str, Any]
) -> None:
    body = request_body("gemini", request(SHOWN[0], model=model, effort=effort))

    thinking_config = body["generationConfig"]["thinkingConfig"]
    assert thinking_config == {"includeThoughts": True, **expected}


@pytest.mark.parametrize(
    ("wire", "model", "field", "off"),
    [
        ("anthropic", "claude-sonnet-5-5", "thinking", {"type": "disabled"}),
        ("openai-responses", "gpt-6.1-sol", "reasoning", {"summary": "auto", "effort": "none"}),
        ("openai-chat", "gpt-6.1-sol", "reasoning_effort", "none"),
        ("ollama", "qwen3", "think", False),
        ("gemini", "gemini-2.5-flash", "generationConfig",
         {"thinkingConfig": {"includeThoughts": False, "thinkingBudget": 0}}),
        ("gemini", "gemini-2.5-pro", "generationConfig",
         {"thinkingConfig": {"includeThoughts": False, "thinkingBudget": 128}}),
        ("gemini", "gemini-3.8-flash", "generationConfig",
         {"thinkingConfig": {"includeThoughts": False, "thinkingLevel": "MINIMAL"}}),
    ],
)  # fmt: skip
def test_thinking_is_switched_off_where_the_provider_allows_it(
    wire: WireName, model: str, field: str, off: object
) -> None:
    assert request_body(wire, request(SHOWN[0], model=model, effort="off"))[field] == off


@pytest.mark.parametrize("wire", WIRES)
def test_each_wire_sends_the_temperature_or_leaves_it_to_the_provider(
    wire: WireName,
) -> None:
    bodies = [request_body(wire, request(SHOWN[0], temperature=t)) for t in (0.0, None)]

    counts = [str(body).count("'temperature': 0.0") for body in bodies]
    assert counts == [1, 0]
    assert "temperature" not in str(bodies[1])


@pytest.mark.parametrize("model", ["gemini-2.0-flash", "gemma-4-31b-it"])
def test_gemini_model_that_cannot_think_gets_no_thinking_options(model: str) -> None:
    body = request_body("gemini", request(SHOWN[0], model=model, effort="max"))

    assert "generationConfig" not in body


OLLAMA_SAYS = {
    "nothing": {},
    "no thinking": {"capabilities": ["completion", "tools", "vision"]},
    "on and off": {"capabilities": ["thinking"], "thinking": {"values": [True, False]}},
    "levels": {"thinking": {"values": ["low", "medium", "high"], "default": "medium"}},
    "a maximum": {"thinking": {"values": [False, "low", "max"]}},
}


@pytest.mark.parametrize(
    ("says", "model", "expected"),
    [
        ("nothing", "qwen3", [False, True, True, True]),
        ("nothing", "gpt-oss:20b", ["low", "medium", "high", "high"]),
        ("no thinking", "llama3", [None, None, None, None]),
        ("on and off", "qwen3", [False, True, True, True]),
        ("levels", "new", ["low", "medium", "high", "high"]),
        ("a maximum", "new", ["low", None, None, "max"]),
    ],
)
def test_ollama_think_option_follows_the_model_capabilities(
    says: str, model: str, expected: list[Any]
) -> None:
    records = [
        request_body(
            "ollama", request(SHOWN[0], model=model, effort=effort), OLLAMA_SAYS[says]
        )
        for effort in ("low", "medium", "high", "max")
    ]

    assert [body.get("think") for body in records] == expected


def test_ollama_model_without_vision_gets_descriptions_of_images() -> None:
    body = request_body("ollama", ALL, {"capabilities": ["completion", "tools"]})

    assert DATA not in str(body)
    assert str(body).count("[image cat.png, which cannot be shown here]") == 3


def test_window_from_the_settings_takes_precedence_over_what_ollama_reports() -> None:
    spec = spec_of("ollama")

    async def main() -> list[Any]:
        good = answer("ollama", Reply("Yes."))
        async with wire_server(good, good) as server:
            environ = {spec.url_env: server.url}
            async with aclosing(connect(spec, environ, window=1234)) as provider:
                await stream_deltas(provider, request(SHOWN[0]))
            return [(h.path, msgspec.json.decode(h.body)["options"]) for h in server.heard]

    assert anyio.run(main) == [("/api/chat", {"num_ctx": 1234})]


@pytest.mark.parametrize("wire", WIRES)
def test_request_without_effort_has_no_thinking_options(wire: WireName) -> None:
    body = request_body(wire, request(SHOWN[0]))

    words = str(body)
    assert not any(w in words for w in ("effort", "budget", "Budget", "Level", "think'"))


# A schema


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("tools", ["none", "auto", "shut"])
def test_schema_is_left_out_on_wires_where_it_would_prevent_calls(
    wire: WireName, tools: str
) -> None:
    choice = "none" if tools == "shut" else "auto"
    offered = () if tools == "none" else TOOLS
    model_request = request(SHOWN[0], schema=SCHEMA, tools=offered, tool_choice=choice)

    sends = "'rain'" in str(request_body(wire, model_request))

    constrained = wire in ("ollama", "openai-chat")  # another server in OpenAI's place
    assert sends == (tools != "auto" or not constrained)


@pytest.mark.parametrize(
    ("model", "tools", "sends_schema"),
    [("gemini-2.5-pro", TOOLS, False), ("gemini-2.5-pro", (), True), ("gemini-3", TOOLS, True)],
)  # fmt: skip
def test_older_gemini_gets_either_tools_or_a_schema(
    model: str, tools: Any, sends_schema: bool
) -> None:
    body = request_body(
        "gemini", request(SHOWN[0], schema=SCHEMA, tools=tools, model=model)
    )

    assert ("responseJsonSchema" in body["generationConfig"]) == sends_schema


# A key to the cache


def test_prompt_cache_key_is_cut_to_its_maximum_length() -> None:
    body = request_body("openai-responses", request(SHOWN[0], session="s" * 99))

    assert body["prompt_cache_key"] == "s" * 64


def test_anthropic_request_has_at_most_four_cache_marks() -> None:
    marks = str(request_body("anthropic", ALL)).count("'cache_control'")
    system = request(*SHOWN, system="Be brief.", tools=TOOLS)

    assert marks == 3
    assert str(request_body("anthropic", system)).count("'cache_control'") == 4


def test_text_before_and_after_an_image_keeps_its_order() -> None:
    conversation = message("user", Text("one"), CAT, Text("two"))

    content = request_body("openai-chat", request(conversation, pictures=PICTURES))[
        "messages"
    ][0]["content"]

    assert [part["type"] for part in content] == ["text", "image_url", "text"]
