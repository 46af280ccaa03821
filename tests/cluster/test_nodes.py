"""Workers and web nodes share a database, and each of them may die; `outages` is the long form."""

import os
import random
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from refold.testing.wire_server import wire_server
from tests.cluster.judge import judge
from tests.cluster.nodes import Page, Servers, model_of, nodes
from tests.cluster.postgresql import Server
from tests.cluster.servers import nats_server, temporal_server

pytestmark = [pytest.mark.anyio, pytest.mark.peer]
_TURNS = 0, 2, 3  # by the last digit: of those, 2 has a subagent


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("with_servers", [False, True], ids=["database", "temporal-nats"])
async def test_sessions_continue_after_a_worker_and_a_web_node_were_killed(
    server: Server, tmp_path: Path, with_servers: bool
) -> None:
    effects = tmp_path / "effects"
    async with wire_server(model_of(effects)) as model, AsyncExitStack() as stack:
        servers = Servers(server.url, model.url)
        if with_servers:
            temporal = stack.enter_context(temporal_server())
            nats = stack.enter_context(nats_server())
            servers = replace(
                servers, temporal=temporal.address, nats=f"nats://{nats.address}"
            )
        started = await stack.enter_async_context(
            nodes(tmp_path, servers, workers=2, web_nodes=2)
        )
        pages = [Page(started, random.Random(n)) for n in range(3)]

        async def talk(number: int, page: Page) -> None:
            await page.begin()
            for turn in _TURNS:
                await page.say(f"key-{number}-{turn}")

        async with anyio.create_task_group() as group:
            for number, page in enumerate(pages):
                group.start_soon(talk, number, page)
            while not effects.exists():
                await anyio.sleep(0.02)
            started.workers["worker-0"].kill()
            started.kill_web_node("web-0")
        verdict = await judge(server.url, pages, effects)
        drained = await anyio.run_process(
            [
                sys.executable,
                "-m",
                "refold",
                "cluster",
                "drain",
                "--all",
                "--seconds",
                "120",
            ],
            env={**os.environ, **servers.variables},
            check=False,
        )
        ended = await anyio.to_thread.run_sync(started.workers["worker-1"].wait)

    assert (drained.returncode, ended) == (0, 0), drained.stderr
    # The killed one is listed, too, until its row is old.
    assert b"(process %d " % started.workers["worker-1"].pid in drained.stdout
    assert drained.stdout.count(b"has ended") in (1, 2)
    assert verdict.problems == []
    assert verdict.orders == 9
    missing = {f"key-{number}-{turn}" for number in range(3) for turn in _TURNS}
    missing -= set(effects.read_text().split())
    assert len(missing) <= verdict.unknown  # killed before their effect
