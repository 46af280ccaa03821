"""The journal says which person gave an order, answered a question or changed a setting."""

import os
import pwd
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import pytest

from refold.client.session import Session
from refold.errors import BadInput
from refold.journal.events.kinds import Answered, Compacted, Entry, Said, TurnStarted
from refold.journal.events.setting_events import ModeChanged, Renamed
from refold.session.recorder import acting_as
from tests.client.test_joined_sessions import TOUCH, make_launch
from tests.server.serving import Client, open_server, read_until, send_order

pytestmark = pytest.mark.anyio
LOGIN = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def page(client: Client, person: str = "") -> Mapping[str, str]:
    """Return the headers of a page whose link was for this person."""
    cookie = client.access.redeem(client.access.new_launch(person))
    return {
        "Cookie": f"{client.access.cookie_name}={cookie}",
        "Origin": f"http://{client.netloc}",
    }


def event_authors(entries: Sequence[Entry], kind: type) -> list[str]:
    return [entry.by for entry in entries if isinstance(entry.event, kind)]


async def test_messages_of_a_process_are_recorded_under_the_login_name(
    tmp_path: Path,
) -> None:
    launch = make_launch(tmp_path, "Hi.")
    session = Session(launch, await launch.start())
    await session.run("Hello.")
    entries = await session.reports.entries()
    await launch.aclose()

    assert event_authors(entries, Said) == [f"person:{LOGIN}"]
    assert [e.event.sender for e in entries if isinstance(e.event, Said)] == ["person"]


async def test_orders_of_a_page_are_recorded_under_the_person_of_its_link(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, [TOUCH], "Done.") as client:
        id_ = await client.begin()
        ada, bob = page(client, "Ada Łovelace"), page(client)
        async with (
            client.follow(id_, additional_headers=ada) as first,
            client.follow(id_, additional_headers=bob) as other,
        ):
            await send_order(first, "user_message", text="Make it.", by="mallory")
            data = (await read_until(other, "tool_approval_request"))[-1]
            await send_order(
                other, "tool_approval_response",
                call_id=data["call_id"], hash=data["hash"], allowed=True,
            )  # fmt: skip
            await read_until(first, "result")
            path = f"/api/conversations/{id_}"
            answer = await client.ask("PATCH", path, {"name": "made"}, ada)
            typed = await client.ask(
                "POST", f"{path}/commands", {"text": "/mode accept-edits"}, bob
            )
        entries = client.host.stored.entries(id_)

    assert (answer.status // 100, typed.status // 100) == (2, 2), typed.body
    assert (
        event_authors(entries, Said)
        == event_authors(entries, Renamed)
        == ["person:Ada Łovelace"]
    )
    assert (
        event_authors(entries, Answered)
        == event_authors(entries, ModeChanged)
        == ["person:page"]
    )


async def test_a_program_can_name_the_person_it_acts_for(tmp_path: Path) -> None:
    async with open_server(tmp_path, "One.", "Two.") as client:
        id_ = await client.begin()
        async with client.follow(id_) as socket:
            await send_order(socket, "user_message", text="Hi.", by="eve")
            await read_until(socket, "result")
            await send_order(socket, "user_message", text="Hi.")
            await read_until(socket, "result")
        entries = client.host.stored.entries(id_)

    assert event_authors(entries, Said) == ["person:eve", f"person:{LOGIN}"]


async def test_only_a_program_can_make_launch_links_for_other_people(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path) as client:
        path = "/api/launches?person=bob"
        json = {"Content-Type": "application/json"}
        links = [
            (await client.ask("POST", path, {}, headers)).json["launch"]
            for headers in (None, {**page(client, "ada"), **json}, page(client))
        ]
        people = [client.access.person(client.access.redeem(link)) for link in links]
        bad = await client.ask("POST", "/api/launches?person=" + "x" * 65, {})

    assert people == ["bob", "ada", "page"]
    assert (bad.status, "is not a name" in bad.json["reason"]) == (400, True)


async def test_a_queued_order_keeps_its_person(tmp_path: Path) -> None:
    """A message, `continue` and a compaction are carried out long after they were ordered."""
    from refold.client.protocol import CompactConversation, Continue, SendMessage

    launch = make_launch(tmp_path, "One.", "Two.", "Sum.", "Three.")
    session = Session(launch, await launch.start())
    await session.send(SendMessage("Hi.", by="ada"))
    with acting_as("bob"):
        await session.settle()
    await session.send(Continue(by="cyd"))
    await session.settle()
    await session.send(CompactConversation("full", by="dot"))
    await session.settle()
    entries = await session.reports.entries()
    await launch.aclose()

    assert event_authors(entries, Said) == ["person:ada"]
    assert event_authors(entries, TurnStarted)[-1] == "person:cyd"
    assert event_authors(entries, Compacted) == ["person:dot"]


async def test_concurrent_orders_keep_their_persons(tmp_path: Path) -> None:
    launch = make_launch(tmp_path)
    session = Session(launch, await launch.start())

    async def rename(person: str) -> None:
        with acting_as(person):
            for n in range(5):
                await session.rename(f"{person} {n}")
                await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for person in ("ada", "bob"):
            group.start_soon(rename, person)
    entries = await session.reports.entries()
    await launch.aclose()

    names = [
        (e.by, f"person:{e.event.name.split()[0]}")
        for e in entries
        if isinstance(e.event, Renamed)
    ]
    assert len(names) == 10
    assert all(author == right for author, right in names)


@pytest.mark.parametrize(
    ("author", "person"),
    [("person", ""), ("person:ada", "ada"), ("agent", None), ("policy person", None)],
)
def test_journal_authors_map_to_a_named_or_unnamed_person_or_none(
    author: str, person: str | None
) -> None:
    assert Entry(1, Said("Hi."), by=author).person == person


def test_an_unprintable_or_long_person_name_is_refused(tmp_path: Path) -> None:
    from refold.server.access import Access

    access = Access(b"s" * 32, tmp_path)
    for name in ("a\nb", " a", "x" * 65):
        with pytest.raises(BadInput, match="is not a name"):
            access.new_launch(name)
    cookie = access.redeem(access.new_launch("字" * 64))
    assert (access.has_cookie(cookie), access.person(cookie)) == (True, "字" * 64)
