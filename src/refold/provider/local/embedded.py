"""The embedded model as a provider: starts its server, sends requests, stops it.

The server speaks OpenAI's Chat API (`openai_chat`); `protocol` writes requests for small
models. The server starts with the first request.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from refold.provider import openai_chat, openai_chat_stream
from refold.provider.encoding_cache import Encoded
from refold.provider.error_mapping import Peer
from refold.provider.http import Http, Timeouts
from refold.provider.local import protocol
from refold.provider.local.models import LocalModel
from refold.provider.local.server import Address, Server
from refold.provider.port import Delta, Done, Request, Retrying, TextDelta
from refold.provider.spec import Quirks
from refold.provider.sse import Events
from refold.provider.wire_stream import Reader, deltas

LABEL = "the embedded model"
MOST_OUTPUT = 1024  # tokens: a minute on two cores, so that no answer runs for ever
_PATIENCE = Timeouts(connect=5.0, idle=600.0)  # a long prompt is read without a word


class Embedded:
    """One small model on this machine. `aclose` ends its server."""

    def __init__(self, model: LocalModel, server: Server) -> None:
        self._model, self._server = model, server
        self._http: Http | None = None
        self._address = Address("", "")

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        if not self._server.running:
            yield Retrying(0.0, f"loading {self._model.name}")
        http = await self._connected()
        plain = replace(protocol.plain(request), model=self._model.name)
        # Encoded anew each time: a window this small never holds much.
        messages = Encoded(openai_chat.message_to_wire).join(plain.messages)
        body = to_wire(request, plain, messages)
        reader = Reader(
            Events,
            openai_chat_stream.Chunk,
            openai_chat_stream.ChatStreamState(),
            openai_chat_stream.from_wire,
            openai_chat_stream.ending,
            over=b"[DONE]",
        )
        answer = deltas(http, "/v1/chat/completions", body, plain.model, reader)
        read = _as_calls(request, answer) if request.tools else answer
        async with aclosing(read) as found:
            async for delta in found:
                yield delta

    async def aclose(self) -> None:
        """End the server. The next request starts it again."""
        if self._http:
            await self._http.aclose()
        await self._server.stop()

    async def _connected(self) -> Http:
        address = await self._server.start()
        if self._http is None or address != self._address:
            if self._http:
                await self._http.aclose()
            # It closes idle connections after five seconds, at times just when we send.
            headers = {"authorization": f"Bearer {address.key}", "connection": "close"}
            peer = Peer(LABEL, address.url)
            self._http = Http(peer, headers, secret=address.key, patience=_PATIENCE)
            self._address = address
        return self._http


def to_wire(request: Request, plain: Request, messages: bytes) -> bytes:
    """The body: `plain` as it goes out, with the shape that `request` asks answers in."""
    schema = Raw(b"null") if request.tools else plain.schema  # calls have their own
    most = plain.max_output or MOST_OUTPUT
    limited = replace(plain, max_output=most, schema=schema, effort="")
    body = openai_chat.to_wire(limited, messages, Quirks())
    more: dict[str, Any] = {"temperature": 0, "cache_prompt": True}
    if request.stops:
        more["stop"] = request.stops
    if shape := protocol.schema(request):
        named = {"name": "call", "schema": shape}
        more["response_format"] = {"type": "json_schema", "json_schema": named}
    whole: dict[str, Raw] = msgspec.json.decode(body, type=dict[str, Raw])
    return msgspec.json.encode({**more, **whole})


async def _as_calls(
    request: Request, answer: AsyncGenerator[Delta, None]
) -> AsyncGenerator[Delta, None]:
    reading = protocol.LocalStreamState(request)
    async with aclosing(answer) as found:
        async for delta in found:
            match delta:
                case TextDelta(text):
                    for told in reading.feed(text):
                        yield told
                case Done(stop=stop):
                    for told in reading.end():
                        yield told
                    calls = stop == "end" and reading.called
                    yield replace(delta, stop="calls") if calls else delta
                case _:
                    yield delta
