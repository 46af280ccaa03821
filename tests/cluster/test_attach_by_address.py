"""`refold attach URL` from a laptop that has nothing but a token: web nodes and workers do the rest."""

import json
import os
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest
from anyio import to_thread

from refold.client.service.service_client import ServiceClient, parse_service_url
from refold.cluster.database import Database
from refold.cluster.people import People, Role
from refold.cluster.sessions import PostgreSQLSessions
from refold.errors import BadInput
from refold.journal.events.kinds import Answered, Said
from refold.server.people.access import TOKEN_PREFIX
from refold.testing.wire_server import wire_server
from tests.cluster.identity_provider import write_oidc_settings
from tests.cluster.nodes import model_of
from tests.cluster.postgresql import Server
from tests.cluster.service import Service, service
from tests.server.test_joining_by_address import join, wait_for_end
from tests.terminal.pty_terminal import ENTER, Terminal

pytestmark = [pytest.mark.anyio, pytest.mark.peer, pytest.mark.timeout(300)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def make_token(
    people: People, tenant: str, subject: str, role: Role = "member"
) -> str:
    """A token of a person who has logged in once."""
    await people.log_in(tenant, subject, subject, "")
    await people.change_person(tenant, "", subject, role=role)
    return TOKEN_PREFIX + await people.new_secret(tenant, subject, "token", 600.0)


def begin(address: str, token: str) -> str:
    """Begin a conversation, as a page does."""
    connection = HTTPConnection(address.partition("://")[2], timeout=60)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", "/api/conversations", "{}", headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status == 201, body
    return json.loads(body)["id"]


def use_terminal(
    started: Service, directory: Path, url: str, token: str, oidc: Path, workers: str
) -> int:
    laptop = directory / "laptop"
    laptop.mkdir()
    terminal = Terminal(
        Path(sys.executable), "-m", "refold", "attach", url,
        directory=laptop, compiled=directory / "compiled",
        REFOLD_HOME=str(laptop / "home"), REFOLD_TOKEN=token,
    )  # fmt: skip
    try:
        terminal.wait_for_prompt()
        terminal.type(f"do key-1{ENTER}")
        terminal.answer("y")
        terminal.until("key-1 is done.")
        terminal.wait_for_prompt()
        started.kill("web-0")
        terminal.until("this terminal tries again")
        started.start_web_node("web-1", oidc)
        terminal.until("again")
        terminal.wait_for_prompt()
        terminal.type(f"do key-3{ENTER}")
        terminal.until("key-3 is done.")
        terminal.wait_for_prompt()
        started.kill("worker-acme-by-address")
        started.start_worker("acme-by-address", workers, name="worker-later")
        terminal.type(f"do key-7{ENTER}")
        terminal.until("key-7 is done.")
        terminal.wait_for_prompt()
        terminal.type("\x04")
        return terminal.end()
    finally:
        terminal.child.close(force=True)


async def test_a_terminal_with_a_token_works_in_a_service_while_its_processes_die(
    server: Server, tmp_path: Path
) -> None:
    people = People(Database(server.url))
    for tenant in ("acme-by-address", "umbrella-by-address"):
        await people.add_tenant(tenant)
    server.execute(
        "create role address_web login in role refold_web",
        "create role address_worker login in role refold_worker",
    )
    effects, workers = tmp_path / "effects", server.url_of("address_worker")
    async with (
        wire_server(model_of(effects)) as model,
        service(tmp_path, server.url_of("address_web"), model.url) as started,
    ):
        oidc = write_oidc_settings(tmp_path, started.address, "http://127.0.0.1:9")
        await to_thread.run_sync(started.start_web_node, "web-0", oidc)
        started.start_worker("acme-by-address", workers)
        ann = await make_token(people, "acme-by-address", "ann")
        cy = await make_token(people, "acme-by-address", "cy", "auditor")
        bob = await make_token(people, "umbrella-by-address", "bob")
        id_ = await to_thread.run_sync(begin, started.address, ann)
        url = f"{started.address}/?c={id_}"
        code = await to_thread.run_sync(
            use_terminal, started, tmp_path, url, ann, oidc, workers
        )
        async with join(tmp_path, started.address, cy, id_) as (session, _):
            read = session.view.conversation.messages[-1].message.text
            with pytest.raises(BadInput, match="an auditor reads conversations"):
                await session.say("do key-9")
        place = parse_service_url(started.address).place
        client = ServiceClient(place, bob, os.environ)
        with pytest.raises(BadInput, match="has no session"):
            await client.find_session(id_)
        with pytest.raises(BadInput, match="there is no conversation"):
            await client.lines(id_, 0)
        await client.aclose()
        async with join(tmp_path, started.address, ann, id_) as (session, _):
            await people.change_person("acme-by-address", "", "ann", locked=True)
            reason = await wait_for_end(session)

    database = Database(server.url, "acme-by-address")
    sessions = PostgreSQLSessions(database, tmp_path / "none")
    entries, _ = await to_thread.run_sync(sessions.entries, id_)
    for opened in (database, people.database):
        await to_thread.run_sync(opened.close)
    by = {entry.by for entry in entries if isinstance(entry.event, Said | Answered)}
    assert code == 0
    assert "does not accept this token" in reason
    assert read.startswith("key-7 is done.")
    assert effects.read_text().split() == ["key-1", "key-3", "key-7"]
    assert by == {"person:ann"}
    assert os.listdir(tmp_path / "laptop") == ["home"]  # nothing ran here
