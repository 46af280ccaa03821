"""Schedules in a database: the contract of the book, and runs on workers that are killed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from msgspec.structs import replace

from refold.cluster.database import Database
from refold.cluster.schedule_log import ScheduleLog
from refold.cluster.sessions import PostgreSQLSessions
from refold.errors import JournalError
from refold.journal.events.kinds import Ended, Said, SessionStarted
from refold.journal.schedules.schedule_book import ScheduleBook, schedule_schema
from refold.testing.wire_server import wire_server
from tests.cluster.nodes import SETTINGS, Servers, model_of, nodes
from tests.cluster.postgresql import Server
from tests.cluster.servers import temporal_server
from tests.journal.schedule_contract import START, OpenBook, ScheduleBookContract, plan

pytestmark = pytest.mark.peer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def book_in(database: Database) -> ScheduleBook:
    return ScheduleBook(Path("/nowhere"), log=ScheduleLog(database, schedule_schema()))


class TestSchedulesInADatabase(ScheduleBookContract):
    @pytest.fixture
    def open_book(self, database: Database) -> OpenBook:
        return lambda: book_in(database)


def test_a_schedule_is_added_once_although_the_answer_of_the_database_was_lost(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = database.call

    def lose_answer(work: Any) -> Any:
        call(work)
        monkeypatch.undo()
        return call(work)  # as after a lost connection

    monkeypatch.setattr(database, "call", lose_answer)
    added = book_in(database).add(plan(), START)

    assert book_in(database).list_schedules() == (added,)


def test_a_tenant_sees_no_schedule_of_another_tenant(
    server: Server, database: Database
) -> None:
    other = Database(server.url, f"{database.tenant}-other")
    book_in(database).add(plan(), START)

    assert book_in(other).list_schedules() == ()
    other.close()


def test_a_web_node_adds_and_stops_schedules_and_changes_no_event(
    server: Server, database: Database
) -> None:
    login = f"web-{database.tenant}"
    server.execute(f'create role "{login}" login in role refold_web')
    web = Database(server.url_of(login), database.tenant)
    book = book_in(web)
    added = book.add(plan(), START)

    book.stop(added.id)

    assert [item.stopped for item in book_in(database).list_schedules()] == [True]
    for statement in (
        "delete from refold.schedule_event",
        "update refold.schedule_event set kind = ''",
    ):
        with pytest.raises(JournalError, match="permission denied"):
            web.call(lambda db, sql=statement: db.execute(sql))
    web.close()


def refold(directory: Path, variables: Mapping[str, str], *arguments: str) -> str:
    """What the command prints, on a machine that no worker runs on."""
    home, work = directory / "laptop" / "home", directory / "laptop" / "work"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    work.mkdir(exist_ok=True)
    (home / "config.toml").write_text(SETTINGS)
    command = [sys.executable, "-m", "refold", "schedule", *arguments]
    environ = {**os.environ, **variables, "REFOLD_HOME": str(home), "TZ": "UTC"}
    return subprocess.run(
        command, cwd=work, env=environ, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.anyio
@pytest.mark.parametrize("with_temporal", [False, True], ids=["database", "temporal"])
async def test_a_schedule_runs_once_on_a_living_worker_although_one_is_killed(
    server: Server, tmp_path: Path, with_temporal: bool
) -> None:
    effects = tmp_path / "effects"
    database = Database(server.url)
    sessions = PostgreSQLSessions(database, tmp_path / "none")
    async with (
        wire_server(model_of(effects, seconds=4)) as model,
        AsyncExitStack() as stack,
    ):
        servers = Servers(server.url, model.url)
        if with_temporal:
            temporal = stack.enter_context(temporal_server())
            servers = replace(servers, temporal=temporal.address)
        several = nodes(tmp_path, servers, workers=2, web_nodes=0)
        started = await stack.enter_async_context(several)

        async def command(*arguments: str) -> str:
            return await to_thread.run_sync(refold, tmp_path, servers.variables, *arguments)

        async def last_run(number: int) -> dict[str, Any]:
            lines = (await command("list", "--all", "--json")).splitlines()
            rows = [json.loads(line)["schedule"] for line in lines]
            return next(row for row in rows if row["id"] == number)["runs"][-1]

        due = datetime.fromtimestamp(time.time() + 15, UTC).isoformat()
        stopped = await command("add", "do key-1", "--at", due)
        await command("stop", stopped.split()[1])
        added = await command("add", "do key-0", "--at", due)
        number = int(added.split()[1])
        asks = await command("add", "do key-6", "--at", due)  # no user can be asked
        with anyio.fail_after(120):
            while not effects.exists():
                await anyio.sleep(0.1)
            id_ = (await last_run(number))["session"]
            holder = await to_thread.run_sync(sessions.writer, id_)
            assert holder is not None
            for worker in started.workers.values():
                if worker.pid == holder.pid:
                    worker.kill()
            while not (run := await last_run(number))["outcome"]:
                await anyio.sleep(0.5)
            while not (refused := await last_run(int(asks.split()[1])))["outcome"]:
                await anyio.sleep(0.5)

    entries, _ = await to_thread.run_sync(sessions.entries, id_)
    events = [entry.event for entry in entries]
    (start,) = [event for event in events if isinstance(event, SessionStarted)]
    (said,) = [event for event in events if isinstance(event, Said)]
    others, _ = await to_thread.run_sync(sessions.entries, refused["session"])
    refusals = [entry.event for entry in others if isinstance(entry.event, Ended)]
    assert "a worker starts it then" in added
    assert [event.outcome for event in refusals] == ["refused"]
    assert effects.read_text() == "key-0\n"
    assert (run["outcome"], run["text"][:13]) == ("answered", "key-0 is done")
    assert (start.schedule, said.text) == (number, "do key-0")
    await to_thread.run_sync(database.close)
