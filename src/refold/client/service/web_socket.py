"""The client's end of a WebSocket, over a connection that `provider.connect` has opened.

The package websockets implements the protocol. Its own client is not used, because it
chooses proxies and certificates by other rules than refold's other requests.
"""

from collections import deque
from collections.abc import AsyncGenerator, Iterable

import anyio
from anyio.abc import ByteStream
from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import enable_client_permessage_deflate
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import OPEN
from websockets.uri import parse_uri

_MAX_MESSAGE_BYTES = 256 * 1024 * 1024  # a large result, with its images
_READ_BYTES = 64 * 1024
# If no byte arrives for so long, a ping is sent. If then none arrives for as long again, the
# connection is lost.
_PING_SECONDS = 15.0


class Lost(Exception):
    """Raised when the connection has ended. The message says what the other end did."""


class WebSocket:
    """A WebSocket of a client. Every method raises `Lost` when the connection has ended."""

    def __init__(self, stream: ByteStream, ping_seconds: float = _PING_SECONDS) -> None:
        self._stream = stream
        self._ping_seconds = ping_seconds
        self._protocol: ClientProtocol | None = None
        self._events = deque[object]()  # received, and not used yet
        self._sending = anyio.Lock()

    async def shake_hands(self, url: str, headers: Iterable[tuple[str, str]]) -> Response:
        """Request a WebSocket at this URL, and return the response.

        The WebSocket is open if the status is 101.
        """
        uri = parse_uri(f"ws{url.removeprefix('http')}")  # http: becomes ws:, https: wss:
        self._protocol = protocol = ClientProtocol(
            uri,
            extensions=enable_client_permessage_deflate(None),
            max_size=_MAX_MESSAGE_BYTES,
        )
        request = protocol.connect()
        for name, value in headers:
            request.headers[name] = value
        protocol.send_request(request)
        await self._flush(protocol)
        while True:
            event = await self._next_event(protocol)
            if isinstance(event, Response):
                return event

    async def send(self, text: bytes) -> None:
        """Send a text message. Raises `Lost` if the connection was closed."""
        assert self._protocol is not None, "it is used after `shake_hands`"
        if self._protocol.state is not OPEN:
            raise Lost("it closed the connection")
        self._protocol.send_text(text)
        await self._flush(self._protocol)

    async def messages(self) -> AsyncGenerator[bytes, None]:
        """Yield the received messages, until `Lost` is raised."""
        assert self._protocol is not None, "it is used after `shake_hands`"
        message = bytearray()
        while True:
            event = await self._next_event(self._protocol)
            if isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.CONT):
                message += event.data
                if event.fin:
                    yield bytes(message)
                    message.clear()

    async def _next_event(self, protocol: ClientProtocol) -> object:
        """Return the next event: the response to the handshake, or a frame."""
        while not self._events:
            if protocol.handshake_exc is not None:
                raise Lost(f"it does not speak WebSocket ({protocol.handshake_exc})")
            await self._receive(protocol)
        return self._events.popleft()

    async def _receive(self, protocol: ClientProtocol) -> None:
        """Receive the next bytes, and pass them to the protocol.

        If none arrive for `_ping_seconds`, send a ping. If none arrive for as long again,
        raise `Lost`.
        """
        try:
            data = await self._receive_in_time()
            if data is None:
                await self._ping(protocol)
                data = await self._receive_in_time()
        except (anyio.EndOfStream, anyio.BrokenResourceError, OSError) as error:
            reason = protocol.close_reason or "it closed the connection"
            raise Lost(reason) from error
        if data is None:
            raise Lost(f"it has sent nothing for {2 * self._ping_seconds:g} s")
        protocol.receive_data(data)
        await self._flush(protocol)
        self._events += protocol.events_received()

    async def _receive_in_time(self) -> bytes | None:
        """Return the next bytes; None if none arrive for `_ping_seconds`."""
        with anyio.move_on_after(self._ping_seconds):
            return await self._stream.receive(_READ_BYTES)
        return None

    async def _ping(self, protocol: ClientProtocol) -> None:
        if protocol.state is OPEN:
            protocol.send_ping(b"")
            await self._flush(protocol)

    async def _flush(self, protocol: ClientProtocol) -> None:
        """Send the bytes that the protocol has ready.

        This cannot be cancelled, because half of a frame would make the connection useless.
        """
        async with self._sending:
            try:
                with anyio.move_on_after(self._ping_seconds, shield=True) as sending:
                    for data in protocol.data_to_send():
                        # b"" stands for the end, which closing the stream also shows.
                        if data:
                            await self._stream.send(data)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
                raise Lost("it closed the connection") from error
            if sending.cancelled_caught:
                raise Lost(f"it has accepted nothing for {self._ping_seconds:g} s")
