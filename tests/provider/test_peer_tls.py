"""TLS: trusted and untrusted certificates, and a proxy between."""

import shutil
import ssl
import subprocess
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from refold.errors import Unreachable
from refold.provider.catalog import connect, find
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import wire_server
from tests.provider.wires import KEY, heard, words

OPENSSL = shutil.which("openssl") or ""

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not OPENSSL, reason="openssl is not installed"),
]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for 127.0.0.1 that nobody but its owner trusts, and its key."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    made = subprocess.run(
        [OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", "-", "-out", "-"],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_bytes(made.stdout)
    return path


async def ask(certificate: Path, environ: dict[str, str]) -> tuple[list[str], int]:
    """Two answers over TLS, and how many connections that took."""
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate)
    replies = [answer("anthropic", Reply(w)) for w in ("One.", "Two.")]
    async with wire_server(*replies, tls=served) as server:
        there = {**environ, "ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": KEY}
        async with aclosing(connect(find("anthropic"), there)) as provider:
            found = [words(await heard(provider)) for _ in replies]
        return found, server.connections


def test_a_trusted_server_is_asked_over_one_connection(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    assert anyio.run(ask, certificate, {}) == (["One.", "Two."], 1)


def test_a_server_nobody_vouches_for_is_not_asked(certificate: Path) -> None:
    with pytest.raises(Unreachable, match="its certificate is not trusted here"):
        anyio.run(ask, certificate, {})


def test_a_proxy_carries_what_it_cannot_read(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def use() -> tuple[list[str], list[str]]:
        async with proxy() as (url, asked):
            return await _by_way_of(url, certificate), asked

    found, asked = anyio.run(use)

    assert found == ["One.", "Two."]
    assert [line.split()[0] for line in asked] == ["CONNECT"]


async def _by_way_of(url: str, certificate: Path) -> list[str]:
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate)
    replies = [answer("anthropic", Reply(w)) for w in ("One.", "Two.")]
    async with wire_server(*replies, tls=served) as server:
        from refold.provider.anthropic import Anthropic
        from refold.provider.error_mapping import Peer
        from refold.provider.http import Http

        provider = Anthropic(Http(Peer("Anthropic", server.url), proxy=url))
        async with aclosing(provider):
            return [words(await heard(provider)) for _ in replies]


@asynccontextmanager
async def proxy() -> AsyncGenerator[tuple[str, list[str]], None]:
    """A proxy that opens tunnels, and the lines it was asked with."""
    asked: list[str] = []

    async def serve(client: SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await client.receive()
        asked.append(head.decode().split("\r\n")[0])
        host, port = asked[-1].split()[1].split(":")
        async with await anyio.connect_tcp(host, int(port)) as server, client:
            await client.send(b"HTTP/1.1 200 OK\r\n\r\n")
            async with anyio.create_task_group() as group:
                group.start_soon(carry, client, server)
                group.start_soon(carry, server, client)

    async def carry(source: SocketStream, target: SocketStream) -> None:
        try:
            async for data in source:
                await target.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        await target.aclose()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield f"http://user:pass@127.0.0.1:{port}", asked
        group.cancel_scope.cancel()
