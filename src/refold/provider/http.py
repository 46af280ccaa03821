"""The HTTP client for all requests of refold, with limits, proxies, TLS and checked addresses.

`HttpClient` sends a request and reads the response while it arrives; idle connections are kept
for the next request. `http_response` parses responses, and is loaded after the first request
was sent. `connect` opens connections, and `resolver` checks addresses. The callers decide what
a failure means: `api_client` for model providers, `blocking_http` for downloads, and others in
their packages.

It is built on h11 and a socket. The usual client library adds 70 ms to every start and this one
10 to 20 ms, and no request needs cookies, HTTP/2 or a pool. The SDK's client, httpx2, takes 100
ms to import, resolves names itself, and its pool cannot restrict the address of a connection.
"""

import math
import select
import socket
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream, SocketAttribute
from msgspec import Struct
from msgspec.structs import replace

from refold.errors import (
    BadInput,
    ProxyFault,
    SetupFault,
)
from refold.provider.connect import (
    Broken,
    Stalled,
    Unconnected,
    dial,
    dial_proxy,
    proxy_of,
)
from refold.provider.error_mapping import ResponseStart
from refold.provider.resolver import AddressRefused, Judge
from refold.values.web_address import WebAddress

if TYPE_CHECKING:
    from refold.provider.http_response import ResponseReader

_QUOTED_BYTES = 2000  # of a response, kept to quote them in an error
_TAIL_SECONDS = 0.02  # for the last bytes of a response that has already ended
_PIECE_BYTES = 256 * 1024


class Bounds(Struct, frozen=True):
    """Limits of a request: times in seconds, and the size of the body in bytes."""

    connect: float = 10.0
    idle: float = 120.0  # for each next byte, including the first; keep-alives count
    whole: float = math.inf  # for the whole body
    size: float = 64 * 1024 * 1024  # of an unpacked body: ten times what models write


class HttpRequest(Struct, frozen=True):
    """A request: a POST if it has a `body`, unless `method` is set. The Host header is added."""

    place: WebAddress
    headers: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    method: str = ""


