"""A small HTTP client: post JSON, read the response as it arrives.

Idle connections are kept for the next request. Every failure is raised as a `ProviderError` in
one sentence, without the key. `http_response` reads what comes back, and is loaded when a
request has been sent. `error_mapping` explains statuses, `connect` opens connections, and each
wire parses its own responses.
"""

import select
import socket
import ssl
import time
import zlib
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import copy
from typing import TYPE_CHECKING, Protocol, cast

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream, SocketAttribute
from msgspec import Struct
from msgspec.structs import replace

from refold.errors import (
    BadInput,
    ProviderError,
    ProxyFault,
    Refused,
    SetupFault,
    Unreachable,
)
from refold.provider.connect import (
    Broken,
    Endpoint,
    dial,
    dial_proxy,
    endpoint_of,
    proxy_of,
)
from refold.provider.error_mapping import Peer, ResponseStart, failure, masked, no_stream

if TYPE_CHECKING:
    from refold.provider.http_response import ResponseReader

_KEPT = 4  # connections that wait for the next request
_LONGEST_REFUSAL = 64 * 1024
_LONGEST_PAGE = 32 * 1024 * 1024
_LONGEST_ANSWER = 64 * 1024 * 1024  # bytes, unpacked: ten times what models write
_AT_ONCE = 1024 * 1024  # bytes that are unpacked in one go
_QUOTED = 2000


class Timeouts(Struct, frozen=True):
    """How long we wait, in seconds."""

    connect: float = 10.0
    idle: float = 120.0  # for the next byte, the first one too; keep-alives count


