"""Sends the SDK's HTTP requests to an MCP server through refold's own HTTP client.

For each request, the server's name is resolved and its addresses are checked. They may be
private, because the user named the server, but not some private and some public.
`oauth_network` sends the requests of logins, whose addresses other parties name.
"""

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import httpx2

from refold.mcp.message_limits import limit_message
from refold.provider.connect import Broken, Unconnected
from refold.provider.http import Bounds, HttpClient, HttpRequest, HttpResponse
from refold.provider.resolver import (
    AddressRefused,
    Judge,
    Resolve,
    kinds_of_users_host,
    resolve,
    resolve_and_judge,
)
from refold.values.web_address import WebAddress

_BODY_SEPARATORS = {"application/json": b"", "text/event-stream": b"\n"}
_MAX_MESSAGE = 16 * 1024 * 1024  # the size in bytes
_DEFAULT_PORTS = {"https": 443, "http": 80}
_CONNECT_SECONDS, _READ_SECONDS = 30.0, 300.0  # as in the SDK
_MAX_IDLE_CONNECTIONS = 4  # kept open for the next request
_OWN_REQUEST_HEADERS = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "accept-encoding")
)
_DROPPED_RESPONSE_HEADERS = frozenset(
    ("content-encoding", "content-length", "transfer-encoding")
)

# Returns the error to raise instead of `Broken` or `AddressRefused`.
Explain = Callable[[Exception], Exception]


class JudgedTransport(httpx2.AsyncBaseTransport):
    """Sends the requests of the SDK's client for one MCP server, to checked addresses only."""

    def __init__(self, environ: Mapping[str, str], resolve: Resolve = resolve) -> None:
        self._resolve = resolve
        self._client = HttpClient(environ, keep=_MAX_IDLE_CONNECTIONS)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return the response.

        Raises `httpx2.ConnectError` and `httpx2.ReadError`.
        """
        seconds: Mapping[str, float | None] = request.extensions.get("timeout", {})
        connect_seconds = seconds.get("connect") or math.inf
        read_seconds = seconds.get("read") or math.inf
        bounds = Bounds(connect_seconds, read_seconds, size=math.inf)
        response = await send(self._client, request, self._addresses, bounds, _explain)
        media_type, _, _ = response.headers.get("content-type", "").partition(";")
        separator = _BODY_SEPARATORS.get(media_type.strip().lower())
        body = response.stream
        if separator is not None and isinstance(body, httpx2.AsyncByteStream):
            response.stream = _Messages(body, separator)
        return response

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _addresses(self, address: WebAddress) -> Sequence[str]:
        kinds = kinds_of_users_host(address.host)
        return await resolve_and_judge(address.host, address.port, kinds, self._resolve)


def _explain(error: Exception) -> Exception:
    """Return an error of refold's HTTP client as an error that the SDK knows."""
    match error:
        case AddressRefused():
            return httpx2.ConnectError(f"cannot be reached: {error}")
        case Unconnected():
            return httpx2.ConnectError(str(error))
        case _:
            return httpx2.ReadError(f"it {error}")


async def send(
    client: HttpClient,
    request: httpx2.Request,
    judge: Judge,
    bounds: Bounds,
    explain: Explain,
) -> httpx2.Response:
    """Send a request of the SDK with `client`, and return the response.

    The request asks for an uncompressed answer. `judge` checks the addresses, `bounds` are the
    limits, and `explain` converts an error of the client to the error that is raised.
    """
    headers = [(n, v) for n, v in request.headers.items() if n not in _OWN_REQUEST_HEADERS]
    headers.append(("accept-encoding", "identity"))
    body = await request.aread() if request.method in ("POST", "PUT") else None
    outgoing = HttpRequest(address_of(request), headers, body, request.method)
    try:
        answer = await client.open(outgoing, judge, bounds)
    except (AddressRefused, Broken) as error:
        raise explain(error) from error
    fields = {
        n: v for n, v in answer.reply.headers.items() if n not in _DROPPED_RESPONSE_HEADERS
    }
    stream = _Body(answer, explain)
    return httpx2.Response(answer.reply.status, headers=fields, stream=stream)


def address_of(request: httpx2.Request) -> WebAddress:
    """Return scheme, host, port (perhaps the default port) and path of a request."""
    url = request.url
    port = url.port or _DEFAULT_PORTS[url.scheme]
    return WebAddress(url.scheme, url.host, port, url.raw_path.decode("ascii"))


class _Body(httpx2.AsyncByteStream):
    """The body of a response, in pieces as they arrive."""

    def __init__(self, answer: HttpResponse, explain: Explain) -> None:
        self._answer, self._explain = answer, explain

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while chunk := await self._answer.read():
                yield chunk
        except Broken as error:
            raise self._explain(error) from error

    async def aclose(self) -> None:
        await self._answer.aclose()


def http_client(
    transport: JudgedTransport,
    headers: dict[str, str] | None = None,
    timeout: httpx2.Timeout | None = None,
    auth: httpx2.Auth | None = None,
) -> httpx2.AsyncClient:
    """Return an HTTP client that uses only `transport`: no proxy variables, no redirects."""
    timeout = timeout or httpx2.Timeout(_CONNECT_SECONDS, read=_READ_SECONDS)
    return httpx2.AsyncClient(
        headers=headers, timeout=timeout, auth=auth, transport=transport, trust_env=False
    )


class _Messages(httpx2.AsyncByteStream):
    """The body of a response, after `message_limits` has limited each of its messages.

    The body is one message if `separator` is b"". Otherwise `separator` is the end of each
    line, and each line is a message.
    """

    def __init__(self, body: httpx2.AsyncByteStream, separator: bytes) -> None:
        self._body, self._separator = body, separator

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body line by line, each line within the limits.

        Raises `httpx2.ReadError` if a line is too long.
        """
        rest = bytearray()  # the line that has not ended
        async for piece in self._body:
            rest += piece
            if len(rest) > _MAX_MESSAGE:
                raise httpx2.ReadError(
                    f"it sent more than {_MAX_MESSAGE >> 20} MiB at once"
                )
            if self._separator and self._separator in piece:
                *lines, last = rest.split(self._separator)
                rest = bytearray(last)
                for line in lines:
                    yield _limit_line(bytes(line)) + self._separator
        if rest:
            yield _limit_line(bytes(rest))

    async def aclose(self) -> None:
        await self._body.aclose()


def _limit_line(line: bytes) -> bytes:
    """Limit the message in a line, which may be the data of an event."""
    before, data, message = line.partition(b"data:")
    if before or not data:
        return limit_message(line)
    return data + limit_message(message)
