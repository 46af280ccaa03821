"""The proxy that connects sandboxed commands to the hosts that they may reach.

A command with this proxy has a network namespace in which only one address answers: the
listener of the proxy. It serves CONNECT, without decrypting the traffic, and plain HTTP.

The proxy resolves each name, judges the IP addresses, and connects to one of the judged
addresses, so a name server cannot give it another address after the check. It does not see what
is in a tunnel, so it cannot stop an allowed host from forwarding data to other hosts.

`place.sandbox_listener` creates the listener inside the sandbox, `proxy_request` parses
requests, and `permissions.network_hosts` decides which hosts a command may reach.
"""

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Event, Lock, Thread
from typing import TypeAlias

import anyio
from anyio.abc import ByteStream, SocketListener, SocketStream
from anyio.from_thread import BlockingPortal
from msgspec import Struct

from refold.errors import RefoldError
from refold.network.proxy_request import (
    HEADERS_END,
    MAX_HEAD_BYTES,
    ProxyRequest,
    Unreadable,
    proxy_request,
)
from refold.place.port import TellAttempt
from refold.provider.connect import dial_directly, dial_proxy, proxy_of
from refold.provider.proxy import open_tunnel, parse_proxy
from refold.provider.resolver import (
    AddressRefused,
    Resolve,
    kinds_of_users_host,
    resolve,
    resolve_and_judge,
)
from refold.values.display import HostAttempt, HostRefusal
from refold.values.hosts import REFUSAL_SENTENCES, ReachableHosts
from refold.values.web_address import WebAddress, is_inside_name

MAX_CONNECTIONS = 128  # of one command; more connections wait until one has ended
MAX_ATTEMPTS = 100  # stored per command: reached places, and as many refused ones
_HEAD_SECONDS, _CONNECT_SECONDS, _IDLE_SECONDS = 30.0, 30.0, 600.0
_RETRY_SECONDS = 0.1  # after a connection that could not be accepted
# For a program that reads the answer only after it has sent everything.
_LINGER_SECONDS = 1.0
_PIECE_BYTES = 64 * 1024
_MAX_REASON_CHARS = 500  # of a refusal
_LOST_CONNECTION = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


# Connects to a host and port at the first of its judged addresses. Raises `OSError`.
Dial: TypeAlias = Callable[[str, int, Sequence[str]], Awaitable[ByteStream]]


class _Dialer(Struct, frozen=True):
    """Resolves host names and opens connections.

    A connection is closed after `idle_seconds` without data. `environ` may name a proxy.
    """

    environ: Mapping[str, str]
    resolve: Resolve
    dial: Dial
    idle_seconds: float


class HostFilter:
    """The proxy for all commands of one workspace. Its thread starts with `begin`.

    Implements `place.port.NetworkFilter`. If `environ` names another proxy, hosts are reached
    through that one.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        resolve: Resolve = resolve,
        dial: Dial = dial_directly,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        self._dialer = _Dialer(environ, resolve, dial, idle_seconds)
        self._lock, self._ready = Lock(), Event()
        self._portal: BlockingPortal | None = None

    def begin(self) -> None:
        """Start the thread of the proxy and wait until it is ready. Do nothing if it runs."""
        with self._lock:
            if self._portal is None:
                self._ready.clear()
                # A daemon thread, so that the program can end without waiting for it.
                Thread(target=anyio.run, args=(self._run_loop,), daemon=True).start()
                self._ready.wait()

    def open(
        self,
        listener: socket.socket,
        hosts: ReachableHosts,
        tell: TellAttempt | None = None,
    ) -> Callable[[], tuple[HostAttempt, ...]]:
        """Serve one command on `listener`, and return a function that stops serving it.

        That function returns the connection attempts of the command. `hosts` are those that the
        command may reach. `tell` is called with the first attempt to reach each host, in the
        thread of the proxy.
        """
        served = _ServedCommand(hosts, self._dialer, tell)
        assert self._portal is not None  # `begin` was called before
        running = self._portal.start_task_soon(served.serve, listener)
        return partial(_stop_serving, running, served)

    def close(self) -> None:
        """Close all connections and end the thread."""
        with self._lock:
            portal, self._portal = self._portal, None
        if portal is not None:
            with suppress(RuntimeError):  # it has ended
                cancel_remaining = True
                portal.start_task_soon(portal.stop, cancel_remaining)

    async def _run_loop(self) -> None:
        """Run the event loop of the proxy's thread until `close` stops it."""
        async with BlockingPortal() as self._portal:
            portal = self._portal
            self._ready.set()
            await portal.sleep_until_stopped()


