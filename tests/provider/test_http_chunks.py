"""Chunks that arrive together are read together, and what follows is not lost."""

from typing import Any

import anyio
import h11
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
    chunks = list[bytes | str]()

    async def main() -> None:
        connection = HttpConnection(stream)
        await connection.send("/", (("host", "here"),), b"{}", 5)
        await connection.read_head()
        try:
            while chunk := await connection.next_chunk():
                chunks.append(chunk)
            chunks.append("end")
        except Broken as error:
            chunks.append(str(error).partition(" (")[0])

    anyio.run(main)
    return chunks


TOGETHER = b"".join(b"%02d" % n for n in range(20))


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((HEAD + CHUNKS + END,), [TOGETHER, "end"]),
        ((HEAD + CHUNKS, END), [TOGETHER, "end"]),
        ((HEAD, CHUNKS[:7], CHUNKS[7:] + END), [b"00", TOGETHER[2:], "end"]),
        (
            (HEAD + CHUNKS + b"no number",),
            [TOGETHER, "broke off in the middle of its answer"],
        ),
        ((HEAD + CHUNKS,), [TOGETHER, "broke off in the middle of its answer"]),
        (
            (HEAD + b"2\r\nhi, there\r\n" + END,),
            [b"hi", "broke off in the middle of its answer"],
        ),
        ((HEAD + b"2 ;more=said\r\nhi\r\n0\r\nIts-Name: said\r\n\r\n",), [b"hi", "end"]),
        ((HEAD + b"-2\r\nhi\r\n" + END,), ["broke off in the middle of its answer"]),
        ((HEAD + b"2" * 70_000,), ["broke off in the middle of its answer"]),
    ],
)
def test_chunks_that_arrive_together_are_read_together(
    pieces: tuple[bytes, ...], expected: list[bytes | str]
) -> None:
    assert read(*pieces) == expected


def test_unread_end_of_a_response_does_not_end_the_next_one() -> None:
    stream: Any = Received(HEAD + CHUNKS + END, HEAD + b"2\r\nhi\r\n" + END)

    async def main() -> list[bytes]:
        connection, chunks = HttpConnection(stream), list[bytes]()
        for _ in range(2):
            await connection.send("/", (("host", "here"),), b"{}", 5)
            await connection.read_head()
            chunks.append(await connection.next_chunk())
            assert connection.start_next()
        return chunks

    assert anyio.run(main) == [TOGETHER, b"hi"]


def test_chunks_may_be_cut_at_any_byte() -> None:
    whole = HEAD + CHUNKS + b"A\r\n\r\n23456789\r\n" + END

    for position in range(len(HEAD), len(whole)):
        events = read(whole[:position], whole[position:])
        assert b"".join(h for h in events if isinstance(h, bytes)) == (
            TOGETHER + b"\r\n23456789"
        )
        assert events[-1] == "end"


@pytest.mark.parametrize(
    ("head", "behind"),
    [
        (HEAD, b"HTTP/1.1 200 OK\r\n"),
        (HEAD.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"), b""),
    ],
)
def test_connection_announced_as_closing_is_not_used_again(
    head: bytes, behind: bytes
) -> None:
    stream: Any = Received(head + CHUNKS + END + behind)

    async def main() -> bool:
        connection = HttpConnection(stream)
        await connection.send("/", (("host", "here"),), b"{}", 5)
        await connection.read_head()
        await connection.next_chunk()
        return connection.start_next()

    assert anyio.run(main) is False


def test_chunk_for_each_word_does_not_cause_an_event_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 0
    whole = h11.Connection.next_event

    def count_event(self: h11.Connection) -> Any:
        nonlocal count
        count += 1
        return whole(self)

    monkeypatch.setattr(h11.Connection, "next_event", count_event)

    assert read(HEAD + CHUNKS, END) == [TOGETHER, "end"]
    assert count < 5
