"""Listens for HTTP, and serves an ASGI application until a signal arrives.

The application is that of `app`, for pages and programs, or that of `refold.task_server`,
for other agents. `guard` decides which requests reach the application.

The event loop is that of asyncio, because uvloop saves little: with 50 conversations that
stream 50 tokens a second, uvloop took 2.2 s of CPU instead of 2.3 s, and 3 MB more memory.
"""

import re
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import anyio
import uvicorn
from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from refold.client.open_files import raise_limit
from refold.errors import BadInput, RefoldError
from refold.server.guard import App, Names

MAX_FRAME_BYTES = 8 * 1024 * 1024  # of a WebSocket: an order with its images
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
_BACKLOG_CONNECTIONS = 2048
_PING_SECONDS = 20.0  # between two pings of a WebSocket, and for the answer to one


class ListenOptions(Struct, frozen=True, kw_only=True):
    """Where and how to listen. `names` are further host names of this server.

    `certificate` and `key` are files for TLS; without `certificate` HTTP is not encrypted.
    When the server ends, running turns are finished with `drain`, and otherwise stopped.
    """

    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    drain: bool = False
    websockets: bool = True

    @property
    def tls(self) -> bool:
        return self.certificate is not None

    @property
    def beyond_loopback(self) -> bool:
        return self.host not in LOOPBACK_HOSTS


class Server(uvicorn.Server):
    """uvicorn without signal handlers, because `serve_until_signal` handles signals."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def serve_until_signal(
    app: App,
    listener: socket.socket,
    setup: ListenOptions,
    ready: Callable[[str], None],
    leave: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve `app` at the socket `listener` until SIGINT or SIGTERM.

    `ready` is called with the address once the server listens. After the signal `leave` is
    awaited, while responses can still be sent.
    """
    raise_limit()
    server = Server(_config(app, setup))
    async with anyio.create_task_group() as group:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            group.start_soon(server.serve, [listener])
            ready(address_of(setup, listener))
            async for _ in signals:  # wait for the first
                break
            if leave is not None:
                await leave()
            server.should_exit = True


def address_of(setup: ListenOptions, listener: socket.socket) -> str:
    """Return the URL at which a person opens the server."""
    port = listener.getsockname()[1]
    name = setup.names[0] if setup.names else setup.host
    if name in ("0.0.0.0", "::"):
        name = _own_address(name)
    host = f"[{name}]" if ":" in name else name
    scheme = "https" if setup.tls else "http"
    return f"{scheme}://{host}:{port}"


def names_of(setup: ListenOptions, listener: socket.socket) -> Names:
    """Return the names under which clients reach this listener."""
    return Names.of(_host_names(setup), listener.getsockname()[1], tls=setup.tls)


def _host_names(setup: ListenOptions) -> Sequence[str]:
    """Return the names by which clients reach the server. IPv6 addresses are in brackets."""
    host = setup.host
    if host in ("0.0.0.0", "::"):
        host = _own_address(host)
    names = [*setup.names, f"[{host}]" if ":" in host else host]
    return [*names, "127.0.0.1", "localhost", "[::1]"]


def _own_address(any_address: str) -> str:
    """Return the address of this machine in its network; "127.0.0.1" without a network.

    `any_address` is "0.0.0.0" or "::", and chooses IPv4 or IPv6. The address is that from
    which a connected UDP socket would send; connecting it sends nothing.
    """
    if ":" in any_address:
        family, remote_address = socket.AF_INET6, "2001:db8::1"
    else:
        family, remote_address = socket.AF_INET, "192.0.2.1"
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((remote_address, 9))  # an address for documentation, any port
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def listen(setup: ListenOptions) -> socket.socket:
    """Return a socket that listens as `setup` says. Raises `BadInput` if that is not
    possible.
    """
    family = socket.AF_INET6 if ":" in setup.host else socket.AF_INET
    # Because the protocol is given, asyncio sends small responses at once (TCP_NODELAY).
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((setup.host, setup.port))
        listener.listen(_BACKLOG_CONNECTIONS)
    except (OSError, OverflowError) as error:
        listener.close()
        raise BadInput(
            f"cannot listen on {setup.host} port {setup.port}: {error}; choose another with "
            "--port"
        ) from error
    listener.setblocking(False)
    return listener


class _TargetHostProtocol(HttpToolsProtocol):
    """Parses HTTP, and keeps the host of an absolute URI in the request line.

    uvicorn would drop this host. Here the host becomes a second Host header, and the guard
    refuses a request with two Host headers.
    """

    def on_headers_complete(self) -> None:
        """Add the host of an absolute URI as a Host header, unless the same host was sent."""
        _, separator, after_scheme = self.url.partition(b"://")
        is_absolute = bool(separator) and not self.url.startswith(b"/")
        if is_absolute:
            host, *_ = re.split(rb"[/?#]", after_scheme, maxsplit=1)
            if (b"host", host) not in self.headers:
                self.headers.append((b"host", host))
        super().on_headers_complete()


def _config(app: object, setup: ListenOptions) -> uvicorn.Config:
    """Return the configuration with which uvicorn serves `app` as `setup` says.

    Raises `RefoldError` if the certificate cannot be read.
    """
    # h11 removes the spaces after the value of a header, as `refold.task_server` needs.
    http: type[_TargetHostProtocol] | Literal["h11"] = "h11"
    websockets: Literal["websockets-sansio", "none"] = "none"
    if setup.websockets:
        # httptools is faster. It keeps these spaces, which `guard` removes.
        http = _TargetHostProtocol
        websockets = "websockets-sansio"
    try:
        config = uvicorn.Config(
            app,  # type: ignore[arg-type] - our own names for the ASGI types
            loop="none", http=http, ws=websockets, lifespan="off",
            log_config=None, access_log=False, server_header=False, proxy_headers=False,
            ws_max_size=MAX_FRAME_BYTES, ws_per_message_deflate=False,
            ws_ping_interval=_PING_SECONDS, ws_ping_timeout=_PING_SECONDS,
            timeout_keep_alive=30, timeout_graceful_shutdown=3, backlog=_BACKLOG_CONNECTIONS,
            ssl_certfile=setup.certificate, ssl_keyfile=setup.key,
        )  # fmt: skip
        config.load()  # reads the certificate before an address is printed
    except (OSError, ssl.SSLError) as error:
        raise RefoldError(
            f"the certificate {setup.certificate} or its key {setup.key} cannot be used: "
            f"{error}; give both as PEM files"
        ) from error
    return config
