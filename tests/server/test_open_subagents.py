"""Subagents over REST and WebSocket: their transcript, live, under the id of the session."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.provider.port import Delta, Request
from refold.testing.providers import ScriptedProvider
from tests.server.serving import open_server, read_until, send_order

pytestmark = pytest.mark.anyio

FLAGS = {"permission_mode": "bypass", "sandbox.profile": "off"}
WAIT = "until test -e go; do sleep 0.01; done; echo gone"


def call(tool: str, **arguments: object) -> list[tuple[str, str]]:
    return [(tool, json.dumps(arguments))]


REPLIES = (
    call("task", agent="code", prompt="Look around."),
    call("bash", command=WAIT),
    "There is a door.",
    "It found a door.",
)


class HeldProvider:
    """Gives the replies, and ends the third one after `go_on`."""

    def __init__(self) -> None:
        self._replies = ScriptedProvider(*REPLIES)
        self.go_on = anyio.Event()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        pieces = 0
        async with aclosing(self._replies.stream(request)) as deltas:
            async for delta in deltas:
                pieces += 1
                if len(self._replies.heard) == 3 and pieces == 6:
                    await self.go_on.wait()
                yield delta


async def test_a_running_subagent_is_followed_live(tmp_path: Path) -> None:
    provider = HeldProvider()
    async with open_server(tmp_path, provider=lambda: provider, flags=FLAGS) as client:
        id_ = await client.begin()
        async with client.follow(id_) as socket:
            await send_order(socket, "user_message", text="Send somebody.")
            await read_until(socket, "subagent_start")
            node = f"{id_}%2Fchild-1"
            while (await client.ask("GET", f"/api/conversations/{node}")).status == 404:
                await anyio.sleep(0.01)
            async with client.follow(node, after="0") as child:
                begun = await read_until(child, "tool_start")
                (tmp_path / "go").touch()
                running = await read_until(child, "text_delta")
                provider.go_on.set()
                rest = [*running, *await read_until(child, "turn_end")]
            await read_until(socket, "turn_end")
        card = (await client.ask("GET", f"/api/conversations/{node}")).json

    texts = [doc["text"] for doc in [*begun, *rest] if doc["type"] == "user_message"]
    live = "".join(doc["text"] for doc in rest if doc["type"] == "text_delta")
    results = [doc["text"] for doc in rest if doc["type"] == "tool_result"]
    assert texts == ["Look around."]
    assert "gone" in results[0]
    assert 0 < len(live) <= len("There is a door.")
    assert live in "There is a door."
    assert {doc["conversation"] for doc in rest} == {f"{id_}/child-1"}
    assert (card["id"], card["parent"]) == (f"{id_}/child-1", id_)


async def test_a_client_resumes_the_stream_of_a_subagent_after_a_document_id(
    tmp_path: Path,
) -> None:
    (tmp_path / "go").touch()
    async with open_server(tmp_path, *REPLIES, flags=FLAGS) as client:
        id_ = await finish_conversation(client)
        node = f"{id_}/child-1"
        async with client.follow(node, after="0") as child:
            every = await read_until(child, "status")
        middle = next(doc for doc in every if doc["type"] == "tool_start")
        async with client.follow(node, after=middle["id"]) as child:
            rest = await read_until(child, "status")
        async with client.follow(node, after="7-1-0") as child:
            other = await read_until(child, "snapshot")

    assert rest == every[every.index(middle) + 1 :]
    assert [message["text"] for message in other[-1]["messages"]][-1] == "There is a door."


async def test_rest_serves_a_subagent_and_refuses_to_change_it(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    async with open_server(tmp_path, *REPLIES, flags=FLAGS) as client:
        id_ = await finish_conversation(client)
        base = f"/api/conversations/{id_}%2Fchild-1"
        read = {
            part: await client.ask("GET", f"{base}/{part}")
            for part in ("messages", "events", "usage", "tree", "timeline", "export")
        }
        refused = [
            await client.ask("DELETE", base),
            await client.ask("PATCH", base, {"name": "mine"}),
            await client.ask("POST", f"{base}/commands", {"text": "/cost"}),
        ]
        unknown = await client.ask("GET", f"/api/conversations/{id_}%2Fchild-2/messages")
        async with client.follow(f"{id_}/child-1", after="0") as child:
            await read_until(child, "status")
            await send_order(child, "user_message", text="Stop.", client_key="k")
            answer = (await read_until(child, "error"))[-1]

    assert {part: response.status for part, response in read.items()} == dict.fromkeys(
        read, 200
    )
    assert read["messages"].json[-1]["text"] == "There is a door."
    assert [
        (response.status, "read only" in response.json["reason"]) for response in refused
    ] == [(400, True)] * 3
    assert unknown.status == 404
    assert answer["client_key"] == "k"
    assert "takes no orders" in answer["reason"]


async def finish_conversation(client: Any) -> str:
    """Return the id of a conversation whose subagent has ended."""
    id_ = await client.begin()
    async with client.follow(id_) as socket:
        await send_order(socket, "user_message", text="Send somebody.")
        await read_until(socket, "turn_end")
    return id_
