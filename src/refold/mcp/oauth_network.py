"""The requests that OAuth makes, to the hosts that may be asked, and within limits.

An MCP server names its authorization server, and that names further addresses. So each is
checked: it must use TLS, and may be private only where the MCP server is, which the user named:
a server whose name has a public address, at any moment of the login, is public. `provider.resolver`
judges the addresses, and the connection goes to one of them. Answers have a largest size.
Redirects are not followed here. `oauth_login` and `oauth_session` make the requests.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack

import anyio
import httpx2

from refold.errors import BadInput
from refold.provider.connect import Endpoint, proxy_of
from refold.provider.http import (
    Broken,
    HttpConnection,
    connect_http,
    unreachable_because,
)
from refold.provider.resolver import (
    AddressRefused,
    Resolve,
    check_addresses,
    kinds_of,
    kinds_of_users_host,
    resolve,
)
from refold.values.web_address import AddressKind, WebAddress, web_address

_LARGEST = 1024 * 1024  # bytes of one answer
_SECONDS = 30.0  # for one answer
_NOT_SENT = frozenset(
    ("content-length", "transfer-encoding", "connection", "accept-encoding")
)


class OAuthNetwork(httpx2.AsyncBaseTransport):
    """The network as the OAuth client of one MCP server sees it."""

    def __init__(
        self, server_url: str, environ: Mapping[str, str], resolve: Resolve = resolve
    ) -> None:
        self._server = web_address(server_url)
        self._environ, self._resolve = environ, resolve
        self._server_kinds: frozenset[AddressKind] = frozenset()  # as its name said first

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=self, timeout=None)

    async def check(self, url: str) -> None:
        """Raises `BadInput` where the authorization server leads where it must not."""
        await self._checked(url)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises `BadInput` in one sentence."""
        where, addresses = await self._checked(str(request.url))
        body = await request.aread()
        headers = [(n, v) for n, v in request.headers.items() if n not in _NOT_SENT]
        async with AsyncExitStack() as closing:
            try:
                with anyio.fail_after(_SECONDS):
                    connection = await self._connected(where, addresses)
                    closing.push_async_callback(_close, connection)
                    sent = body if request.method == "POST" else None
                    more = [*headers, ("connection", "close")]
                    await connection.send(where.target, more, sent, _SECONDS)
                    start = await connection.head()
            except TimeoutError as error:
                raise BadInput(
                    f"{where.origin} did not answer within {_SECONDS:g} s"
                ) from error
            except (Broken, OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
                raise BadInput(f"{where.origin} {_why(error)}") from error
            closing.pop_all()  # the body closes it
        stream = _Body(connection, where.origin)
        return httpx2.Response(start.status, headers=start.headers, stream=stream)

    async def _checked(self, url: str) -> tuple[WebAddress, Sequence[str]]:
        try:
            where = web_address(url)
        except ValueError as error:
            raise BadInput(f"the authorization server names an address: {error}") from error
        place = Endpoint(where.host, where.port, where.scheme == "https")
        try:
            addresses = await self._resolve(where.host, where.port)
            if where.origin == self._server.origin:
                self._pin(addresses)
                return where, addresses
            kinds = kinds_of(addresses)
            if where.scheme != "https" and any(kind != "loopback" for kind in kinds):
                raise BadInput(f"{where.origin} is not used for a login: it has no TLS")
            check_addresses(where.host, addresses, await self._near())
        except AddressRefused as error:
            raise BadInput(self._refused(where, error)) from error
        except OSError as error:
            if not proxy_of(place, self._environ):
                raise BadInput(f"{where.origin} cannot be found: {error}") from error
            return where, ()
        return where, addresses

    def _pin(self, addresses: Sequence[str]) -> None:
        """What the MCP server is counts from its first answer to the end of the login."""
        host = self._server.host
        check_addresses(host, addresses, kinds_of_users_host(host))
        kinds = kinds_of(addresses)
        self._server_kinds = self._server_kinds or kinds
        if not kinds <= self._server_kinds:
            raise AddressRefused(
                f"{self._server.host} leads to {', '.join(addresses)} now, and led elsewhere "
                "when the login began"
            )

    async def _near(self) -> frozenset[AddressKind]:
        """The kinds of private addresses that the MCP server itself has."""
        if not self._server_kinds:
            host, port = self._server.host, self._server.port
            try:
                self._pin(await self._resolve(host, port))
            except OSError:  # it is unknown here, or pretends: then nothing is near it
                self._server_kinds = frozenset(("public",))
        return self._server_kinds - {"public"}

    def _refused(self, where: WebAddress, error: AddressRefused) -> str:
        if where.origin == self._server.origin:
            return f"the MCP server {where.origin} is not used for a login: {error}"
        return (
            f"{where.origin} is not used for a login: {error}. An authorization server may be "
            f"at a private address only if the URL of the MCP server, {self._server.origin}, "
            "leads to none but private ones"
        )

    async def _connected(
        self, where: WebAddress, addresses: Sequence[str]
    ) -> HttpConnection:
        place = Endpoint(where.host, where.port, where.scheme == "https")
        return await connect_http(place, self._environ, addresses=addresses)


class _Body(httpx2.AsyncByteStream):
    """An answer as it arrives, until it is too long or takes too long."""

    def __init__(self, connection: HttpConnection, origin: str) -> None:
        self._connection, self._origin = connection, origin

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, until = 0, anyio.current_time() + _SECONDS
        while True:
            chunk = b""
            try:
                with anyio.fail_after(until - anyio.current_time()):
                    chunk = await self._connection.next_chunk()
            except TimeoutError as error:
                raise BadInput(f"{self._origin} did not end its answer in time") from error
            except Broken as error:
                raise BadInput(f"{self._origin} {error}") from error
            if not chunk:
                return
            size += len(chunk)
            if size > _LARGEST:
                raise BadInput(f"{self._origin} sent more than {_LARGEST:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await _close(self._connection)


async def _close(connection: HttpConnection) -> None:
    with anyio.CancelScope(shield=True):
        await connection.aclose()


def _why(error: BaseException) -> str:
    if isinstance(error, Broken):
        return str(error)
    if isinstance(error, OSError):
        return f"cannot be reached: {unreachable_because(error)}"
    return "hung up"
