"""Attacks on the filter of named hosts that an attacker tried when it was new."""

import socket
import struct
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

import pytest

from refold.values.hosts import ReachableHosts, expand_all
from tests.network.filtered import LoopbackServer, run_filtered

_RESET = struct.pack("ii", 1, 0)  # close sends RST


def connect(target: str) -> bytes:
    return f"CONNECT {target} HTTP/1.1\r\n\r\n".encode()


@contextmanager
def server(*, resets: bool) -> Generator[int]:
    """Yield the port of a server that resets each connection, or keeps it open and sends
    nothing.
    """
    listener, clients = (
        socket.create_server(("127.0.0.1", 0), backlog=300),
        list[socket.socket](),
    )

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                if resets:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    client.close()
                else:
                    clients.append(client)

    threading.Thread(target=serve, daemon=True).start()
    with listener:
        yield listener.getsockname()[1]
    for item in clients:
        item.close()


SPELLINGS = (
    "192.88.99.7", "3227017991", "0xc0586307", "192.88.25351", "0300.88.99.7",
    "[::ffff:192.88.99.7]", "[::ffff:c058:6307]", "alias.example", "[2001:4860:0:0::7]",
)  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_denied_address_is_refused_in_every_spelling(spelling: str) -> None:
    denied = expand_all(["192.88.99.7", "[2001:4860:0::7]"])
    with run_filtered(
        ReachableHosts(("*:*",), denied), {"alias.example": ["192.88.99.7"]}
    ) as door:
        assert door.status(connect(f"{spelling}:9")) in (400, 403)


@pytest.mark.parametrize(
    "host",
    ['a"(net)', "a%2f.example", "010.0.0.1", "a" * 254, "1.2.3.4.5", "x..y"],
)
def test_an_invalid_host_name_is_refused_and_not_recorded(host: str) -> None:
    with run_filtered(ReachableHosts(("a.example",)), {}) as door:
        assert door.status(f"GET http://{host}/ HTTP/1.1\r\n\r\n".encode()) == 400
        assert door.attempts() == ()


def test_an_allowed_host_is_recorded_after_many_refused_ones() -> None:
    site = LoopbackServer("site")
    place = f"localhost:{site.port}"
    with run_filtered(ReachableHosts((place,))) as door:
        for number in range(100):
            assert door.status(connect(f"h{number}.example:9")) == 403
        assert door.status(connect(place), b"GET / HTTP/1.1\r\n\r\n") == 200
        reached = [attempt.host for attempt in door.attempts() if not attempt.refused]
    site.close()

    assert reached == ["localhost"]


def test_a_program_that_resets_its_tunnels_can_open_new_ones() -> None:
    with server(resets=False) as port:
        place = f"localhost:{port}"
        with run_filtered(ReachableHosts((place,)), idle_seconds=600) as door:
            for _ in range(130):
                with socket.create_connection(("127.0.0.1", door.port), 5) as client:
                    client.sendall(connect(place))
                    assert b" 200 " in client.recv(100)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def test_a_server_that_resets_connections_does_not_break_others() -> None:
    site = LoopbackServer("site")
    with server(resets=True) as port:
        hosts = ReachableHosts((f"localhost:{port}", f"localhost:{site.port}"))
        with run_filtered(hosts) as door:
            for _ in range(40):
                with suppress(ConnectionError):
                    door.ask(connect(f"localhost:{port}") + b"x" * 20_000)
            good = connect(f"localhost:{site.port}")
            assert door.ask(good, b"GET / HTTP/1.1\r\n\r\n").endswith(b"site\n")
    site.close()
