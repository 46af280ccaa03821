"""Workers and web nodes share a database, and each of them may die; `outages` is the long form."""

import random
from collections import Counter
from pathlib import Path

import anyio
import pytest

from refold.testing.wire_server import wire_server
from tests.cluster.nodes import Page, judge, model_of, nodes
from tests.cluster.postgresql import Server

pytestmark = [pytest.mark.anyio, pytest.mark.peer]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_sessions_continue_after_a_worker_and_a_web_node_were_killed(
    server: Server, tmp_path: Path
) -> None:
    effects = tmp_path / "effects"
    async with (
        wire_server(model_of(effects)) as model,
        nodes(tmp_path, server.url, model.url, workers=2, web_nodes=2) as started,
    ):
        pages = [Page(started, random.Random(n)) for n in range(3)]

        async def talk(number: int, page: Page) -> None:
            await page.begin()
            for turn in range(3):
                await page.say(f"key-{number}-{turn}")

        async with anyio.create_task_group() as group:
            for number, page in enumerate(pages):
                group.start_soon(talk, number, page)
            while not effects.exists():
                await anyio.sleep(0.02)
            started.workers["worker-0"].kill()
            started.kill_web_node("web-0")
        verdict = await judge(server.url, pages, effects)

    assert verdict.problems == []
    assert verdict.orders == 9
    assert Counter(effects.read_text().split()) == Counter(
        f"key-{number}-{turn}" for number in range(3) for turn in range(3)
    )
