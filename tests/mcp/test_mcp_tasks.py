"""Tools of MCP servers that are called as tasks, in both versions of the protocol that have them."""

import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from refold.mcp.connections import Connections, McpContext
from refold.mcp.manifests import Manifests
from refold.mcp.server_paths import PreparedServer
from refold.mcp.servers import ServerConfig, read
from refold.place.commands import ShellCommands
from refold.tools.contract import Context, Reply
from refold.values.display import AskedQuestion, FormAnswer
from tests.mcp.preparing import prepare_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]
SERVER = Path(__file__).parent / "fake_task_server.py"
VERSIONS = ["2025-11-25", "2026-07-28"]


async def prepare_in_directory(
    directory: Path, server: ServerConfig, begin: Callable[[], None]
) -> PreparedServer:
    ready = await prepare_server(server, begin)
    return replace(ready, config=replace(ready.config, cwd=str(directory)))


def connections(directory: Path, version: str) -> Connections:
    command = {"command": sys.executable, "args": [str(SERVER), version, "notes"]}
    (config,) = read(json.dumps({"s": command}), "test").servers
    outside = McpContext(
        lambda _: ShellCommands({}),
        partial(prepare_in_directory, directory),
        lambda *_: None,
    )
    return Connections((config,), Manifests(directory / "manifests"), outside)


async def allow(asking: AskedQuestion) -> str:
    return FormAnswer("accept").encode()


async def call(servers: Connections, progress: list[str]) -> Reply:
    context = Context(anyio.Path("/"), "s", "c", progress.append, allow)  # pyright: ignore
    await servers.wait_until_settled(20)
    return await servers.call("s", "research", {}, context)


def run(
    servers: Connections, function: Callable[[], Awaitable[Reply | None]]
) -> Reply | None:
    async def within_limits() -> Reply | None:
        try:
            with anyio.fail_after(30):
                return await function()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(servers.close)

    return anyio.run(within_limits)


def notes(directory: Path) -> list[str]:
    file = directory / "notes"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_tool_called_as_a_task_returns_the_result_of_the_task(
    tmp_path: Path, version: str
) -> None:
    servers, progress = connections(tmp_path, version), list[str]()

    reply = run(servers, partial(call, servers, progress))

    assert reply is not None
    assert reply.text == "found it"
    assert "look 1\n" in progress
    assert "tasks/get" in notes(tmp_path)


def test_a_question_of_a_task_is_put_to_the_user(tmp_path: Path) -> None:
    servers = connections(tmp_path, "2026-07-28")

    run(servers, partial(call, servers, list[str]()))

    texts = notes(tmp_path)
    assert texts.count("tasks/update") == 1
    assert '{"q1": {"action": "accept", "content": {}}}' in texts


@pytest.mark.parametrize("version", VERSIONS)
def test_cancelling_a_call_cancels_its_task(tmp_path: Path, version: str) -> None:
    servers, progress = connections(tmp_path, version), list[str]()

    async def cancel() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(call, servers, progress)
            while not progress:
                await anyio.sleep(0.02)
            group.cancel_scope.cancel()
        while "tasks/cancel" not in notes(tmp_path):
            await anyio.sleep(0.02)

    run(servers, cancel)

    assert "tasks/cancel" in notes(tmp_path)
