"""A backup of a service at work, restored into a second server and a second bucket: it continues there."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import anyio
import pytest
from anyio import to_thread

from refold.cluster.bucket import tenant_objects
from refold.cluster.database import Database
from refold.cluster.sessions import PostgreSQLSessions
from refold.journal.events.kinds import Ended, Said, Started, TurnEnded
from refold.provider.script import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, ReceivedRequest, wire_server
from tests.cluster.nodes import Page, Servers, nodes
from tests.cluster.postgresql import Server, postgresql_server, server_of_backup
from tests.cluster.servers import S3Server

pytestmark = [pytest.mark.anyio, pytest.mark.peer, pytest.mark.timeout(300)]
FIRST_BUCKET, SECOND_BUCKET = "s3://refold/first", "s3://refold/second"
_LIMIT_SECONDS = 120


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def work(request: ReceivedRequest) -> Answer:
    """Each message is answered by one command: one adds a line to a file, the other one hangs."""
    messages = json.loads(request.body)["messages"]
    asked = max(n for n, one in enumerate(messages) if "do key-" in str(one))
    if any(one["role"] == "tool" for one in messages[asked:]):  # notes of refold may follow
        return answer("openai-chat", Reply("Done."))
    hangs = any("hangs" in str(one) for one in messages if one["role"] == "user")
    command = "sleep 100" if hangs else "echo line >> kept.txt; cat kept.txt"
    return answer("openai-chat", Reply(calls=(("bash", json.dumps({"command": command})),)))


@contextmanager
def dump(source: Server) -> Generator[Callable[[], Server]]:
    """A backup as the guide makes it. What is yielded restores it."""
    path = os.pathsep.join(map(str, Path("/usr/lib/postgresql").glob("*/bin")))

    def run(name: str, *arguments: str, data: bytes = b"", check: bool = True) -> bytes:
        program = shutil.which(name, path=path)
        assert program is not None, f"{name} is not installed"
        ended = subprocess.run(
            [program, *arguments], input=data, check=check, capture_output=True
        )
        return ended.stdout

    there = "-h", str(source.directory), "-U", "administrator"
    roles = run("pg_dumpall", "--roles-only", *there)
    database = run("pg_dump", "-Fc", *there, "refold")
    with postgresql_server("other") as target:

        def restore() -> Server:
            here = "-h", str(target.directory), "-U", "administrator"
            run(
                "psql", *here, "-d", "postgres", data=roles, check=False
            )  # one role is there
            run("createdb", *here, "-O", "refold_owner", "refold")
            run("pg_restore", "--exit-on-error", *here, "-d", "refold", data=database)
            return target

        yield restore


@contextmanager
def base_backup(source: Server) -> Generator[Callable[[], Server]]:
    with server_of_backup(source) as target:
        yield lambda: target


def copy_bucket(source: str, target: str) -> int:
    """Copy what the tenant has in a bucket, as a tool for buckets does."""
    first, second = (
        tenant_objects(name, "default", os.environ) for name in (source, target)
    )
    second.check()
    keys = [item.key for item in first.list("")]
    for key in keys:
        second.put(key, first.get(key))
    return len(keys)


@pytest.mark.parametrize("back_up", [dump, base_backup])
async def test_a_service_continues_in_a_second_server_with_a_backup_of_the_first_at_work(
    server: Server, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    back_up: Callable[[Server], "contextmanager[Callable[[], Server]]"],
) -> None:  # fmt: skip
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    first_objects = tenant_objects(FIRST_BUCKET, "default", os.environ)
    first_objects.check()
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    first = Database(server.url)
    stored = PostgreSQLSessions(first, tmp_path / "none", first_objects)

    async def read(sessions: PostgreSQLSessions, session: str) -> list[object]:
        entries, _ = await to_thread.run_sync(sessions.entries, session)
        return [entry.event for entry in entries]

    async with wire_server(work) as model:
        with anyio.fail_after(_LIMIT_SECONDS):
            bucket = {**s3.variables, "REFOLD_BUCKET": FIRST_BUCKET}
            servers = Servers(server.url, model.url, bucket=bucket)
            async with nodes(one, servers, workers=1, web_nodes=1) as started:
                page, hanging = Page(started, Random(1)), Page(started, Random(2))
                await page.begin()
                await page.say("key-1")
                await hanging.begin()
                async with anyio.create_task_group() as group:
                    group.start_soon(hanging.say, "key-hangs")
                    while not any(
                        isinstance(e, Started) for e in await read(stored, hanging.id)
                    ):
                        await anyio.sleep(0.1)
                    while not any(
                        o.key.endswith(".json") for o in first_objects.list(page.id)
                    ):
                        await anyio.sleep(0.1)
                    backup = back_up(server)
                    restore = await to_thread.run_sync(backup.__enter__)
                    assert await to_thread.run_sync(
                        copy_bucket, FIRST_BUCKET, SECOND_BUCKET
                    )
                    await page.say("key-lost")
                    group.cancel_scope.cancel()
        try:
            second_server = await to_thread.run_sync(restore)
            second = Database(second_server.url)
            objects = tenant_objects(SECOND_BUCKET, "default", os.environ)
            sessions = PostgreSQLSessions(second, tmp_path / "none", objects)
            with anyio.fail_after(_LIMIT_SECONDS):
                bucket = {**s3.variables, "REFOLD_BUCKET": SECOND_BUCKET}
                servers = Servers(second_server.url, model.url, bucket=bucket)
                async with nodes(two, servers, workers=1, web_nodes=1) as started:
                    again = Page(started, Random(3))
                    again.id = page.id
                    await again.say("key-2")
                    while not isinstance((await read(sessions, hanging.id))[-1], TurnEnded):
                        await anyio.sleep(0.1)
            events, hung = await read(sessions, page.id), await read(sessions, hanging.id)
            damages = [
                damage
                for id_ in (page.id, hanging.id)
                for damage in (await to_thread.run_sync(sessions.check, id_)).damages
            ]
            await to_thread.run_sync(second.close)
        finally:
            await to_thread.run_sync(backup.__exit__, None, None, None)
    await to_thread.run_sync(first.close)

    assert damages == []
    assert [event.text for event in events if isinstance(event, Said)] == [
        "do key-1",
        "do key-2",
    ]
    texts = [event.text for event in events if isinstance(event, Ended)]
    assert [text.count("line") for text in texts] == [1, 2]
    outcomes = [(event.outcome, event.text) for event in hung if isinstance(event, Ended)]
    assert [outcome for outcome, _ in outcomes] == ["unknown"], outcomes
