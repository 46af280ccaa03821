"""Serves one long response in small pieces, on every wire but Gemini's and Ollama's.

Each piece is an event of its own; some events go out together, a hundred times a second.
Usage: python -m bench.streaming_server DIRECTORY LETTERS END. The port is in DIRECTORY/port.
"""

import asyncio
import contextlib
import sys
from pathlib import Path

from bench.mock_server import serve, whole_body
from bench.screens import answer as text_of
from bench.wires_server import ENDS
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer

TOGETHER, PAUSE = 5, 0.01  # events, and seconds between them
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
UNKNOWN = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}"


async def converse(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str
) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await whole_body(head, reader)
            method, target = head.split(b" ", 2)[:2]
            path = target.split(b"?")[0]
            wire = next((w for end, w in ENDS.items() if path.endswith(end)), None)
            if wire is None or method != b"POST":
                writer.write(UNKNOWN)
                await writer.drain()
                continue
            body = answer(wire, Reply(text)).body
            assert isinstance(body, bytes)
            await _write_stream(body.split(b"\n\n"), writer)


async def _write_stream(events: list[bytes], writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    for at in range(0, len(events), TOGETHER):
        body = b"".join(event + b"\n\n" for event in events[at : at + TOGETHER] if event)
        if body:
            writer.write(b"%x\r\n%s\r\n" % (len(body), body))
            await writer.drain()
            await asyncio.sleep(PAUSE)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def main(directory: Path, letters: int, end: str) -> None:
    text = f"{text_of(letters)}\n\n{end}"

    async def each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await converse(reader, writer, text)

    await serve(each, directory / "port", limit=1 << 22)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
