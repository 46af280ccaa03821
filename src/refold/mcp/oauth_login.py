"""Logs in at an MCP server: opens a page in the browser, and receives its redirect.

The SDK implements the protocol: it finds the authorization server, registers refold there, and
checks the issuer, the state and PKCE. This module decides which hosts may be asked
(`oauth_network`), listens for the redirect, and makes errors readable. `oauth_session` uses the
tokens afterwards.

A login opens a page and registers a client, so it begins only when the user asks for it, with
`refold mcp login` or in a session (`session_login`). An MCP server names its authorization
server, and the authorization server names further addresses. Each address may be hostile.
"""

import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit, urlunsplit

import anyio
import httpx2
from anyio.abc import SocketStream
from mcp.client.auth import (
    OAuthClientProvider,
    OAuthFlowError,
    OAuthRegistrationError,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from refold._version import __version__
from refold.errors import BadInput, first
from refold.mcp.grants import Grant, join_scopes
from refold.mcp.oauth_network import OAuthNetwork
from refold.mcp.servers import ServerConfig
from refold.provider.resolver import Resolve, resolve
from refold.values.web_address import is_local_name, web_address

_LOGIN_SECONDS = 300.0  # for the user in the browser
_MAX_REQUEST_BYTES = 16_384  # the part of the browser's request that is read
_REGISTER_ADVICE = (
    "(it registers no clients by itself: register one there, and name it in the server's file "
    "as oauth.clientId)"
)
_MAX_REASON_CHARS = 300  # the part of an authorization server's message that is shown
_CALLBACK_PATH = "/callback"
_PAGE_TEXT = (
    "<!doctype html><meta charset=utf-8><title>refold</title>"
    "<p>{text} You can close this page and go back to refold.</p>"
)
_PAGE_HEAD = (
    "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
    "Content-Length: {length}\r\nContent-Security-Policy: default-src 'none'\r\n"
    "Referrer-Policy: no-referrer\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
)
# Requests that a server refuses without a login. Some servers answer the first one anyway, so
# there is a second one.
_PROBE_REQUESTS: tuple[Mapping[str, Any], ...] = (
    {
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "refold", "version": __version__},
        },
    },
    {"method": "tools/list"},
)

Browse = Callable[[str], Awaitable[None]]


async def log_in(
    config: ServerConfig,
    environ: Mapping[str, str],
    browse: Browse,
    before: Grant | None = None,
    resolve: Resolve = resolve,
) -> Grant:
    """Log in at a server, and return its tokens. Raises `BadInput` with one sentence.

    `config` has the values of its variables, and `browse` opens the page in the browser.
    `before` is the earlier grant, if any: its `wanted` scope is requested, too.
    """
    _check_config(config)
    network = OAuthNetwork(config.url, environ, resolve)
    listeners = await _listen(config)
    port: int = listeners.extra(anyio.abc.SocketAttribute.local_port)
    redirect = _Redirect()
    login = _Login(config, network, port, _BrowserPage(browse, redirect, before))
    grant: Grant | None = None
    try:
        with _silence_sdk():
            async with listeners, anyio.create_task_group() as group:
                group.start_soon(listeners.serve, redirect.answer)
                grant = await login.run()
                group.cancel_scope.cancel()
    except Exception as error:  # an error of the SDK, possibly caused by a hostile server
        raise BadInput(
            f"no login at the MCP server {config.name}: {_reason(first(error))}"
        ) from None
    assert grant is not None  # otherwise the SDK would have raised an error
    return grant


def _check_config(config: ServerConfig) -> None:
    """Raise `BadInput` for a server that can have no login, or that is reached without TLS."""
    if config.transport == "stdio":
        raise BadInput(
            f"the MCP server {config.name} is a program: it takes its keys from env, and has "
            "no login"
        )
    if any(name.lower() == "authorization" for name, _ in config.headers):
        raise BadInput(
            f"the MCP server {config.name} has an Authorization header in {config.source}: "
            "remove it there to log in instead"
        )
    place = web_address(config.url)
    if place.scheme != "https" and not is_local_name(place.host):
        raise BadInput(
            f"no login at the MCP server {config.name}: {place.origin} has no TLS, and the "
            "token would be read on the way"
        )


async def _listen(config: ServerConfig) -> Any:
    """Return listeners for the browser's redirect, on the configured port or on a free one."""
    port = config.oauth.callback_port
    try:
        return await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    except OSError as error:
        raise BadInput(
            f"the port {port} cannot be listened on for the login: {error.strerror}"
        ) from error


