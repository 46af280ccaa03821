"""A tenant cannot see, guess or influence another, whatever its people ask for."""

import hashlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.client.nodes.database_orders import DatabaseOrders
from refold.client.protocol import SendMessage
from refold.cluster.database import Database
from refold.cluster.people import Role
from refold.server.people.access import TOKEN_PREFIX
from tests.cluster.asgi_client import Answer, AsgiClient
from tests.cluster.people_service import ADDRESS, PeopleService
from tests.cluster.postgresql import Server
from tests.cluster.test_people import service as people_service
from tests.cluster.test_people import store_session
from tests.cluster.test_postgresql_sessions import ONE

pytestmark = [pytest.mark.peer, pytest.mark.anyio]
SECRET = "A secret garden."
FREE = "20260101-000000-zzzz"  # the id of no session
BLOB = hashlib.sha256(b"of theirs").hexdigest()
ROLES: tuple[Role, ...] = ("member", "admin", "auditor")
# The paths of the API after the id of a conversation.
PARTS = (
    "", "/messages", "/events", "/events?newest=5", "/usage", "/tree", "/timeline", "/points",
    "/tasks", "/background/1", "/requests", "/requests/2", "/export?form=md", "/export?form=tar",
    f"/blobs/{BLOB}", "/files", "/files/notes.txt", "/previews/a.html", "/sheets/a.xlsx",
    "/agents", "/models", "/child-1", "/child-1/messages", "%2Fchild-1/events", "/..%2f", "/ws",
)  # fmt: skip
LISTS = ("/api/conversations?q=garden", "/api/conversations", "/api/people", "/api/audit",
         "/api/tokens?everyone=true", "/api/conversations?cut_off=true")  # fmt: skip
service = people_service


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def other_tenant(
    server: Server, service: PeopleService, tenant: str, tmp_path: Path
) -> AsyncGenerator[str]:
    """Another tenant, with a session, a blob, people and an order."""
    name = f"{tenant}-theirs"
    await store_session(server, name, tmp_path, SECRET)
    await service.client(name, "their-admin", "admin")
    database = Database(server.url, name)
    blob = "insert into refold.blob(session, name, content) values($1, $2, 'of theirs')"
    await database.run(lambda db: db.execute(blob, ONE, BLOB))
    await DatabaseOrders(database).put(ONE, SendMessage(SECRET, client_key="k", by="x"))
    yield name
    await to_thread.run_sync(database.close)


async def rows_of(server: Server, tenant: str) -> str:
    """Return a hash of all rows of a tenant."""
    database = Database(server.url, tenant)
    tables = (
        "journal",
        "line",
        "blob",
        "card",
        "words",
        "placed_order",
        "person",
        "login",
        "audit",
    )
    digest = hashlib.sha256()
    for table in tables:
        query = (
            f"select coalesce(json_agg(t order by t::text)::text, '') from refold.{table} t"
        )
        digest.update((await database.run(lambda db, q=query: db.fetchval(q))).encode())
    await to_thread.run_sync(database.close)
    return digest.hexdigest()


def comparable(answer: Answer, id_: str) -> tuple[int, bytes]:
    return answer.status, answer.body.replace(id_.encode(), b"ID")


