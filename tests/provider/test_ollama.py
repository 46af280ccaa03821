"""What Ollama reports about a model decides how it is used, before the first request."""

import json
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from refold.errors import Refused
from refold.provider.catalog import connect
from refold.provider.ollama import model_of
from refold.provider.port import CallDelta, Delta, Request, RequestSent, Retrying
from refold.provider.text_protocol.selection import Tools, with_call_protocol
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, ReceivedRequest, wire_server
from tests.provider.wires import (
    CAT,
    PICTURES,
    TOOLS,
    message,
    request,
    spec_of,
    stream_deltas,
    words,
)

CALL = '<tool_call>{"name": "book", "arguments": {"to": "the station"}}</tool_call>'
ASKED = request(message("user", "A taxi, please.", CAT), tools=TOOLS, pictures=PICTURES)
MODEL = {"model_info": {"gemma3.context_length": 8192}}
CANNOT_CALL = {**MODEL, "capabilities": ["completion", "vision"]}
REFUSAL = b'{"error":"registry.ollama.ai/library/m-1:latest does not support tools"}'


def run_answer(
    says: dict[str, Any] | Answer, *request: Request, tools: Tools = "auto", window: int = 0
) -> tuple[list[list[Delta]], list[ReceivedRequest]]:
    """Return the result, and the requests to the server."""
    outcome = says if isinstance(says, Answer) else Answer(json.dumps(says).encode())
    result = answer("ollama", Reply(CALL))

    def answering(request: ReceivedRequest) -> Answer:
        if request.path == "/api/show":
            return outcome
        without = isinstance(says, Answer) or "tools" not in says.get("capabilities", ())
        return Answer(REFUSAL, 400) if b'"tools"' in request.body and without else result

    async def main() -> tuple[list[list[Delta]], list[ReceivedRequest]]:
        async with wire_server(*[answering] * 6) as server:
            environ = {spec_of("ollama").url_env: server.url}
            async with aclosing(
                connect(spec_of("ollama"), environ, window=window)
            ) as inner:
                provider = with_call_protocol(inner, "ollama", "ollama", "m-1", tools)
                return [
                    await stream_deltas(provider, item) for item in request
                ], server.heard

    return anyio.run(main)


def list_call_names(deltas: list[Delta]) -> list[str]:
    return [d.name for d in deltas if isinstance(d, CallDelta) and d.name]


def list_requests(server: list[ReceivedRequest]) -> list[tuple[str, bool]]:
    """Return where each request went, and whether it had tools in it."""
    return [(h.path, b'"tools"' in h.body) for h in server]


@pytest.mark.parametrize("window", [0, 4096])
def test_ollama_model_without_tool_support_gets_tools_as_text_in_its_first_request(
    window: int,
) -> None:
    model_request = request(message("user", "A taxi, please."), tools=TOOLS)

    (first, second), server = run_answer(
        CANNOT_CALL, model_request, model_request, window=window
    )

    assert list_call_names(first) == list_call_names(second) == ["book"]
    assert list_requests(server) == [("/api/show", False), *[("/api/chat", False)] * 2]
    assert b"- book(to?: any): Book a taxi." in server[1].body
    assert [d.reason for d in first if isinstance(d, Retrying)] == [
        "m-1 takes no tools; refold reads its calls from its text from now on "
        "(the setting text_tools does so from the start)"
    ]


def test_ollama_model_without_tool_support_gets_text_even_when_calls_are_forbidden() -> (
    None
):
    """Earlier calls are then sent as text, too."""
    _, server = run_answer(CANNOT_CALL, replace(ASKED, tool_choice="none"), ASKED)

    assert list_requests(server) == [("/api/show", False), *[("/api/chat", False)] * 2]
    assert all(b"- book(" in h.body for h in server[1:])


@pytest.mark.parametrize("says", [MODEL, {**MODEL, "capabilities": []}, Answer(b"", 404)])
def test_older_ollama_is_asked_with_tools_and_then_as_text_after_a_refusal(
    says: dict[str, Any] | Answer,
) -> None:
    (deltas,), server = run_answer(says, ASKED)

    chats = [
        with_tools for path, with_tools in list_requests(server) if path == "/api/chat"
    ]
    assert (list_call_names(deltas), chats) == (["book"], [True, False])


def test_ollama_model_without_tool_support_gets_text_also_while_traced() -> None:
    (deltas,), server = run_answer(MODEL, replace(ASKED, trace=True))

    assert list_call_names(deltas) == ["book"]
    assert [d.body for d in deltas if isinstance(d, RequestSent)] == [
        h.body for h in server[1:]
    ]


def test_ollama_model_with_tool_support_is_sent_tools() -> None:
    says = {**MODEL, "capabilities": ["completion", "tools"]}

    _, server = run_answer(says, ASKED)

    assert list_requests(server) == [("/api/show", False), ("/api/chat", True)]
    assert b"[image cat.png, which cannot be shown here]" in server[1].body


def test_ollama_model_gets_no_text_protocol_when_no_tools_are_offered() -> None:
    (deltas,), server = run_answer(CANNOT_CALL, replace(ASKED, tools=()))

    assert words(deltas) == CALL
    assert json.loads(server[1].body)["messages"][0]["images"]


def test_ollama_model_forced_to_native_tools_is_refused_without_tool_support() -> None:
    with pytest.raises(Refused, match="Ollama's 'm-1' does not support tools"):
        run_answer(CANNOT_CALL, ASKED, tools="native")


def test_empty_capability_list_counts_as_unknown() -> None:
    assert model_of(b'{"capabilities":[]}').can("tools")
    assert not model_of(b'{"capabilities":["completion"]}').can("tools")
