"""The worker of a server leases each session under the number of its claim."""

import json
import shutil
from pathlib import Path

import anyio
import pytest
from websockets.exceptions import ConnectionClosed

from refold.client import open_files
from refold.client.host_ports import LocalOrders, LocalRunner
from refold.client.hosted_conversation import OwnConversation
from refold.client.session_worker import SessionWorker
from refold.journal.store.file import FileStore
from tests.server.serving import Client, open_server, read_until, send_order
from tests.server.test_background_over_websocket import FLAGS, start_calls
from tests.server.test_looking_at_sessions import open_session, store_session, wait_until

pytestmark = pytest.mark.anyio


def conversation(client: Client, id_: str) -> OwnConversation:
    there = client.host.conversation(id_)
    assert isinstance(there, OwnConversation)
    return there


async def test_a_claim_has_a_higher_number_than_those_of_another_server(
    tmp_path: Path,
) -> None:
    id_, directory = await store_session(tmp_path, "Hi.")
    store = FileStore(directory)
    await store.lease(7)
    await store.release()
    async with open_server(tmp_path, "Here.") as client, client.follow(id_) as socket:
        await send_order(socket, "user_message", text="Go.")
        done = (await read_until(socket, "result"))[-1]

    assert (done["text"], await store.read_claim()) == ("Here.", 8)


async def test_a_claim_ends_when_another_process_holds_the_session(tmp_path: Path) -> None:
    id_, directory = await store_session(tmp_path, "Hi.")
    async with open_server(tmp_path, "Here.") as client, client.follow(id_) as socket:
        await read_until(socket, "status")
        async with open_session(tmp_path, id_=id_):
            await send_order(socket, "user_message", text="One.")
            data = (await read_until(socket, "error"))[-1]
            await wait_until(lambda: not conversation(client, id_).claimed)
        await send_order(socket, "user_message", text="Two.")
        done = (await read_until(socket, "result"))[-1]
        number = await FileStore(directory).read_claim()

    assert (data["kind"], done["text"], number) == ("Held", "Here.", 2)


async def test_a_conversation_whose_session_directory_was_replaced_is_closed_and_reopened(
    tmp_path: Path,
) -> None:
    id_, directory = await store_session(tmp_path, "Hi.")
    async with open_server(tmp_path, "Here.", "There.") as client:
        async with client.follow(id_) as socket:
            await send_order(socket, "user_message", text="One.")
            await read_until(socket, "result")
            directory.rename(tmp_path / "away")
            shutil.copytree(tmp_path / "away", directory)
            await send_order(socket, "user_message", text="Two.")
            data = (await read_until(socket, "error"))[-1]
            with anyio.fail_after(10), pytest.raises(ConnectionClosed):
                await read_until(socket, "never")
        await wait_until(lambda: client.host.conversation(id_) is None)
        async with client.follow(id_) as socket:
            await send_order(socket, "user_message", text="Three.")
            done = (await read_until(socket, "result"))[-1]

    assert (data["kind"], done["text"]) == ("Fenced", "Here.")


async def test_a_session_that_changes_directory_keeps_its_claim_and_is_still_woken(
    tmp_path: Path,
) -> None:
    id_, directory = await store_session(tmp_path, "Hi.")
    other = tmp_path / "other"
    other.mkdir()
    command = "until test -e go; do sleep 0.01; done; echo built"
    replies = (start_calls(command, notify=True), "It runs.", "It is built.")
    async with open_server(tmp_path, *replies, flags=FLAGS) as client:
        async with client.follow(id_) as socket:
            await send_order(socket, "set_mode", mode="bypass")
            await send_order(socket, "set_directory", directory=str(other))
            await send_order(socket, "user_message", text="Build it.")
            await read_until(socket, "turn_end")
            (other / "go").touch()
            with anyio.fail_after(20):
                stream_documents = await read_until(socket, "turn_end")
        numbers = (
            await FileStore(directory).read_claim(),
            conversation(client, id_).session.has_lease,
        )

    assert "It is built." in json.dumps(stream_documents)
    assert numbers == (1, True)


async def test_a_session_counts_as_beginning_until_it_is_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = list[int]()

    def can_begin_session(beginning: int) -> bool:
        counts.append(beginning)
        return True

    monkeypatch.setattr(open_files, "can_begin_session", can_begin_session)
    worker = SessionWorker(LocalOrders(), LocalRunner(lambda _: 0), lambda _: None)

    async with worker.creating(), worker.creating():
        pass
    async with worker.creating():
        pass

    assert counts == [0, 1, 0]
