"""Sends requests to an ASGI application in this process, and opens WebSockets to it."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from msgspec import Struct

from refold.server.guard import App


class Answer(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class AsgiSocket:
    """An open WebSocket: a test sends orders and receives documents."""

    def __init__(
        self, inbox: MemoryObjectSendStream[Any], outbox: MemoryObjectReceiveStream[Any]
    ) -> None:
        self._inbox, self._outbox = inbox, outbox

    async def send(self, order: object) -> None:
        await self._inbox.send({"type": "websocket.receive", "text": json.dumps(order)})

    async def document(self, kind: str) -> Any:
        """Return the next document of this type."""
        async for message in self._outbox:
            assert message["type"] != "websocket.close", message
            if message["type"] == "websocket.send":
                document = json.loads(message["text"])
                if document["type"] == kind:
                    return document
        raise AssertionError(f"the socket ended before a document {kind!r}")

    async def wait_until_open(self) -> None:
        """Wait until the server has accepted the socket. Drop earlier documents."""
        async for message in self._outbox:
            assert message["type"] != "websocket.close", message
            if message["type"] == "websocket.accept":
                return
        raise AssertionError("the server did not accept the socket")

    async def close_code(self) -> int:
        """Return the code with which the server closes the socket. Drop earlier documents."""
        async for message in self._outbox:
            if message["type"] == "websocket.close":
                return message["code"]
        raise AssertionError("the server did not close the socket")


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

    @asynccontextmanager
    async def socket(self, path: str) -> AsyncGenerator[AsgiSocket]:
        """Yield a WebSocket to this path, which the client leaves at the end of the block."""
        inbox, receive = anyio.create_memory_object_stream[Any](100)
        send, outbox = anyio.create_memory_object_stream[Any](10_000)
        name, _, query = path.partition("?")
        scope: Any = {
            "type": "websocket", "path": name, "raw_path": name.encode(),
            "query_string": query.encode(), "root_path": "", "scheme": "ws",
            "http_version": "1.1", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
            "headers": [(n.encode(), v.encode("latin-1")) for n, v in self._headers.items()],
            "subprotocols": [],
        }  # fmt: skip

        async def serve() -> None:
            await self._app(scope, receive.receive, send.send)

        with inbox, receive, send, outbox:
            async with anyio.create_task_group() as group:
                await inbox.send({"type": "websocket.connect"})
                group.start_soon(serve)
                yield AsgiSocket(inbox, outbox)
                await inbox.send({"type": "websocket.disconnect", "code": 1000})
