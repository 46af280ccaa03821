"""Opaque reasoning (signatures, encrypted thoughts) is returned to its own provider only.

Many providers use the same wire, and none accepts what another one has signed.
"""

from typing import Any

import anyio
import pytest
from msgspec import Raw
from msgspec.structs import replace

from refold.provider.port import CallDelta, Delta, ThinkingDelta
from refold.provider.spec import ProviderSpec
from refold.testing.providers import Reply
from refold.testing.wire_answers import SSE, WireName, answer, sse
from refold.testing.wire_server import Answer
from refold.values.messages import Message, Part, Thinking, ToolCall, ToolResult
from tests.provider.wires import (
    message,
    open_wire,
    request,
    request_body,
    spec_of,
    stream_deltas,
)

ITEM: dict[str, Any] = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [],
    "encrypted_content": "eHg=",
}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "look"}
OPENAI: list[dict[str, Any]] = [
    {"type": "response.output_item.done", "output_index": 0, "item": ITEM},
    {"type": "response.output_item.added", "output_index": 1, "item": {"type": "message", "phase": "commentary"}},
    {"type": "response.output_text.delta", "delta": "Let me look."},
    {"type": "response.output_item.done", "output_index": 2, "item": {**CALL, "arguments": "{}"}},
    {"type": "response.completed", "response": {"status": "completed"}},
]  # fmt: skip
GOOGLE: dict[str, Any] = {
    "candidates": [
        {
            "content": {
                "parts": [
                    {"text": "Let me look.", "thoughtSignature": "dGV4dA=="},
                    {"functionCall": {"name": "look", "args": {}, "id": "g-1"}, "thoughtSignature": "Y2FsbA=="},
                ]
            },
            "finishReason": "STOP",
        }
    ]
}  # fmt: skip
ANSWERS: dict[WireName, Answer] = {
    "anthropic": answer("anthropic", Reply("", (("look", "{}"),), "Hm.")),
    "openai-responses": Answer(b"".join(map(sse, OPENAI)), headers=SSE),
    "gemini": Answer(sse(GOOGLE), headers=SSE),
}
SEALS: dict[WireName, tuple[str, ...]] = {
    "anthropic": ("c2lnbmVk",),
    "openai-responses": ("eHg=", "commentary"),
    "gemini": ("dGV4dA==", "Y2FsbA==", "g-1"),
}


def provider_for(wire: WireName, name: str) -> ProviderSpec:
    """Return the provider that the wire was made for, or else one of this name with the
    same wire.
    """
    return spec_of(wire) if not name else replace(spec_of(wire), name=name)


def read_answer(wire: WireName, spec: ProviderSpec) -> Message:
    """Read an answer of a provider that wants its opaque reasoning back."""

    async def main() -> list[Delta]:
        async with open_wire(wire, ANSWERS[wire], spec=spec) as (provider, _):
            return await stream_deltas(provider)

    parts: list[Part | str] = []
    for delta in anyio.run(main):
        match delta:
            case ThinkingDelta(text, keeper, data) if keeper:
                parts += [Thinking(text, keeper, data), "Let me look."]
            case CallDelta(_, _, theirs, name, keeper, data) if name:
                parts.append(ToolCall("call-1", name, Raw(b"{}"), theirs, keeper, data))
            case _:
                continue
    return message("assistant", *parts)


def stored_wires(message: Message) -> set[str]:
    return {p.wire for p in message.parts if isinstance(p, Thinking | ToolCall) and p.wire}


@pytest.mark.parametrize("wire", ANSWERS)
@pytest.mark.parametrize("maker", ["", "mine", "yours"])
@pytest.mark.parametrize("other", ["", "mine", "yours"])
def test_opaque_reasoning_is_sent_back_to_the_provider_that_made_it_only(
    wire: WireName, maker: str, other: str
) -> None:
    outcome = read_answer(wire, provider_for(wire, maker))
    results = message("tool", ToolResult("call-1", "clouds"))

    model_request = request(message("user", "?"), outcome, results)
    body = str(request_body(wire, model_request, spec=provider_for(wire, other)))

    went = [seal in body for seal in SEALS[wire]]
    assert went == [maker == other] * len(went)
    assert "clouds" in body


@pytest.mark.parametrize("wire", ANSWERS)
def test_opaque_reasoning_is_stored_under_the_wire_and_the_own_provider_name(
    wire: WireName,
) -> None:
    """So journals stay valid when the address of the provider changes."""
    assert stored_wires(read_answer(wire, provider_for(wire, ""))) == {wire}
    assert stored_wires(read_answer(wire, provider_for(wire, "mine"))) == {f"{wire}@mine"}


def test_own_provider_named_like_a_wire_does_not_own_the_reasoning_of_that_wire() -> None:
    spec = provider_for("openai-responses", "openai-responses")

    assert stored_wires(read_answer("openai-responses", spec)) != {"openai-responses"}
