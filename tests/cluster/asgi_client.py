"""Requests to an ASGI application in this process."""

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from refold.server.guard import App


class Answer(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class AsgiClient:
    """A program with a token, or a browser with a cookie, at the host of `address`."""

    def __init__(self, app: App, address: str, token: str = "", cookie: str = "") -> None:
        self._app, self._host = app, address.partition("://")[2]
        self._headers = {"host": self._host}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        if cookie:
            self._headers |= {"cookie": cookie, "origin": address}

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        own = {**self._headers, **(headers or {})}
        if method not in ("GET", "DELETE"):
            own.setdefault("content-type", "application/json")
        name, _, query = path.partition("?")
        scope: Any = {
            "type": "http", "method": method, "path": name, "raw_path": name.encode(),
            "query_string": query.encode(), "root_path": "", "scheme": "http",
            "http_version": "1.1", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
            "headers": [(n.encode(), v.encode("latin-1")) for n, v in own.items()],
        }  # fmt: skip
        messages = list[Any]()

        async def receive() -> Any:
            sent = b"" if method in ("GET", "DELETE") else data
            return {"type": "http.request", "body": sent, "more_body": False}

        async def send(message: Any) -> None:
            messages.append(message)

        await self._app(scope, receive, send)
        body_parts = [m.get("body", b"") for m in messages[1:]]
        pairs = {n.decode().lower(): v.decode("latin-1") for n, v in messages[0]["headers"]}
        return Answer(messages[0]["status"], pairs, b"".join(body_parts))
