"""Workers of two versions share sessions, as they do while a service is upgraded."""

import os
import re
import shutil
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from random import Random

import anyio
import pytest
from anyio import to_thread

import refold
from refold.cluster.bucket import tenant_objects
from refold.cluster.database import Database
from refold.cluster.sessions import PostgreSQLSessions
from refold.journal.events.kinds import FileUploaded, Said, TurnEnded
from refold.testing.wire_server import wire_server
from tests.cluster.judge import judge
from tests.cluster.nodes import Nodes, Page, Servers, model_of, nodes
from tests.cluster.postgresql import Server
from tests.cluster.servers import S3Server

pytestmark = [pytest.mark.anyio, pytest.mark.peer, pytest.mark.timeout(300)]
BUCKET = "s3://refold/versions"
_LIMIT_SECONDS = 200


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def older_package(directory: Path) -> Path:
    """A copy of this package with another version, which does not know the event of an upload."""
    package = directory / "refold"
    shutil.copytree(
        Path(refold.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    for name, pattern, text in (
        ("_version.py", r'(?<=__version__ = ").*(?=")', "0.0.1"),
        ("journal/events/codec.py", r"if kind is not Unknown$",
         'if kind is not Unknown and kind.__name__ != "FileUploaded"'),
    ):  # fmt: skip
        file = package / name
        changed, count = re.subn(
            pattern, text, file.read_text(), count=1, flags=re.MULTILINE
        )
        assert count == 1, name
        file.write_text(changed)
    return directory


def upload(started: Nodes, id_: str) -> int:
    connection = HTTPConnection(next(iter(started.web_nodes.values())), timeout=60)
    headers = {**started.token, "Content-Type": "application/octet-stream"}
    path = f"/api/conversations/{id_}/files/notes.txt"
    connection.request("PUT", path, b"mine", headers)
    status = connection.getresponse().status
    connection.close()
    return status


async def test_sessions_move_between_workers_of_two_versions_and_lose_no_event(
    server: Server, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    tenant_objects(BUCKET, "default", os.environ).check()
    older, effects = older_package(tmp_path / "older"), tmp_path / "effects"
    told = subprocess.run(
        [sys.executable, "-c", "import refold; print(refold.__file__, refold.__version__)"],
        env={"PYTHONPATH": str(older)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.split() == [str(older / "refold/__init__.py"), "0.0.1"]
    async with wire_server(model_of(effects)) as model:
        with anyio.fail_after(_LIMIT_SECONDS):
            bucket = {**s3.variables, "REFOLD_BUCKET": BUCKET}
            servers = Servers(server.url, model.url, bucket=bucket)
            async with nodes(tmp_path, servers, workers=1, web_nodes=1) as started:
                pages = [Page(started, Random(n)) for n in range(2)]

                async def change_to(name: str, source: Path | None) -> None:
                    """Start a worker, end the others as an upgrade does, and use each session."""
                    started.variables = {"PYTHONPATH": str(source)} if source else {}
                    await to_thread.run_sync(started.start_worker, name)
                    await to_thread.run_sync(started.wait_for_worker, name)
                    for other in [other for other in started.workers if other != name]:
                        process = started.workers.pop(other)
                        process.terminate()
                        assert await to_thread.run_sync(process.wait) == 0
                    for number, page in enumerate(pages):
                        await page.say(f"key-{name[-1]}-{number}0")

                for page in pages:
                    await page.begin()
                    await page.say("key-9-0" if page is pages[0] else "key-9-3")
                assert await to_thread.run_sync(upload, started, pages[0].id) == 201
                await change_to("older-1", older)
                await change_to("newer-3", None)
                await change_to("older-4", older)
                await change_to("newer-5", None)
                verdict = await judge(server.url, pages, effects)
    database = Database(server.url)
    sessions = PostgreSQLSessions(database, tmp_path / "none")
    entries, _ = await to_thread.run_sync(sessions.entries, pages[0].id)
    events = [entry.event for entry in entries]
    await to_thread.run_sync(database.close)

    # Both sessions begin in one directory, where each sees the lines of the other.
    assert [said for said in verdict.problems if "the workspace had" not in said] == []
    assert verdict.orders == 10
    (uploaded,) = [event for event in events if isinstance(event, FileUploaded)]
    assert uploaded.size == 4
    assert len([event for event in events if isinstance(event, Said)]) == 5
    assert len([event for event in events if isinstance(event, TurnEnded)]) == 5
