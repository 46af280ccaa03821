"""Checks each HTTP request and WebSocket handshake, so that only our own clients reach a route.

The guard accepts a request if the Host header names this server, if no page of another site
sent it, if its token or cookie is valid, if an HTML form could not have sent its content
type, and if its body is not too large. Public paths need no token. A webhook has a
signature in place of a token, which its route checks.

The guard also adds headers to each response that keep pages from loading or running foreign
content. `access` checks the tokens and cookies.
"""

from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    MutableMapping,
)
from http.cookies import CookieError, SimpleCookie
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from refold.client.types import acting_as
from refold.views.number_format import size_text

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_JSON_BYTES = 1024 * 1024  # of a body
MAX_UPLOAD_BYTES = 10 * 1024 * 1024
MAX_SIGNED_BYTES = 64 * 1024  # of a signed body, which any sender may send
_NO_TOKEN = "no token: open the link that was printed, or, as a program, send the token"
_OWN_SITE = ("same-origin", "none")  # none: the address was typed, or is a bookmark
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_ALLOWED_METHODS = _SAFE_METHODS | {"POST", "PUT", "PATCH", "DELETE"}
_JSON_TYPES = frozenset({"application/json", "application/json; charset=utf-8",
                   "application/json;charset=utf-8"})  # fmt: skip
_UPLOAD_TYPE = "application/octet-stream"
_CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; manifest-src 'self'; frame-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_RESPONSE_HEADERS: Mapping[bytes, bytes] = {
    b"content-security-policy": _CONTENT_POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    b"cache-control": b"no-store",
}


