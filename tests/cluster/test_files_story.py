"""A worker is killed, and another one continues with the files of the session, from a bucket."""

import json
import os
import random
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from refold.cluster.bucket import tenant_objects
from refold.cluster.database import Database
from refold.cluster.sessions import PostgreSQLSessions
from refold.journal.events.child_events import PlaceRebuilt
from refold.journal.events.kinds import Ended
from refold.provider.script import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, ReceivedRequest, wire_server
from tests.cluster.nodes import Page, Servers, nodes
from tests.cluster.postgresql import Server
from tests.cluster.servers import S3Server

pytestmark = [pytest.mark.anyio, pytest.mark.peer]
BUCKET = "s3://refold/story"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def write_and_read(request: ReceivedRequest) -> Answer:
    """Each message is answered by one command, which adds a line to a file and prints it whole."""
    messages = json.loads(request.body)["messages"]
    if messages[-1]["role"] == "tool":
        return answer("openai-chat", Reply("Done."))
    command = "echo line >> kept.txt; cat kept.txt"
    return answer("openai-chat", Reply(calls=(("bash", json.dumps({"command": command})),)))


async def test_the_files_of_a_killed_worker_are_those_of_its_last_turn(
    server: Server, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    objects = tenant_objects(BUCKET, "default", os.environ)
    objects.check()
    database = Database(server.url)
    sessions = PostgreSQLSessions(database, tmp_path / "none", objects)
    bucket = {**s3.variables, "REFOLD_BUCKET": BUCKET}

    async with wire_server(write_and_read) as model:
        servers = Servers(server.url, model.url, bucket=bucket)
        async with nodes(tmp_path, servers, workers=2, web_nodes=1) as started:
            page = Page(started, random.Random(1))
            await page.begin()
            await page.say("key-1")
            with anyio.fail_after(60):
                while not any(item.key.endswith(".json") for item in objects.list(page.id)):
                    await anyio.sleep(0.1)
            writer = await to_thread.run_sync(sessions.writer, page.id)
            assert writer is not None
            for worker in started.workers.values():
                if worker.pid == writer.pid:
                    worker.kill()
            await page.say("key-2")

    entries, _ = await to_thread.run_sync(sessions.entries, page.id)
    events = [entry.event for entry in entries]
    texts = [event.text for event in events if isinstance(event, Ended)]
    (rebuilt,) = [event for event in events if isinstance(event, PlaceRebuilt)]
    assert [text.count("line") for text in texts] == [1, 2]
    assert (rebuilt.place, rebuilt.restored, rebuilt.lost) == ("", True, ())
    await to_thread.run_sync(database.close)
