"""Chunks that arrive together are read together, and what follows them is not lost."""

from typing import Any

import anyio
import pytest

from refold.provider.http import Broken, HttpConnection

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"".join(b"2\r\n%02d\r\n" % n for n in range(20))
END = b"0\r\n\r\n"


class Received:
    """A connection on which these pieces arrive, one at a time."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def receive(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        if not self._pieces:
            raise anyio.EndOfStream
        return self._pieces.pop(0)

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()


def read(*pieces: bytes) -> list[bytes | str]:
    stream: Any = Received(*pieces)
    found = list[bytes | str]()

    async def use() -> None:
        connection = HttpConnection(stream)
        await connection.send("/", (("host", "here"),), b"{}", 5)
        await connection.head()
        try:
            while chunk := await connection.next_chunk():
                found.append(chunk)
            found.append("end")
        except Broken as error:
            found.append(str(error).partition(" (")[0])

    anyio.run(use)
    return found


TOGETHER = b"".join(b"%02d" % n for n in range(20))


@pytest.mark.parametrize(
    ("pieces", "heard"),
    [
        ((HEAD + CHUNKS + END,), [TOGETHER, "end"]),
        ((HEAD + CHUNKS, END), [TOGETHER, "end"]),
        ((HEAD, CHUNKS[:7], CHUNKS[7:] + END), [b"00", TOGETHER[2:], "end"]),
        (
            (HEAD + CHUNKS + b"no number",),
            [TOGETHER, "broke off in the middle of its answer"],
        ),
        ((HEAD + CHUNKS,), [TOGETHER, "broke off in the middle of its answer"]),
    ],
)
def test_chunks_that_came_together_are_one(
    pieces: tuple[bytes, ...], heard: list[bytes | str]
) -> None:
    assert read(*pieces) == heard


def test_an_end_that_was_not_read_is_not_that_of_the_next_answer() -> None:
    stream: Any = Received(HEAD + CHUNKS + END, HEAD + b"2\r\nhi\r\n" + END)

    async def use() -> list[bytes]:
        connection, found = HttpConnection(stream), list[bytes]()
        for _ in range(2):
            await connection.send("/", (("host", "here"),), b"{}", 5)
            await connection.head()
            found.append(await connection.next_chunk())
            connection._http.start_next_cycle()  # pyright: ignore[reportPrivateUsage]
        return found

    assert anyio.run(use) == [TOGETHER, b"hi"]
