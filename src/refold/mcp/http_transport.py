"""HTTP to an MCP server, over connections to addresses that `provider.resolver` has judged.

The SDK writes the requests. Here the name of the server is resolved for each new request, and the
connection goes to an address that was judged, with the name for TLS and the Host header. The user
named the server, so it may be at private addresses, but not at public and private ones.
`oauth_network` does the same for logins, whose addresses others name.
"""

import ssl
from collections.abc import AsyncIterator, Mapping

import httpx2

from refold.errors import SetupFault
from refold.mcp.message_limits import readable
from refold.provider.connect import Endpoint, proxy_of
from refold.provider.resolver import (
    AddressRefused,
    Resolve,
    judged,
    kinds_of_users_host,
    resolve,
)
from refold.provider.trust import tls_context, untrusted

_SEPARATORS = {"application/json": b"", "text/event-stream": b"\n"}
_MAX_MESSAGE = 16 * 1024 * 1024  # bytes
_PORTS = {"https": 443, "http": 80}
_CONNECT_SECONDS, _READ_SECONDS = 30.0, 300.0  # as the SDK has them


class JudgedTransport(httpx2.AsyncBaseTransport):
    """The network as the client of one MCP server sees it."""

    def __init__(self, environ: Mapping[str, str], resolve: Resolve = resolve) -> None:
        self._environ, self._resolve = environ, resolve
        self._transports = dict[tuple[str, bool], httpx2.AsyncHTTPTransport]()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises `httpx2.ConnectError`, from `AddressRefused` where an address may not be used."""
        url = request.url
        place = Endpoint(url.host, url.port or _PORTS[url.scheme], url.scheme == "https")
        try:
            proxy = proxy_of(place, self._environ)
        except SetupFault as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        try:
            own = kinds_of_users_host(place.host)
            addresses = await judged(place.host, place.port, own, self._resolve)
        except OSError as error:
            if not proxy or isinstance(error, AddressRefused):
                raise httpx2.ConnectError(str(error), request=request) from error
            addresses = ()
        request.headers["accept-encoding"] = "identity"  # what is packed has no known size
        if proxy:  # it resolves the name itself, perhaps as one that we cannot
            return await self._answer(request, proxy)
        failed: httpx2.TransportError = httpx2.ConnectError("its name has no address")
        for address in addresses:
            try:
                return await self._answer(_sent_to(address, request))
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failed = error
        raise failed

    async def _answer(self, request: httpx2.Request, proxy: str = "") -> httpx2.Response:
        try:
            transport = self._transport(proxy, tls=request.url.scheme == "https")
            return _screened(await transport.handle_async_request(request))
        except SetupFault as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        except httpx2.ConnectError as error:
            if (reason := _untrusted(error)) is None:
                raise
            fault = SetupFault(untrusted(reason, self._environ))
            raise httpx2.ConnectError(str(fault), request=request) from fault

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()

    def _transport(self, proxy: str, *, tls: bool) -> httpx2.AsyncHTTPTransport:
        if (proxy, tls) not in self._transports:
            checks = tls_context(self._environ) if tls or proxy else True
            self._transports[proxy, tls] = httpx2.AsyncHTTPTransport(
                verify=checks, proxy=httpx2.Proxy(proxy) if proxy else None
            )
        return self._transports[proxy, tls]


def _untrusted(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def http_client(
    transport: JudgedTransport,
    headers: dict[str, str] | None = None,
    timeout: httpx2.Timeout | None = None,
    auth: httpx2.Auth | None = None,
) -> httpx2.AsyncClient:
    """A client that uses this transport alone: no proxy of the environment, no redirects."""
    timeout = timeout or httpx2.Timeout(_CONNECT_SECONDS, read=_READ_SECONDS)
    return httpx2.AsyncClient(
        headers=headers, timeout=timeout, auth=auth, transport=transport, trust_env=False
    )


def _screened(response: httpx2.Response) -> httpx2.Response:
    """The same answer, with messages that are within the limits of `message_limits`."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = response.stream
    if kind not in _SEPARATORS or response.headers.get("content-encoding"):
        return response
    assert isinstance(body, httpx2.AsyncByteStream)
    headers = [(n, v) for n, v in response.headers.items() if n != "content-length"]
    return httpx2.Response(
        response.status_code,
        headers=headers,
        stream=_Messages(body, _SEPARATORS[kind]),
        extensions=response.extensions,
    )


class _Messages(httpx2.AsyncByteStream):
    """A body of messages: one, or the data of events, each on a line."""

    def __init__(self, body: httpx2.AsyncByteStream, separator: bytes) -> None:
        self._body, self._separator = body, separator

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = bytearray()
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
                    yield _within_limits(bytes(line)) + self._separator
        if rest:
            yield _within_limits(bytes(rest))

    async def aclose(self) -> None:
        await self._body.aclose()


def _within_limits(line: bytes) -> bytes:
    before, data, message = line.partition(b"data:")
    if before or not data:
        return readable(line)
    return data + readable(message)


def _sent_to(address: str, request: httpx2.Request) -> httpx2.Request:
    """The same request, to this IP address: TLS and the Host header name the host as before."""
    if address == request.url.host:
        return request
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": request.url.host},
    )
