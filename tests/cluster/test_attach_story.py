"""`refold attach` from a laptop: a session of a service is joined in a terminal, and workers run it."""

import os
import random
import sys
from pathlib import Path

import pytest
from anyio import to_thread

from refold.cluster.database import Database
from refold.cluster.sessions import PostgreSQLSessions
from refold.config.paths import login_name
from refold.journal.events.kinds import Answered, Said
from refold.testing.wire_server import wire_server
from tests.cluster.nodes import Page, Servers, model_of, nodes
from tests.cluster.postgresql import Server
from tests.terminal.pty_terminal import ENTER, Terminal

pytestmark = [pytest.mark.anyio, pytest.mark.peer, pytest.mark.timeout(300)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_terminal_on_a_laptop_joins_a_session_that_a_worker_runs(
    server: Server, tmp_path: Path
) -> None:
    server.execute("create role laptop login in role refold_web")
    laptop = tmp_path / "laptop"
    laptop.mkdir()

    seen = list[str]()  # what /status has shown

    def use_terminal(session: str) -> int:
        variables = {
            "REFOLD_HOME": str(laptop / "home"), "REFOLD_SESSIONS": server.url_of("laptop")
        }  # fmt: skip
        terminal = Terminal(
            Path(sys.executable), "-m", "refold", "attach", session,
            directory=laptop, compiled=tmp_path / "compiled", **variables,
        )  # fmt: skip
        try:
            terminal.until("key-0 is done.")
            terminal.wait_for_prompt()
            terminal.type(f"do key-1{ENTER}")
            terminal.answer("y")
            terminal.until("key-1 is done.")
            started.workers["worker-0"].kill()
            started.start_worker("worker-1")
            terminal.wait_for_prompt()
            terminal.type(f"do key-3{ENTER}")
            terminal.until("key-3 is done.")
            terminal.wait_for_prompt()
            terminal.type(f"/status{ENTER}")
            terminal.until("on the machine of a worker")
            seen.append(terminal.text)
            terminal.wait_for_prompt()
            terminal.type(f"/skills{ENTER}")
            terminal.until("a worker of the service has the settings and files")
            terminal.wait_for_prompt()
            terminal.type("\x04")
            return terminal.end()
        finally:
            terminal.child.close(force=True)

    effects = tmp_path / "effects"
    async with (
        wire_server(model_of(effects)) as model,
        nodes(tmp_path, Servers(server.url, model.url), workers=1, web_nodes=1) as started,
    ):
        page = Page(started, random.Random(1))
        await page.begin()
        await page.say("key-0")
        code = await to_thread.run_sync(use_terminal, page.id)

    database = Database(server.url)
    sessions = PostgreSQLSessions(database, tmp_path / "none")
    entries, _ = await to_thread.run_sync(sessions.entries, page.id)
    await to_thread.run_sync(database.close)
    by = {entry.by for entry in entries if isinstance(entry.event, Answered)}
    said = [entry.by for entry in entries if isinstance(entry.event, Said)]
    assert code == 0
    assert effects.read_text().split() == ["key-0", "key-1", "key-3"]
    assert by == {f"person:{login_name()}"}
    assert said[1:] == [f"person:{login_name()}"] * 2
    assert os.listdir(laptop) == ["home"]  # nothing ran here
    assert "sandbox" not in seen[0]  # the laptop's would say nothing about the worker's
