"""Logins at `oidc-provider`, an authorization server that others wrote; `scripts/peers` gets it."""

import html
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.mcp.oauth_server import Asked, OAuthServer, as_json, oauth_server
from tests.mcp.test_mcp_login import METADATA, RESOURCE, User

PEERS = Path(os.environ.get("REFOLD_PEERS") or Path(__file__).parents[2] / ".peers")
PACKAGES = PEERS / "oidc" / "node_modules"
NODE = shutil.which("node") or ""

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not NODE, reason="node is not installed"),
    pytest.mark.skipif(
        not (PACKAGES / "oidc-provider").exists(), reason=f"oidc-provider is not in {PEERS}"
    ),
]


@pytest.fixture
def mcp_server() -> Iterator[OAuthServer]:
    """Yield an MCP server that takes the tokens of `oidc-provider`."""
    with oauth_server() as server:
        program = Path(__file__).with_name("oidc_provider.mjs")
        command = [NODE, str(program), str(PACKAGES), f"{server.url}/mcp"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as started:
            assert started.stdout is not None
            issuer = started.stdout.readline().strip()
            answer = as_json(
                resource=f"{server.url}/mcp",
                authorization_servers=[issuer],
                scopes_supported=["read"],
            )
            server.instead[RESOURCE] = lambda _: answer
            server.scope = "read"
            yield server
            started.kill()


async def browse(url: str) -> None:
    """A person who logs in, and consents."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        page = await browser.get(url)
        for _ in range(4):
            if not (form := re.search(r'<form[^>]*action="([^"]+)"', page.text)):
                return
            fields = dict(re.findall(r'name="(\w+)" value="(\w+)"', page.text))
            fields |= {"login": "me", "password": "x"} if "password" in page.text else {}
            form_url = page.url.join(html.unescape(form[1]))
            page = await browser.post(form_url, data=fields)


def test_a_login_at_a_real_authorization_server_is_used_and_renewed(
    mcp_server: OAuthServer, tmp_path: Path
) -> None:
    user = User(tmp_path, mcp_server)
    user.browse = browse  # type: ignore[method-assign]

    first: Any = user.log_in()
    mcp_server.good.add(first.access)
    text = user.call_double(21)

    def accept_renewed_token(asked: Asked) -> None:
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if token and token != first.access:
            mcp_server.good.add(token)

    mcp_server.good.clear()  # the first token is refused now, so the client must renew it
    mcp_server.instead["/mcp"] = accept_renewed_token
    again = user.call_double(4)

    assert (text, again) == ("42", "8")
    assert first.refresh
    assert user.stored_grant().access != first.access
    assert not mcp_server.requests(METADATA)  # the other server was asked
