"""Proxies: which one the environment names for a place, and requests through each kind."""

from collections.abc import Mapping
from contextlib import aclosing

import anyio
import pytest

from refold.errors import Refused, SetupFault, Unreachable
from refold.provider.catalog import connect, find
from refold.provider.connect import proxy_of, server_address
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import wire_server
from tests.loopback_network import socks_proxy
from tests.provider.wires import KEY, stream_deltas, words

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
def test_proxy_comes_from_the_environment_for_remote_addresses(
    url: str, environ: dict[str, str], proxy: str
) -> None:
    assert proxy_of(server_address(url), environ) == proxy


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
    proxy = proxy_of(server_address(url), {"HTTPS_PROXY": P, name: rules})

    assert proxy == ("" if exempt else P)


@pytest.mark.parametrize(
    "value", ["socks4://me:secret@p:1", "ftp://p", "http://", "http://p:x"]
)
def test_invalid_proxy_is_refused_without_showing_its_password(value: str) -> None:
    with pytest.raises(SetupFault, match="cannot be used: give an address that") as raised:
        proxy_of(server_address("https://api.x.com"), {"ALL_PROXY": value})

    assert "secret" not in str(raised.value)


async def ask(base_url: str, environ: dict[str, str]) -> str:
    there = {**environ, "ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": KEY}
    async with aclosing(connect(find("anthropic"), there)) as provider:
        return words(await stream_deltas(provider))


def test_http_proxy_reads_requests_without_tls() -> None:
    async def run() -> tuple[str, str, Mapping[str, str]]:
        async with wire_server(answer("anthropic", Reply("Hello."))) as server:
            proxy = server.url.replace("http://", "http://me:word@")
            result = await ask("http://model.example/v", {"HTTP_PROXY": proxy})
            (request,) = server.heard
            return result, request.path, request.headers

    text, path, headers = anyio.run(run)

    assert text == "Hello."
    assert path == "http://model.example/v/v1/messages"
    assert headers["host"] == "model.example"
    assert headers["proxy-authorization"] == "Basic bWU6d29yZA=="


def fetch_through_socks(
    login: bytes, status: int, scheme: str, user: str
) -> tuple[str, list[str]]:
    """Return the answer, or why there is none, and what the proxy was asked for (as port
    80).
    """

    async def run() -> tuple[str, list[str]]:
        async with (
            wire_server(answer("anthropic", Reply("Hello."))) as server,
            socks_proxy(login, status) as (place, texts),
        ):
            port = server.url.rpartition(":")[2]
            url, proxy = f"http://model.example:{port}", f"{scheme}://{user}{place}"
            try:
                text = await ask(url, {"ALL_PROXY": proxy})
            except Unreachable as error:
                text = str(error)
            return text, [where.replace(port, "80") for where in texts]

    return anyio.run(run)


@pytest.mark.parametrize(
    ("user", "login"), [("", b""), ("me:w%20d@", b"\x01\x02me\x03w d")]
)
@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
def test_socks_proxy_resolves_the_name_itself(scheme: str, user: str, login: bytes) -> None:
    assert fetch_through_socks(login, 0, scheme, user) == ("Hello.", ["model.example:80"])


def test_socks_proxy_that_refuses_is_named_with_the_reason() -> None:
    text, _asked = fetch_through_socks(b"", 4, "socks5", "")

    assert "the proxy 127.0.0.1 answered: host unreachable" in text


def test_proxy_setup_error_is_not_retried() -> None:
    with pytest.raises(Refused, match=r"the proxy 'ftp://p' cannot be used"):
        anyio.run(ask, "https://model.example", {"ALL_PROXY": "ftp://p"})


def test_unreachable_proxy_is_named() -> None:
    with pytest.raises(Unreachable, match=r"the proxy 127\.0\.0\.1 cannot be reached"):
        anyio.run(ask, "https://model.example", {"ALL_PROXY": "http://127.0.0.1:9"})
