"""People at a page in Chromium: two web nodes behind one address, an identity provider, workers of two tenants."""

import base64
import json
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from anyio import to_thread

from refold.cluster.database import Database
from refold.cluster.people import People
from refold.cluster.sessions import PostgreSQLSessions
from refold.journal.events.kinds import Said
from refold.testing.wire_server import wire_server
from tests.cluster.identity_provider import identity_provider, write_oidc_settings
from tests.cluster.nodes import model_of
from tests.cluster.postgresql import Server
from tests.cluster.service import Service, service

pytestmark = [pytest.mark.anyio, pytest.mark.peer, pytest.mark.timeout(300)]
_DOT_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
NEEDS = "playwright and chromium are needed here"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_people_log_in_and_work_in_their_tenant_while_a_web_node_dies(
    server: Server, tmp_path: Path
) -> None:
    pytest.importorskip("playwright.sync_api", reason=NEEDS)
    people = People(Database(server.url))
    for tenant in ("acme", "umbrella"):
        await people.add_tenant(tenant)
    server.execute(
        "create role story_web login in role refold_web",
        "create role story_worker login in role refold_worker",
    )
    async with (
        wire_server(model_of(tmp_path / "effects")) as model,
        service(tmp_path, server.url_of("story_web"), model.url) as started,
    ):
        with identity_provider(started.address) as issuer:
            oidc = write_oidc_settings(tmp_path, started.address, issuer)
            for node in ("web-0", "web-1"):
                await to_thread.run_sync(started.start_web_node, node, oidc)
            started.start_worker("acme", server.url_of("story_worker"))
            wrong = await to_thread.run_sync(_browse, started, tmp_path)

    acme = Database(server.url, "acme")
    sessions = PostgreSQLSessions(acme, tmp_path / "none")
    (session,) = [
        one.id for one in await to_thread.run_sync(lambda: list(sessions.sessions()))
    ]
    entries, _ = await to_thread.run_sync(sessions.entries, session)
    authors = {entry.by for entry in entries if isinstance(entry.event, Said)}
    actions = [(entry.actor, entry.action) for entry in await people.audit("acme")]
    assert wrong == []
    assert authors == {"person:ann@acme"}
    assert ("ann@acme", "begin") in actions
    assert ("ann@acme", "revoke") in actions
    for database in (acme, people.database):
        await to_thread.run_sync(database.close)


def _browse(started: Service, directory: Path) -> list[str]:
    """Use the pages as two people. Return the requests that their pages made although they
    must not.
    """
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip(NEEDS)
    wrong = list[str]()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        ann = _log_in(browser, started.address, "ann@acme", wrong)
        ann.locator("#message").fill("do key-7")
        ann.keyboard.press("Enter")
        ann.get_by_text("key-7 is done.").first.wait_for()
        started.kill("web-0")
        ann.locator("#message").fill("do key-2")
        ann.keyboard.press("Enter")
        ann.get_by_text("key-2 is done.").first.wait_for()
        _use_commands(ann)

        bob = _log_in(browser, started.address, "bob@umbrella", wrong)
        bob.reload()
        bob.locator("#message").wait_for()
        if bob.get_by_text("key-7").count():
            wrong.append("bob sees a conversation of another tenant")
        bob.goto(ann.url)
        bob.locator("#message").wait_for()
        id_ = ann.url.partition("c=")[2]
        read = (
            "id => fetch(`/api/conversations/${id}/events`).then((answer) => answer.status)"
        )
        statuses = ann.evaluate(read, id_), bob.evaluate(read, id_)
        if statuses != (200, 404):
            wrong.append(f"the conversation was answered with {statuses}")
        if bob.get_by_text("key-7").count():
            wrong.append("bob reads a conversation of another tenant by its address")

        _make_and_revoke_token(ann, wrong)
        _upload_and_delete(ann, directory, wrong)
        ann.get_by_role("button", name=re.compile("Log out")).click()
        ann.get_by_role("link", name="Log in").wait_for()
        browser.close()
    return wrong