class _Redirect:
    """Receives the request with which the browser returns from the login page.

    Only a request with the `state` of this login is accepted. Its query becomes `query`.
    """

    def __init__(self) -> None:
        self.state = ""  # the secret with which the redirect of this login comes back
        self.query: Mapping[str, str] = {}
        self.arrived = anyio.Event()

    async def answer(self, browser: SocketStream) -> None:
        """Read one request of the browser, and answer it with a page."""
        async with browser:
            with anyio.move_on_after(10):
                try:
                    result = self._handle_redirect(await _read_target(browser))
                    await browser.send(_page_response(result))
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return

    def _handle_redirect(self, target: str) -> str:
        """Store the query of the redirect, and return the text of the page to show.

        Return "" for a request that is not the redirect of this login, or that repeats it.
        """
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        is_ours = self.state and query.get("state") == self.state
        if parts.path != _CALLBACK_PATH or not is_ours or self.arrived.is_set():
            return ""
        self.query = query
        self.arrived.set()
        return "The login has ended." if "error" in query else "You are logged in."


async def _read_target(browser: SocketStream) -> str:
    """Return the path and query of the browser's request; "" if it is not a GET."""
    request = b""
    while b"\r\n\r\n" not in request and len(request) < _MAX_REQUEST_BYTES:
        request += await browser.receive()
    first_line, _, _ = request.partition(b"\r\n")  # such as GET /page HTTP/1.1
    method, _, target_and_version = first_line.decode("latin-1").partition(" ")
    target, _, _version = target_and_version.rpartition(" ")
    return target if method == "GET" else ""


def _page_response(text: str) -> bytes:
    """Return an HTTP response with a page of this text, or with status 404 if `text` is ""."""
    body = _PAGE_TEXT.format(text=text or "There is nothing here.").encode()
    status = "200 OK" if text else "404 Not Found"
    return _PAGE_HEAD.format(status=status, length=len(body)).encode() + body


class _BrowserPage:
    """What the SDK's callbacks need to show a page and to wait for the redirect."""

    def __init__(self, browse: Browse, redirect: _Redirect, before: Grant | None) -> None:
        self.browse, self.redirect, self.before = browse, redirect, before


