"""Adds the token of an MCP server to its requests, and renews a token that has expired.

This module opens no browser and registers nothing: if a login is necessary, it reports one
sentence about that. A strict server revokes all tokens if a refresh token is used twice, so
only one process renews, under a lock, and the others use the result. `oauth_login` logs in, and
`grants` defines the result.
"""

import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Mapping
from urllib.parse import quote, urlencode

import anyio
import httpx2
import msgspec
from anyio import to_thread
from mcp.client.auth.utils import extract_field_from_www_auth
from msgspec import Struct
from msgspec.structs import replace

from refold.errors import BadInput
from refold.mcp.grants import Grant, GrantStore, join_scopes
from refold.mcp.oauth_network import OAuthNetwork
from refold.mcp.servers import ServerConfig
from refold.provider.resolver import Resolve, resolve

_RENEW_EARLY_SECONDS = 30.0  # a token is renewed this long before it expires
_FORM_TYPE = "application/x-www-form-urlencoded"
_MAX_REASON_CHARS = 200  # the part of a server's message that is shown
_MAX_SCOPE_CHARS = 500


class ServerLogin(httpx2.Auth):
    """Adds the token to requests. Calls `on_stop` with a sentence if a login is needed."""

    def __init__(
        self,
        config: ServerConfig,
        grants: GrantStore,
        environ: Mapping[str, str],
        on_stop: Callable[[str], None],
        resolve: Resolve = resolve,
    ) -> None:
        self._config, self._grants, self._on_stop = config, grants, on_stop
        self._network = OAuthNetwork(config.url, environ, resolve)
        self._grant: Grant | None = None
        self._has_read, self._lock = False, anyio.Lock()

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the request with a token, and again with a renewed one if it was refused."""
        grant = await self._current_grant()
        response = yield _authorize(request, grant)
        if response.status_code == 401 and grant is not None:
            renewed = await self._renew(grant)
            if renewed is not None:
                response = yield _authorize(request, renewed)
        if response.status_code == 401:
            self._on_stop(self._login_advice("it asks for a login"))
        elif response.status_code == 403:
            await self._note_missing_scope(response, grant)

    async def _current_grant(self) -> Grant | None:
        """Return the grant, renewed if it has expired; None if the user has not logged in."""
        async with self._lock:
            if not self._has_read:
                self._grant = await self._read_stored()
                self._has_read = True
        grant = self._grant
        if grant is None or not grant.expires:  # 0.0 means that the time is not known
            return grant
        if grant.expires - _RENEW_EARLY_SECONDS > time.time():
            return grant
        return await self._renew(grant) or grant

    async def _renew(self, old: Grant) -> Grant | None:
        """Renew the tokens in `old`, and return the new ones; None if they cannot be renewed.

        If another task or process has already renewed the tokens, return the renewed ones.
        """
        async with self._lock:
            if self._grant is not None and self._grant.access != old.access:
                return self._grant
            lock = self._grants.lock()
            await to_thread.run_sync(lock.__enter__)
            try:
                stored = await self._read_stored()
                if stored is not None and stored.access != old.access:
                    self._grant = stored
                elif old.refresh and old.token_endpoint:
                    self._grant = await self._exchange(old)
                else:
                    return None
                return self._grant
            except BadInput as error:
                self._on_stop(f"its login could not be renewed: {error}")
                return None
            finally:
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(lock.__exit__, None, None, None)

    async def _exchange(self, old: Grant) -> Grant | None:
        """Exchange the refresh token for new tokens, and store them.

        Return None if the server rejects the refresh token.
        """
        async with self._network.client() as client:
            request = refresh_request(old)
            response = await client.send(request, follow_redirects=False)
        if response.status_code in (400, 401):
            return None
        new = grant_from_response(old, response)
        await to_thread.run_sync(
            self._grants.write, self._config.name, self._config.url, new
        )
        return new

    async def _read_stored(self) -> Grant | None:
        """Return the stored grant; None if there is none, or if the store cannot be read."""
        try:
            name, url = self._config.name, self._config.url
            return await to_thread.run_sync(self._grants.read, name, url)
        except BadInput as error:
            self._on_stop(str(error))
            return None

    async def _note_missing_scope(
        self, response: httpx2.Response, grant: Grant | None
    ) -> None:
        """Store the scope that a refused request lacked, so that the next login requests it."""
        if extract_field_from_www_auth(response, "error") != "insufficient_scope":
            return
        scope = (extract_field_from_www_auth(response, "scope") or "")[:_MAX_SCOPE_CHARS]
        if not scope.isprintable():
            scope = ""
        if grant is not None and scope:
            new = replace(grant, wanted=join_scopes(grant.scope, grant.wanted, scope))
            name, url = self._config.name, self._config.url
            await to_thread.run_sync(self._grants.write, name, url, new)
        rights = f" ({scope[:_MAX_REASON_CHARS]})" if scope else ""
        self._on_stop(self._login_advice(f"it asks for more rights{rights}"))

    def _login_advice(self, reason: str) -> str:
        return f"{reason}: run `refold mcp login {self._config.name}`"


class _Tokens(Struct):
    access_token: str
    refresh_token: str = ""
    expires_in: float | None = None
    scope: str = ""


def refresh_request(grant: Grant) -> httpx2.Request:
    """Return the HTTP request that exchanges a grant's refresh token for new tokens."""
    form = {
        "grant_type": "refresh_token",
        "refresh_token": grant.refresh,
        "client_id": grant.client_id,
    }
    headers = {"Content-Type": _FORM_TYPE, "Accept": "application/json"}
    if grant.resource:
        form["resource"] = grant.resource
    if grant.client_secret and grant.client_auth == "client_secret_basic":
        pair = f"{quote(grant.client_id, safe='')}:{quote(grant.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    elif grant.client_secret:
        form["client_secret"] = grant.client_secret
    body = urlencode(form).encode()
    return httpx2.Request("POST", grant.token_endpoint, content=body, headers=headers)


def grant_from_response(old: Grant, response: httpx2.Response) -> Grant:
    """Return `old` with the tokens that the authorization server has sent.

    Raises `BadInput`, which never quotes a token.
    """
    if response.status_code != 200:
        raise BadInput(f"the authorization server answered with {response.status_code}")
    try:
        tokens = msgspec.json.decode(response.content, type=_Tokens)
    except msgspec.MsgspecError as error:
        raise BadInput("the authorization server sent no token") from error
    expires = 0.0  # unknown
    if tokens.expires_in is not None:
        expires = time.time() + tokens.expires_in
    return replace(
        old,
        access=tokens.access_token,
        refresh=tokens.refresh_token or old.refresh,
        expires=expires,
        scope=tokens.scope or old.scope,
    )


def _authorize(request: httpx2.Request, grant: Grant | None) -> httpx2.Request:
    """Return the request with the grant's token; without a grant, return it unchanged."""
    if grant is not None:
        request.headers["Authorization"] = f"Bearer {grant.access}"
    return request