def _make_and_revoke_token(page: Any, wrong: list[str]) -> None:
    """Make an API token in the page, which the service accepts until the page revokes it."""
    page.get_by_role("button", name="API token").click()
    page.get_by_text("You have no tokens.").wait_for()
    page.get_by_label("What it is for").fill("my laptop")
    page.get_by_role("button", name="Make token").click()
    token = page.get_by_label("Your token, which is shown only now").input_value()
    page.get_by_role("button", name="Done").click()
    page.get_by_role("dialog").wait_for(state="hidden")
    origin = page.evaluate("location.origin")
    request = Request(f"{origin}/api/me", headers={"Authorization": f"Bearer {token}"})
    with urlopen(request, timeout=60) as answer:
        who = json.loads(answer.read())
    if (who["tenant"], who["subject"]) != ("acme", "ann@acme"):
        wrong.append(f"the token acts as {who}")

    page.get_by_role("button", name="API token").click()
    page.get_by_role("button", name="Revoke “my laptop”").click()
    page.get_by_role("dialog", name="Revoke").get_by_role(
        "button", name="Revoke", exact=True
    ).click()
    page.get_by_text("You have no tokens.").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    try:
        with urlopen(request, timeout=60) as answer:
            wrong.append(f"the revoked token was answered with {answer.status}")
    except HTTPError as error:
        if error.code != 401:
            wrong.append(f"the revoked token was answered with {error.code}")


def _upload_and_delete(page: Any, directory: Path, wrong: list[str]) -> None:
    """Attach a file and an image to a message, and delete that conversation."""
    (directory / "figures.csv").write_text("a,b")
    (directory / "dot.png").write_bytes(base64.b64decode(_DOT_PNG))
    page.locator(".list").get_by_role("button", name="New chat").click()
    page.get_by_role("dialog").get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("dialog").wait_for(state="hidden")
    page.locator("input[type=file]").first.set_input_files(
        [directory / "figures.csv", directory / "dot.png"]
    )
    page.get_by_text("figures.csv").first.wait_for()
    page.locator("#message").fill("do key-9")
    page.keyboard.press("Enter")
    page.get_by_text("key-9 is done.").first.wait_for()
    (stored,) = directory.glob("worker-acme/work/**/figures.csv")
    if stored.read_text() != "a,b":
        wrong.append(f"{stored} has other content")
    id_ = page.url.partition("c=")[2]
    page.locator("details.menu summary").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").wait_for(state="hidden")
    read = "id => fetch(`/api/conversations/${id}`).then((answer) => answer.status)"
    if (status := page.evaluate(read, id_)) != 404:
        wrong.append(f"the deleted conversation was answered with {status}")


def _use_commands(page: Any) -> None:
    """A command that is an order, one that needs a machine, recorded changes, and a new chat."""
    page.locator("#message").fill("/mode plan")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.chips select').value === 'plan'")
    page.locator("#message").fill("/cd /etc")
    page.keyboard.press("Enter")
    page.get_by_text("/cd does not work here").wait_for()
    page.locator("#message").fill("")
    page.locator(".bar").get_by_role("button", name="Review changes").click()
    page.get_by_text("the changes that tools have recorded").wait_for()
    page.get_by_text("Nothing has changed since then.").wait_for()
    page.keyboard.press("Escape")
    page.locator(".list").get_by_role("button", name="New chat").click()
    page.get_by_text("A folder on the machines that do the work.").wait_for()
    page.get_by_role("button", name="Browse").wait_for(state="hidden")
    page.get_by_role("button", name="Cancel", exact=True).click()


def _log_in(browser: Any, address: str, login: str, wrong: list[str]) -> Any:
    context = browser.new_context()
    context.set_default_timeout(60_000)

    def note_error(error: Any) -> None:
        wrong.append(str(error.error))

    context.on("weberror", note_error)
    page = context.new_page()
    page.goto(address)
    page.get_by_role("link", name="Log in").click()
    page.locator("[name=login]").fill(login)
    page.locator("[name=password]").fill("x")
    page.locator("button[type=submit]").click()
    page.get_by_role("button", name="Continue").click()
    page.locator("#message").wait_for()
    page.get_by_role("button", name=re.compile(login)).wait_for()
    return page
