"""The list of conversations over REST and its WebSocket: pages, activity, pins, archive."""

import json
import os
from pathlib import Path

import anyio
import pytest

pytest.importorskip("fastapi")

from refold.client.list_watch import ListWatch
from refold.client.stored_sessions import StoredSessions
from refold.config.paths import paths
from refold.journal.events.child_events import ChildBorn
from refold.journal.events.kinds import (
    Answered,
    Judged,
    Said,
    SessionStarted,
    TurnEnded,
    TurnStarted,
)
from refold.journal.journal_directory import JournalDirectory
from refold.session.recorder import Recorder
from refold.testing.providers import Reply
from tests.journal.shelves import conversation_events, put_journal
from tests.server.serving import Client, open_server, read_until, send_order

pytestmark = pytest.mark.anyio
WRITE = Reply(calls=(("write_file", '{"path": "a.txt", "content": "one"}'),))


@pytest.fixture
def sessions(home: Path) -> JournalDirectory:
    return JournalDirectory(paths(os.environ).data / "sessions")


async def ids(client: Client, query: str = "") -> tuple[list[str], str]:
    """Return the ids of a page of the list, and the address of the next."""
    page = await client.ask("GET", f"/api/conversations{query}")
    assert page.status == 200, page.body
    link = page.headers.get("link", "")
    return [row["id"] for row in page.json], link.partition("<")[2].partition(">")[0]


async def activities(client: Client) -> dict[str, str]:
    page = await client.ask("GET", "/api/conversations")
    return {row["id"]: row["activity"] for row in page.json}


