"""A terminal joins a server with TLS, through a proxy, as `docs/guides/network.md` says."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from refold.client.new_conversation import NewConversation
from refold.client.service.service_client import ServiceClient, parse_service_url
from refold.errors import BadInput
from refold.server.listening import ListenOptions
from tests.loopback_network import http_proxy, new_certificate, with_openssl
from tests.server.serving import Client, open_server
from tests.server.test_joining_by_address import join

pytestmark = [pytest.mark.anyio, pytest.mark.peer, with_openssl]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate with its key, in files that only the user can read."""
    file = tmp_path / "server.pem"
    file.touch(mode=0o600)
    file.write_bytes(new_certificate())
    return file


def options_of(certificate: Path) -> ListenOptions:
    return ListenOptions(names=("site.example",), certificate=certificate, key=certificate)


def url_of(server: Client) -> str:
    return f"https://site.example:{urlsplit(server.address).port}"


async def test_a_session_is_joined_through_a_proxy_with_a_certificate_of_the_network(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening = options_of(certificate)
    async with open_server(tmp_path, "Hi.", listening=listening) as server:
        chat = await server.host.create(NewConversation())
        async with http_proxy() as (proxy, requests):
            monkeypatch.delenv("NO_PROXY")  # tests ask no proxy otherwise
            monkeypatch.setenv("HTTPS_PROXY", proxy)
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            token, id_ = server.access.bearer, chat.session.id
            async with join(tmp_path, url_of(server), token, id_) as (session, _):
                await session.say("Hello.")
                await session.settle()
                answer = session.view.conversation.messages[-1].message.text

    assert answer == "Hi."
    assert {text.split()[0] for text in requests} == {"CONNECT"}


async def test_an_untrusted_certificate_is_named_in_the_error_of_attach(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    async with open_server(tmp_path, "Hi.", listening=options_of(certificate)) as server:
        url = f"https://127.0.0.1:{urlsplit(server.address).port}"
        client = ServiceClient(parse_service_url(url).place, "token", os.environ)
        with pytest.raises(BadInput, match="its certificate is not trusted here"):
            await client.check()
        await client.aclose()