class HttpConnection:
    """`origin`: where a proxy has to send the requests, if one reads them."""

    def __init__(
        self,
        stream: ByteStream,
        origin: str = "",
        proxy_headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._stream, self._origin, self._more = stream, origin, tuple(proxy_headers)
        self._loop = anyio.lowlevel.current_token()
        self._asked: tuple[str, str, Sequence[tuple[str, str]]] = ("GET", "", ())
        self._reader: ResponseReader | None = None
        self._unasked: select.poll | None = None  # watches for what nobody has asked for

    async def send(
        self,
        target: str,
        headers: Iterable[tuple[str, str]],
        body: bytes | None,
        idle: float,
    ) -> None:
        """Send a request with a body, or, without one, a GET."""
        method = "GET" if body is None else "POST"
        self._asked = (method, self._origin + target, (*headers, *self._more))
        data = _written(*self._asked, body)
        try:
            for start in range(0, len(data), _PIECE):
                with anyio.move_on_after(idle) as waiting:
                    await self._stream.send(data[start : start + _PIECE])
                if waiting.cancelled_caught:
                    raise Broken(f"has read nothing of the request for {idle:g} s")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # it may have answered before it had heard all; `head` will tell

    async def head(self) -> ResponseStart:
        """How the answer begins."""
        if self._reader is None:
            # h11 takes long to import: the server has the request already.
            from refold.provider.http_response import ResponseReader

            self._reader = ResponseReader(self._receive)
        return await self._reader.head(*self._asked)

    def arrived(self) -> bytes:
        """What has come of it already; empty if it may have to be waited for."""
        return self._reader.arrived() if self._reader else b""

    async def next_chunk(self) -> bytes:
        """What has come of the body since the last call; empty when it is over."""
        return await self._reader.next_chunk() if self._reader else b""

    async def ready(self) -> bool:
        """Can it be used for another request?"""
        if anyio.lowlevel.current_token() != self._loop or self._reader is None:
            return False  # its event loop is gone, and so is whoever watched it
        try:
            if self._reader.tail_comes:
                with anyio.move_on_after(_TAIL):
                    while self._reader.tail_comes:
                        await self.next_chunk()
        except Broken:
            return False
        if not self.begin_anew():
            return False
        if self._unasked is None:
            self._unasked = select.poll()
            raw = self._stream.extra(SocketAttribute.raw_socket)
            self._unasked.register(raw, select.POLLIN)
        return not self._unasked.poll(0)  # anything unasked for is the end of it

    def begin_anew(self) -> bool:
        """Make ready for the next answer. False if none can come on this connection."""
        return self._reader is not None and self._reader.begin_anew()

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


def _written(
    method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes | None
) -> bytes:
    """A request as it is sent. Raises `BadInput` for what would be read as another one."""
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
    """A 200, read as it comes. Say `enough` when the rest is only its end."""

    def __init__(self, http: "Http", line: HttpConnection, reply: ResponseStart) -> None:
        self._http, self._line = http, line
        self._unpack = _unpacking(reply.headers.get("content-encoding", ""))
        self._packed, self._read = b"", 0
        self.reply = reply  # its `body` holds the beginning, to quote
        self.whole = False

    def enough(self) -> None:
        self.whole = True

    async def read(self) -> bytes:
        """The next piece; empty when all was said."""
        while packed := self._packed or await self._http.next_chunk(self._line):
            try:
                chunk = self._unpacked(packed)
            except zlib.error as error:
                raise Broken(
                    f"sent a body that cannot be decompressed ({error})"
                ) from error
            self._read += len(chunk)
            if self._read > _LONGEST_ANSWER:
                raise Broken(f"sent more than {_LONGEST_ANSWER >> 20} MB as one answer")
            if chunk:
                self._remember(chunk)
                return chunk
        self.whole = True
        return b""

    def _unpacked(self, packed: bytes) -> bytes:
        """Some of it: a few bytes may expand to gigabytes."""
        if self._unpack is None:
            return packed
        chunk = self._unpack.decompress(packed, _AT_ONCE)
        self._packed = self._unpack.unconsumed_tail
        return chunk

    def _remember(self, chunk: bytes) -> None:
        if len(self.reply.body) < _QUOTED:
            self.reply = replace(self.reply, body=(self.reply.body + chunk)[:_QUOTED])


async def connect_http(
    where: Endpoint, environ: Mapping[str, str], *, addresses: Sequence[str] = ()
) -> HttpConnection:
    """A connection for requests to a place, as `dial` makes it. Raises `OSError`.

    Without TLS, an HTTP proxy reads the requests: most open no tunnel to such a port.
    """
    proxy = proxy_of(where, environ)
    if where.tls or not proxy.startswith("http"):
        return HttpConnection(await dial(where, environ, addresses=addresses))
    from refold.provider.proxy import parsed_proxy, proxy_headers

    stream = await dial_proxy(proxy, environ)
    origin = f"http://{where.authority}"
    return HttpConnection(stream, origin, proxy_headers(parsed_proxy(proxy)))


class Http:
    """One provider's server. Safe to share: every request has a line of its own."""

    def __init__(
        self,
        peer: Peer,
        headers: Mapping[str, str] = {},
        *,
        secret: str = "",
        timeouts: Timeouts | None = None,
        environ: Mapping[str, str] = {},
    ) -> None:
        self.peer, self._secret, self._environ = peer, secret, environ
        self._timeouts = timeouts or Timeouts()
        self._place = endpoint_of(peer.base_url)
        for name, value in headers.items():
            # The library would quote the whole value in its complaint: the key.
            if not (value.isascii() and value.isprintable()):
                raise BadInput(
                    f"{peer.key_env or name} holds a character that no key has: "
                    "set it again, without quotes or line breaks"
                )
        self._headers = (
            ("host", self._place.authority),
            ("user-agent", "refold"),
            ("content-type", "application/json"),
            ("accept-encoding", "identity"),
            *headers.items(),
        )
        self._waiting: list[HttpConnection] = []

    def with_headers(self, more: Mapping[str, str]) -> "Http":
        """The same server, over the same connections; each request has these headers, too."""
        other = copy(self)
        other._headers = (*self._headers, *more.items())
        return other

    def post(
        self, path: str, body: bytes, *, model: str = ""
    ) -> AbstractAsyncContextManager[HttpResponse]:
        """Send, and read the answer inside. Leaving early closes the connection."""
        return self._answered(path, body, model)

    async def get(self, path: str) -> bytes:
        """The whole response."""
        found = bytearray()
        async with self._answered(path, None) as answer:
            while chunk := await answer.read():
                found += chunk
                if len(found) > _LONGEST_PAGE:
                    raise Broken(f"sends more than {_LONGEST_PAGE >> 20} MB at {path}")
        return bytes(found)

    @asynccontextmanager
    async def _answered(
        self, path: str, body: bytes | None, model: str = ""
    ) -> AsyncGenerator[HttpResponse, None]:
        line: HttpConnection | None = None
        answer: HttpResponse | None = None
        try:
            line = await self._connected()
            answer = HttpResponse(self, line, await self._ask(line, path, body, model))
            yield answer
        except Broken as error:
            raise self._clean(
                Unreachable(f"{self.peer.label} at {self.peer.base_url} {error}")
            ) from error
        except ProviderError as error:
            self._clean(error)
            raise
        finally:
            if line:
                await self._let_go(line, keep=answer is not None and answer.whole)

    async def aclose(self) -> None:
        """Close what is kept open. The next request opens it again."""
        while self._waiting:
            await self._waiting.pop().aclose()

    async def next_chunk(self, line: HttpConnection) -> bytes:
        """The next piece of an answer's body; empty when it is over."""
        if arrived := line.arrived():  # most often with the head
            return arrived
        idle = self._timeouts.idle
        with anyio.move_on_after(idle):
            return await line.next_chunk()
        raise Broken(f"has sent nothing for {idle:g} s")

    async def _ask(
        self, line: HttpConnection, path: str, body: bytes | None, model: str
    ) -> ResponseStart:
        idle = self._timeouts.idle
        target = self._place.path + path
        await line.send(target, self._headers, body, idle)
        reply: ResponseStart | None = None
        with anyio.move_on_after(idle):
            reply = await line.head()
        if reply is None:
            raise Broken(f"has sent nothing for {idle:g} s")
        reply = replace(reply, model=model, now=time.time())
        if reply.status == 200 and "html" not in reply.headers.get("content-type", ""):
            return reply
        refusal = b""
        while len(refusal) < _LONGEST_REFUSAL and (chunk := await self.next_chunk(line)):
            refusal += chunk
        reply = replace(reply, body=refusal)
        judge = no_stream if reply.status == 200 else failure
        error = judge(self.peer, reply)
        error.answer = refusal
        raise error

    async def _connected(self) -> HttpConnection:
        while self._waiting:
            line = self._waiting.pop()
            if await line.ready():
                return line
            await line.aclose()
        with anyio.move_on_after(self._timeouts.connect):
            try:
                return await connect_http(self._place, self._environ)
            except OSError as error:
                raise self._unconnected(error) from error
            except (anyio.BrokenResourceError, anyio.EndOfStream) as error:
                raise self._unreachable("it hung up before we could ask") from error
        raise self._unreachable(f"no connection within {self._timeouts.connect:g} s")

    async def _let_go(self, line: HttpConnection, *, keep: bool) -> None:
        if keep and len(self._waiting) < _KEPT:
            self._waiting.append(line)
        else:
            await line.aclose()

    def _unconnected(self, error: OSError) -> ProviderError:
        if isinstance(error, SetupFault):  # the next try would end as this one
            peer = self.peer
            return Refused(f"cannot reach {peer.label} at {peer.base_url}: {error}")
        return self._unreachable(unreachable_because(error))

    def _unreachable(self, why: str) -> Unreachable:
        peer = self.peer
        url = f"check {peer.url_env}" if peer.url_env else ""
        look = " and ".join(filter(None, (url, peer.advice))) or "check the network"
        return Unreachable(f"cannot reach {peer.label} at {peer.base_url}: {why}; {look}")

    def _clean(self, error: ProviderError) -> ProviderError:
        error.args = tuple(masked(str(arg), self._secret) for arg in error.args)
        return error


def unreachable_because(error: Exception) -> str:
    """Why a connection failed, in words that follow a colon."""
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


class _Unpack(Protocol):
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, /, max_length: int) -> bytes: ...


def _unpacking(encoding: str) -> _Unpack | None:
    # We ask for plain bytes; some proxies pack them all the same.
    match encoding.lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
        case _:
            raise Broken(
                f"compressed its response as {encoding!r}, which was not requested"
            )


_TAIL = 0.02  # seconds for the last few bytes of an answer that has already ended
_PIECE = 256 * 1024
