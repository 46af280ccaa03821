"""A client that does not read: it is disconnected, delays no other, and can resume."""

import json
from pathlib import Path

import anyio
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from refold.client.feed import MAX_WAITING_BYTES
from tests.server.serving import Plain, open_server, read_until, send_order

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(120)]
MESSAGES = 50
LETTERS = 400_000  # of a message: together far more than may wait, and than sockets hold


def events(documents: list[Plain]) -> list[str]:
    return [data["id"] for data in documents if "id" in data and data["type"] != "snapshot"]


async def read(socket: ClientConnection, into: list[Plain]) -> None:
    while True:
        into.append(json.loads(await socket.recv()))


async def test_a_client_that_does_not_read_is_disconnected_and_resumes_without_a_gap(
    tmp_path: Path,
) -> None:
    late, every = list[Plain](), list[Plain]()
    async with open_server(tmp_path, *["Heard."] * MESSAGES) as client:
        id_ = await client.begin()
        async with client.follow(id_, "0", max_queue=1, max_size=None) as idle:
            late.append(json.loads(await idle.recv()))
            async with client.follow(id_, "0", max_size=None) as other:
                for n in range(MESSAGES):
                    await send_order(other, "user_message", text=f"{n} " + "x" * LETTERS)
                    every += await read_until(other, "result")
            conversation = client.host.conversation(id_)
            assert conversation is not None
            with anyio.fail_after(60):  # without its help
                while conversation.feed.followers:
                    await anyio.sleep(0.05)
            with pytest.raises(ConnectionClosed) as closed:
                await read(idle, late)
        so_far = len(events(late))
        async with client.follow(id_, events(late)[-1], max_size=None) as again:
            while len(events(late)) < len(events(every)):
                late.append(json.loads(await again.recv()))

    assert events(late) == events(every)
    assert so_far < len(events(every))
    assert sum(len(json.dumps(data)) for data in every) > 4 * MAX_WAITING_BYTES
    assert closed.value.rcvd is None or closed.value.rcvd.code == 1013
