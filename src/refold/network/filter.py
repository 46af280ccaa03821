"""Connects sandboxed commands to the hosts that they may reach, and to no other.

A command has a network of its own, in which only one address answers: the listener of this filter,
which speaks HTTP as a proxy does (CONNECT without decryption, and plain HTTP). It resolves the name,
judges the addresses and connects to a judged one, so no second answer of a name server counts. What a
command says inside a tunnel is not seen: a host that answers for others can pass on what it likes.

`place.sandbox_listener` makes the listener inside the sandbox, `proxy_request` reads requests,
`permissions.network_hosts` decides which hosts a command may reach.
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

MAX_CONNECTIONS = 128  # of one command; further ones wait until one has ended
MAX_ATTEMPTS = 100  # stored per command: reached places, and as many refused ones
_HEAD_SECONDS, _CONNECT_SECONDS, _IDLE_SECONDS = 30.0, 30.0, 600.0
_RETRY_SECONDS = 0.1  # after a connection that could not be accepted
_LINGER_SECONDS = 1.0  # for a program that reads the answer only after it has sent all
_PIECE_BYTES = 64 * 1024
_LOST_CONNECTION = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


# Connects to a host and port at the first of its judged addresses. Raises `OSError`.
Dial: TypeAlias = Callable[[str, int, Sequence[str]], Awaitable[ByteStream]]


class _Dialer(Struct, frozen=True):
    """Resolves names and connects. Connections may be idle for `idle_seconds`."""

    environ: Mapping[str, str]
    resolve: Resolve
    dial: Dial
    idle_seconds: float


class HostFilter:
    """Serves the commands of one workspace in its own thread, which the first one starts.

    Implements `place.port.NetworkFilter`. If `environ` names a proxy, it connects through that.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        resolve: Resolve = resolve,
        dial: Dial = dial_directly,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        self._ways = _Dialer(environ, resolve, dial, idle_seconds)
        self._lock, self._ready = Lock(), Event()
        self._portal: BlockingPortal | None = None

    def begin(self) -> None:
        with self._lock:
            if self._portal is None:
                self._ready.clear()
                # A daemon: the end of the program does not wait for it.
                Thread(target=anyio.run, args=(self._run_loop,), daemon=True).start()
                self._ready.wait()

    def open(
        self,
        listener: socket.socket,
        hosts: ReachableHosts,
        tell: TellAttempt | None = None,
    ) -> Callable[[], tuple[HostAttempt, ...]]:
        """Serve one command until the returned function is called, which returns its attempts.

        `tell` is called in the thread of the filter with each of them, when it is new.
        """
        served = _Served(hosts, self._ways, tell)
        assert self._portal is not None  # `begin` came first
        running = self._portal.start_task_soon(served.serve, listener)
        return partial(_stop_serving, running, served)

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            portal, self._portal = self._portal, None
        if portal is not None:
            with suppress(RuntimeError):  # it has ended
                portal.start_task_soon(portal.stop, True)

    async def _run_loop(self) -> None:
        async with BlockingPortal() as self._portal:
            portal = self._portal
            self._ready.set()
            await portal.sleep_until_stopped()


def _stop_serving(running: "Future[None]", listener: "_Served") -> tuple[HostAttempt, ...]:
    running.cancel()
    return listener.attempts()


class _Served:
    """One command and its attempts so far."""

    def __init__(
        self, hosts: ReachableHosts, ways: _Dialer, tell: TellAttempt | None
    ) -> None:
        self._hosts, self._ways, self._tell = hosts, ways, tell
        self._times = dict[tuple[str, int, str, HostRefusal], int]()

    def attempts(self) -> tuple[HostAttempt, ...]:
        return tuple(
            HostAttempt(host, port, times, why, kind)
            for (host, port, why, kind), times in self._times.copy().items()
        )

    async def serve(self, listening: socket.socket) -> None:
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
        try:
            async with client:
                await self._answer(client)
        except (*_LOST_CONNECTION, OSError):
            pass  # one end is closed
        finally:
            release()

    async def _answer(self, client: SocketStream) -> None:
        try:
            with anyio.fail_after(_HEAD_SECONDS):
                request, rest = await _receive(client)
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
        """A connection to a judged address. Raises `OSError`, for example `AddressRefused`."""
        place, hosts = request.place, self._hosts
        try:
            if why := hosts.refusal(place.host, place.port):
                sentence = f"{place.authority} may not be reached: {REFUSAL_SENTENCES[why]}"
                raise AddressRefused(sentence, why)
            proxy = proxy_of(place, self._ways.environ)
            addresses = await self._judge(place, proxy)
        except AddressRefused as error:
            self._count_attempt(place, str(error), error.kind)
            raise
        if proxy:
            stream = await dial_proxy(proxy, self._ways.environ)
            try:
                await open_tunnel(stream, parse_proxy(proxy), place.host, place.port)
            except BaseException:
                await anyio.aclose_forcefully(stream)
                raise
        else:
            stream = await self._ways.dial(place.host, place.port, addresses)
        self._count_attempt(place, "")
        return stream

    async def _judge(self, place: WebAddress, proxy: str) -> Sequence[str]:
        private = self._hosts.permits_private(place.host, place.port)
        if proxy and not private and is_inside_name(place.host):
            raise AddressRefused(f"{place.host} is a name of no public network", "private")
        also = kinds_of_users_host(place.host) if private else ()
        try:
            addresses = await resolve_and_judge(
                place.host, place.port, also, self._ways.resolve
            )
        except AddressRefused:
            raise
        except OSError:
            if proxy:  # the proxy may resolve the name
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
        key = (place.host, place.port, reason, kind)
        # Refused and reached places are counted apart, so that both have room.
        equal_attempts = sum(bool(known) == bool(reason) for _, _, known, _ in self._times)
        if key in self._times:
            self._times[key] += 1
        elif equal_attempts < MAX_ATTEMPTS:
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
        with anyio.CancelScope() as scope:

            def extend_deadline() -> None:
                scope.deadline = anyio.current_time() + self._ways.idle_seconds

            extend_deadline()
            left = None
            if request.tunnel:
                await client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                left, first_bytes = request.body, first_bytes[: request.body]
                await server.send(request.head)
            async with anyio.create_task_group() as group:
                over = group.cancel_scope.cancel
                group.start_soon(
                    _send, client, server, extend_deadline, first_bytes, left, over
                )
                await _copy(server, client, extend_deadline)
                over()


async def _accept(listener: SocketListener) -> SocketStream:
    while True:
        try:
            return await listener.accept()
        except OSError:  # the client has left, or this process has too many open files
            await anyio.sleep(_RETRY_SECONDS)


async def _receive(client: SocketStream) -> tuple[ProxyRequest, bytes]:
    """A request, and the bytes after its head. Raises `Unreadable`."""
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
    """Pass on what the command sends: `left` bytes of a body, or all if that is None.

    A server that accepts no more may still answer; `on_end` is called if the client is gone.
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
    """Copy until one end is closed. Return whether the source was cut off."""
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
    reason = "".join(c if c.isascii() and c.isprintable() else "?" for c in why)[:500]
    body = f"refold does not connect this command: {reason}.\n".encode()
    await client.send(
        b"HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n"
        b"Connection: close\r\n\r\n%s" % (status, reason.encode(), len(body), body)
    )
    await client.send_eof()
    with anyio.move_on_after(_LINGER_SECONDS), suppress(*_LOST_CONNECTION):
        while True:
            await client.receive(_PIECE_BYTES)