def _stop_serving(
    running: "Future[None]", served: "_ServedCommand"
) -> tuple[HostAttempt, ...]:
    """Stop serving a command, and return the connection attempts that it made."""
    running.cancel()
    return served.attempts()


class _ServedCommand:
    """Serves one command, and counts its attempts to reach each host."""

    def __init__(
        self, hosts: ReachableHosts, dialer: _Dialer, tell: TellAttempt | None
    ) -> None:
        self._hosts, self._dialer, self._tell = hosts, dialer, tell
        self._times = dict[tuple[str, int, str, HostRefusal], int]()

    def attempts(self) -> tuple[HostAttempt, ...]:
        """Return the hosts that the command asked for, each with the number of its attempts."""
        return tuple(
            HostAttempt(host, port, times, why, kind)
            # The thread of the proxy may change the dictionary meanwhile.
            for (host, port, why, kind), times in self._times.copy().items()
        )

    async def serve(self, listening: socket.socket) -> None:
        """Accept connections and serve each in a task, until this is cancelled."""
        free = anyio.Semaphore(MAX_CONNECTIONS)
        async with (
            await SocketListener.from_socket(listening) as listener,
            anyio.create_task_group() as group,
        ):
            while True:
                await free.acquire()
                client = await _accept(listener)
                group.start_soon(self._serve_one, client, free.release)

    async def _serve_one(self, client: SocketStream, release: Callable[[], None]) -> None:
        """Serve one connection, then call `release`, so that another can be accepted."""
        try:
            async with client:
                await self._answer(client)
        except (*_LOST_CONNECTION, OSError):
            pass  # one end is closed
        finally:
            release()

    async def _answer(self, client: SocketStream) -> None:
        """Connect the client to the server that it asks for, or send it a refusal."""
        try:
            with anyio.fail_after(_HEAD_SECONDS):
                request, rest = await _receive_request(client)
            with anyio.fail_after(_CONNECT_SECONDS):
                server = await self._connect(request)
        except Unreadable as error:
            await _refuse(client, error.status, str(error))
        except AddressRefused as error:
            await _refuse(client, 403, str(error))
        except TimeoutError:
            await _refuse(client, 504, "it took too long")
        except (*_LOST_CONNECTION, OSError, RefoldError) as error:
            why = getattr(error, "strerror", "") or str(error) or "the connection broke"
            await _refuse(client, 502, f"the host cannot be reached: {why}")
        else:
            async with server:
                await self._relay_traffic(request, rest, client, server)

    async def _connect(self, request: ProxyRequest) -> ByteStream:
        """Connect to a host, after judging its name and its IP addresses.

        Raises `AddressRefused` if the name or an address may not be reached, and another
        `OSError` if the connection fails.
        """
        place, hosts = request.place, self._hosts
        try:
            if why := hosts.refusal(place.host, place.port):
                sentence = f"{place.authority} may not be reached: {REFUSAL_SENTENCES[why]}"
                raise AddressRefused(sentence, why)
            proxy = proxy_of(place, self._dialer.environ)
            addresses = await self._resolve_addresses(place, proxy)
        except AddressRefused as error:
            self._count_attempt(place, str(error), error.kind)
            raise
        if proxy:
            stream = await dial_proxy(proxy, self._dialer.environ)
            try:
                await open_tunnel(stream, parse_proxy(proxy), place.host, place.port)
            except BaseException:
                await anyio.aclose_forcefully(stream)
                raise
        else:
            stream = await self._dialer.dial(place.host, place.port, addresses)
        self._count_attempt(place, reason="")
        return stream

    async def _resolve_addresses(self, place: WebAddress, proxy: str) -> Sequence[str]:
        """Return the IP addresses of `place`; none if only `proxy` can resolve its name.

        `proxy` is "" for a direct connection. Raises `AddressRefused` if any of the addresses
        may not be reached, and another `OSError` if the name cannot be resolved without a
        proxy.
        """
        private = self._hosts.permits_private(place.host, place.port)
        if proxy and not private and is_inside_name(place.host):
            raise AddressRefused(f"{place.host} is a name of no public network", "private")
        allowed_kinds = kinds_of_users_host(place.host) if private else ()
        try:
            addresses = await resolve_and_judge(
                place.host, place.port, allowed_kinds, self._dialer.resolve
            )
        except AddressRefused:
            raise
        except OSError:
            if proxy:
                return ()
            raise
        for address in addresses:
            if why := self._hosts.ban_reason(address):
                sentence = REFUSAL_SENTENCES[why]
                raise AddressRefused(f"{place.host} leads to {address}: {sentence}", why)
        return addresses

    def _count_attempt(
        self, place: WebAddress, reason: str, kind: HostRefusal = ""
    ) -> None:
        """Count an attempt to reach a host.

        `reason` says why the attempt was refused, or is "" for a successful attempt.
        """
        key = (place.host, place.port, reason, kind)
        # Refused and reached places are counted separately, so that neither displaces the
        # other.
        was_refused = bool(reason)
        places = sum(
            bool(earlier_reason) == was_refused for _, _, earlier_reason, _ in self._times
        )
        if key in self._times:
            self._times[key] += 1
        elif places < MAX_ATTEMPTS:
            self._times[key] = 1
            if self._tell is not None:
                self._tell(HostAttempt(place.host, place.port, 1, reason, kind))

    async def _relay_traffic(
        self,
        request: ProxyRequest,
        first_bytes: bytes,
        client: SocketStream,
        server: ByteStream,
    ) -> None:
        """Forward data in both directions until one side ends or no data comes for too long."""
        with anyio.CancelScope() as scope:

            def extend_deadline() -> None:
                scope.deadline = anyio.current_time() + self._dialer.idle_seconds

            extend_deadline()
            if request.tunnel:
                data = first_bytes
                left = None  # all that the command sends is forwarded
                await client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                data = first_bytes[: request.body]
                left = request.body
                await server.send(request.head)
            async with anyio.create_task_group() as group:
                stop = group.cancel_scope.cancel
                group.start_soon(_send, client, server, extend_deadline, data, left, stop)
                await _copy(server, client, extend_deadline)
                stop()


