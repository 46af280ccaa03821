"""A provider whose model calls tools as text; its callers see native calls.

It wraps another provider: `render` puts the tools and calls of a request into its text, and
`parse` reads calls from the response.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec.structs import replace

from refold.provider.port import (
    CallDelta,
    Closable,
    Delta,
    Done,
    Provider,
    Request,
    TextDelta,
)
from refold.provider.text_protocol.parse import StreamParser
from refold.provider.text_protocol.render import RequestRenderer


class TextProtocol:
    """Wraps `inner`, a provider of models without native tool calls."""

    def __init__(self, inner: Provider) -> None:
        self.inner = inner
        self._renderer = RequestRenderer()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the response. Calls are read from its text if they are allowed."""
        response = self.inner.stream(self._renderer.plain(request))
        if request.tools and request.tool_choice != "none":
            response = _parse(response, StreamParser(request.tools, bytes(request.schema)))
        async with aclosing(response) as deltas:
            async for delta in deltas:
                yield delta

    async def aclose(self) -> None:
        if isinstance(self.inner, Closable):
            await self.inner.aclose()


async def _parse(
    response: AsyncGenerator[Delta, None], parser: StreamParser
) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of a response, with the calls in its text converted to native calls.

    The calls in a response that was cut off are yielded as text.
    """
    native_calls = 0  # the number of calls that the server itself has parsed
    async with aclosing(response) as deltas:
        async for delta in deltas:
            match delta:
                case TextDelta(text):
                    for piece in parser.feed(text):
                        yield piece
                case Done(stop="end" | "calls"):
                    parser.close()
                    has_calls = bool(parser.calls or native_calls)
                    for piece in parser.end(first=native_calls):
                        yield piece
                    yield replace(delta, stop="calls" if has_calls else "end")
                case Done():
                    for piece in parser.end(calls=False):
                        yield piece
                    yield delta
                case CallDelta(index):
                    native_calls = max(native_calls, index + 1)
                    yield delta
                case _:
                    yield delta