class Rejected(Exception):
    """Raised to refuse a request, with the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Names(Struct, frozen=True):
    """The names of the server: `hosts` as in a Host header, `origins` as in an Origin
    header.
    """

    hosts: frozenset[str]
    origins: frozenset[str]

    @staticmethod
    def of(names: Iterable[str], port: int, *, tls: bool) -> "Names":
        """Return the names of a server with these host names at this port."""
        scheme, default_port = ("https", 443) if tls else ("http", 80)
        hosts = {f"{name}:{port}" for name in names}
        if port == default_port:
            hosts |= set(names)
        return Names(frozenset(hosts), frozenset(f"{scheme}://{host}" for host in hosts))


class CallerAccess(Protocol):
    """Decides which programs and pages may use the server.

    A method may store what it learns about a caller in the `scope` of the request.
    """

    @property
    def cookie_name(self) -> str:
        """The name of the cookie with which pages identify themselves."""
        ...

    @property
    def landing(self) -> Collection[str]:
        """Return the public paths to which pages of other sites may link."""
        ...

    async def admit_program(self, token: str, scope: Scope) -> str | None:
        """Return the person for whom a program acts; None if its bearer token is refused.

        "" means that the program itself says for whom it acts.
        """
        ...

    async def admit_page(self, cookie: str, scope: Scope) -> str | None:
        """Return the person who uses a page; None if its cookie is refused."""
        ...


class Guard:
    """An ASGI application that checks requests, and passes the accepted ones to `app`.

    Paths in `public` have no data and need no token. A POST to a path that begins with
    `signature` needs no token either, because its route checks a signature; "" means no
    path.
    """

    def __init__(
        self,
        app: App,
        access: CallerAccess,
        names: Names,
        public: Collection[str],
        signature: str = "",
    ) -> None:
        self._app, self._access, self._names = app, access, names
        self._public, self._signed = frozenset(public), signature

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            max_bytes, person = await self._check(scope)
        except Rejected as error:
            await _refuse(scope, receive, send, error)
            return
        if scope["type"] != "websocket":
            receive = _with_limit(receive, max_bytes)
            send = _with_headers(send)
        try:
            with acting_as(person):
                await self._app(scope, receive, send)
        except Rejected as error:  # in the middle of the body, or before a handshake
            await _refuse(scope, receive, send, error)

    async def _check(self, scope: Scope) -> tuple[int, str]:
        """Check a request. Return the limit of its body in bytes, and the person who sent it.

        The person is "" for a signed request, and otherwise as `_identify` returns it.
        Raises `Rejected` if the request is refused.
        """
        headers = _Headers(scope["headers"])
        host = headers.single("host")
        # An absolute URI contains a host, too.
        is_absolute = not scope["path"].startswith("/")
        names_us = host is not None and host.lower() in self._names.hosts
        if is_absolute or not names_us:
            raise Rejected(421, "this server has another host name")
        origin = headers.single("origin")  # None also for a repeated header
        if headers.has("origin") and origin not in self._names.origins:
            raise Rejected(403, "requests of other sites are refused")
        only_reads = scope["type"] == "http" and scope["method"] in _SAFE_METHODS
        # A browser says which site made the page that sends the request.
        site = headers.single("sec-fetch-site")
        is_of_other_site = headers.has("sec-fetch-site") and site not in _OWN_SITE
        may_be_linked = only_reads and scope["path"] in self._access.landing
        if is_of_other_site and not may_be_linked:
            raise Rejected(403, "requests of other sites are refused")
        if self._is_signed(scope):
            return _body_limit(headers, "POST", max_json_bytes=MAX_SIGNED_BYTES), ""
        by_page = only_reads or origin is not None
        person = await self._identify(headers, scope, by_page=by_page)
        if scope["type"] == "websocket" or only_reads:
            return 0, person  # it has no body
        return _body_limit(headers, scope["method"]), person

    def _is_signed(self, scope: Scope) -> bool:
        """Whether the request needs no token because its route checks a signature."""
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        return is_post and self._signed != "" and scope["path"].startswith(self._signed)

    async def _identify(self, headers: "_Headers", scope: Scope, *, by_page: bool) -> str:
        """Check the bearer token or the cookie of a request, and return the person who sent it.

        Return "" for a program that itself says for whom it acts, and for a public path.
        `by_page` says that a page may have sent the request: it only reads, or has an
        Origin header. Raises `Rejected` for a wrong token or cookie, and for a cookie
        without `by_page`.
        """
        authorization = headers.single("authorization")
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() == "bearer":
                person = await self._access.admit_program(token.strip(), scope)
                if person is not None:
                    return person
            raise Rejected(401, "the bearer token is not that of this server")
        if scope["path"] in self._public:
            return ""
        cookie = headers.cookie(self._access.cookie_name)
        person = await self._access.admit_page(cookie, scope)
        if person is None:
            raise Rejected(401, _NO_TOKEN)
        if not by_page:  # browsers send the origin of a request
            raise Rejected(403, "a request with a cookie has to say its Origin")
        return person


class _Headers:
    """The headers of a request, by their names in lower case."""

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        self._found = dict[str, list[str]]()
        for name, value in pairs:
            values = self._found.setdefault(name.decode("latin-1").lower(), [])
            values.append(value.decode("latin-1"))

    def has(self, name: str) -> bool:
        return name in self._found

    def single(self, name: str) -> str | None:
        """Return the value of a header; None if it is missing or occurs more than once."""
        values = self._found.get(name, [])
        return values[0].strip() if len(values) == 1 else None

    def cookie(self, name: str) -> str:
        """Return the value of the cookie `name`; "" if it is missing or occurs twice."""
        text = "; ".join(self._found.get("cookie", []))
        if text.count(f"{name}=") != 1:
            return ""
        try:
            morsel = SimpleCookie(text).get(name)
        except CookieError:
            return ""
        return morsel.value if morsel else ""


def _body_limit(
    headers: _Headers, method: str, max_json_bytes: int = MAX_JSON_BYTES
) -> int:
    """Return how many bytes the body may have; `max_json_bytes` is the limit for JSON.

    Raises `Rejected` for a method or a content type that is not supported, and for a
    `Content-Length` above the limit.
    """
    if method not in _ALLOWED_METHODS:
        raise Rejected(405, f"the method {method!r} is not supported")
    length = headers.single("content-length")
    has_body = length not in (None, "0") or headers.has("content-type")
    if method == "DELETE" and not has_body:
        return 0
    kind = (headers.single("content-type") or "").lower()
    if kind in _JSON_TYPES:
        limit = max_json_bytes
    elif kind == _UPLOAD_TYPE and method == "PUT":
        limit = MAX_UPLOAD_BYTES
    else:
        raise Rejected(
            415, "the content type has to be application/json, or, for PUT of a file, "
            "application/octet-stream",
        )  # fmt: skip
    # Only 15 digits, because `int` refuses very long numbers.
    if length is not None and length.isdecimal() and int(length[:15]) > limit:
        raise Rejected(413, f"not more than {size_text(limit)} can be sent here")
    return limit


def _with_limit(receive: Receive, limit: int) -> Receive:
    """Return a `receive` that raises `Rejected` once the body has more than `limit` bytes."""
    size = 0

    async def receive_within_limit() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > limit:
            raise Rejected(413, f"not more than {size_text(limit)} can be sent here")
        return message

    return receive_within_limit


def _with_headers(send: Send) -> Send:
    """Return a `send` that adds `_RESPONSE_HEADERS`, unless the response has them."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            added = [
                (name, value)
                for name, value in _RESPONSE_HEADERS.items()
                if name not in present
            ]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return send_with_headers


async def _refuse(scope: Scope, receive: Receive, send: Send, error: Rejected) -> None:
    """Send an error response; to a WebSocket, in place of the handshake."""
    body = msgspec.json.encode({"kind": "Rejected", "reason": error.reason})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *_RESPONSE_HEADERS.items(),
    ]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    prefix = ""
    if scope["type"] == "websocket":
        prefix = "websocket."
        await receive()  # the request for the handshake, before which nothing may be sent
    await send({
        "type": f"{prefix}http.response.start", "status": error.status, "headers": headers,
    })  # fmt: skip
    await send({"type": f"{prefix}http.response.body", "body": body})
