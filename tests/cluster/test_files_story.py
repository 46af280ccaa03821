"""A worker is killed, and another one continues with the files of the session: from a bucket, or from the place
where they are.
"""

import json
import os
import random
import re
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from refold.cluster.bucket import TenantObjects, tenant_objects
from refold.cluster.database import Database
from refold.cluster.sessions import PostgreSQLSessions
from refold.journal.events.child_events import PlaceRebuilt
from refold.journal.events.kinds import Ended
from refold.provider.script import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, ReceivedRequest, wire_server
from tests.cluster.nodes import SETTINGS, Nodes, Page, Servers, nodes
from tests.cluster.postgresql import Server
from tests.cluster.servers import S3Server
from tests.cluster.stalling_proxy import stalling_proxy

pytestmark = [pytest.mark.anyio, pytest.mark.peer]
BUCKET = "s3://refold/story"
LARGE_BYTES = 12_000_000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def sessions(server: Server, tmp_path: Path) -> Generator[PostgreSQLSessions]:
    database = Database(server.url)
    yield PostgreSQLSessions(database, tmp_path / "none")
    database.close()


@pytest.fixture
def objects(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> TenantObjects:
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    found = tenant_objects(BUCKET, "default", os.environ)
    found.check()
    return found


def write_and_read(request: ReceivedRequest) -> Answer:
    """The model answers each message by one command, which adds a line to a file and prints
    the file.
    """
    messages = json.loads(request.body)["messages"]
    if messages[-1]["role"] == "tool":
        return answer("openai-chat", Reply("Done."))
    asked = re.findall(r"key-\d(-large)?", json.dumps(messages))[-1]
    large = f"head -c {LARGE_BYTES} /dev/urandom > large.bin; " if asked else ""
    command = f"{large}echo line >> kept.txt; cat kept.txt; ls"
    return answer("openai-chat", Reply(calls=(("bash", json.dumps({"command": command})),)))


async def kill_writer(started: Nodes, sessions: PostgreSQLSessions, session: str) -> None:
    writer = await to_thread.run_sync(sessions.writer, session)
    assert writer is not None
    (worker,) = [one for one in started.workers.values() if one.pid == writer.pid]
    worker.kill()
    worker.wait()


async def wait_for_record(objects: TenantObjects, session: str) -> list[str]:
    """The names of records, once there is one."""
    with anyio.fail_after(60):
        while not (names := [n for n in keys(objects, session) if n.endswith(".json")]):
            await anyio.sleep(0.1)
    return names


def keys(objects: TenantObjects, session: str) -> list[str]:
    return [item.key for item in objects.list(session)]


def results(
    sessions: PostgreSQLSessions, session: str
) -> tuple[list[str], list[PlaceRebuilt]]:
    """The texts of calls, and what was reported about files."""
    entries, _ = sessions.entries(session)
    events = [entry.event for entry in entries]
    return (
        [event.text for event in events if isinstance(event, Ended)],
        [event for event in events if isinstance(event, PlaceRebuilt)],
    )


async def test_the_files_of_a_killed_worker_are_those_of_its_last_turn(
    server: Server,
    s3: S3Server,
    tmp_path: Path,
    objects: TenantObjects,
    sessions: PostgreSQLSessions,
) -> None:
    bucket = {**s3.variables, "REFOLD_BUCKET": BUCKET}
    async with wire_server(write_and_read) as model:
        servers = Servers(server.url, model.url, bucket=bucket)
        async with nodes(tmp_path, servers, workers=2, web_nodes=1) as started:
            page = Page(started, random.Random(1))
            await page.begin()
            await page.say("key-1")
            await wait_for_record(objects, page.id)
            await kill_writer(started, sessions, page.id)
            await page.say("key-2")

    texts, (rebuilt,) = await to_thread.run_sync(results, sessions, page.id)
    assert [text.count("line") for text in texts] == [1, 2]
    assert (rebuilt.place, rebuilt.restored, rebuilt.lost) == ("", True, ())


@pytest.mark.parametrize("left_bytes", [200_000, LARGE_BYTES // 2], ids=["begin", "middle"])
async def test_a_worker_killed_during_an_upload_leaves_the_last_complete_files_in_the_bucket(
    server: Server,
    s3: S3Server,
    tmp_path: Path,
    objects: TenantObjects,
    sessions: PostgreSQLSessions,
    left_bytes: int,
) -> None:
    async with wire_server(write_and_read) as model, stalling_proxy(s3.port) as proxy:
        proxy_variables = {"AWS_ENDPOINT_URL": f"http://{proxy.address}"}
        bucket = {**s3.variables, **proxy_variables, "REFOLD_BUCKET": BUCKET}
        servers = Servers(server.url, model.url, bucket=bucket)
        async with nodes(tmp_path, servers, workers=2, web_nodes=1) as started:
            page = Page(started, random.Random(1), {"own_workspace": True})
            await page.begin()
            await page.say("key-1")
            first = await wait_for_record(objects, page.id)
            before = await to_thread.run_sync(keys, objects, page.id)
            proxy.stall_after = left_bytes
            await page.say("key-2-large")
            with anyio.fail_after(60):
                await proxy.stalled.wait()
            await kill_writer(started, sessions, page.id)
            proxy.stall_after = None
            after = await to_thread.run_sync(keys, objects, page.id)
            await page.say("key-3")

    texts, (rebuilt,) = await to_thread.run_sync(results, sessions, page.id)
    assert after == before  # nothing of the cut upload counts
    assert len(first) == 1
    assert [text.count("line") for text in texts] == [1, 2, 2]
    assert ["large.bin" in text for text in texts] == [False, True, False]
    assert (rebuilt.place, rebuilt.restored) == ("", True)
    assert {os.path.basename(path) for path in rebuilt.lost} == {"kept.txt", "large.bin"}


async def test_a_session_elsewhere_continues_there_when_its_worker_is_killed(
    server: Server, tmp_path: Path, sessions: PostgreSQLSessions
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    shell = f"env XDG_DATA_HOME={tmp_path / 'data'} sh"
    settings = f"{SETTINGS}\n[workspaces]\nfar = 'cmd:{shell} # {place}'\n"
    async with wire_server(write_and_read) as model:
        servers = Servers(server.url, model.url, settings=settings)
        async with nodes(tmp_path, servers, workers=2, web_nodes=1) as started:
            page = Page(started, random.Random(1), {"workspace": "far"})
            await page.begin()
            await page.say("key-1")
            await kill_writer(started, sessions, page.id)
            await page.say("key-2")

    texts, rebuilt = await to_thread.run_sync(results, sessions, page.id)
    assert [text.count("line") for text in texts] == [1, 2]
    assert (place / "kept.txt").read_text() == "line\nline\n"
    assert rebuilt == []
