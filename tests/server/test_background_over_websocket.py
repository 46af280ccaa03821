"""Background commands of a conversation that a server has open."""

import json
from pathlib import Path

import anyio
import pytest

from tests.server.serving import open_server, read_until, send_order

pytestmark = pytest.mark.anyio

FLAGS = {"permission_mode": "bypass", "sandbox.profile": "off"}


def start_calls(command: str, *, notify: bool = False) -> list[tuple[str, str]]:
    arguments = {"command": command, "notify": notify}
    wanted = {"name": "background_run", "arguments": arguments}
    return [("tool_call", json.dumps(wanted))]


async def test_the_end_of_a_background_command_starts_a_turn(tmp_path: Path) -> None:
    command = "until test -e go; do sleep 0.01; done; echo built"
    replies = (start_calls(command, notify=True), "It runs.", "It is built.")

    async with open_server(tmp_path, *replies, flags=FLAGS) as client:
        id_ = await client.begin()
        async with client.follow(id_) as socket:
            await send_order(socket, "user_message", text="Build it.")
            stream_documents = await read_until(socket, "turn_end")
            (tmp_path / "go").touch()
            result = await read_until(socket, "turn_end")

    assert "background_started" in [data["type"] for data in stream_documents]
    assert "background_ended" in [data["type"] for data in result]
    texts = [data["text"] for data in result if data["type"] == "assistant_message"]
    assert texts == ["It is built."]


async def test_a_conversation_is_busy_until_its_background_command_is_stopped(
    tmp_path: Path,
) -> None:
    replies = (start_calls("sleep 982"), "It runs.")

    async with open_server(tmp_path, *replies, flags=FLAGS) as client:
        id_ = await client.begin()
        conversation = client.host.conversation(id_)
        assert conversation is not None
        async with client.follow(id_) as socket:
            await send_order(socket, "user_message", text="Start it.")
            await read_until(socket, "turn_end")
        while conversation.feed.followers:
            await anyio.sleep(0.01)
        before = conversation.busy
        await conversation.session.stop("background-1")

        assert (before, conversation.busy) == (True, False)
