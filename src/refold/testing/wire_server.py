"""An HTTP server on loopback for tests of model clients. It sends exactly the given bytes.

The sockets are real, and so are cuts, stalls and broken connections. The server checks nothing
and knows no provider; `wire_answers` writes the answers of real providers.

    async with wire_server(Answer(b"..."), Answer(status=429)) as server:
        ... ask server.url ...
        assert server.heard[0].path == "/v1/messages"
"""

import ssl
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias

import anyio
import h11
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSListener
from msgspec import Struct


class Pause(Struct, frozen=True):
    """A pause of some seconds in the middle of a body."""

    seconds: float


# What happens after the body: it ends properly, breaks off, or stalls.
Then: TypeAlias = Literal["end", "cut", "hang"]


class Answer(Struct, frozen=True):
    """An answer to one request. If `body` is a tuple, each piece is sent separately."""

    body: bytes | tuple[bytes | Pause, ...] = b""
    status: int = 200
    headers: Mapping[str, str] = {}
    then: Then = "end"
    before: float = 0.0  # seconds of silence before the first byte
    raw: bytes = b""  # sent instead of an HTTP response


class ReceivedRequest(Struct, frozen=True):
    """A request that the server has received."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Answering: TypeAlias = Callable[[ReceivedRequest], Answer]


class WireServer:
    """The running server at `url`.

    `heard` are the requests that it has received, `connections` counts all connections, and
    `open` counts the open ones.
    """

    def __init__(self, answering: Answering) -> None:
        self._answering = answering
        self.url = ""
        self.heard: list[ReceivedRequest] = []
        self.connections = 0
        self.open = 0

    async def serve(self, stream: ByteStream) -> None:
        self.connections += 1
        self.open += 1
        try:
            async with stream:
                try:
                    await self._converse(stream)
                # not HTTP; real servers answer that in HTTP
                except h11.RemoteProtocolError:
                    await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
            pass  # the client closed the connection, which many tests are about
        finally:
            self.open -= 1

    async def _converse(self, stream: ByteStream) -> None:
        """Answer each request of a connection, until an answer or the client ends it."""
        http = h11.Connection(h11.SERVER)
        while (received := await _receive_request(http, stream)) is not None:
            self.heard.append(received)
            answer = self._answering(received)
            await anyio.sleep(answer.before)
            if answer.raw:
                await stream.send(answer.raw)
                return
            await _send(http, stream, answer)
            match answer.then:
                case "hang":
                    await _wait_until_closed(stream)
                    return
                case "cut":
                    return
                case "end":
                    await stream.send(_bytes(http, h11.EndOfMessage()))
            if http.our_state is h11.MUST_CLOSE or http.their_state is h11.MUST_CLOSE:
                return
            http.start_next_cycle()


@asynccontextmanager
async def wire_server(
    *answers: Answer | Answering, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[WireServer, None]:
    """Run a server on a free port that answers the n-th request with the n-th answer.

    A function among `answers` is called for the request at its position and for all later ones.
    Requests without an answer get status 500.
    """
    server = WireServer(_answer_in_turn(answers))
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    own_listener = (
        TLSListener(listener, tls, standard_compatible=False) if tls else listener
    )
    failed: BaseException | None = None
    async with own_listener, anyio.create_task_group() as group:
        group.start_soon(own_listener.serve, server.serve)
        try:
            yield server
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # raised below, not wrapped in an exception group
            failed = error
        group.cancel_scope.cancel()
    if failed:
        raise failed


def _answer_in_turn(answers: Iterable[Answer | Answering]) -> Answering:
    """Return a function that returns the next answer for each request."""
    remaining = iter(answers)
    function: Answering | None = None  # answers all further requests

    def answering(request: ReceivedRequest) -> Answer:
        """Return the next answer, or status 500. A function answers all further requests."""
        nonlocal function
        answer = function or next(remaining, None)
        if answer is None:
            return Answer(b'{"error":{"message":"no more answers"}}', 500)
        if isinstance(answer, Answer):
            return answer
        function = answer
        return answer(request)

    return answering


async def _receive_request(
    http: h11.Connection, stream: ByteStream
) -> ReceivedRequest | None:
    """Return the next request, or None if the client closes the connection."""
    head: h11.Request | None = None
    body = bytearray()
    while True:
        match event := http.next_event():
            case h11.Request():
                head = event
            case h11.Data():
                body += event.data
            case h11.EndOfMessage() if head:
                headers = {n.decode(): v.decode("latin-1") for n, v in head.headers}
                return ReceivedRequest(
                    head.method.decode(), head.target.decode(), headers, bytes(body)
                )
            case h11.ConnectionClosed():
                return None
            case _:  # it needs more bytes
                http.receive_data(await _receive_bytes(stream))


async def _send(http: h11.Connection, stream: ByteStream, answer: Answer) -> None:
    """Send the head of an answer and its body, without the end of the message."""
    headers = list(answer.headers.items())
    if not any(name.lower() == "content-length" for name in answer.headers):
        headers.append(("transfer-encoding", "chunked"))
    head = h11.Response(status_code=answer.status, headers=headers)
    await stream.send(_bytes(http, head))
    pieces = (answer.body,) if isinstance(answer.body, bytes) else answer.body
    for piece in pieces:
        if isinstance(piece, Pause):
            await anyio.sleep(piece.seconds)
        elif piece:
            await stream.send(_bytes(http, h11.Data(data=piece)))


def _bytes(http: h11.Connection, event: h11.Event) -> bytes:
    return http.send(event) or b""


async def _receive_bytes(stream: ByteStream) -> bytes:
    """Return the next bytes, or b"" if the client has closed the connection."""
    try:
        return await stream.receive()
    except anyio.EndOfStream:
        return b""


async def _wait_until_closed(stream: ByteStream) -> None:
    while await _receive_bytes(stream):
        pass
