"""Over TLS the certificate has to be of the name, although the address was checked."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from refold.errors import ToolFailed
from refold.permissions.facts import Decision
from refold.testing.wire_server import Answer, wire_server
from refold.web.client import WebClient
from tests.loopback_network import server_tls, with_openssl

pytestmark = [pytest.mark.peer, with_openssl]


def fetch(certificate: Path, name: str) -> bytes:
    async def resolve(host: str, port: int) -> Sequence[str]:
        await anyio.lowlevel.checkpoint()
        return ["127.0.0.1"]

    async def run() -> bytes:
        async with wire_server(Answer(b"Hello."), tls=server_tls(certificate)) as server:
            port = server.url.rpartition(":")[2]
            client = WebClient({}, obey_robots=False, resolve=resolve)
            url = f"https://{name}:{port}/"
            return (
                await client.fetch(url, lambda _url, _private: Decision("allow"))
            ).content

    return anyio.run(run)


def test_a_page_of_the_host_in_the_certificate_is_read(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    assert fetch(certificate, "site.example") == b"Hello."


def test_a_page_of_a_host_that_is_not_in_the_certificate_is_refused(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    with pytest.raises(ToolFailed, match="its certificate is not trusted here"):
        fetch(certificate, "other.example")


def test_a_certificate_without_a_trusted_authority_is_refused(certificate: Path) -> None:
    with pytest.raises(ToolFailed, match="its certificate is not trusted here"):
        fetch(certificate, "site.example")
