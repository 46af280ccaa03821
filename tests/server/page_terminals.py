"""Opens terminals as the developer page does, and exchanges the frames of their sockets."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.server.serving import Answer, Client

BASH = "/bin/bash"
MAX_LINE_BYTES = 4096  # of a text that a test waits for, and of the output right after it


def page_headers(client: Client, person: str = "") -> Mapping[str, str]:
    """Return the headers of a page whose link was for this person."""
    cookie = client.access.redeem(client.access.new_launch(person))
    return {
        "Cookie": f"{client.access.cookie_name}={cookie}",
        "Origin": f"http://{client.netloc}",
    }


def variables(home: object, **options: str) -> dict[str, str]:
    """Return the variables of a shell whose home has no files."""
    return {
        "HOME": str(home), "PATH": "/usr/bin:/bin", "SHELL": BASH, "TERM": "xterm-256color",
        "LANG": "C.UTF-8", **options,
    }  # fmt: skip


async def ask_token(client: Client, id_: str, headers: Mapping[str, str]) -> Answer:
    return await client.ask("POST", f"/api/conversations/{id_}/terminals", {}, headers)


def dial(client: Client, id_: str, headers: Mapping[str, str]) -> connect:
    url = f"ws://{client.netloc}/api/conversations/{id_}/terminals/ws"
    return connect(url, additional_headers=headers)


class PageTerminal:
    """One open terminal. It acknowledges output as soon as it receives it."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket, self.output = socket, bytearray()

    async def send(self, type_: str, **fields: object) -> None:
        await self.socket.send(json.dumps({"type": type_, **fields}))

    async def type(self, text: str) -> None:
        await self.socket.send(text.encode())

    async def receive(self) -> dict[str, Any] | None:
        """Take a frame: return a text frame, and None for output."""
        frame = await self.socket.recv()
        if isinstance(frame, str):
            return json.loads(frame)
        self.output += frame
        await self.send("shown", bytes=len(frame))
        return None

    async def read_until(self, text: str) -> None:
        while text.encode() not in self.output[-4 * MAX_LINE_BYTES :]:
            frame = await self.receive()
            assert frame is None, (frame, self.output)

    async def read_end(self) -> dict[str, Any]:
        while (frame := await self.receive()) is None:
            pass
        return frame


@asynccontextmanager
async def open_terminal(
    client: Client, id_: str, headers: Mapping[str, str] | None = None
) -> AsyncGenerator[PageTerminal]:
    """Yield a terminal of 24 rows and 80 columns whose shell has started."""
    headers = headers or page_headers(client)
    answer = await ask_token(client, id_, headers)
    assert answer.status == 201, answer.body
    async with dial(client, id_, headers) as socket:
        terminal = PageTerminal(socket)
        await terminal.send("start", token=answer.json["token"], rows=24, columns=80)
        frame = await terminal.read_end()
        assert frame["type"] == "started", frame
        yield terminal


async def end_of(socket: ClientConnection) -> dict[str, Any]:
    """Return the last text frame before the socket is closed."""
    frame = dict[str, Any]()
    try:
        while True:
            data = await socket.recv()
            frame = json.loads(data) if isinstance(data, str) else frame
    except ConnectionClosed:
        return frame
