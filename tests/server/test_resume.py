"""A client that was away: it sends the last id it had, and misses and doubles nothing."""

import json
import random
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.exceptions import InvalidStatus

from refold.client.event_documents import FEED_START
from refold.client.feed import MAX_WAITING_BYTES, Follower
from refold.testing.providers import ScriptedProvider
from tests.server.serving import Client, Plain, open_server, read_until, send_order

pytestmark = pytest.mark.anyio


def ids(documents: list[Plain]) -> list[str]:
    return [data["id"] for data in documents if "id" in data and data["type"] != "snapshot"]


class Reader:
    """Follows docs/reference/server.md: it stores the last id, and joins text by its
    offset.
    """

    def __init__(self) -> None:
        self.last, self.seen = "0", list[Plain]()
        self.texts = dict[tuple[str, int], str]()

    def take(self, frame: Plain) -> None:
        if "id" in frame:
            self.last = frame["id"]
            self.seen.append(frame)
        if frame["type"] == "text_delta":
            key = ("text", frame["message"])
            have = self.texts.get(key, "")
            assert frame["offset"] <= len(have), "a piece is missing"
            self.texts[key] = have + frame["text"][len(have) - frame["offset"] :]


class Slow(ScriptedProvider):
    """Streams each reply with pauses, so that a client can be cut off in the middle."""

    async def stream(self, request: Any) -> Any:
        async for delta in super().stream(request):
            await anyio.sleep(0.001)
            yield delta


async def _read_in_pieces(
    client: Client, id_: str, turns: int, rng: random.Random
) -> Reader:
    """Read until `turns` turns have ended, and connect again after some frames each
    time."""
    reader = Reader()

    def has_ended() -> bool:
        return sum(data["type"] == "result" for data in reader.seen) == turns

    while not has_ended():
        async with client.follow(id_, reader.last) as socket:
            for _ in range(rng.randint(1, 12)):
                if not has_ended():
                    reader.take(json.loads(await socket.recv()))
    return reader


@pytest.mark.slow
async def test_a_client_that_reconnects_at_random_receives_each_stream_document_once(
    tmp_path: Path,
) -> None:
    answer = " ".join(f"word{n}" for n in range(15))
    readers = list[Reader]()
    async with open_server(
        tmp_path, provider=lambda: Slow(answer, answer, answer)
    ) as client:
        id_ = await client.begin()
        async with client.follow(id_, "0") as whole, anyio.create_task_group() as group:

            async def away() -> None:
                readers.append(await _read_in_pieces(client, id_, 3, random.Random(7)))

            group.start_soon(away)
            plains = list[Plain]()
            for _ in range(3):
                await send_order(whole, "user_message", text="Go on.")
                plains += await read_until(whole, "result")

    (reader,) = readers
    assert ids(reader.seen) == ids(plains)
    assert [e["text"] for e in reader.seen if e["type"] == "result"] == [answer] * 3
    assert all(answer.startswith(text) for text in reader.texts.values())


@pytest.mark.slow
async def test_a_client_that_reconnects_200_times_receives_each_stream_document_once(
    tmp_path: Path,
) -> None:
    answer = " ".join(f"word{n}" for n in range(60))
    turns, rng, reader = 20, random.Random(11), Reader()
    records, connects = list[Plain](), 0
    async with open_server(tmp_path, provider=lambda: Slow(*[answer] * turns)) as client:
        id_ = await client.begin()
        async with client.follow(id_, "0") as whole, anyio.create_task_group() as group:

            async def scenario() -> None:
                for _ in range(turns):
                    await send_order(whole, "user_message", text="Go on.")
                    records.extend(await read_until(whole, "result"))

            group.start_soon(scenario)
            while sum(data["type"] == "result" for data in reader.seen) < turns:
                connects += 1
                async with client.follow(id_, reader.last) as socket:
                    for _ in range(rng.randint(0, 3)):
                        with anyio.move_on_after(0.2):
                            reader.take(json.loads(await socket.recv()))

    assert connects >= 200
    assert ids(reader.seen) == ids(records)
    assert all(answer.startswith(text) for text in reader.texts.values())


async def test_resuming_from_any_id_yields_all_later_documents(tmp_path: Path) -> None:
    async with open_server(tmp_path, "One.", "Two.") as client:
        id_ = await client.begin()
        async with client.follow(id_, "0") as socket:
            await send_order(socket, "user_message", text="a")
            stream_documents = await read_until(socket, "result")
            await send_order(socket, "user_message", text="b")
            stream_documents += await read_until(socket, "result")
        every = ids(stream_documents)
        await client.host.close(
            id_
        )  # the memory of the process is gone: the journal has the text
        for n, after in enumerate(every[:-1]):
            async with client.follow(id_, after) as socket:
                rest = await read_until(socket, "status")
            later = [text for text in ids(rest) if text in every]
            assert later == every[n + 1 :]
        events = (await client.ask("GET", f"/api/conversations/{id_}/events")).json

    assert [item["id"] for item in events if item["id"] in every] == every


async def test_resuming_from_an_unknown_id_gives_a_snapshot(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, "One.") as client:
        id_ = await client.begin()
        async with client.follow(id_, "0") as socket:
            await send_order(socket, "user_message", text="a")
            stream_documents = await read_until(socket, "result")
        epoch, seq, n = ids(stream_documents)[-1].split("-")
        for after in (f"{epoch}-{int(seq) + 90}-0", f"{int(epoch) + 7}-{seq}-{n}"):
            async with client.follow(id_, after) as socket:
                first = json.loads(await socket.recv())
            assert first["type"] == "snapshot"
            assert [m["text"] for m in first["messages"]] == ["a", "One."]


@pytest.mark.slow
async def test_a_client_that_connects_during_an_answer_gets_the_text_so_far(
    tmp_path: Path,
) -> None:
    answer = " ".join(f"word{n}" for n in range(60))
    async with open_server(tmp_path, provider=lambda: Slow(answer)) as client:
        id_ = await client.begin()
        async with client.follow(id_) as first, client.follow(id_) as other:
            await send_order(first, "user_message", text="a")
            await read_until(first, "text_delta")
            await read_until(first, "text_delta")
            async with client.follow(id_) as late:
                stream_documents = await read_until(late, "text_delta")
            await read_until(other, "result")

    assert stream_documents[-1]["offset"] == 0
    assert answer.startswith(stream_documents[-1]["text"])
    assert stream_documents[0]["type"] == "snapshot"


def test_a_follower_that_does_not_read_is_disconnected() -> None:
    follower = Follower(limit=100)
    follower.begin([], FEED_START, [])
    for _ in range(11):
        follower.queue(b"0123456789")

    assert follower.cut_off
    assert follower.closed
    assert MAX_WAITING_BYTES <= 8 * 1024 * 1024


async def test_an_impossible_resume_position_is_refused_in_the_handshake(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path) as client:
        id_ = await client.begin()
        status_codes = list[int]()
        for where, after in (
            (id_, "nonsense"),
            ("20200101-000000-zzzz", None),
            ("..", None),
        ):
            with pytest.raises(InvalidStatus) as error:
                async with client.follow(where, after):
                    pass
            status_codes.append(error.value.response.status_code)

    assert status_codes == [400, 404, 404]
