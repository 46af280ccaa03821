"""A provider whose model calls tools as text, and which looks like any other.

It wraps a provider: `render` puts the tools and calls of a request into its text,
`parse` reads calls from the response.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec.structs import replace

from refold.provider.port import (
    CallDelta,
    Closes,
    Delta,
    Done,
    Provider,
    Request,
    TextDelta,
)
from refold.provider.text_protocol.parse import StreamParser
from refold.provider.text_protocol.render import RequestRenderer


class TextProtocol:
    """`inner`, for models without tool calls of their own."""

    def __init__(self, inner: Provider) -> None:
        self.inner = inner
        self._told = RequestRenderer()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        answer = self.inner.stream(self._told.plain(request))
        if request.tools and request.tool_choice != "none":
            answer = _read(answer, StreamParser(request.tools, bytes(request.schema)))
        async with aclosing(answer) as deltas:
            async for delta in deltas:
                yield delta

    async def aclose(self) -> None:
        if isinstance(self.inner, Closes):
            await self.inner.aclose()


async def _read(
    answer: AsyncGenerator[Delta, None], reading: StreamParser
) -> AsyncGenerator[Delta, None]:
    first = 0  # a server may hear calls in the words by itself
    async with aclosing(answer) as deltas:
        async for delta in deltas:
            match delta:
                case TextDelta(text):
                    for told in reading.feed(text):
                        yield told
                case Done(stop="end" | "calls"):
                    reading.close()
                    called = bool(reading.calls or first)
                    for told in reading.end(first=first):
                        yield told
                    yield replace(delta, stop="calls" if called else "end")
                case Done():
                    for told in reading.end(calls=False):
                        yield told
                    yield delta
                case CallDelta(index):
                    first = max(first, index + 1)
                    yield delta
                case _:
                    yield delta
