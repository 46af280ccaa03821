"""Opens TCP and TLS connections, through a proxy if the environment names one.

Every direct connection goes to an IP address that `resolver` returned; `http` sends requests
over it. `proxy` chooses the proxy, and `trust` the trusted certificates.
"""

import ssl
from collections.abc import Mapping, Sequence

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from refold.errors import BadInput, ProxyFault, SetupFault
from refold.values.web_address import WebAddress, web_address

_LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_PROXY_VARIABLES = (
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "ALL_PROXY",
    "https_proxy",
    "http_proxy",
    "all_proxy",
)
_NEXT_ADDRESS_SECONDS = 0.25


class Broken(Exception):
    """Raised if a connection can no longer be used. The message says what the server did."""


class Stalled(Broken):
    """Raised if the server takes too long."""


class Unconnected(Broken):
    """Raised if a connection could not be opened. `why` is the reason, for use after a colon.

    `lasting` says that another attempt would fail, too, because the environment is set up
    wrongly.
    """

    def __init__(self, reason: str, *, lasting: bool = False) -> None:
        super().__init__(f"cannot be reached: {reason}")
        self.why, self.lasting = reason, lasting


def server_address(url: str) -> WebAddress:
    """Parse the URL of a server. Raises `BadInput` if it is invalid."""
    try:
        return web_address(url)
    except ValueError as error:
        raise BadInput(str(error)) from error


async def dial(
    place: WebAddress, environ: Mapping[str, str], *, addresses: Sequence[str] = ()
) -> ByteStream:
    """Connect to `place`, a host and a port, directly or through a proxy.

    `addresses` are IP addresses of the host that the caller has checked; a proxy resolves the
    host's name itself. Raises `OSError`, and its subclass `SetupFault` if the environment names
    a proxy or certificates that cannot be used.
    """
    if proxy := proxy_of(place, environ):
        from refold.provider.proxy import open_tunnel, parse_proxy

        stream = await dial_proxy(proxy, environ)
        try:
            await open_tunnel(stream, parse_proxy(proxy), place.host, place.port)
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise
    else:
        stream = await dial_directly(place.host, place.port, addresses)
    return await _with_tls(stream, place.host, environ) if place.tls else stream


def proxy_of(place: WebAddress, environ: Mapping[str, str]) -> str:
    """Return the URL of the proxy for a place, or "" for a direct connection.

    A place on this machine never has a proxy. Raises `SetupFault` if the proxy cannot be used.
    """
    if place.host in _LOOPBACK_HOSTS or not any(map(environ.get, _PROXY_VARIABLES)):
        return ""
    from refold.provider.proxy import proxy_for

    return proxy_for(place.host, place.port, environ, tls=place.tls)


async def dial_proxy(proxy: str, environ: Mapping[str, str]) -> ByteStream:
    """Connect to the proxy itself. Raises `OSError`."""
    from refold.provider.proxy import parse_proxy, proxy_port

    parts = parse_proxy(proxy)
    host = parts.hostname or ""
    try:
        stream = await dial_directly(host, proxy_port(parts))
    except OSError as error:
        raise ProxyFault(
            f"the proxy {host} cannot be reached ({error.strerror or error})"
        ) from None
    return await _with_tls(stream, host, environ) if parts.scheme == "https" else stream


async def _with_tls(
    stream: ByteStream, host: str, environ: Mapping[str, str]
) -> ByteStream:
    """Return `stream` with TLS. Raises `SetupFault` if the certificate is not trusted."""
    from refold.provider.trust import explain_untrusted, tls_context

    try:
        return await TLSStream.wrap(
            stream,
            hostname=host,
            ssl_context=tls_context(environ),
            # no closing alert is required, because HTTP itself marks the end of a response
            standard_compatible=False,
        )
    except BaseException as error:
        await anyio.aclose_forcefully(stream)
        if isinstance(error, ssl.SSLCertVerificationError):
            raise SetupFault(explain_untrusted(error, environ)) from None
        raise


async def dial_directly(host: str, port: int, addresses: Sequence[str] = ()) -> ByteStream:
    """Connect to a host without a proxy, at the first of its addresses that answers.

    If the caller passes no `addresses`, the host's name is resolved. Raises `OSError`.
    """
    from refold.provider.resolver import resolve  # not needed before a connection is made

    return await _connect_first(addresses or await resolve(host, port), port)


async def _connect_first(addresses: Sequence[str], port: int) -> ByteStream:
    """Connect to one of these IP addresses, preferring the first. Raises `OSError`.

    The next address is tried when one has failed, or has not answered for a moment (RFC 8305).
    """
    if len(addresses) == 1:
        return await anyio.connect_tcp(addresses[0], port)
    last_error: OSError = OSError("its name has no address")
    streams = list[ByteStream]()

    async def connect(address: str, failed: anyio.Event) -> None:
        """Connect and end the other attempts, or set `failed` to begin the next attempt."""
        nonlocal last_error
        try:
            streams.append(await anyio.connect_tcp(address, port))
        except OSError as error:
            last_error = error
            failed.set()
        else:
            group.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as group:
            for address in addresses:
                failed = anyio.Event()
                group.start_soon(connect, address, failed)
                with anyio.move_on_after(_NEXT_ADDRESS_SECONDS):
                    await failed.wait()
        if not streams:
            raise last_error
        first = streams.pop(0)
    finally:
        for stream in streams:  # both connected at once, or the caller was cancelled
            await anyio.aclose_forcefully(stream)
    return first
