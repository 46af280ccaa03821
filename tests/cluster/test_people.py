"""People of a service: roles, tokens, the audit, and that no tenant reaches another."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from msgspec.structs import replace

from refold.client.nodes.database_orders import DatabaseOrders
from refold.client.protocol import SendMessage
from refold.cluster.database import Database
from refold.cluster.people import People
from refold.cluster.session_runner import ProcrastinateRunner
from refold.cluster.sessions import PostgreSQLSessions
from refold.cluster.tenant_status import read_status
from refold.errors import BadInput, JournalError
from refold.journal.events.kinds import SessionStarted
from refold.server.people import tenants
from refold.server.people.access import TOKEN_PREFIX
from tests.cluster.asgi_client import AsgiClient
from tests.cluster.people_service import ADDRESS, PeopleService
from tests.cluster.postgresql import Server
from tests.cluster.test_postgresql_sessions import ONE, opening_events, record

pytestmark = [pytest.mark.peer, pytest.mark.anyio]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def service(server: Server, tmp_path: Path) -> AsyncGenerator[PeopleService]:
    """Yield a service whose web node has a login of the role refold_web."""
    made = "if not exists (select from pg_roles where rolname = 'people_web') then"
    server.execute(
        f"do $$ begin {made} create role people_web login in role refold_web; end if; end $$"
    )
    started = PeopleService(server.url_of("people_web"), server.url, tmp_path)
    async with started.run():
        yield started


async def store_session(server: Server, tenant: str, directory: Path, text: str) -> None:
    def store() -> None:
        database = Database(server.url, tenant)
        started, *others = opening_events(directory, text)
        assert isinstance(started, SessionStarted)
        sessions = PostgreSQLSessions(database, directory)
        record(sessions, ONE, replace(started, id=ONE), *others)
        database.close()

    await to_thread.run_sync(store)


async def test_a_token_acts_for_its_person_until_it_is_revoked(
    service: PeopleService, tenant: str
) -> None:
    ann = await service.client(tenant, "ann")

    made = await ann.ask("POST", "/api/tokens", {"label": "a script", "days": 1})
    program = AsgiClient(service.app, ADDRESS, made.json["token"])
    me = await program.ask("GET", "/api/me")
    (token,) = [one for one in (await ann.ask("GET", "/api/tokens")).json if one["label"]]
    revoked = await ann.ask("DELETE", f"/api/tokens/{token['id']}")
    after = await program.ask("GET", "/api/me")

    assert me.json == {
        "tenant": tenant, "subject": "ann", "name": "Name of ann", "role": "member",
    }  # fmt: skip
    assert (revoked.status, after.status) == (204, 401)


@pytest.mark.parametrize(
    "token",
    ["", "x", TOKEN_PREFIX, f"{TOKEN_PREFIX}a.b.c", f"{TOKEN_PREFIX}{'é' * 9}.b.c",
     f"{TOKEN_PREFIX}AA.b.c", f"{TOKEN_PREFIX}..", f"{TOKEN_PREFIX}{'A' * 9000}.b.c"],
)  # fmt: skip
async def test_malformed_tokens_of_people_are_refused(
    service: PeopleService, token: str
) -> None:
    answer = await AsgiClient(service.app, ADDRESS, token).ask("GET", "/api/me")

    assert answer.status == 401


async def test_a_cookie_is_refused_as_a_token_and_a_locked_person_is_refused(
    service: PeopleService, tenant: str
) -> None:
    token = await service.token(tenant, "ann")
    ann = AsgiClient(service.app, ADDRESS, token)
    admin = await service.client(tenant, "boss", "admin")
    cookie = await service.people.new_secret(tenant, "ann", "page", 60.0)
    with_cookie = AsgiClient(service.app, ADDRESS, TOKEN_PREFIX + cookie)

    used_as_token = await with_cookie.ask("GET", "/api/me")
    locked = await admin.ask("PATCH", "/api/people/ann", {"locked": True})

    assert used_as_token.status == 401
    assert locked.status == 204
    assert (await ann.ask("GET", "/api/me")).status == 401
    with pytest.raises(BadInput, match="locked"):
        await service.people.log_in(tenant, "ann", "", "")


async def test_roles_limit_who_reads_the_audit_manages_people_and_changes_conversations(
    service: PeopleService, tenant: str, server: Server, tmp_path: Path
) -> None:
    await store_session(server, tenant, tmp_path, "Shared.")
    member = await service.client(tenant, "ann")
    auditor = await service.client(tenant, "eve", "auditor")
    admin = await service.client(tenant, "boss", "admin")

    async def statuses(method: str, path: str, body: object = None) -> tuple[int, ...]:
        clients = member, auditor, admin
        return tuple([(await one.ask(method, path, body)).status for one in clients])

    there = f"/api/conversations/{ONE}"
    assert await statuses("GET", f"{there}/messages") == (200, 200, 200)
    assert await statuses("GET", "/api/people") == (403, 200, 200)
    assert await statuses("GET", "/api/audit") == (403, 200, 200)
    assert await statuses("PATCH", "/api/people/nobody", {"role": "admin"}) == (
        403,
        403,
        400,
    )
    assert await statuses("GET", "/api/tokens?everyone=true") == (403, 403, 200)
    assert (await auditor.ask("PATCH", there, {"name": "mine"})).status == 403
    assert (await member.ask("DELETE", there)).status == 403
    assert (await auditor.ask("DELETE", there)).status == 403


async def test_an_auditor_reads_a_websocket_and_its_orders_are_refused(
    service: PeopleService, tenant: str, server: Server, tmp_path: Path
) -> None:
    await store_session(server, tenant, tmp_path, "Shared.")
    auditor = await service.client(tenant, "eve", "auditor")
    admin = await service.client(tenant, "boss", "admin")

    async with auditor.socket(f"/api/conversations/{ONE}/ws?after=0") as socket:
        message = await socket.document("user_message")
        await socket.send({"type": "user_message", "text": "Obey.", "client_key": "k1"})
        refusal = await socket.document("error")
        await socket.send({"type": "snapshot", "client_key": "k2"})
        snapshot = await socket.document("snapshot")
    messages = await admin.ask("GET", f"/api/conversations/{ONE}/messages")
    audit = await admin.ask("GET", "/api/audit")

    assert message["text"] == "Shared."
    assert (refusal["client_key"], refusal["reason"]) == (
        "k1",
        "an auditor reads conversations, and orders nothing",
    )
    assert snapshot["conversation"] == ONE
    assert b"Obey." not in messages.body
    assert b"user_message" not in audit.body


@pytest.mark.parametrize("path", [f"/api/conversations/{ONE}/ws", "/api/conversations/ws"])
@pytest.mark.parametrize("ends_with", ["token", "lock", "role"])
async def test_a_websocket_closes_when_its_token_is_revoked_or_its_person_locked_or_demoted(
    service: PeopleService, tenant: str, server: Server, tmp_path: Path, path: str, ends_with: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(tenants, "CHECK_SECONDS", 0.02)
    await store_session(server, tenant, tmp_path, "Shared.")
    ann = await service.client(tenant, "ann")
    admin = await service.client(tenant, "boss", "admin")
    (token,) = (await ann.ask("GET", "/api/tokens")).json

    async with ann.socket(path) as socket:
        if path.startswith("/api/conversations/ws"):
            await socket.wait_until_open()
        else:
            await socket.document("status")
        if ends_with == "token":
            await admin.ask("DELETE", f"/api/tokens/{token['id']}")
        else:
            changes = {"locked": True} if ends_with == "lock" else {"role": "auditor"}
            await admin.ask("PATCH", "/api/people/ann", changes)
        code = await socket.close_code()

    assert code == 1008


async def test_settings_and_folders_of_the_node_are_not_served_to_people(
    service: PeopleService, tenant: str
) -> None:
    admin = await service.client(tenant, "boss", "admin")

    for path in (
        "settings/model",
        "folders",
        "folders/list?path=/",
        "commands",
        "launches",
    ):
        assert (await admin.ask("GET", f"/api/{path}")).status == 404
    assert (await admin.ask("POST", "/api/launches", {})).status == 404


async def test_orders_are_noted_with_their_person_in_an_audit_that_is_not_changed(
    service: PeopleService, server: Server, tenant: str
) -> None:
    auditor = await service.client(tenant, "eve", "auditor")
    web = Database(server.url_of("people_web"), tenant)
    order = SendMessage("A \0 secret.", client_key="k", by="ann")
    await DatabaseOrders(web).put(ONE, order)
    await DatabaseOrders(web).put(ONE, order)

    lines = (await auditor.ask("GET", "/api/audit")).body.splitlines()

    entries: list[Any] = [json.loads(line) for line in lines]
    (noted,) = [entry for entry in entries if entry["action"] == "order"]
    assert (noted["actor"], noted["session"], noted["detail"]) == ("ann", ONE, "queue")
    assert b"secret" not in b"".join(lines)
    for change in ("update refold.audit set actor = 'bob'", "delete from refold.audit"):
        with pytest.raises(JournalError, match="permission denied"):
            await web.run(lambda db, change=change: db.execute(change))
    await to_thread.run_sync(web.close)


async def test_a_tenant_has_no_more_sessions_at_work_than_its_limit(
    service: PeopleService, server: Server, tenant: str
) -> None:
    await service.people.add_tenant(tenant)
    await service.people.limit_tenant(tenant, 2)
    database = Database(server.url, tenant)
    full = anyio.Event()
    runner = ProcrastinateRunner(database, beat_seconds=0.1, on_full=full.set)
    sessions = [f"20260101-00000{n}-aaaa" for n in range(3)]
    for session in sessions:
        await runner.wake(session)

    claims = list[Any]()
    third: Any = None
    async with anyio.create_task_group() as group:
        group.start_soon(runner.run)
        with anyio.fail_after(30):
            async for claim in runner.claims():
                claims.append(claim)
                if len(claims) == 2:
                    break
            await full.wait()
            await claims[0].end()
            third = await anext(runner.claims())
        group.cancel_scope.cancel()

    assert sorted([claim.session for claim in (*claims, third)]) == sessions
    await to_thread.run_sync(database.close)


async def test_every_table_of_tenants_has_row_level_security(database: Database) -> None:
    """A new table without it fails here. `words` is read by a function for one tenant."""
    query = (
        "select relname, relrowsecurity as own, relforcerowsecurity as forced from pg_class c "
        "join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant' "
        "where relnamespace = 'refold'::regnamespace and relkind = 'r'"
    )
    rows: Any = await database.run(lambda db: db.fetch(query))

    assert len(rows) >= 10
    assert all(row["own"] for row in rows)
    assert {row["relname"] for row in rows if not row["forced"]} == {"words"}


async def test_deleting_a_person_ends_logins_and_deleting_a_tenant_removes_its_rows(
    service: PeopleService, server: Server, tenant: str, tmp_path: Path
) -> None:
    people: People = service.people
    await store_session(server, tenant, tmp_path, "Theirs.")
    await store_session(server, f"{tenant}-other", tmp_path, "Others.")
    ann = await service.client(tenant, "ann")
    await service.client(f"{tenant}-other", "bob")
    await people.note(tenant, "ann", "begin", ONE)

    await people.delete_person(tenant, "ann")

    assert (await ann.ask("GET", "/api/me")).status == 401
    assert await people.sessions_begun_by(tenant, "ann") == [ONE]
    await people.delete_tenant(tenant)
    with pytest.raises(BadInput, match="there is no tenant"):
        await people.tenant_size(tenant)
    count = "select count(*) from refold.line"
    gone, other = Database(server.url, tenant), Database(server.url, f"{tenant}-other")
    assert await gone.run(lambda db: db.fetchval(count)) == 0
    assert await other.run(lambda db: db.fetchval(count)) > 0
    assert (await people.tenant_size(f"{tenant}-other")).people == 1
    for database in (gone, other):
        await to_thread.run_sync(database.close)


async def test_the_status_of_a_tenant_counts_open_orders_and_waiting_sessions(
    server: Server, tenant: str
) -> None:
    database = Database(server.url, tenant)
    await DatabaseOrders(database).put(ONE, SendMessage("Hello.", client_key="k"))

    status = await read_status(database)

    assert (status.sessions, status.open_orders, status.at_work, status.waiting) == (
        0,
        1,
        0,
        1,
    )
    assert status.oldest_order_seconds > 0
    await to_thread.run_sync(database.close)