async def test_pages_of_the_conversation_list_have_each_conversation_once(
    sessions: JournalDirectory, tmp_path: Path
) -> None:
    for number in range(7):
        put_journal(
            sessions, f"s{number}", *conversation_events("Hi"), changed=float(number // 2)
        )

    async with open_server(tmp_path) as client:
        texts, link = await ids(client, "?limit=3")
        put_journal(
            sessions, "s9", *conversation_events("Hi"), changed=99.0
        )  # moves no page that was not read
        while link:
            page, link = await ids(client, link.removeprefix("/api/conversations"))
            texts += page

    assert texts == ["s6", "s5", "s4", "s3", "s2", "s1", "s0"]


async def test_an_invalid_cursor_of_the_conversation_list_is_refused(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path) as client:
        answer = await client.ask("GET", "/api/conversations?after=nonsense")

    assert answer.status == 400
    assert "nonsense" in answer.json["reason"]


async def test_pinned_conversations_come_first_and_archived_ones_are_listed_apart(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path) as client:
        first, second, third = [await client.begin(name=name) for name in "abc"]
        pinned = await client.ask("PATCH", f"/api/conversations/{first}", {"pinned": True})
        await client.ask("PATCH", f"/api/conversations/{third}", {"archived": True})
        texts, _ = await ids(client)
        archived, _ = await ids(client, "?archived=true")
        await client.ask("PATCH", f"/api/conversations/{first}", {"pinned": False})
        await client.ask("PATCH", f"/api/conversations/{third}", {"archived": False})
        again, _ = await ids(client)

    assert pinned.json == {"name": "a", "pinned": True, "archived": False}
    assert texts == [first, second]
    assert archived == [third]
    assert again == [third, second, first]  # neither was a use of the conversation


async def test_the_conversation_list_distinguishes_waiting_running_done_failed_and_cut_off(
    sessions: JournalDirectory, tmp_path: Path
) -> None:
    began = SessionStarted("/work", "0.1"), Said("Hi"), TurnStarted(2)
    put_journal(sessions, "cut", *began)
    put_journal(sessions, "done", *began, TurnEnded("answered"))
    put_journal(sessions, "failed", *began, TurnEnded("failed"))
    put_journal(sessions, "stopped", *began, TurnEnded("interrupted"))
    put_journal(sessions, "plan", *began, TurnEnded("plan_ready"))
    put_journal(sessions, "asked", *began, Judged("c1", "ask"))

    async with open_server(tmp_path, WRITE, Reply("Written.")) as client:
        asks = await client.begin()
        async with client.follow(asks) as socket:
            await send_order(socket, "user_message", text="Write it")
            request = (await read_until(socket, "tool_approval_request"))[-1]
            before = await activities(client)
            await send_order(
                socket, "tool_approval_response", call_id=request["call_id"], allowed=True,
                hash=request["hash"],
            )  # fmt: skip
            await read_until(socket, "turn_end")
            after = await activities(client)

    assert before == {
        "cut": "cut_off", "asked": "cut_off", "done": "done", "failed": "failed", "stopped": "stopped",
        "plan": "waiting", asks: "waiting",
    }  # fmt: skip
    assert after[asks] == "done"


async def test_each_change_of_the_conversation_list_is_sent_over_its_socket(
    sessions: JournalDirectory, tmp_path: Path
) -> None:
    from websockets.asyncio.client import connect

    put_journal(sessions, "old", *conversation_events("Hi"), changed=1.0)
    put_journal(sessions, "gone", *conversation_events("Hi"), changed=2.0)
    changed, texts = dict[str, str](), list[str]()

    async with open_server(tmp_path) as client:
        url = f"ws://{client.netloc}/api/conversations/ws"
        async with connect(url, additional_headers=client.token) as socket:
            await anyio.sleep(0.5)  # so that it has read the list
            put_journal(sessions, "new", *conversation_events("A new one"), changed=3.0)
            await client.ask("DELETE", "/api/conversations/gone")
            with anyio.fail_after(20):
                while set(changed) != {"new"} or texts != ["gone"]:
                    news = json.loads(await socket.recv())
                    assert news["type"] == "sessions_changed"
                    changed |= {row["id"]: row["activity"] for row in news["changed"]}
                    texts += news["gone"]

    assert changed == {"new": "done"}


async def test_a_session_pushed_out_of_the_watched_list_is_not_reported_as_deleted(
    sessions: JournalDirectory,
) -> None:
    put_journal(sessions, "old", *conversation_events("Hi"), changed=1.0)
    put_journal(sessions, "gone", *conversation_events("Hi"), changed=2.0)
    watch = ListWatch(StoredSessions(sessions), limit=2)
    changed, gone = set[str](), set[str]()

    async with anyio.create_task_group() as group, watch.watch() as watcher:
        group.start_soon(watch.run)
        await anyio.sleep(0.2)  # so that it has read the list
        put_journal(sessions, "new", *conversation_events("Hi"), changed=3.0)
        sessions.delete("gone")
        put_journal(sessions, "newer", *conversation_events("Hi"), changed=4.0)
        with anyio.fail_after(20):
            while gone != {"gone"} or changed != {"new", "newer"}:
                news = await watcher.next()
                changed |= {document.id for document in news.changed}
                gone |= set(news.gone)
        group.cancel_scope.cancel()


async def test_a_session_waits_while_its_subagent_asks(sessions: JournalDirectory) -> None:
    began = SessionStarted("/work", "0.1"), Said("Hi"), TurnStarted(2)
    put_journal(
        sessions, "parent", *began, ChildBorn("child-1", "c1", "explore", "Look around")
    )
    asks = (*began, Judged("c2", "ask"))
    recorder = Recorder(sessions.store("parent"))

    await recorder.open()
    try:
        put_journal(sessions, "parent/child-1", *asks)
        before = StoredSessions(sessions).newest(1)["parent"].activity
        put_journal(sessions, "parent/child-1", *asks, Answered("c2", allowed=True))
        after = StoredSessions(sessions).newest(1)["parent"].activity
    finally:
        await recorder.close()

    assert (before, after) == ("waiting", "running")


async def test_the_timeline_of_a_conversation_is_served_in_pages(tmp_path: Path) -> None:
    async with open_server(tmp_path, *([Reply(text="One.")] * 3)) as client:
        id_ = await client.begin()
        async with client.follow(id_) as socket:
            await read_until(socket, "status")
            for _ in range(3):
                await send_order(socket, "user_message", text="Again")
                await read_until(socket, "result")
        path: str = f"/api/conversations/{id_}/timeline"
        every = (await client.ask("GET", path)).json
        rows, following = list[object](), f"{path}?limit=2"
        while following:
            answer = await client.ask("GET", following)
            rows += answer.json
            following = answer.headers.get("link", "").partition(">")[0].lstrip("<")
        wrong = await client.ask("GET", f"{path}?after=root/none")

    assert len(every) == 3
    assert rows == every
    assert (wrong.status, wrong.json["kind"]) == (400, "BadInput")
