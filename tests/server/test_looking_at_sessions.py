"""Clients look at sessions without the writer lock; only what is ordered takes it."""

import gc
import json
import weakref
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from refold.client.session import Session
from refold.journal.events.kinds import SessionResumed
from tests.client.test_joined_sessions import TOUCH, make_launch
from tests.server.serving import Client, Plain, open_server, read_until, send_order

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def open_session(
    directory: Path, *replies: Any, id_: str = ""
) -> AsyncGenerator[Session]:
    """Yield a session as another process opens it, without a socket."""
    launch = make_launch(directory, *replies)
    try:
        yield Session(launch, await (launch.resume(id_) if id_ else launch.start()))
    finally:
        await launch.aclose()


async def store_session(directory: Path, *replies: Any) -> tuple[str, Path]:
    """Return a session that is open nowhere: its id and its directory."""
    async with open_session(directory, *replies) as session:
        await session.run("One.")
        return session.id, session.journal_directory


def files_of(directory: Path) -> Mapping[str, bytes]:
    return {str(p): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def count_resumes(client: Client, id_: str) -> int:
    entries = client.host.stored.entries(id_)
    return sum(isinstance(entry.event, SessionResumed) for entry in entries)


async def test_reading_a_session_writes_no_file_and_takes_no_lock(
    tmp_path: Path,
) -> None:
    id_, directory = await store_session(tmp_path, "Hi.")
    before = files_of(directory)
    async with open_server(tmp_path, "Here.") as client:
        async with client.follow(id_, "0") as first, client.follow(id_) as other:
            past = await read_until(first, "status")
            await read_until(other, "status")
            for what in ("", "/points", "/tasks", "/models", "/files", "/messages"):
                path = f"/api/conversations/{id_}{what}"
                assert (await client.ask("GET", path)).status == 200
            await send_order(first, "status")
            await send_order(first, "snapshot")
            await read_until(first, "snapshot")
            looked = files_of(directory)
            async with open_session(tmp_path, id_=id_) as elsewhere:
                assert elsewhere.has_lease
            await send_order(first, "user_message", text="Two.")
            done = (await read_until(other, "result"))[-1]

        assert looked == before
        assert "Hi." in [data.get("text") for data in past]
        assert done["text"] == "Here."
        assert count_resumes(client, id_) == 0


async def test_an_order_that_changes_nothing_takes_no_lock(tmp_path: Path) -> None:
    id_, directory = await store_session(tmp_path, "Hi.")
    before = files_of(directory)
    async with open_server(tmp_path) as client, client.follow(id_) as socket:
        await send_order(socket, "set_mode", mode="default", client_key="k")
        data = (await read_until(socket, "order_taken"))[-1]

        assert (data["client_key"], data["changed"]) == ("k", False)
        assert files_of(directory) == before


@pytest.mark.slow
async def test_messages_of_another_process_are_shown_in_a_watched_session(
    tmp_path: Path,
) -> None:
    id_, _ = await store_session(tmp_path, "Hi.")
    async with open_server(tmp_path, "Here.") as client, client.follow(id_) as socket:
        await read_until(socket, "status")
        async with open_session(tmp_path, "Elsewhere.", id_=id_) as session:
            await session.run("From another process.")
            news = await read_types(socket, "result", "status")
            await send_order(socket, "user_message", text="Two.", client_key="k")
            data = (await read_until(socket, "error"))[-1]
        free = (await read_until(socket, "status"))[-1]
        await send_order(socket, "user_message", text="Three.")
        done = (await read_until(socket, "result"))[-1]

    assert "Elsewhere." in [item.get("text") for item in news]
    matching_new = next(item for item in news if item["type"] == "status")
    assert (matching_new["held_by"][:8], matching_new["cut_off"]) == ("process ", False)
    assert (data["kind"], data["client_key"]) == ("Held", "k")
    assert (free["held_by"], free["cut_off"]) == ("", False)
    assert done["text"] == "Here."


@pytest.mark.slow
async def test_a_watched_session_is_released_when_idle_and_keeps_its_grants(
    tmp_path: Path,
) -> None:
    flags = {"sandbox.profile": "off"}
    replies = ([TOUCH], "One.", [TOUCH], "Two.")
    async with open_server(tmp_path, *replies, flags=flags, idle_seconds=0.2) as client:
        id_ = await client.begin()
        async with client.follow(id_, "0") as socket:
            await send_order(socket, "user_message", text="a")
            data = (await read_until(socket, "tool_approval_request"))[-1]
            await send_order(
                socket, "tool_approval_response", call_id=data["call_id"],
                hash=data["hash"], allowed=True, grant="session",
            )  # fmt: skip
            await read_until(socket, "result")
            there = client.host.conversation(id_)
            assert there is not None
            await wait_until(lambda: not there.session.has_lease)
            await send_order(socket, "user_message", text="b")
            stream_documents = await read_until(socket, "result")
        await wait_until(lambda: client.host.conversation(id_) is None)

        assert stream_documents[-1]["text"] == "Two."
        assert not types(stream_documents) & {"tool_approval_request", "error"}
        assert count_resumes(client, id_) == 0


async def test_an_idle_conversation_that_was_closed_leaves_no_object_behind(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, "One.", idle_seconds=0.2) as client:
        references = await talk_once(client)
        await wait_until(lambda: not client.host.conversations)
        await wait_until(lambda: count_objects(references) == 0)


def count_objects(references: Iterable[weakref.ref[object]]) -> int:
    """Count those that still exist."""
    gc.collect()
    return sum(reference() is not None for reference in references)


async def talk_once(client: Client) -> list[weakref.ref[object]]:
    """Have one turn. Return references to what is open for the conversation."""
    id_ = await client.begin()
    async with client.follow(id_, "0") as socket:
        await send_order(socket, "user_message", text="a")
        await read_until(socket, "result")
    there = client.host.conversation(id_)
    assert there is not None
    launch = there.launch
    return [weakref.ref(item) for item in (there, there.session, launch, launch.app)]


async def test_a_conversation_that_is_closed_disconnects_its_clients(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path) as client:
        id_ = await client.begin()
        async with client.follow(id_) as socket:
            await read_until(socket, "status")
            await client.host.close(id_)
            with anyio.fail_after(10), pytest.raises(ConnectionClosed) as closed:
                await read_until(socket, "never")

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1012


async def test_an_unanswered_message_of_an_earlier_process_is_answered_by_continue(
    tmp_path: Path,
) -> None:
    async with open_session(tmp_path) as session:
        await session.say("One.")
        id_, directory = session.id, session.journal_directory
    before = files_of(directory)
    async with open_server(tmp_path, "Here.") as client, client.follow(id_) as socket:
        status = (await read_until(socket, "status"))[-1]
        assert (status["cut_off"], files_of(directory)) == (True, before)
        await send_order(socket, "continue")
        done = (await read_until(socket, "result"))[-1]

    assert done["text"] == "Here."


async def read_types(socket: ClientConnection, *wanted: str) -> list[Plain]:
    """Return the documents until there is one of each of these types."""
    plains = list[Plain]()
    while set(wanted) - types(plains):
        plains += [json.loads(await socket.recv())]
    return plains


async def wait_until(condition: Any) -> None:
    with anyio.fail_after(20):
        while not condition():
            await anyio.sleep(0.01)


def types(documents: list[Plain]) -> set[str]:
    return {document["type"] for document in documents}
