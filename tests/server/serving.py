"""Runs a server in this process, on a free port, with a scripted model, and has clients for it."""

import http.client
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread
from websockets.asyncio.client import ClientConnection, connect

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.client.elsewhere import AddressRights
from refold.client.host import Host, HostPaths
from refold.client.launch import Launch
from refold.client.new_conversation import NewConversation
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import paths
from refold.journal.journal_directory import JournalDirectory
from refold.provider.port import Provider
from refold.server.access import Access
from refold.server.app import serve
from refold.server.listening import ListenOptions
from refold.server.terminals import Terminals
from refold.testing.providers import ScriptedProvider

SECRET = b"s" * 32
Plain = dict[str, Any]


class Answer:
    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """A program with the bearer token of the server."""

    def __init__(self, address: str, access: Access, host: Host) -> None:
        self.address, self.access, self.host = address, access, host
        self.netloc = address.partition("://")[2]

    @property
    def token(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.access.bearer}"}

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        more = {"Content-Type": "application/json"} if data is not None else {}
        all_headers = {**more, **(self.token if headers is None else headers)}

        def scenario() -> Answer:
            connection = http.client.HTTPConnection(self.netloc, timeout=60)
            try:
                connection.request(method, path, body=data, headers=all_headers)
                getresponse = connection.getresponse()
                return Answer(
                    getresponse.status, dict(getresponse.getheaders()), getresponse.read()
                )
            finally:
                connection.close()

        return await to_thread.run_sync(scenario)

    async def begin(self, **wanted: object) -> str:
        answer = await self.ask("POST", "/api/conversations", wanted)
        assert answer.status == 201, answer.body
        return answer.json["id"]

    def follow(self, id_: str, after: str | None = None, **options: Any) -> connect:
        query = "" if after is None else f"?after={after}"
        url = f"ws://{self.netloc}/api/conversations/{id_}/ws{query}"
        options.setdefault("additional_headers", self.token)
        return connect(url, **options)


@asynccontextmanager
async def open_server(
    directory: Path,
    *replies: Any,
    provider: Callable[[], Provider | None] | None = None,
    flags: Mapping[str, object] | None = None,
    listening: ListenOptions | None = None,
    roots: tuple[Path, ...] = (),
    drain: bool = False,
    idle_seconds: float = 60.0,
    terminal: Mapping[str, str] | None = None,
    is_joinable: bool = False,
    rights: AddressRights | None = None,
) -> AsyncGenerator[Client]:
    """Serve until the block ends. Each conversation gets the replies from the first on.

    If `provider` returns None, the settings choose the model. `terminal` are the variables of
    the shells of the developer page; without them, the page has no shells.
    """
    import os

    places = paths(os.environ)

    def launch_at(
        directory: Path, roots: Sequence[Path], conversation: NewConversation
    ) -> Launch:
        settings = {"memory": False, **(flags or {})}
        loaded = load_folder_settings(
            directory, places, os.environ, settings, trust=conversation.trust
        )
        result = provider() if provider is not None else ScriptedProvider(*replies)
        options = LaunchOptions(
            directory=directory, more_roots=tuple(roots), provider=result,
            more_system=conversation.system_prompt,
        )  # fmt: skip
        return Launch(App(loaded.settings, places, os.environ, options), settings)

    access = Access(SECRET, places.state / "used-links")
    host = Host(
        JournalDirectory(places.data / "sessions"),
        HostPaths(
            directory,
            places.state / "server",
            places.data / "checkpoints",
            roots,
            rights or AddressRights(),
        ),
        launch_at,
        idle_seconds,
        is_joinable=is_joinable,
    )
    terminals = Terminals(host, terminal) if terminal is not None else None
    ready, addresses = anyio.Event(), list[str]()

    def on_address(address: str) -> None:
        addresses.append(address)
        ready.set()

    async with anyio.create_task_group() as group:
        scope = anyio.CancelScope()

        async def run() -> None:
            with scope:
                setup = listening or ListenOptions(drain=drain)
                await serve(host, access, setup, on_address, terminals=terminals)

        group.start_soon(run)
        await ready.wait()
        try:
            yield Client(addresses[0], access, host)
        finally:
            scope.cancel()


async def read_until(socket: ClientConnection, until: str) -> list[Plain]:
    """Return the documents up to the first document of this type."""
    plains = list[Plain]()
    while not plains or plains[-1]["type"] != until:
        plains.append(json.loads(await socket.recv()))
    return plains


async def send_order(socket: ClientConnection, type_: str, **fields: object) -> None:
    await socket.send(json.dumps({"type": type_, **fields}))
