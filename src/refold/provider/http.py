"""The HTTP client of all requests of refold: bounds of time and size, proxies, TLS and addresses.

`HttpClient` sends a request and reads the answer as it arrives; idle connections are kept for the
next one. `http_response` reads what comes back, and is loaded when a request has been sent.
`connect` opens connections, `resolver` judges addresses. Its callers decide what a failure
means: `api_client` for model providers, `blocking_http` for downloads, and others in their
packages.

It is built on h11 and a socket. The usual client library adds 70 ms to every start, this
one 10 to 20 ms, and no request needs cookies, HTTP/2 or a pool.

The SDK's client, httpx2, is not used: it takes 100 ms to import, resolves names itself, and
its pool cannot restrict the address of a connection.
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

_QUOTED_BYTES = 2000
_TAIL_SECONDS = 0.02  # for the last few bytes of an answer that has already ended
_PIECE_BYTES = 256 * 1024


class Bounds(Struct, frozen=True):
    """Limits of time, in seconds, and of size, in bytes."""

    connect: float = 10.0
    idle: float = 120.0  # for the next byte, the first one too; keep-alives count
    whole: float = math.inf  # for all of a body
    size: float = 64 * 1024 * 1024  # of a body, unpacked: ten times what models write


class HttpRequest(Struct, frozen=True):
    """A request: a POST if it has a `body`, unless `method` is set. The Host is added."""

    place: WebAddress
    headers: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    method: str = ""


class HttpConnection:
    """A connection to one place. `origin`: where a proxy sends the requests, if one reads
    them. `address` is the IP address; "" if only a proxy knows it.
    """

    def __init__(
        self,
        stream: ByteStream,
        origin: str = "",
        proxy_headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._stream, self._origin, self._proxy_headers = (
            stream,
            origin,
            tuple(proxy_headers),
        )
        self._loop = anyio.lowlevel.current_token()
        self._request_head: tuple[str, str, Sequence[tuple[str, str]]] = ("GET", "", ())
        self._reader: ResponseReader | None = None
        self._input_poll: select.poll | None = None  # detects unrequested data
        self.place, self.address = "", ""

    def leads_to(self, place: WebAddress, addresses: Sequence[str]) -> bool:
        """Return True if it leads to this place, at one of these addresses if any are given."""
        at_address = not addresses or not self.address or self.address in addresses
        return at_address and self.place == place.origin

    async def send(
        self,
        target: str,
        headers: Iterable[tuple[str, str]],
        body: bytes | None,
        idle: float,
        method: str = "",
    ) -> None:
        """Send a request with a body, or, without one, a GET."""
        method = method or ("GET" if body is None else "POST")
        self._request_head = (
            method,
            self._origin + target,
            (*headers, *self._proxy_headers),
        )
        data = _encode_request(*self._request_head, body)
        try:
            for start in range(0, len(data), _PIECE_BYTES):
                with anyio.move_on_after(idle) as waiting:
                    await self._stream.send(data[start : start + _PIECE_BYTES])
                if waiting.cancelled_caught:
                    raise Stalled(f"has not accepted any of the request for {idle:g} s")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the server may have responded early: `read_head` reads that

    async def read_head(self) -> ResponseStart:
        """Read the beginning of the response."""
        if self._reader is None:
            # h11 takes long to import: the server has the request already.
            from refold.provider.http_response import ResponseReader

            self._reader = ResponseReader(self._receive)
        return await self._reader.read_head(*self._request_head)

    def read_available(self) -> bytes:
        """The part of the response that has arrived; empty if a wait may be needed."""
        return self._reader.read_available() if self._reader else b""

    async def next_chunk(self) -> bytes:
        """The part of the body that arrived since the last call; empty at its end."""
        return await self._reader.next_chunk() if self._reader else b""

    async def check_ready(self) -> bool:
        """Return True if it can be used for another request."""
        if anyio.lowlevel.current_token() != self._loop or self._reader is None:
            return False  # its event loop has ended
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
        return not self._input_poll.poll(0)  # unrequested data makes it unusable

    def start_next(self) -> bool:
        """Prepare for the next response. False if the connection cannot be used again."""
        return self._reader is not None and self._reader.start_next()

    def remote_address(self) -> str:
        return str(self._stream.extra(SocketAttribute.remote_address)[0])

    async def aclose(self) -> None:
        if anyio.lowlevel.current_token() == self._loop:
            await anyio.aclose_forcefully(self._stream)

    async def _receive(self) -> bytes:
        try:
            return await self._stream.receive()
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise Broken(f"broke the connection ({error.__cause__ or error})") from error


def _encode_request(
    method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes | None
) -> bytes:
    """Encode a request. Raises `BadInput` for text that would change its structure."""
    length = () if body is None else (("content-length", str(len(body))),)
    lines = [f"{name}: {value}" for name, value in (*headers, *length)]
    names, text = [name for name, _ in headers], "".join([target, *lines])
    if " " in "".join([target, *names]) or not (text.isascii() and text.isprintable()):
        raise BadInput(
            f"{target!r} cannot be asked for: it, or a header, holds a character that "
            "HTTP does not allow"
        )
    head = "\r\n".join((f"{method} {target} HTTP/1.1", *lines, "", ""))
    return head.encode() + (body or b"")


class HttpResponse:
    """A response, read as it arrives. Call `mark_complete` when only its end is left."""

    def __init__(
        self,
        client: "HttpClient",
        connection: HttpConnection,
        reply: ResponseStart,
        bounds: Bounds,
    ) -> None:
        from refold.provider.http_response import Unpacker

        self._client, self._connection, self._bounds = client, connection, bounds
        self._until = anyio.current_time() + bounds.whole
        self._unpacker = Unpacker(reply.headers.get("content-encoding", ""))
        self._read, self._peeked = 0, b""
        self.reply = reply  # its `body` holds the beginning, to quote
        self.whole = False

    def mark_complete(self) -> None:
        self.whole = True

    async def read(self) -> bytes:
        """The next piece, unpacked; empty at the end. Raises `Broken`."""
        if chunk := self._peeked:
            self._peeked = b""
            return chunk
        while packed := self._unpacker.rest or await self._read_chunk():
            chunk = self._unpacker.unpack(packed)
            self._read += len(chunk)
            if self._read > self._bounds.size:
                megabytes = int(self._bounds.size) >> 20
                raise Broken(f"sent more than {megabytes} MB as one answer")
            if chunk:
                self._remember(chunk)
                return chunk
        self.whole = True
        return b""

    async def peek(self) -> bytes:
        """The next piece, which `read` returns again."""
        self._peeked = await self.read()
        return self._peeked

    async def content(self, limit: int) -> tuple[bytes, bool]:
        """The first `limit` bytes, and whether that is all."""
        content = bytearray()
        while len(content) <= limit and (chunk := await self.read()):
            content += chunk
        return bytes(content[:limit]), len(content) <= limit

    async def aclose(self) -> None:
        """Keep the connection if the whole response was read, else close it."""
        await self._client.release(self._connection, keep=self.whole)

    async def _read_chunk(self) -> bytes:
        if arrived := self._connection.read_available():  # usually with the head
            return arrived
        idle, left = self._bounds.idle, self._until - anyio.current_time()
        with anyio.move_on_after(min(idle, left)):
            return await self._connection.next_chunk()
        if left < idle:
            raise Stalled(f"did not complete its response within {self._bounds.whole:g} s")
        raise Stalled(f"has sent nothing for {idle:g} s")

    def _remember(self, chunk: bytes) -> None:
        if len(self.reply.body) < _QUOTED_BYTES:
            self.reply = replace(self.reply, body=(self.reply.body + chunk)[:_QUOTED_BYTES])


async def connect_http(
    place: WebAddress, environ: Mapping[str, str], *, addresses: Sequence[str] = ()
) -> HttpConnection:
    """A connection for HTTP requests to a place, as `dial` makes it. Raises `OSError`.

    Without TLS, an HTTP proxy reads the requests: most open no tunnel to such a port.
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
    """Sends requests, and keeps up to `keep` connections for the next ones. Safe to share."""

    def __init__(
        self, environ: Mapping[str, str], bounds: Bounds | None = None, *, keep: int = 0
    ) -> None:
        self._environ, self._keep = environ, keep
        self.bounds = bounds or Bounds()
        self._idle_connections: list[HttpConnection] = []

    async def open(
        self, request: HttpRequest, judge: Judge | None = None, bounds: Bounds | None = None
    ) -> HttpResponse:
        """Send the request to an address that `judge` permits. The response must be closed.
        Raises `Broken`, `AddressRefused`, and what `judge` raises.
        """
        bounds = bounds or self.bounds
        place = request.place
        connection = await self._connect(place, judge, bounds)
        try:
            headers = (("host", place.authority), *request.headers)
            await connection.send(
                place.target, headers, request.body, bounds.idle, request.method
            )
            with anyio.move_on_after(bounds.idle):
                return HttpResponse(self, connection, await connection.read_head(), bounds)
            raise Stalled(f"has sent nothing for {bounds.idle:g} s")
        except BaseException:  # cancellation, too: nothing else closes the connection
            await connection.aclose()
            raise

    async def addresses(self, place: WebAddress, judge: Judge) -> Sequence[str]:
        """The addresses that `judge` permits; none if only a proxy resolves the name."""
        try:
            return await judge(place)
        except AddressRefused:
            raise
        except OSError:
            if not proxy_of(place, self._environ):
                raise
            return ()

    async def release(self, connection: HttpConnection, *, keep: bool) -> None:
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
        try:
            with anyio.fail_after(bounds.connect):
                addresses = await self.addresses(place, judge) if judge else ()
                return await self._take_idle(place, addresses) or await connect_http(
                    place, self._environ, addresses=addresses
                )
        except AddressRefused:
            raise
        except TimeoutError as error:
            raise Unconnected(f"no connection within {bounds.connect:g} s") from error
        except OSError as error:
            why, lasting = connection_failure(error), isinstance(error, SetupFault)
            raise Unconnected(why, lasting=lasting) from error
        except (anyio.BrokenResourceError, anyio.EndOfStream) as error:
            raise Unconnected("it hung up before the request") from error

    async def _take_idle(
        self, place: WebAddress, addresses: Sequence[str]
    ) -> HttpConnection | None:
        while connections := [
            connection
            for connection in self._idle_connections
            if connection.leads_to(place, addresses)
        ]:
            connection = connections[-1]
            self._idle_connections.remove(connection)
            if await connection.check_ready():
                return connection
            await connection.aclose()
        return None


def connection_failure(error: Exception) -> str:
    """The reason for a failed connection, as text after a colon."""
    root: BaseException = error
    while not isinstance(root, SetupFault | ProxyFault):
        if (cause := root.__cause__ or root.__context__) is None:
            break
        root = cause
        if isinstance(cause, BaseExceptionGroup):
            root = cast("BaseExceptionGroup[BaseException]", cause).exceptions[0]
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