class _Login(OAuthClientProvider):
    """The SDK's OAuth client for one login. It starts without tokens, and stores none."""

    def __init__(
        self, config: ServerConfig, network: OAuthNetwork, port: int, page: _BrowserPage
    ) -> None:
        settings = config.oauth
        # Clients that were registered by hand usually have localhost in their redirect.
        host = "localhost" if settings.client_id else "127.0.0.1"
        metadata = OAuthClientMetadata(
            redirect_uris=[AnyUrl(f"http://{host}:{port}{_CALLBACK_PATH}")],
            client_name="refold",
            token_endpoint_auth_method=None if settings.client_id else "none",
        )
        client = _configured_client(config, metadata)
        super().__init__(
            config.url, metadata, _NullTokenStore(client), self._show, self._wait_for_code,
            client_metadata_url=settings.client_metadata_url or None,
        )  # fmt: skip
        self._config, self._network, self._page = config, network, page

    async def run(self) -> Grant:
        """Log in, and return the tokens.

        The server refuses a request without a login. Then the SDK, called by `auth=self`, logs
        in and repeats the request.
        """
        headers = {**dict(self._config.headers), **_ACCEPT_HEADERS}
        status = 0
        async with self._network.client() as client:
            for probe in _PROBE_REQUESTS:
                message = {"jsonrpc": "2.0", "id": 1, **probe}
                request = client.build_request(
                    "POST", self._config.url, json=message, headers=headers
                )
                response = await client.send(request, auth=self, stream=True)
                await response.aclose()
                status = response.status_code
                if (tokens := self.context.current_tokens) is not None:
                    return self._grant_of(tokens)
                if response.is_redirect:
                    raise BadInput(f"its address redirects, with {status}")
        # `log_in` puts "no login at the MCP server NAME: " before this.
        raise BadInput(f"it asks for none (it answered with {status})")

    def _grant_of(self, tokens: OAuthToken) -> Grant:
        """Return a grant with the tokens and all that is needed to renew them.

        A field whose value is not known is "" or 0.0.
        """
        client = self.context.client_info
        assert client is not None  # otherwise there would be no tokens
        return Grant(
            access=tokens.access_token,
            refresh=tokens.refresh_token or "",
            expires=self.context.token_expiry_time or 0.0,
            scope=tokens.scope or "",
            token_endpoint=self._get_token_endpoint(),
            resource=self._resource(),
            client_id=client.client_id,
            client_secret=client.client_secret or "",
            client_auth=client.token_endpoint_auth_method or "",
        )

    def _resource(self) -> str:
        """Return the URL that token requests name as `resource`; "" if they name none."""
        context = self.context
        if context.should_include_resource_param(context.protocol_version):
            return context.get_resource_url()
        return ""

    async def _show(self, url: str) -> None:
        """Check the address of the login page, and open the page in the user's browser."""
        await self._network.check(url)
        self._check_pkce()
        self._choose_auth_method()
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        old_grant = self._page.before
        missing_scope = old_grant.wanted if old_grant else ""
        scope = join_scopes(
            query.get("scope", ""), self._config.oauth.scopes, missing_scope
        )
        if scope:
            query["scope"] = self.context.client_metadata.scope = scope
        self._page.redirect.state = query["state"]
        await self._page.browse(urlunsplit(parts._replace(query=urlencode(query))))

    def _check_pkce(self) -> None:
        """Raise `BadInput` if the authorization server lacks PKCE."""
        metadata = self.context.oauth_metadata
        methods = None if metadata is None else metadata.code_challenge_methods_supported
        if methods is not None and "S256" not in methods:
            raise BadInput("its authorization server does not offer PKCE with S256")

    def _choose_auth_method(self) -> None:
        """Choose how the client's secret is sent, unless a method is chosen already."""
        client = self.context.client_info
        if client is None or client.token_endpoint_auth_method or not client.client_secret:
            return
        client.token_endpoint_auth_method = "client_secret_basic"
        metadata = self.context.oauth_metadata
        methods = (
            None if metadata is None else metadata.token_endpoint_auth_methods_supported
        )
        if methods is not None and "client_secret_basic" not in methods:
            client.token_endpoint_auth_method = "client_secret_post"

    async def _wait_for_code(self) -> AuthorizationCodeResult:
        """Wait for the redirect, and return the code in it.

        Raises `BadInput` if the login was refused, or nothing arrives in time.
        """
        redirect = self._page.redirect
        with anyio.move_on_after(_LOGIN_SECONDS):
            await redirect.arrived.wait()
        if not redirect.arrived.is_set():
            raise BadInput(f"there was no answer from the browser for {_LOGIN_SECONDS:g} s")
        query = redirect.query
        if error := query.get("error"):
            description = query.get("error_description", "")
            more = f" ({description})" if description else ""
            raise BadInput(f"it was refused: {error}{more}")
        return AuthorizationCodeResult(
            code=query.get("code", ""), state=query.get("state"), iss=query.get("iss")
        )


_ACCEPT_HEADERS = {"Accept": "application/json, text/event-stream"}


class _NullTokenStore:
    """A token store for the SDK that stores nothing, because `log_in` returns a `Grant`."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        return None

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        return None


def _configured_client(
    config: ServerConfig, metadata: OAuthClientMetadata
) -> OAuthClientInformationFull | None:
    """Return the OAuth client that the configuration file names; None if it names none."""
    settings = config.oauth
    if not settings.client_id:
        return None
    return OAuthClientInformationFull(
        client_id=settings.client_id,
        client_secret=settings.client_secret or None,
        redirect_uris=metadata.redirect_uris,
        issuer=settings.issuer or None,
    )


def _reason(error: BaseException) -> str:
    """Return the reason of a failure on one line, without secrets from a server's response."""
    # The SDK writes "Invalid token response", and quotes the response.
    if isinstance(error, ValidationError) or "nvalid token response" in str(error):
        return "its authorization server sent an invalid response"
    if isinstance(error, OAuthRegistrationError):
        return f"{_one_line(error)} {_REGISTER_ADVICE}"
    if not isinstance(error, BadInput | OAuthFlowError | httpx2.HTTPError):
        return f"{type(error).__name__}: {error}"[:_MAX_REASON_CHARS]
    return _one_line(error)


def _one_line(error: BaseException) -> str:
    """Return the text of an error without line breaks, cut if it is very long."""
    line = "".join(c if c.isprintable() else " " for c in str(error))
    return " ".join(line.split())[:_MAX_REASON_CHARS]


@contextmanager
def _silence_sdk() -> Generator[None]:
    """Disable the SDK's log within the block: the SDK logs a traceback for each error."""
    log = logging.getLogger("mcp.client.auth.oauth2")
    was_disabled = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = was_disabled
