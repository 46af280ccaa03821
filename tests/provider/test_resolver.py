"""The one resolver: which answers of a name server a request may use, and that no other is asked."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio
import pytest

from refold.provider.connect import dial
from refold.provider.resolver import (
    AddressRefused,
    kinds_of_users_host,
    resolve,
    resolve_and_judge,
)
from refold.values.web_address import AddressKind, WebAddress, address_kind
from tests.source_tree import nodes

SOURCE = Path(__file__).parents[2] / "src" / "refold"


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("8.8.8.8", "public"), ("2606:4700::1111", "public"), ("127.8.0.1", "loopback"),
        ("::1", "loopback"), ("::ffff:127.0.0.1", "loopback"), ("10.1.2.3", "private"),
        ("192.168.0.9", "private"), ("100.64.0.1", "private"), ("fd00::1", "private"),
        ("fec0::1", "private"), ("::ffff:172.16.0.1", "private"), ("169.254.169.254", "reserved"),
        ("fe80::1%eth0", "reserved"), ("0.0.0.0", "reserved"), ("::", "reserved"),
        ("224.0.0.1", "reserved"), ("255.255.255.255", "reserved"), ("168.63.129.16", "reserved"),
        ("fd00:ec2::254", "reserved"), ("64:ff9b::7f00:1", "reserved"), ("2002:7f00:1::", "reserved"),
        ("::ffff:8.8.8.8", "public"), ("64:ff9b::808:808", "public"),
    ],
)  # fmt: skip
def test_addresses_are_classified_as_public_private_loopback_or_reserved(
    address: str, kind: AddressKind
) -> None:
    assert address_kind(address) == kind


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1"), ("127.1", "127.0.0.1"), ("::1", "::1"), ("0::0:1", "::1")],
)
def test_an_ip_address_is_resolved_in_every_spelling(host: str, address: str) -> None:
    assert anyio.run(resolve, host, 80) == (address,)


def test_a_name_that_no_host_can_have_is_refused() -> None:
    with pytest.raises(OSError, match="no host has such a name"):
        anyio.run(resolve, "é" * 70, 80)


BY_USER, BY_OTHERS = True, False


@pytest.mark.parametrize(
    ("host", "answer", "named", "words"),
    [
        ("docs.example", ["8.8.8.8", "1.1.1.1"], BY_OTHERS, ""),
        ("docs.example", ["127.0.0.1"], BY_OTHERS, "which is this machine"),
        ("docs.example", ["::ffff:10.0.0.1"], BY_OTHERS, "in a private network"),
        (
            "docs.example",
            ["8.8.8.8", "10.0.0.1"],
            BY_OTHERS,
            "public and private addresses",
        ),
        ("nas.example", ["10.0.0.1", "fd00::1"], BY_USER, ""),
        ("nas.example", ["::1", "127.0.0.1"], BY_USER, ""),
        ("nas.example", ["8.8.8.8", "127.0.0.1"], BY_USER, "public and private addresses"),
        ("nas.example", ["10.0.0.1", "2606:4700::1"], BY_USER, "public and private"),
        ("nas.example", ["169.254.169.254"], BY_USER, "a reserved address"),
        ("nas.example", ["10.0.0.1", "64:ff9b::a9fe:a9fe"], BY_USER, "a reserved address"),
        ("169.254.169.254", ["169.254.169.254"], BY_USER, ""),
        (
            "169.254.169.254",
            ["169.254.169.254"],
            BY_OTHERS,
            "169.254.169.254 is a reserved",
        ),
    ],
)
def test_every_resolved_address_is_checked(
    host: str, answer: Sequence[str], named: bool, words: str
) -> None:
    async def resolve(asked: str, port: int) -> Sequence[str]:
        await anyio.lowlevel.checkpoint()
        assert (asked, port) == (host, 443)
        return answer

    text, also = "", kinds_of_users_host(host) if named else ()
    try:
        assert anyio.run(resolve_and_judge, host, 443, also, resolve) == answer
    except AddressRefused as error:
        text = str(error)

    assert (words in text) if words else not text


def test_first_address_that_answers_is_used_without_resolving_again() -> None:
    async def run() -> bytes:
        data = b""
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
            port: int = listener.extra(anyio.abc.SocketAttribute.local_port)

            async def greet(stream: anyio.abc.SocketStream) -> None:
                async with stream:
                    await stream.send(b"here")

            async with anyio.create_task_group() as group:
                group.start_soon(listener.serve, greet)
                address = WebAddress("http", "nowhere.invalid", port, "/")
                closed = "127.0.0.2"  # nothing listens there
                stream = await dial(address, {}, addresses=(closed, "127.0.0.1"))
                async with stream:
                    data = await stream.receive()
                group.cancel_scope.cancel()
        return data

    assert anyio.run(run) == b"here"


def test_failure_is_raised_when_no_address_answers() -> None:
    async def run() -> None:
        await dial(
            WebAddress("http", "x", 9, "/"), {}, addresses=("127.0.0.2", "127.0.0.3")
        )

    with pytest.raises(OSError, match=r"."):
        anyio.run(run)


# Functions that open connections or resolve names, and the modules that may call them, with the reason.
_OPENS = frozenset((
    "getaddrinfo", "gethostbyname", "connect_tcp", "create_connection", "open_connection",
    "urlopen", "build_opener", "HTTPConnection", "HTTPSConnection", "AsyncClient", "Client",
    "AsyncHTTPTransport", "create_mcp_http_client",
))  # fmt: skip
_MAY = {
    "provider/resolver.py": "the resolver",
    "provider/connect.py": "connects to what the resolver returned",
    "mcp/http_transport.py": "gives the SDK a client without a network of its own",
    "mcp/oauth_network.py": "gives the SDK a client without a network of its own",
    "mcp/connection.py": "the SDK's client, over streams of `transports`",
    "place/far/port_tunnel.py": "connects to a port on the loopback of a place, for its user",
    "provider/local/serve.py": "asks refold's own model server on the loopback",
    "cluster/nats_bus.py": "connects to the NATS servers that the operator names",
    "cluster/engine_ports.py": "asks the services that the operator names if they answer",
    "declared/parts/http_post.py": "a part of a program that the user generates and runs",
}


def test_only_the_listed_modules_open_connections() -> None:
    opening = {name for path in SOURCE.rglob("*.py") for name in _opening(path)}

    assert opening == set(_MAY)


def _opening(path: Path) -> Iterator[str]:
    name = path.relative_to(SOURCE).as_posix()
    # The programs of the course are the reader's: refold starts none in its own process.
    if name.startswith(("learn/course/", "testing/", "skills/shipped/")):
        return
    for node in nodes(path):
        if isinstance(node, ast.Call):
            called = node.func
            words = called.attr if isinstance(called, ast.Attribute) else ""
            words = called.id if isinstance(called, ast.Name) else words
            if words in _OPENS:
                yield name
