"""The HTTP client of all requests: kept connections, judged addresses, bounds of size and time."""

import gzip
from collections.abc import Sequence
from contextlib import aclosing

import anyio
import pytest

from refold.provider.connect import Broken, Unconnected, server_address
from refold.provider.http import Bounds, HttpClient, HttpRequest
from refold.provider.resolver import AddressRefused, Judge, resolve_and_judge
from refold.testing.wire_server import Answer, Pause, wire_server
from refold.values.web_address import WebAddress

PROXY = {"HTTP_PROXY": "http://proxy.example:3128"}
SMALL = Bounds(size=2 << 20)


def permits(*addresses: str) -> Judge:
    async def judge(address: WebAddress) -> Sequence[str]:
        await anyio.lowlevel.checkpoint()
        return addresses

    return judge


def count_connections(*judges: Judge, keep: int = 1) -> int:
    """Return how many connections one request for each of these judges takes."""

    async def run() -> int:
        client = HttpClient({}, keep=keep)
        async with wire_server(lambda _: Answer(b"page")) as server:
            target = server_address(server.url)
            async with aclosing(client):
                for judge in judges:
                    async with aclosing(
                        await client.open(HttpRequest(target), judge)
                    ) as answer:
                        assert await answer.content(100) == (b"page", True)
            return server.connections

    return anyio.run(run)


def test_connection_is_kept_for_the_next_request() -> None:
    here = permits("127.0.0.1")

    assert count_connections(here, here, keep=1) == 1
    assert count_connections(here, here, keep=0) == 2


def test_kept_connection_to_an_address_no_longer_permitted_is_not_used() -> None:
    moved = permits("127.0.0.2")

    with pytest.raises(Unconnected, match="connection refused"):
        count_connections(permits("127.0.0.1"), moved)


def read(answer: Answer, bounds: Bounds) -> bytes:
    async def run() -> bytes:
        async with wire_server(answer) as server:
            target = server_address(server.url)
            async with aclosing(
                await HttpClient({}, bounds).open(HttpRequest(target))
            ) as response:
                return (await response.content(100_000_000))[0]

    return anyio.run(run)


def test_unpacked_size_of_an_answer_is_limited() -> None:
    packed = gzip.compress(bytes(3 << 20))

    with pytest.raises(Broken, match="sent more than 2 MB as one answer"):
        read(Answer(packed, headers={"content-encoding": "gzip"}), SMALL)


def test_answer_that_trickles_is_cut_off_at_the_time_limit() -> None:
    trickle = Answer((b"x", *[Pause(0.02), b"x"] * 500))

    with pytest.raises(Broken, match=r"did not complete its response within 0\.1 s"):
        read(trickle, Bounds(whole=0.1))


def test_refused_address_is_refused_also_through_a_proxy() -> None:
    async def metadata(host: str, port: int) -> Sequence[str]:
        await anyio.lowlevel.checkpoint()
        return ["169.254.169.254"]

    async def judge(address: WebAddress) -> Sequence[str]:
        return await resolve_and_judge(address.host, address.port, resolve=metadata)

    with pytest.raises(AddressRefused, match="a reserved address"):
        anyio.run(HttpClient(PROXY).open, HttpRequest(server_address("http://a.b")), judge)


def test_name_that_only_the_proxy_can_resolve_is_left_to_the_proxy() -> None:
    async def unknown(address: WebAddress) -> Sequence[str]:
        await anyio.lowlevel.checkpoint()
        raise OSError("no such name")

    target = server_address("http://intranet.corp")

    assert anyio.run(HttpClient(PROXY).addresses, target, unknown) == ()
    with pytest.raises(OSError, match="no such name"):
        anyio.run(HttpClient({}).addresses, target, unknown)


def test_authentication_challenges_in_two_headers_are_both_read() -> None:
    raw = b"HTTP/1.1 401 No\r\nwww-authenticate: Basic\r\nwww-authenticate: Bearer\r\n\r\n"

    async def run() -> str:
        async with wire_server(Answer(raw=raw)) as server:
            target = server_address(server.url)
            answer = await HttpClient({}).open(HttpRequest(target))
            await answer.aclose()
            return answer.reply.headers["www-authenticate"]

    assert anyio.run(run) == "Basic, Bearer"
