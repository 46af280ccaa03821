"""What the filter holds within bounds, and what it goes through."""

import socket

import anyio
import pytest

from refold.network.proxy_request import MAX_HEAD_BYTES, MAX_HEADERS
from refold.values.hosts import ReachableHosts
from tests.loopback_network import http_proxy
from tests.network.filtered import LoopbackServer, run_filtered
from tests.open_files import no_more_files

SITE = {"site.example": ["127.0.0.1"]}


def test_the_host_filter_refuses_a_request_with_a_too_large_head() -> None:
    long = b"GET http://site.example/ HTTP/1.1\r\nX: " + b"x" * (MAX_HEAD_BYTES + 1)
    many = (
        b"GET http://site.example/ HTTP/1.1\r\n" + b"X: y\r\n" * (MAX_HEADERS + 1) + b"\r\n"
    )

    with run_filtered(ReachableHosts(("site.example",)), SITE) as door:
        assert door.status(long) == 431
        assert door.status(many) == 431
        assert door.attempts() == ()


def test_the_host_filter_closes_an_idle_tunnel() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with (
        run_filtered(
            ReachableHosts((f"private:site.example:{port}",)), SITE, idle_seconds=0.1
        ) as door,
        listener,
    ):
        answer = door.ask(f"CONNECT site.example:{port} HTTP/1.1\r\n\r\n".encode())

    assert answer == b"HTTP/1.1 200 Connection established\r\n\r\n"


def test_the_host_filter_records_a_limited_number_of_attempts() -> None:
    with run_filtered(ReachableHosts(())) as door:
        for port in range(1, 120):
            assert door.status(b"CONNECT site.example:%d HTTP/1.1\r\n\r\n" % port) == 403
        assert len(door.attempts()) == 100


def test_the_host_filter_connects_through_the_proxy_of_the_environment() -> None:
    site = LoopbackServer("site")
    target = f"site.example:{site.port}"

    async def main() -> tuple[bytes, list[str]]:
        async with http_proxy() as (proxy, proxied):
            environ = {"HTTPS_PROXY": proxy}
            hosts = ReachableHosts((f"private:{target}",))

            def ask() -> bytes:
                with run_filtered(hosts, SITE, environ=environ) as door:
                    return door.ask(
                        f"CONNECT {target} HTTP/1.1\r\n\r\n".encode(),
                        b"GET / HTTP/1.1\r\n\r\n",
                    )

            return await anyio.to_thread.run_sync(ask), proxied

    answer, proxied_requests = anyio.run(main)
    site.close()

    assert answer.endswith(b"site\n")
    assert proxied_requests == [f"CONNECT {target} HTTP/1.1"]


def test_the_host_filter_survives_a_lack_of_open_files() -> None:
    request = b"CONNECT site.example:1 HTTP/1.1\r\n\r\n"
    with run_filtered(ReachableHosts(())) as door, socket.socket() as client:
        client.settimeout(0.2)
        with no_more_files():
            client.connect(("127.0.0.1", door.port))
            client.sendall(request)
            with pytest.raises(TimeoutError):
                client.recv(100)

        assert door.status(request) == 403
