"""People delete conversations and upload files at a web node, which has neither: a worker does it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import anyio
import pytest

from refold.cluster.database import Database
from refold.cluster.people import Role
from refold.cluster.sessions import PostgreSQLSessions
from refold.journal.events.kinds import FileUploaded
from refold.place.checkpoints import snapshot_directory
from refold.testing.providers import Line
from tests.cluster.asgi_client import Answer, AsgiClient
from tests.cluster.people_service import PeopleService
from tests.cluster.postgresql import Server
from tests.cluster.test_people import store_session
from tests.cluster.test_postgresql_sessions import ONE

pytestmark = [pytest.mark.peer, pytest.mark.anyio]
BINARY = {"content-type": "application/octet-stream"}
_LIMIT_SECONDS = 30


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Team:
    """People of one tenant at a web node, and a worker that works in `work`."""

    def __init__(
        self, service: PeopleService, tenant: str, server: Server, directory: Path
    ) -> None:
        self.service, self.tenant = service, tenant
        self.work = directory / "work"
        self.work.mkdir()
        self.checkpoints = directory / "worker/checkpoints"
        self._database = Database(server.url, tenant)
        self.sessions = PostgreSQLSessions(self._database, directory)
        self._url = server.url_of("team_worker")

    @asynccontextmanager
    async def worker(self, *replies: Line) -> AsyncGenerator[None]:
        with anyio.fail_after(_LIMIT_SECONDS):
            async with self.service.worker(
                self.tenant, self._url, *replies, work=self.work
            ):
                yield

    async def join(self, subject: str, role: Role = "member") -> AsgiClient:
        return await self.service.client(self.tenant, subject, role)

    async def count_orders(self, condition: str) -> int:
        query = f"select count(*) from refold.placed_order where {condition}"
        return await self._database.run(lambda db: db.fetchval(query))

    async def exists(self, session: str) -> bool:
        return await anyio.to_thread.run_sync(self.sessions.exists, session)

    async def audit_of(self, session: str) -> list[tuple[str, str, str]]:
        entries = await self.service.people.audit(self.tenant)
        return [(e.actor, e.action, e.detail) for e in entries if e.session == session]


@pytest.fixture
async def team(server: Server, tenant: str, tmp_path: Path) -> AsyncGenerator[Team]:
    for name, role in (("team_web", "refold_web"), ("team_worker", "refold_worker")):
        statement = f"if not exists (select from pg_roles where rolname = '{name}') then"
        server.execute(
            f"do $$ begin {statement} create role {name} login in role {role}; end if; end $$"
        )
    service = PeopleService(server.url_of("team_web"), server.url, tmp_path)
    async with service.run():
        yield Team(service, tenant, server, tmp_path)


async def begin(person: AsgiClient) -> str:
    answer = await person.ask("POST", "/api/conversations", {})
    assert answer.status == 201, answer.body
    return answer.json["id"]


async def upload(
    person: AsgiClient, id_: str, path: str, data: bytes, **headers: str
) -> Answer:
    there = f"/api/conversations/{id_}/files/{path}"
    return await person.ask("PUT", there, data, {**BINARY, **headers})


async def test_a_member_deletes_own_conversations_and_an_admin_any(team: Team) -> None:
    ann, bob = await team.join("ann"), await team.join("bob")
    boss, eve = await team.join("boss", "admin"), await team.join("eve", "auditor")
    async with team.worker():
        first, second = await begin(ann), await begin(ann)
        there = f"/api/conversations/{first}"

        assert (await bob.ask("DELETE", there)).status == 403
        assert (await eve.ask("DELETE", there)).status == 403
        assert await team.exists(first)
        assert (await ann.ask("DELETE", there)).status == 204
        assert (await boss.ask("DELETE", f"/api/conversations/{second}")).status == 204

        assert (await ann.ask("GET", f"{there}/messages")).status == 404
        assert (await boss.ask("DELETE", there)).status == 404
        assert not await team.exists(first)
        assert not await team.exists(second)
    assert await team.audit_of(first) == [
        ("ann", "begin", ""), ("ann", "order", "delete_session"),
    ]  # fmt: skip
    assert (await team.audit_of(second))[-1] == ("boss", "order", "delete_session")


async def test_deleting_a_conversation_stops_its_turn_and_deletes_its_snapshots_and_orders(
    team: Team,
) -> None:
    ann = await team.join("ann")
    async with team.worker([("bash", '{"command": "touch asked-for"}')]):
        id_ = await begin(ann)
        async with ann.socket(f"/api/conversations/{id_}/ws?after=0") as socket:
            await upload(ann, id_, "notes.txt", b"mine")
            await socket.send({"type": "user_message", "text": "Go.", "client_key": "k"})
            await socket.document("tool_approval_request")
            own = snapshot_directory(team.checkpoints, str(team.work)) / "sessions" / id_
            assert own.exists()
            deleted = await ann.ask("DELETE", f"/api/conversations/{id_}")

        assert deleted.status == 204
        assert not await team.exists(id_)
        assert not own.exists()
        assert await team.count_orders(f"session = '{id_}'") == 0
        assert (team.work / "notes.txt").read_bytes() == b"mine"


async def test_a_damaged_conversation_can_be_deleted(
    team: Team, server: Server, tmp_path: Path
) -> None:
    await store_session(server, team.tenant, tmp_path / "stored", "Hello.")
    server.execute(
        f"update refold.line set line = 'x' where tenant = '{team.tenant}' and seq = 1"
    )
    boss = await team.join("boss", "admin")
    async with team.worker():
        assert (await boss.ask("DELETE", f"/api/conversations/{ONE}")).status == 204

    assert not await team.exists(ONE)


async def test_a_conversation_that_another_process_has_open_is_not_deleted(
    team: Team, server: Server, tmp_path: Path
) -> None:
    await store_session(server, team.tenant, tmp_path / "stored", "Hello.")
    boss = await team.join("boss", "admin")
    holder, owner = Database(server.url, team.tenant), object()
    async with team.worker():
        assert await holder.lock(ONE, owner)
        refused = await boss.ask("DELETE", f"/api/conversations/{ONE}")
        await holder.unlock(ONE, owner)
        deleted = await boss.ask("DELETE", f"/api/conversations/{ONE}")

    assert refused.status != 204
    assert f"{ONE} is being written by process" in refused.json["reason"]
    assert deleted.status == 204
    await anyio.to_thread.run_sync(holder.close)


async def test_a_person_uploads_files_into_the_folder_of_the_worker(team: Team) -> None:
    ann, eve = await team.join("ann"), await team.join("eve", "auditor")
    data = bytes(range(256)) * 4096
    async with team.worker():
        id_ = await begin(ann)
        done = await upload(ann, id_, "data.bin", data)
        beside = await upload(ann, id_, "data.bin?rename=true", b"other")
        refused = await upload(eve, id_, "eve.txt", b"x")

    assert (done.status, done.json) == (201, {"path": "data.bin", "size": len(data)})
    assert (beside.status, beside.json["path"]) == (201, "data-1.bin")
    assert refused.status == 403
    assert (team.work / "data.bin").read_bytes() == data
    assert (team.work / "data-1.bin").read_bytes() == b"other"
    entries, _ = await anyio.to_thread.run_sync(team.sessions.entries, id_)
    stored = [e for e in entries if isinstance(e.event, FileUploaded)]
    assert [(entry.by, entry.event.size) for entry in stored] == [
        ("person:ann", len(data)), ("person:ann", 5),
    ]  # fmt: skip
    assert ("ann", "order", "upload_file") in await team.audit_of(id_)
    assert await team.count_orders("body is not null and key <> ''") == 0


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("there.txt", {}, 428),
        ("there.txt", {"if-match": f'"{sha256(b"old").hexdigest()}"'}, 412),
        (".git/hooks/pre-commit", {}, 403),
        ("../out.txt", {}, 404),
    ],
)
async def test_an_upload_without_its_etag_to_a_protected_file_or_outside_is_refused(
    team: Team, path: str, headers: dict[str, str], status: int
) -> None:
    (team.work / "there.txt").write_text("kept")
    ann = await team.join("ann")
    async with team.worker():
        id_ = await begin(ann)
        refused = await upload(ann, id_, path, b"x", **headers)

    assert refused.status == status
    assert (team.work / "there.txt").read_text() == "kept"
