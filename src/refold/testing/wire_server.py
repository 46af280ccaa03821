"""A server on loopback that answers with exactly the bytes you give it.

For tests of clients of a model: real sockets, so cuts, stalls and broken connections are
real. It checks nothing and knows no provider; `wire_answers` writes what one would send.

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


# What happens after the body: it ends as it should, breaks off, or stalls.
Then: TypeAlias = Literal["end", "cut", "hang"]


class Answer(Struct, frozen=True):
    """One answer. `body` comes in these pieces, each sent by itself."""

    body: bytes | tuple[bytes | Pause, ...] = b""
    status: int = 200
    headers: Mapping[str, str] = {}
    then: Then = "end"
    before: float = 0.0  # seconds of silence before the first byte
    raw: bytes = b""  # instead of all of it: these bytes, and not a word of HTTP


class ReceivedRequest(Struct, frozen=True):
    """One request as it was received."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Answering: TypeAlias = Callable[[ReceivedRequest], Answer]


class WireServer:
    """`url`, the requests in `heard`, and the number of `connections`."""

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
                except h11.RemoteProtocolError:  # not HTTP; real servers say so in HTTP
                    await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
            pass  # the client left: what many tests are about
        finally:
            self.open -= 1

    async def _converse(self, stream: ByteStream) -> None:
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
    """Serve on a free port: the n-th request gets the n-th answer.

    A function answers every request from its position on. Without a further answer there is a
    500 that says so.
    """
    server = WireServer(_answer_in_turn(answers))
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    door = TLSListener(listener, tls, standard_compatible=False) if tls else listener
    failed: BaseException | None = None
    async with door, anyio.create_task_group() as group:
        group.start_soon(door.serve, server.serve)
        try:
            yield server
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # handed on below, not wrapped in a group
            failed = error
        group.cancel_scope.cancel()
    if failed:
        raise failed


def _answer_in_turn(answers: Iterable[Answer | Answering]) -> Answering:
    waiting = iter(answers)
    always: list[Answering] = []

    def answering(request: ReceivedRequest) -> Answer:
        answer = always[0] if always else next(waiting, None)
        if answer is None:
            return Answer(b'{"error":{"message":"no more answers"}}', 500)
        if isinstance(answer, Answer):
            return answer
        always.append(answer)
        return answer(request)

    return answering


async def _receive_request(
    http: h11.Connection, stream: ByteStream
) -> ReceivedRequest | None:
    asked: h11.Request | None = None
    body = bytearray()
    while True:
        match event := http.next_event():
            case h11.Request():
                asked = event
            case h11.Data():
                body += event.data
            case h11.EndOfMessage() if asked:
                headers = {n.decode(): v.decode("latin-1") for n, v in asked.headers}
                return ReceivedRequest(
                    asked.method.decode(), asked.target.decode(), headers, bytes(body)
                )
            case h11.ConnectionClosed():
                return None
            case _:
                http.receive_data(await _read_request(stream))


async def _send(http: h11.Connection, stream: ByteStream, answer: Answer) -> None:
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


async def _read_request(stream: ByteStream) -> bytes:
    try:
        return await stream.receive()
    except anyio.EndOfStream:
        return b""


async def _wait_until_closed(stream: ByteStream) -> None:
    while await _read_request(stream):
        pass
