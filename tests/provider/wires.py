"""What the tests of the wires share: one conversation, and ways to run it."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import msgspec
from msgspec import Raw
from msgspec.structs import replace

from refold.provider.catalog import ConnectedProvider, connect, find
from refold.provider.port import Delta, Provider, Request, TextDelta
from refold.provider.spec import ProviderSpec
from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer
from refold.testing.wire_server import Answer, ReceivedRequest, WireServer, wire_server
from refold.values.growing import Log
from refold.values.messages import (
    Image,
    Message,
    Role,
    StoredMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from refold.values.tools import ToolSpec

WIRES: tuple[WireName, ...] = (
    "anthropic", "openai-responses", "openai-chat", "gemini", "ollama",
)  # fmt: skip
PATHS: dict[WireName, str] = {
    "anthropic": "/v1/messages",
    "openai-responses": "/responses",
    "openai-chat": "/chat/completions",
    "gemini": "/v1beta/models/m-1:streamGenerateContent?alt=sse",
    "ollama": "/api/chat",
}
KEY = "sk-ant-api03-not-a-real-key-000000"
TOOLS = (
    ToolSpec("look", "Look out.", Raw(b'{"type":"object","properties":{}}')),
    ToolSpec("book", "Book a taxi.", Raw(b'{"type":"object","properties":{"to":{}}}')),
)


def message(role: Role, *parts: Any) -> Message:
    return Message(role, tuple(Text(p) if isinstance(p, str) else p for p in parts))


def request(*messages: Message, **fields: Any) -> Request:
    spoken = (StoredMessage(n, m) for n, m in enumerate(messages, start=1))
    return Request(Log(list(spoken)), **{"model": "m-1", **fields})


BLOB = "a" * 64
CAT = Image(BLOB, "image/png", "cat.png")
PICTURES = {BLOB: b"\x89PNG cat"}

ITEM = b'{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"eHg="}'
SIGNED = b'{"thoughtSignature":"Y2FsbA==","id":"g-1"}'
CONVERSATION = (
    message("user", "Will it rain?"),
    message(
        "assistant",
        Thinking("Look first.", "anthropic", Raw(b'{"signature":"sig"}')),
        Thinking("", "anthropic", Raw(b'{"redacted":"cmVk"}')),
        Thinking("Ours alone.", "other", Raw(b'"x"')),
        Thinking("Sealed.", "openai-responses", Raw(ITEM)),
        Thinking("", "openai-responses", Raw(b'{"phase":"commentary"}')),
        Thinking("Clouds.", "gemini", Raw(b'{"thoughtSignature":"dGV4dA=="}')),
        "Let me look.",
        ToolCall("call-3", "look", Raw(b'{"where": "up"}'), "g-1", "gemini", Raw(SIGNED)),
        ToolCall("call-4", "book", Raw(b'{"to": '), "toolu_1"),
    ),
    message(
        "tool", ToolResult("call-3", "clouds"), ToolResult("call-4", "no JSON", failed=True)
    ),
    message("user", "[note] wrap up"),
    message("user", "And then?"),
)


def spec_of(wire: WireName) -> ProviderSpec:
    """Return the provider that a wire was made for."""
    return find({"openai-responses": "openai"}.get(wire, wire))


MODEL: dict[str, Any] = {"model_info": {"llama.context_length": 4096}}


@asynccontextmanager
async def open_wire(
    wire: WireName,
    *answers: Answer | Callable[[ReceivedRequest], Answer],
    idle: float = 5.0,
    model: str = "m-1",
    says: Mapping[str, Any] = MODEL,
    spec: ProviderSpec | None = None,
) -> AsyncGenerator[tuple[ConnectedProvider, WireServer], None]:
    """A real client and a server with these answers.

    Ollama has said already what `model` is like.
    """
    spec = spec or spec_of(wire)
    shown_model = [Answer(msgspec.json.encode({**MODEL, **says}))]
    async with wire_server(*(shown_model if wire == "ollama" else []), *answers) as server:
        environ = {spec.url_env: server.url, spec.key_env: KEY}
        there = spec if spec.url_env else replace(spec, base_url=server.url)
        async with aclosing(connect(there, environ, idle=idle)) as provider:
            if wire == "ollama":
                await provider.window(model)  # type: ignore[attr-defined]  # Ollama's own
                server.heard.clear()
            yield provider, server


def read_deltas(wire: WireName, *answers: Answer, idle: float = 5.0) -> list[Delta]:
    """Return what a real client makes of an answer."""

    async def main() -> list[Delta]:
        async with open_wire(wire, *answers, idle=idle) as (provider, _):
            return await stream_deltas(provider)

    return anyio.run(main)


def request_body(
    wire: WireName,
    request: Request,
    says: Mapping[str, Any] = MODEL,
    spec: ProviderSpec | None = None,
) -> dict[str, Any]:
    """Return the body that goes out for a request. `says`: Ollama's description of the
    model.
    """
    good = answer(wire, Reply("Yes."))

    async def main() -> bytes:
        opening = open_wire(wire, good, model=request.model, says=says, spec=spec)
        async with opening as (provider, server):
            await stream_deltas(provider, request)
            return server.heard[0].body

    return msgspec.json.decode(anyio.run(main))


async def stream_deltas(provider: Provider, prompt: Request | None = None) -> list[Delta]:
    prompt = prompt or request(CONVERSATION[0])
    async with aclosing(provider.stream(prompt)) as deltas:
        return [delta async for delta in deltas]


def words(deltas: list[Delta]) -> str:
    return "".join(d.text for d in deltas if isinstance(d, TextDelta))
