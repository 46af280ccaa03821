"""Sends OAuth requests, only to hosts that may be asked, and within limits.

An MCP server names its authorization server, and the authorization server names further
addresses, so each address is checked. An address must use TLS, except on loopback, and may be
private only if the MCP server, which the user named, is private. An MCP server whose name has a
public address at any moment of the login counts as public. Redirects are not followed.
`provider.resolver` judges addresses, and `provider.http` sends the requests, which
`oauth_login` and `oauth_session` make.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import httpx2

from refold.errors import BadInput
from refold.mcp.http_transport import address_of, send
from refold.provider.http import Bounds, HttpClient
from refold.provider.resolver import (
    AddressRefused,
    Resolve,
    check_addresses,
    kinds_of,
    kinds_of_users_host,
    resolve,
)
from refold.values.web_address import AddressKind, WebAddress, web_address

_NETWORK_BOUNDS = Bounds(connect=30.0, idle=30.0, whole=30.0, size=1024 * 1024)


class OAuthNetwork(httpx2.AsyncBaseTransport):
    """Sends the requests of the OAuth client for one MCP server, to checked addresses only."""

    def __init__(
        self, server_url: str, environ: Mapping[str, str], resolve: Resolve = resolve
    ) -> None:
        self._server = web_address(server_url)
        self._client, self._resolve = HttpClient(environ, _NETWORK_BOUNDS), resolve
        # fixed when the name is first resolved
        self._server_kinds: frozenset[AddressKind] = frozenset()

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=self, timeout=None)

    async def check(self, url: str) -> None:
        """Raise `BadInput` if the address, which another party named, must not be asked."""
        try:
            place = web_address(url)
        except ValueError as error:
            raise BadInput(f"the authorization server names an address: {error}") from error
        try:
            await self._client.addresses(place, self._addresses)
        except OSError as error:
            raise self._explain(place, error) from error

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return the response. Raises `BadInput` with one sentence."""
        explain = partial(self._explain, address_of(request))
        return await send(self._client, request, self._addresses, _NETWORK_BOUNDS, explain)

    async def _addresses(self, place: WebAddress) -> Sequence[str]:
        """Return the addresses of a host. Raises an error if they must not be asked."""
        addresses = await self._resolve(place.host, place.port)
        if place.origin == self._server.origin:
            self._pin(addresses)
            return addresses
        kinds = kinds_of(addresses)
        if place.scheme != "https" and any(kind != "loopback" for kind in kinds):
            raise BadInput(f"{place.origin} is not used for a login: it has no TLS")
        check_addresses(place.host, addresses, await self._private_kinds())
        return addresses

    def _pin(self, addresses: Sequence[str]) -> None:
        """Store the kinds of the MCP server's addresses, such as "public", at the first call.

        A later call raises `AddressRefused` if the server has addresses of another kind.
        """
        host = self._server.host
        check_addresses(host, addresses, kinds_of_users_host(host))
        kinds = kinds_of(addresses)
        self._server_kinds = self._server_kinds or kinds
        if not kinds <= self._server_kinds:
            raise AddressRefused(
                f"{self._server.host} leads to {', '.join(addresses)} now, and led elsewhere "
                "when the login began"
            )

    async def _private_kinds(self) -> frozenset[AddressKind]:
        """Return the kinds of private addresses that the MCP server has, if any."""
        if not self._server_kinds:
            host, port = self._server.host, self._server.port
            try:
                self._pin(await self._resolve(host, port))
            # its name cannot be resolved here, so no private address belongs to it
            except OSError:
                self._server_kinds = frozenset(("public",))
        return self._server_kinds - {"public"}

    def _explain(self, place: WebAddress, error: Exception) -> BadInput:
        """Return the error for the user: why `place`, a server of the login, is not used."""
        if isinstance(error, AddressRefused):
            if place.origin == self._server.origin:
                return BadInput(
                    f"the MCP server {place.origin} is not used for a login: {error}"
                )
            return BadInput(
                f"{place.origin} is not used for a login: {error}. An authorization server may be "
                f"at a private address only if the URL of the MCP server, {self._server.origin}, "
                "leads to none but private ones"
            )
        if isinstance(error, OSError):
            return BadInput(f"{place.origin} cannot be found: {error}")
        return BadInput(f"{place.origin} {error}")
