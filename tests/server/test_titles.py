"""A conversation of the server gets its title after the first turn."""

import json
from pathlib import Path

import anyio
import pytest

from refold.testing.wire_server import Answer, ReceivedRequest, wire_server
from tests.server.serving import open_server, read_until, send_order

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
LONG = "Please look into why the gutter of the northern roof drips whenever it rains. " * 4
SSE = {"content-type": "text/event-stream"}


def reply(request: ReceivedRequest) -> Answer:
    """Return what the model of the request says: `small` finds titles."""
    model = json.loads(request.body).get("model") if request.body else ""
    text = {"small": "The dripping gutter", "large": "Mended."}.get(model, "")
    chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}
    return Answer(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode(), headers=SSE)


async def test_the_small_model_writes_the_title_after_the_first_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    title = "The dripping gutter"

    assert await run_first_turn(tmp_path, monkeypatch, titles=True) == ([title], title)


async def test_without_titles_of_the_model_the_start_of_the_first_message_is_the_title(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = LONG[:60].rstrip()

    assert await run_first_turn(tmp_path, monkeypatch, titles=False) == ([], start)


async def run_first_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, titles: bool
) -> tuple[list[str], str]:
    """Return the titles that the client received, and the title in the list."""
    monkeypatch.setenv("GROQ_API_KEY", "words-of-mine")
    flags = {"models.main": "groq/large", "models.small": "groq/small", "memory": True, "titles": titles}  # fmt: skip
    async with wire_server(reply) as model:
        monkeypatch.setenv("GROQ_BASE_URL", model.url)
        async with open_server(tmp_path, provider=lambda: None, flags=flags) as client:
            id_ = await client.begin()
            async with client.follow(id_) as socket:
                await read_until(socket, "status")
                await send_order(socket, "user_message", text=LONG)
                documents = await read_until(socket, "turn_end")
                with anyio.move_on_after(10 if titles else 0.5):
                    documents += await read_until(socket, "title_changed")
            (card,) = (await client.ask("GET", "/api/conversations")).json

    received = [d["title"] for d in documents if d["type"] == "title_changed"]
    return received, card["title"]
