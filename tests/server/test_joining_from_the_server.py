"""The server joins a session that a terminal has open: its clients see and say the same."""

import shutil
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.exceptions import ConnectionClosed

from refold.client.session import Session
from refold.client.session_socket import socket_path
from tests.client.test_joined_sessions import TOUCH, Owner, make_launch
from tests.server.serving import open_server, read_until, send_order

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    mkdtemp = tempfile.mkdtemp(prefix="r")
    monkeypatch.setenv("XDG_RUNTIME_DIR", mkdtemp)
    yield {"XDG_RUNTIME_DIR": mkdtemp}
    shutil.rmtree(mkdtemp)


@asynccontextmanager
async def terminal(
    directory: Path, runtime: dict[str, str], *replies: Any
) -> AsyncGenerator[Owner, None]:
    """Yield what a terminal does with a session: has it open, listens, and runs its turns."""
    launch = make_launch(directory, *replies)
    here = Owner(Session(launch, await launch.start()), launch, runtime)
    async with anyio.create_task_group() as group:
        group.start_soon(here.socket.run)
        group.start_soon(here.work)
        while not socket_path(here.session.journal_directory, runtime).exists():
            await anyio.sleep(0.005)
        yield here
        group.cancel_scope.cancel()
    await launch.aclose()


@pytest.mark.slow
async def test_a_page_joins_the_session_of_a_terminal_and_answers_its_requests(
    tmp_path: Path, runtime: dict[str, str]
) -> None:
    async with (
        terminal(tmp_path, runtime, "Hi.", [TOUCH], "Done.") as here,
        open_server(tmp_path) as client,
    ):
        await here.session.say("From the terminal.")
        await here.session.settle()
        id_ = here.session.id
        async with client.follow(id_, "0") as socket:
            past = await read_until(socket, "status")
            assert past[-1]["held_by"].startswith("process ")
            assert "From the terminal." in [d.get("text") for d in past]
            about = (await client.ask("GET", f"/api/conversations/{id_}")).json
            assert (about["held_by"], about["open_here"]) == (past[-1]["held_by"], True)

            await send_order(socket, "user_message", text="From the page.", client_key="k")
            data = (await read_until(socket, "tool_approval_request"))[-1]
            assert [request.id for request in here.session.requests] == [data["call_id"]]
            await send_order(
                socket, "tool_approval_response", call_id=data["call_id"],
                hash=data["hash"], allowed=True,
            )  # fmt: skip
            done = await read_until(socket, "result")

        assert done[-1]["text"] == "Done."
        assert here.session.view.turn.outcome == "answered"
        assert (tmp_path / "made.txt").exists()
        renamed = await client.ask("PATCH", f"/api/conversations/{id_}", {"name": "ours"})
        assert renamed.status == 200
        assert here.session.view.session.name == "ours"
        assert (await client.ask("GET", f"/api/conversations/{id_}/points")).json
        deleted = await client.ask("DELETE", f"/api/conversations/{id_}")
        assert deleted.status == 409, "the terminal has it open"


@pytest.mark.slow
async def test_the_server_opens_the_session_once_the_terminal_leaves_it(
    tmp_path: Path, runtime: dict[str, str]
) -> None:
    async with open_server(tmp_path, "Here.") as client:
        async with terminal(tmp_path, runtime, "Hi.") as here:
            id_ = here.session.id
            await here.session.say("One.")
            await here.session.settle()
            async with client.follow(id_, "0") as socket:
                last = [d["id"] for d in await read_until(socket, "status") if "id" in d][
                    -1
                ]
                await here.session.close()
                here.socket.follow(await here.session.new())
                with pytest.raises(ConnectionClosed):
                    await read_until(socket, "never")
        async with client.follow(id_, last) as socket:
            status = (await read_until(socket, "status"))[-1]
            await send_order(socket, "user_message", text="Two.")
            done = (await read_until(socket, "result"))[-1]
        assert (status["held_by"], done["text"]) == ("", "Here.")


@pytest.mark.slow
async def test_a_session_held_without_a_socket_is_readable_and_names_its_holder(
    tmp_path: Path,
) -> None:
    launch = make_launch(tmp_path, "Hi.")
    session = Session(launch, await launch.start())
    async with open_server(tmp_path) as client:
        await session.say("One.")
        await session.settle()
        path = f"/api/conversations/{session.id}"
        about = (await client.ask("GET", path)).json
        assert about["held_by"].startswith("process ")
        assert not about["open_here"]
        events = (await client.ask("GET", f"{path}/events")).json
        assert "One." in [event.get("text") for event in events]
        answer = await client.ask("PATCH", path, {"name": "x"})
        assert (answer.status, answer.json["kind"]) == (409, "Held")
        assert about["held_by"] in answer.json["reason"]
    await launch.aclose()
