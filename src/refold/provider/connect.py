"""Connects to a host: TCP, TLS with the system's trust store, a proxy if one is set.

Every direct connection goes to an IP address that `resolver` returned; `http` sends requests over
it. A proxy resolves names itself, and may know others than this machine.
"""

import base64
import ssl
import sys
from collections.abc import Mapping, Sequence
from urllib.parse import unquote, urlsplit

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream
from msgspec import Struct

from refold.errors import BadInput

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NEXT_ADDRESS_SECONDS = 0.25


class Broken(Exception):
    """A connection cannot be used any more. The message says what the other end did."""


class Endpoint(Struct, frozen=True):
    """Where a base URL leads."""

    host: str
    port: int
    tls: bool
    path: str = ""  # what stands before every path we ask for

    @property
    def authority(self) -> str:
        """As the Host header wants it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def endpoint_of(url: str) -> Endpoint:
    """Read a base URL. Raises `BadInput` when it is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadInput(f"{url!r} is not an address: {error}") from error
    usable = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not host or not usable:
        raise BadInput(f"{url!r} is not an address: it should look like https://host/path")
    tls = parts.scheme == "https"
    return Endpoint(host, port or (443 if tls else 80), tls, parts.path.rstrip("/"))


def proxy_for(where: Endpoint, environ: Mapping[str, str]) -> str:
    """The proxy the environment names for a place; "" to go there directly.

    Only TLS goes through one, and nothing that stays on this machine.
    """
    if not where.tls or where.host in _LOOPBACK:
        return ""
    found = {name.lower(): value for name, value in environ.items()}
    for rule in found.get("no_proxy", "").split(","):
        suffix = rule.strip().lstrip("*.").lower()
        if rule.strip() == "*" or (
            suffix and f".{where.host}".lower().endswith(f".{suffix}")
        ):
            return ""
    return found.get("https_proxy") or found.get("all_proxy") or ""


async def dial(
    where: Endpoint, proxy: str = "", *, addresses: Sequence[str] = ()
) -> ByteStream:
    """Connect. Raises `OSError` (of which `ssl.SSLError` is one) when it cannot.

    `addresses` are the IP addresses to connect to, if the caller has judged them.
    """
    if proxy:
        stream = await _through(proxy, where)
    else:
        from refold.provider.resolver import resolve  # not before a connection is made

        addresses = addresses or await resolve(where.host, where.port)
        stream = await _connect_first(addresses, where.port)
    if not where.tls:
        return stream
    try:
        return await TLSStream.wrap(
            stream,
            hostname=where.host,
            ssl_context=_trust(),
            standard_compatible=False,  # HTTP says itself where an answer ends
        )
    except BaseException:
        await anyio.aclose_forcefully(stream)
        raise


async def _connect_first(addresses: Sequence[str], port: int) -> ByteStream:
    """A connection to the first of these IP addresses that answers. Raises `OSError`.

    The next is tried when one has failed, or has not answered for a moment (RFC 8305).
    """
    if len(addresses) == 1:
        return await anyio.connect_tcp(addresses[0], port)
    failed: OSError = OSError("its name has no address")
    streams = list[ByteStream]()

    async def connect(address: str, over: anyio.Event) -> None:
        nonlocal failed
        try:
            streams.append(await anyio.connect_tcp(address, port))
        except OSError as error:
            failed = error
            over.set()
        else:
            group.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as group:
            for address in addresses:
                over = anyio.Event()
                group.start_soon(connect, address, over)
                with anyio.move_on_after(_NEXT_ADDRESS_SECONDS):
                    await over.wait()
        if not streams:
            raise failed
        first = streams.pop(0)
    finally:
        for stream in streams:  # they came at the same moment, or the caller has gone
            await anyio.aclose_forcefully(stream)
    return first


def _trust() -> ssl.SSLContext:
    # OpenSSL finds the trust store of a Linux by itself, and SSL_CERT_FILE; so there
    # nothing more need be loaded.
    if sys.platform == "linux":
        return ssl.create_default_context()
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


async def _through(proxy: str, where: Endpoint) -> ByteStream:
    """A tunnel that the proxy opens for us (RFC 9110, CONNECT)."""
    parts = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
    if parts.scheme != "http" or not parts.hostname:
        raise OSError(f"the proxy {parts.hostname!r} should be an http:// address")
    target = f"{f'[{where.host}]' if ':' in where.host else where.host}:{where.port}"
    asking = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
    if parts.username:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        asking += (
            f"Proxy-Authorization: Basic {base64.b64encode(user.encode()).decode()}\r\n"
        )
    from refold.provider.resolver import resolve

    port = parts.port or 8080
    stream = await _connect_first(await resolve(parts.hostname, port), port)
    try:
        await stream.send(asking.encode() + b"\r\n")
        answer = b""
        # Byte by byte would be kinder to what follows, but nothing can: TLS begins with us.
        while b"\r\n\r\n" not in answer and len(answer) < 65536:
            answer += await stream.receive()
    except BaseException as error:
        await anyio.aclose_forcefully(stream)
        if isinstance(error, anyio.EndOfStream | anyio.BrokenResourceError):
            raise OSError(f"the proxy {parts.hostname} hung up") from error
        raise
    status = answer.split(b"\r\n")[0].decode("latin-1")
    if status.split(" ")[1:2] != ["200"]:
        await anyio.aclose_forcefully(stream)
        raise OSError(f"the proxy {parts.hostname} answered {status!r}")
    return stream