async def _accept(listener: SocketListener) -> SocketStream:
    """Return the next connection. After an error, wait a moment and try again."""
    while True:
        try:
            return await listener.accept()
        except OSError:  # the client has left, or this process has too many open files
            await anyio.sleep(_RETRY_SECONDS)


async def _receive_request(client: SocketStream) -> tuple[ProxyRequest, bytes]:
    """Read one request. Return it, and the bytes after its head that were read with it.

    Raises `Unreadable` if it cannot be parsed or its head is too long.
    """
    data = b""
    while HEADERS_END not in data:
        if len(data) > MAX_HEAD_BYTES:
            raise Unreadable(f"its head has more than {MAX_HEAD_BYTES:,} bytes", 431)
        data += await client.receive(MAX_HEAD_BYTES)
    head, _, rest = data.partition(HEADERS_END)
    if len(head) > MAX_HEAD_BYTES:
        raise Unreadable(f"its head has more than {MAX_HEAD_BYTES:,} bytes", 431)
    return proxy_request(head), rest


async def _send(
    client: SocketStream,
    server: ByteStream,
    extend_deadline: Callable[[], None],
    data: bytes,
    left: int | None,
    on_end: Callable[[], None],
) -> None:
    """Forward `data`, and then what the command sends after it, to the server.

    `left` is the number of bytes to forward, `data` included; with None, everything is
    forwarded until the command stops sending. In that case, `on_end` is called if the
    connection to the command breaks.
    """
    try:
        if data:
            await server.send(data)
        if left is None:
            if await _copy(client, server, extend_deadline):
                on_end()
            return
        left -= len(data)
        while left:
            data = await client.receive(min(left, _PIECE_BYTES))
            left -= len(data)
            extend_deadline()
            await server.send(data)
    except _LOST_CONNECTION:
        pass


async def _copy(
    source: ByteStream, target: ByteStream, extend_deadline: Callable[[], None]
) -> bool:
    """Copy bytes from `source` to `target` until one of them ends.

    Return True if the connection to `source` broke, False if `source` ended normally or
    `target` broke.
    """
    while True:
        try:
            data = await source.receive(_PIECE_BYTES)
        except anyio.EndOfStream:
            with suppress(*_LOST_CONNECTION, OSError, NotImplementedError):
                await target.send_eof()
            return False
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return True
        extend_deadline()
        try:
            await target.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return False
        extend_deadline()


async def _refuse(client: SocketStream, status: int, why: str) -> None:
    """Answer a request with an error status, and keep reading until the command has it."""
    # Other characters could end the status line, in which the reason is written.
    printable = "".join(c if c.isascii() and c.isprintable() else "?" for c in why)
    reason = printable[:_MAX_REASON_CHARS]
    body = f"refold does not connect this command: {reason}.\n".encode()
    await client.send(
        b"HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n"
        b"Connection: close\r\n\r\n%s" % (status, reason.encode(), len(body), body)
    )
    await client.send_eof()
    with anyio.move_on_after(_LINGER_SECONDS), suppress(*_LOST_CONNECTION):
        while True:
            await client.receive(_PIECE_BYTES)
