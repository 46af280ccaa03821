"""TLS: trusted and untrusted certificates, and a proxy between."""

import re
import subprocess
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from refold.errors import Refused
from refold.provider.catalog import connect, find
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import wire_server
from tests.loopback_network import (
    OPENSSL,
    http_proxy,
    new_certificate,
    server_tls,
    with_openssl,
)
from tests.provider.wires import KEY, stream_deltas, words

pytestmark = [pytest.mark.peer, with_openssl]


async def ask(certificate: Path, environ: dict[str, str]) -> tuple[list[str], int]:
    """Two answers over TLS, and how many connections that took."""
    replies = [answer("anthropic", Reply(w)) for w in ("One.", "Two.")]
    async with wire_server(*replies, tls=server_tls(certificate)) as server:
        there = {**environ, "ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": KEY}
        async with aclosing(connect(find("anthropic"), there)) as provider:
            texts = [words(await stream_deltas(provider)) for _ in replies]
        return texts, server.connections


def test_trusted_server_gets_two_requests_over_one_connection(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    assert anyio.run(ask, certificate, {}) == (["One.", "Two."], 1)


def test_server_with_an_untrusted_certificate_is_refused(certificate: Path) -> None:
    with pytest.raises(Refused, match="its certificate is not trusted here") as raised:
        anyio.run(ask, certificate, {})

    assert "in NODE_EXTRA_CA_CERTS, or all certificates in SSL_CERT_FILE" in str(
        raised.value
    )


@pytest.mark.parametrize(
    "name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"]
)
def test_certificate_file_variable_makes_a_server_trusted(
    certificate: Path, name: str
) -> None:
    assert anyio.run(ask, certificate, {name: str(certificate)}) == (["One.", "Two."], 1)


def test_certificate_directory_variable_makes_a_server_trusted(
    certificate: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [OPENSSL, "x509", "-noout", "-hash", "-in", str(certificate)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    (tmp_path / f"{done.stdout.strip()}.0").write_bytes(certificate.read_bytes())
    result = anyio.run(ask, certificate, {"SSL_CERT_DIR": f"/nowhere:{tmp_path}"})

    assert result == (["One.", "Two."], 1)


def test_named_certificates_replace_system_certificates(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))  # OpenSSL's own default
    (tmp_path / "other.pem").write_bytes(new_certificate())

    with pytest.raises(Refused, match=r"REQUESTS_CA_BUNDLE is .*other\.pem'"):
        anyio.run(ask, certificate, {"REQUESTS_CA_BUNDLE": str(tmp_path / "other.pem")})


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("SSL_CERT_FILE", "SSL_CERT_FILE names '{}', which cannot be read: No such file"),
        ("CURL_CA_BUNDLE", "CURL_CA_BUNDLE names '{}', which cannot be read: No such file"),
        ("SSL_CERT_DIR", "SSL_CERT_DIR names '{}', which is not a directory"),
        ("NODE_EXTRA_CA_CERTS", "NODE_EXTRA_CA_CERTS names '{}', which is not a file"),
    ],
)
def test_missing_certificate_file_is_named_with_its_variable(
    certificate: Path, tmp_path: Path, name: str, fault: str
) -> None:
    missing = str(tmp_path / "missing.pem")

    with pytest.raises(Refused, match=re.escape(fault.format(missing))):
        anyio.run(ask, certificate, {name: missing})


def test_file_without_a_certificate_is_named(certificate: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("no certificate\n")

    with pytest.raises(Refused, match=r"empty\.pem', which holds no certificate"):
        anyio.run(ask, certificate, {"SSL_CERT_FILE": str(tmp_path / "empty.pem")})


def test_https_goes_through_a_proxy_by_connect(certificate: Path) -> None:
    async def main() -> tuple[list[str], list[str]]:
        async with http_proxy() as (url, outcome):
            return await _fetch_through_proxy(url, certificate), outcome

    result, texts = anyio.run(main)

    assert result == ["One.", "Two."]
    assert [line.split()[0] for line in texts] == ["CONNECT"]


async def _fetch_through_proxy(url: str, certificate: Path) -> list[str]:
    replies = [answer("anthropic", Reply(w)) for w in ("One.", "Two.")]
    async with wire_server(*replies, tls=server_tls(certificate)) as server:
        port = server.url.rpartition(":")[2]
        there = {
            "ANTHROPIC_BASE_URL": f"https://model.example:{port}", "ANTHROPIC_API_KEY": KEY,
            "HTTPS_PROXY": url, "SSL_CERT_FILE": str(certificate),
        }  # fmt: skip
        async with aclosing(connect(find("anthropic"), there)) as provider:
            return [words(await stream_deltas(provider)) for _ in replies]
