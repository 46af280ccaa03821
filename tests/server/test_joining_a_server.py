"""Another process joins a conversation that a server has open, through a socket of the server."""

import os
import pwd
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from refold.client.remote_session import attach
from refold.client.session_socket import socket_path
from refold.journal.events.kinds import Answered, Granted, Said
from refold.session.pending_requests import Permission
from tests.client.test_joined_sessions import TOUCH, make_launch
from tests.server.serving import Client, open_server, read_until, send_order

pytestmark = pytest.mark.anyio
LOGIN = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Yield a short name: a socket's path has room for about 100 bytes."""
    with tempfile.TemporaryDirectory(prefix="r") as directory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        yield


def path_of(client: Client, id_: str) -> Path:
    return socket_path(client.host.home.path(id_), os.environ)


async def wait_for(path: Path, *, there: bool = True) -> None:
    while path.exists() is not there:
        await anyio.sleep(0.01)


async def test_a_terminal_joins_a_server_and_answers_with_all_choices(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, [TOUCH], "Done.", is_joinable=True) as client:
        id_ = await client.begin()
        launch = make_launch(tmp_path, **{"permissions.ask": ()})
        async with client.follow(id_) as page:
            await send_order(page, "user_message", text="Make it.")
            await read_until(page, "tool_approval_request")
            async with attach(launch, id_) as session:
                (request,) = session.requests
                assert isinstance(request, Permission)
                is_first = await session.answer(
                    request, True, grant="session", rule="bash(touch *)"
                )
                await session.say("And then?")
                await read_until(page, "result")
        await launch.aclose()
        entries = client.host.stored.entries(id_)
        by = {e.by for e in entries if isinstance(e.event, Answered | Granted)}
        granted = tuple(e.event.rule for e in entries if isinstance(e.event, Granted))
        authors = [e.by for e in entries if isinstance(e.event, Said)]

    assert is_first
    assert granted == ("bash(touch *)",)
    assert by == {f"person:{LOGIN}"}
    assert authors[-1] == f"person:{LOGIN}"


async def test_a_server_holds_a_joined_session_and_releases_it_after_the_terminal_leaves(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, "Hi.", is_joinable=True, idle_seconds=1.0) as client:
        id_ = await client.begin()
        path = path_of(client, id_)
        launch = make_launch(tmp_path)
        async with client.follow(id_) as page:
            await send_order(page, "user_message", text="Hello.")
            await wait_for(path)
            async with attach(launch, id_):
                await read_until(page, "result")
                await anyio.sleep(1.5)  # longer than an idle session is held
                chat = client.host.conversation(id_)
                is_held = chat is not None and chat.session.has_lease
            await wait_for(path, there=False)
            is_released = chat is not None and not chat.session.has_lease
        await launch.aclose()

    assert is_held
    assert is_released