async def test_no_request_of_one_tenant_reaches_data_of_another_tenant(
    server: Server, service: PeopleService, tenant: str, other_tenant: str
) -> None:
    """A request with the id of another tenant's session gets the same answer as one with an
    unknown id.
    """
    clients = {role: await service.client(tenant, f"our-{role}", role) for role in ROLES}
    spy = await service.client(other_tenant, "spy", "admin")
    tokens = (await spy.ask("GET", "/api/tokens")).json
    assert (
        SECRET.encode() in (await spy.ask("GET", f"/api/conversations/{ONE}/events")).body
    )
    before = await rows_of(server, other_tenant)
    requests = st.tuples(
        st.sampled_from(ROLES),
        st.one_of(
            st.tuples(st.just("GET"), st.sampled_from(PARTS), st.none()),
            st.tuples(st.just("PATCH"), st.just(""), st.fixed_dictionaries(
                {}, optional={"name": st.text(max_size=5), "pinned": st.booleans()})),
            st.tuples(st.just("DELETE"), st.just(""), st.none()),
            st.tuples(st.just("PUT"), st.just("/files/x.txt"), st.just(b"x")),
        ),
    )  # fmt: skip

    async def compare(role: Role, method: str, part: str, body: object) -> None:
        kind = {"content-type": "application/octet-stream"} if method == "PUT" else {}
        answers = [
            await clients[role].ask(method, f"/api/conversations/{id_}{part}", body, kind)
            for id_ in (ONE, FREE)
        ]
        assert comparable(answers[0], ONE) == comparable(answers[1], FREE)
        assert SECRET.encode() not in answers[0].body

    await _for_all(requests, compare)
    for role, client in clients.items():
        for path in LISTS:
            text = (await client.ask("GET", path)).body
            assert b"garden" not in text, (role, path)
            assert other_tenant.encode() not in text
            assert b"their-admin" not in text
    for token in tokens:
        assert (
            await clients["admin"].ask("DELETE", f"/api/tokens/{token['id']}")
        ).status == 404
    locked = {"locked": True}
    assert (await clients["admin"].ask("PATCH", "/api/people/spy", locked)).status == 400
    assert await rows_of(server, other_tenant) == before


async def test_a_token_with_another_tenants_name_in_it_is_refused(
    service: PeopleService, tenant: str, other_tenant: str
) -> None:
    own = (await service.token(tenant, "ann")).removeprefix(TOKEN_PREFIX)
    foreign = (await service.token(other_tenant, "spy")).removeprefix(TOKEN_PREFIX)
    mixed = f"{TOKEN_PREFIX}{foreign.split('.')[0]}.{own.partition('.')[2]}"

    assert (
        await AsgiClient(service.app, ADDRESS, mixed).ask("GET", "/api/me")
    ).status == 401


async def test_a_stolen_login_of_a_web_node_writes_no_line(
    server: Server, service: PeopleService, other_tenant: str
) -> None:
    """Such a login may act as any tenant, place orders and add people. It cannot change a
    journal.
    """
    stolen = Database(server.url_of("people_web"), other_tenant)
    before = await _lines(server, other_tenant)

    for statement in (
        "insert into refold.line(session, seq, line) values('x', 1, 'forged')",
        "update refold.line set line = 'forged'",
        "delete from refold.line",
        "delete from refold.journal",
        "update refold.journal set epoch = 9, lines = 0, head_hash = ''",
        "update refold.journal set claim = 99",
        "insert into refold.journal(session) values('new')",
        "insert into refold.blob(session, name, content) values('x', 'y', 'forged')",
        "select refold.append_lines('x', 1, 0, 1, '', array['forged'::bytea])",
        "select sealed from refold.secret",
        "insert into refold.secret(name, sealed) values('key openai', '')",
        "select refold.end_claim(1)",
        "select refold.take_over(0)",
        "update refold.tenant_settings set max_running = 1",
        "insert into refold.tenant_settings(tenant) values('mine')",
        "truncate refold.line",
        "alter table refold.line disable row level security",
        "set role refold_worker",
        "select refold.append_lines('x', 1, 0, 1, '', '{}'::bytea[])",
    ):
        with pytest.raises(Exception, match=r"permission denied|must be owner"):
            await stolen.run(lambda db, s=statement: db.execute(s))

    assert await _lines(server, other_tenant) == before
    await to_thread.run_sync(stolen.close)


async def _lines(server: Server, tenant: str) -> list[Any]:
    database = Database(server.url, tenant)
    query = "select session, seq, line from refold.line order by 1, 2"
    rows: Any = await database.run(lambda db: db.fetch(query))
    await to_thread.run_sync(database.close)
    return [tuple(row.values()) for row in rows]


async def _for_all(requests: Any, check: Any) -> None:
    """Run an async check of a property in this event loop, from a thread of Hypothesis."""

    @settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
    @given(requests)
    def run(request: Any) -> None:
        role, (method, part, body) = request
        anyio.from_thread.run(check, role, method, part, body)

    await to_thread.run_sync(run)
