"""Proxies: which one the environment names for a place, and requests through each kind."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute, SocketStream

from refold.errors import Refused, SetupFault, Unreachable
from refold.provider.catalog import connect, find
from refold.provider.connect import endpoint_of, proxy_of
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import wire_server
from tests.provider.wires import KEY, heard, words

P, Q = "http://p:1", "http://q:2"


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("https://api.x.com", {"HTTPS_PROXY": P}, P),
        ("https://api.x.com", {"https_proxy": P, "HTTPS_PROXY": Q}, P),
        ("https://api.x.com", {"https_proxy": "", "HTTPS_PROXY": Q}, ""),
        ("https://api.x.com", {"all_proxy": P}, P),
        ("https://api.x.com", {"ALL_PROXY": Q, "HTTPS_PROXY": P}, P),
        ("https://api.x.com", {"HTTP_PROXY": P}, ""),
        ("https://api.x.com", {"HTTPS_PROXY": "p:1"}, P),
        ("http://api.x.com", {"HTTPS_PROXY": Q, "HTTP_PROXY": P}, P),
        ("http://api.x.com", {"HTTPS_PROXY": Q}, ""),
        ("http://api.x.com", {"HTTP_PROXY": P, "REQUEST_METHOD": "GET"}, ""),
        ("http://api.x.com", {"ALL_PROXY": "socks5h://p"}, "socks5h://p"),
        ("https://127.0.0.1", {"HTTPS_PROXY": P}, ""),
        ("https://localhost:8", {"HTTPS_PROXY": P}, ""),
    ],
)
def test_proxy_is_the_one_of_the_environment_for_other_machines(
    url: str, environ: dict[str, str], proxy: str
) -> None:
    assert proxy_of(endpoint_of(url), environ) == proxy


@pytest.mark.parametrize(
    ("rules", "url", "exempt"),
    [
        ("a.com,.x.com", "https://api.x.com", True),
        ("a.com *.x.com", "https://api.x.com", True),
        ("x.com", "https://notx.com", False),
        ("*", "https://api.x.com", True),
        ("x.com:8443", "https://api.x.com", False),
        ("x.com:8443", "https://api.x.com:8443", True),
        ("10.0.0.0/8", "https://10.1.2.3", True),
        ("10.0.0.0/8", "https://11.1.2.3", False),
        ("fd00::/8,[fe80::1]", "https://[fd00::7]", True),
        ("", "https://api.x.com", False),
    ],
)
@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_no_proxy_exempts_names_networks_and_ports(
    name: str, rules: str, url: str, exempt: bool
) -> None:
    proxy = proxy_of(endpoint_of(url), {"HTTPS_PROXY": P, name: rules})

    assert proxy == ("" if exempt else P)


@pytest.mark.parametrize(
    "value", ["socks4://me:secret@p:1", "ftp://p", "http://", "http://p:x"]
)
def test_proxy_that_cannot_be_used_is_one_sentence_without_its_password(value: str) -> None:
    with pytest.raises(SetupFault, match="cannot be used: give an address that") as raised:
        proxy_of(endpoint_of("https://api.x.com"), {"ALL_PROXY": value})

    assert "secret" not in str(raised.value)


async def ask(base_url: str, environ: dict[str, str]) -> str:
    there = {**environ, "ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": KEY}
    async with aclosing(connect(find("anthropic"), there)) as provider:
        return words(await heard(provider))


def test_http_proxy_reads_requests_that_have_no_tls() -> None:
    async def run() -> tuple[str, str, Mapping[str, str]]:
        async with wire_server(answer("anthropic", Reply("Hello."))) as server:
            proxy = server.url.replace("http://", "http://me:word@")
            said = await ask("http://model.example/v", {"HTTP_PROXY": proxy})
            (request,) = server.heard
            return said, request.path, request.headers

    said, path, headers = anyio.run(run)

    assert said == "Hello."
    assert path == "http://model.example/v/v1/messages"
    assert headers["host"] == "model.example"
    assert headers["proxy-authorization"] == "Basic bWU6d29yZA=="


@asynccontextmanager
async def socks(
    login: bytes, status: int, target: str
) -> AsyncGenerator[tuple[int, list[bytes]]]:
    """A SOCKS 5 server that leads everything to one address, and what it was asked for."""
    asked = list[bytes]()

    async def serve(client: SocketStream) -> None:
        async with client:
            version, ways = await exactly(client, 2)
            assert version == 5
            method = b"\x02" if login else b"\x00"
            assert method in await exactly(client, ways)
            await client.send(b"\x05" + method)
            if login:
                assert await exactly(client, len(login)) == login
                await client.send(b"\x01\x00")
            head = await exactly(client, 5)
            asked.append(await exactly(client, head[4] + 2))
            await client.send(bytes((5, status, 0, 1, 127, 0, 0, 1, 0, 0)))
            if not status:
                await _carry_to(client, target)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield listener.extra(SocketAttribute.local_port), asked
        group.cancel_scope.cancel()


async def exactly(stream: SocketStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += await stream.receive(size - len(data))
    return data


async def _carry_to(client: SocketStream, target: str) -> None:
    place = endpoint_of(target)
    async with (
        await anyio.connect_tcp(place.host, place.port) as server,
        anyio.create_task_group() as group,
    ):
        group.start_soon(_carry, client, server)
        group.start_soon(_carry, server, client)


async def _carry(source: ByteStream, target: ByteStream) -> None:
    try:
        async for data in source:
            await target.send(data)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    await target.aclose()


def in_socks(
    login: bytes, status: int, use: Callable[[int, list[bytes]], Awaitable[str]]
) -> str:
    async def run() -> str:
        async with (
            wire_server(answer("anthropic", Reply("Hello."))) as server,
            socks(login, status, server.url) as (port, asked),
        ):
            return await use(port, asked)

    return anyio.run(run)


@pytest.mark.parametrize(
    ("user", "login"), [("", b""), ("me:w%20d@", b"\x01\x02me\x03w d")]
)
@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
def test_socks_proxy_resolves_the_name_itself(scheme: str, user: str, login: bytes) -> None:
    async def use(port: int, asked: list[bytes]) -> str:
        proxy = f"{scheme}://{user}127.0.0.1:{port}"
        said = await ask("http://model.example", {"ALL_PROXY": proxy})
        assert asked == [b"model.example" + (80).to_bytes(2)]
        return said

    assert in_socks(login, 0, use) == "Hello."


def test_socks_proxy_that_refuses_is_named_with_its_reason() -> None:
    async def use(port: int, asked: list[bytes]) -> str:
        proxy = f"socks5://127.0.0.1:{port}"
        with pytest.raises(Unreachable) as raised:
            await ask("http://model.example", {"ALL_PROXY": proxy})
        return str(raised.value)

    assert "the proxy 127.0.0.1 answered: host unreachable" in in_socks(b"", 4, use)


def test_setting_that_no_retry_helps_is_refused() -> None:
    with pytest.raises(Refused, match=r"the proxy 'ftp://p' cannot be used"):
        anyio.run(ask, "https://model.example", {"ALL_PROXY": "ftp://p"})


def test_proxy_that_is_not_there_is_named() -> None:
    with pytest.raises(Unreachable, match=r"the proxy 127\.0\.0\.1 cannot be reached"):
        anyio.run(ask, "https://model.example", {"ALL_PROXY": "http://127.0.0.1:9"})