class HttpConnection:
    """A connection for HTTP requests to one place, directly or through a proxy.

    `address` is the IP address of the place; "" if only a proxy knows it. `origin` is the URL's
    beginning for a proxy that reads the requests; "" for any other connection.
    """

    def __init__(
        self,
        stream: ByteStream,
        origin: str = "",
        proxy_headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._stream, self._origin = stream, origin
        self._proxy_headers = tuple(proxy_headers)
        self._loop = anyio.lowlevel.current_token()
        self._request_head: tuple[str, str, Sequence[tuple[str, str]]] = ("GET", "", ())
        self._reader: ResponseReader | None = None
        self._input_poll: select.poll | None = None  # detects unrequested data
        self.place, self.address = "", ""

    def leads_to(self, place: WebAddress, addresses: Sequence[str]) -> bool:
        """Whether the connection leads to a place and, if any are given, to one of `addresses`.

        A connection whose address is unknown counts as leading to all of them.
        """
        if self.place != place.origin:
            return False
        if not addresses or not self.address:
            return True
        return self.address in addresses

    async def send(
        self,
        target: str,
        headers: Iterable[tuple[str, str]],
        body: bytes | None,
        idle: float,
        method: str = "",
    ) -> None:
        """Send a request. Without `method`, it is a POST if it has a body, otherwise a GET.

        `idle` is the time limit in seconds for sending each piece.
        """
        method = method or ("GET" if body is None else "POST")
        self._request_head = (
            method,
            self._origin + target,
            (*headers, *self._proxy_headers),
        )
        data = _encode_request(*self._request_head, body)
        try:
            for start in range(0, len(data), _PIECE_BYTES):
                with anyio.move_on_after(idle) as limit:
                    await self._stream.send(data[start : start + _PIECE_BYTES])
                if limit.cancelled_caught:
                    raise Stalled(f"has not accepted any of the request for {idle:g} s")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the server may have responded early, which `read_head` detects

    async def read_head(self) -> ResponseStart:
        """Read the beginning of the response."""
        if self._reader is None:
            # h11 takes long to import, so it is imported after the server has the request.
            from refold.provider.http_response import ResponseReader

            self._reader = ResponseReader(self._receive)
        return await self._reader.read_head(*self._request_head)

    def read_available(self) -> bytes:
        """Return the part of a chunked body that has arrived; b"" for any other body."""
        return self._reader.read_available() if self._reader else b""

    async def next_chunk(self) -> bytes:
        """Wait for more of the body, and return it, or b"" at the end of the body."""
        return await self._reader.next_chunk() if self._reader else b""

    async def check_ready(self) -> bool:
        """Read the rest of the response. Return whether another request can be sent.

        Return False if the rest does not arrive at once, or if data has arrived that no request
        asked for.
        """
        event_loop_was_closed = anyio.lowlevel.current_token() != self._loop
        if event_loop_was_closed or self._reader is None:
            return False
        try:
            if self._reader.has_tail:
                with anyio.move_on_after(_TAIL_SECONDS):
                    while self._reader.has_tail:
                        await self.next_chunk()
        except Broken:
            return False
        if not self.start_next():
            return False
        if self._input_poll is None:
            self._input_poll = select.poll()
            raw = self._stream.extra(SocketAttribute.raw_socket)
            self._input_poll.register(raw, select.POLLIN)
        has_unrequested_data = bool(self._input_poll.poll(0))
        return not has_unrequested_data

    def start_next(self) -> bool:
        """Prepare for the next response. Return False if the connection cannot be used again."""
        return self._reader is not None and self._reader.start_next()

    def remote_address(self) -> str:
        return str(self._stream.extra(SocketAttribute.remote_address)[0])

    async def aclose(self) -> None:
        if anyio.lowlevel.current_token() == self._loop:
            await anyio.aclose_forcefully(self._stream)

    async def _receive(self) -> bytes:
        """Return the next bytes, or b"" if the server has closed the connection."""
        try:
            return await self._stream.receive()
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise Broken(f"broke the connection ({error.__cause__ or error})") from error


def _encode_request(
    method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes | None
) -> bytes:
    """Encode a request. Raises `BadInput` if a text contains line breaks or the like."""
    lines = [f"{name}: {value}" for name, value in headers]
    if body is not None:
        lines.append(f"content-length: {len(body)}")
    text = "".join([target, *lines])
    is_plain = text.isascii() and text.isprintable()
    has_space = " " in target or any(" " in name for name, _ in headers)
    if not is_plain or has_space:
        raise BadInput(
            f"{target!r} cannot be asked for: it, or a header, holds a character that "
            "HTTP does not allow"
        )
    head = "\r\n".join((f"{method} {target} HTTP/1.1", *lines, "", ""))
    return head.encode() + (body or b"")


class HttpResponse:
    """A response, which is read while it arrives.

    Call `mark_complete` after the last part that is needed. `aclose` then keeps the connection,
    even if the response was not read to its end.
    """

    def __init__(
        self,
        client: "HttpClient",
        connection: HttpConnection,
        reply: ResponseStart,
        bounds: Bounds,
    ) -> None:
        from refold.provider.http_response import Unpacker

        self._client, self._connection, self._bounds = client, connection, bounds
        self._deadline = anyio.current_time() + bounds.whole
        self._unpacker = Unpacker(reply.headers.get("content-encoding", ""))
        self._bytes_read = 0
        self._peeked = b""  # a piece that the next `read` returns
        self.reply = reply  # its `body` is the beginning, for quotes
        self.whole = False  # whether all that is needed was read

    def mark_complete(self) -> None:
        self.whole = True

    async def read(self) -> bytes:
        """Return the next piece of the body, unpacked, or b"" at its end. Raises `Broken`."""
        if chunk := self._peeked:
            self._peeked = b""
            return chunk
        while packed := (self._unpacker.rest or await self._read_chunk()):
            chunk = self._unpacker.unpack(packed)
            self._bytes_read += len(chunk)
            if self._bytes_read > self._bounds.size:
                megabytes = int(self._bounds.size) >> 20
                raise Broken(f"sent more than {megabytes} MB as one answer")
            if chunk:
                self._remember(chunk)
                return chunk
        self.whole = True
        return b""

    async def peek(self) -> bytes:
        """Return the next piece of the body. The next `read` returns it again."""
        self._peeked = await self.read()
        return self._peeked

    async def content(self, limit: int) -> tuple[bytes, bool]:
        """Read the body. Return its first `limit` bytes, and whether that is all of it."""
        content = bytearray()
        while len(content) <= limit and (chunk := await self.read()):
            content += chunk
        return bytes(content[:limit]), len(content) <= limit

    async def aclose(self) -> None:
        """Keep the connection for later if the whole response was read, otherwise close it."""
        await self._client.release(self._connection, keep=self.whole)

    async def _read_chunk(self) -> bytes:
        """Return the next piece, still packed, or b"" at the end. Raises `Broken`."""
        if arrived := self._connection.read_available():  # it usually arrives with the head
            return arrived
        idle = self._bounds.idle
        seconds_left = self._deadline - anyio.current_time()  # for the whole response
        with anyio.move_on_after(min(idle, seconds_left)):
            return await self._connection.next_chunk()
        if seconds_left < idle:
            raise Stalled(f"did not complete its response within {self._bounds.whole:g} s")
        raise Stalled(f"has sent nothing for {idle:g} s")

    def _remember(self, chunk: bytes) -> None:
        """Store the beginning of the body, so that an error can quote it."""
        if len(self.reply.body) < _QUOTED_BYTES:
            self.reply = replace(self.reply, body=(self.reply.body + chunk)[:_QUOTED_BYTES])


async def connect_http(
    place: WebAddress, environ: Mapping[str, str], *, addresses: Sequence[str] = ()
) -> HttpConnection:
    """Open a connection for HTTP requests to a place. Raises `OSError`, as `dial` does.

    A request without TLS is sent to an HTTP proxy itself, because most proxies open no tunnel
    for it.
    """
    proxy = proxy_of(place, environ)
    if place.tls or not proxy.startswith("http"):
        connection = HttpConnection(await dial(place, environ, addresses=addresses))
    else:
        from refold.provider.proxy import parse_proxy, proxy_headers

        stream = await dial_proxy(proxy, environ)
        connection = HttpConnection(stream, place.origin, proxy_headers(parse_proxy(proxy)))
    connection.place = place.origin
    if not proxy:
        connection.address = connection.remote_address()
    return connection


class HttpClient:
    """Sends requests, also concurrently. Up to `keep` idle connections are kept."""

    def __init__(
        self, environ: Mapping[str, str], bounds: Bounds | None = None, *, keep: int = 0
    ) -> None:
        self._environ, self._keep = environ, keep
        self.bounds = bounds or Bounds()
        self._idle_connections: list[HttpConnection] = []

    async def open(
        self, request: HttpRequest, judge: Judge | None = None, bounds: Bounds | None = None
    ) -> HttpResponse:
        """Send a request to an address that `judge` permits. The caller closes the response.

        Raises `Broken`, `AddressRefused`, and the errors of `judge`.
        """
        bounds = bounds or self.bounds
        place = request.place
        connection = await self._connect(place, judge, bounds)
        try:
            headers = (("host", place.authority), *request.headers)
            await connection.send(
                place.target,
                headers,
                request.body,
                idle=bounds.idle,
                method=request.method,
            )
            with anyio.move_on_after(bounds.idle):
                return HttpResponse(self, connection, await connection.read_head(), bounds)
            raise Stalled(f"has sent nothing for {bounds.idle:g} s")
        # also on cancellation, because nothing else closes the connection
        except BaseException:
            await connection.aclose()
            raise

    async def addresses(self, place: WebAddress, judge: Judge) -> Sequence[str]:
        """Return the addresses that `judge` permits, or () if only a proxy can resolve the
        host.
        """
        try:
            return await judge(place)
        except AddressRefused:
            raise
        except OSError:
            if not proxy_of(place, self._environ):
                raise
            return ()

    async def release(self, connection: HttpConnection, *, keep: bool) -> None:
        """Keep a connection for later if `keep` and there is room, otherwise close it."""
        if keep and len(self._idle_connections) < self._keep:
            self._idle_connections.append(connection)
        else:
            await connection.aclose()

    async def aclose(self) -> None:
        """Close idle connections. The next request opens a new one."""
        while self._idle_connections:
            await self._idle_connections.pop().aclose()

    async def _connect(
        self, place: WebAddress, judge: Judge | None, bounds: Bounds
    ) -> HttpConnection:
        """Return an idle or a new connection to a place. Raises `Unconnected`."""
        try:
            with anyio.fail_after(bounds.connect):
                addresses = await self.addresses(place, judge) if judge else ()
                connection = await self._take_idle(place, addresses)
                if connection is None:
                    connection = await connect_http(
                        place, self._environ, addresses=addresses
                    )
                return connection
        except AddressRefused:
            raise
        except TimeoutError as error:
            raise Unconnected(f"no connection within {bounds.connect:g} s") from error
        except OSError as error:
            is_lasting = isinstance(error, SetupFault)
            raise Unconnected(connection_failure(error), lasting=is_lasting) from error
        except (anyio.BrokenResourceError, anyio.EndOfStream) as error:
            raise Unconnected("it hung up before the request") from error

    async def _take_idle(
        self, place: WebAddress, addresses: Sequence[str]
    ) -> HttpConnection | None:
        """Return an idle connection to the place that can be used again, or None."""
        while True:
            # They are listed again in each round, because another task may have taken one.
            connections = [
                c for c in self._idle_connections if c.leads_to(place, addresses)
            ]
            if not connections:
                return None
            connection = connections[-1]
            self._idle_connections.remove(connection)
            if await connection.check_ready():
                return connection
            await connection.aclose()


def connection_failure(error: Exception) -> str:
    """Return the reason for a failed connection, to be written after a colon."""
    root = _root_cause(error)
    match root:
        case ssl.SSLError():
            return f"it does not speak TLS as it should ({root.reason or root})"
        case ConnectionRefusedError():
            return "no server listens there (connection refused)"
        case socket.gaierror():
            return f"the name cannot be resolved ({root.strerror or root})"
        case OSError():
            return root.strerror or str(root)
        case _:
            return str(root)


def _root_cause(error: BaseException) -> BaseException:
    """Return the root cause of an error, or the nearest cause with a complete message."""
    while not isinstance(error, SetupFault | ProxyFault):
        cause = error.__cause__ or error.__context__
        if cause is None:
            break
        error = cause
        if isinstance(cause, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", cause).exceptions[0]
    return error
