"""Runs an MCP server that asks for a login, and the authorization server that it names.

Both are on one port of the loopback. A test can replace each answer by that of a hostile server. The
requests are recorded.
"""

import json
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode

import uvicorn
from mcp.server import MCPServer

from tests.mcp.test_mcp_http import run_server

Answer = tuple[int, Mapping[str, str], bytes]
Instead = Callable[["Asked"], Answer | None]


class Asked:
    def __init__(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        self.method, self.path, self.headers = method, path, headers
        self.form: dict[str, str] = {}


class OAuthServer:
    """Both servers. `instead` has functions that replace answers, by path.

    `good` has the valid access tokens, `refresh` the valid refresh tokens.
    """

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[Asked] = []
        self.instead: dict[str, Instead] = {}
        self.good: set[str] = set()
        self.refresh: set[str] = set()
        self.codes: dict[str, str] = {}
        self.scope = "read"
        self.lasts = 3600
        self.metadata: dict[str, Any] = {}
        self._app = self._mcp()

    def _mcp(self) -> Any:
        server = MCPServer("behind-a-login")

        @server.tool()
        def double(number: int) -> int:
            """Twice as much."""
            return number * 2

        return server.streamable_http_app()

    def requests(self, path: str) -> list[Asked]:
        return [item for item in self.asked if item.path == path]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {k.decode(): v.decode() for k, v in scope["headers"]}
        request = Asked(scope["method"], scope["path"], headers)
        self.asked.append(request)
        if request.path == "/mcp":
            token = headers.get("authorization", "").removeprefix("Bearer ")
            other = self.instead.get("/mcp", lambda _: None)(request)
            if other is None and token in self.good:
                await self._app(scope, receive, send)
                return
        form = parse_qsl((await _body(receive)).decode()) or parse_qsl(
            scope["query_string"].decode()
        )
        request.form = dict(form)
        instead = self.instead.get(request.path, lambda _: None)(request)
        status, more, body = instead if instead is not None else self._answer(request)
        pairs = [(k.encode(), v.encode()) for k, v in more.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, request: Asked) -> Answer:
        match request.path:
            case "/mcp":
                url = f"{self.url}/.well-known/oauth-protected-resource/mcp"
                how = f'Bearer resource_metadata="{url}", scope="{self.scope}"'
                return 401, {"www-authenticate": how}, b""
            case "/.well-known/oauth-protected-resource/mcp":
                return as_json(resource=f"{self.url}/mcp", authorization_servers=[self.url])
            case "/.well-known/oauth-authorization-server":
                return as_json(
                    **{
                        "issuer": self.url,
                        "authorization_endpoint": f"{self.url}/authorize",
                        "token_endpoint": f"{self.url}/token",
                        "registration_endpoint": f"{self.url}/register",
                        "code_challenge_methods_supported": ["S256"],
                        **self.metadata,
                    }
                )
            case "/register":
                return as_json(client_id="refold-1", token_endpoint_auth_method="none")
            case "/authorize":
                code = secrets.token_urlsafe(8)
                self.codes[code] = request.form["code_challenge"]
                back = {"code": code, "state": request.form["state"]}
                url = f"{request.form['redirect_uri']}?{urlencode(back)}"
                return 302, {"location": url}, b""
            case "/token":
                return self._tokens(request.form)
            case _:
                return 404, {}, b""

    def _tokens(self, form: Mapping[str, str]) -> Answer:
        if form["grant_type"] == "authorization_code":
            hashed = sha256(form["code_verifier"].encode()).digest()
            challenge = urlsafe_b64encode(hashed).decode().rstrip("=")
            good = self.codes.pop(form["code"], "") == challenge
        else:
            good = form["refresh_token"] in self.refresh
            self.refresh.discard(form["refresh_token"])  # each is valid once
        if not good:
            return as_json(400, error="invalid_grant")
        access = f"access-{secrets.token_hex(16)}"
        renew = f"refresh-{secrets.token_hex(16)}"
        self.good.add(access)
        self.refresh.add(renew)
        return as_json(
            access_token=access, token_type="Bearer", expires_in=self.lasts,
            refresh_token=renew, scope=self.scope,
        )  # fmt: skip


def as_json(status: int = 200, **fields: Any) -> Answer:
    return status, {"content-type": "application/json"}, json.dumps(fields).encode()


@contextmanager
def oauth_server() -> Iterator[OAuthServer]:
    server = OAuthServer()
    with run_server(
        uvicorn.Server(uvicorn.Config(server, port=0, log_level="critical"))
    ) as url:
        server.url = url
        yield server


async def _body(receive: Any) -> bytes:
    whole = b""
    while True:
        message = await receive()
        whole += message.get("body", b"")
        if not message.get("more_body"):
            return whole
