"""Serves the answer DONE on every wire, and logs when each request came.

Usage: python -m bench.wires_server DIRECTORY. It writes `log` and `port` there.
"""

import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path

from bench.mock_server import serve, whole_body
from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer

SHOWN = b'{"model_info":{"llama.context_length":4096},"capabilities":["tools"]}'
ENDS: dict[bytes, WireName] = {
    b"/messages": "anthropic",
    b"/responses": "openai-responses",
    b"/chat/completions": "openai-chat",
    b":streamGenerateContent?alt=sse": "gemini",
    b"/api/chat": "ollama",
}


async def converse(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, log: Path
) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = await whole_body(head, reader)
            came = time.monotonic()
            target = head.split(b" ", 2)[1]
            wire = next((w for end, w in ENDS.items() if target.endswith(end)), None)
            result = answer(wire, Reply("DONE")) if wire else None
            outcome = result.body if result and isinstance(result.body, bytes) else SHOWN
            kind = result.headers["content-type"] if result else "application/json"
            about = f"Content-Type: {kind}\r\nContent-Length: {len(outcome)}\r\n\r\n"
            writer.write(b"HTTP/1.1 200 OK\r\n" + about.encode() + outcome)
            await writer.drain()
            if wire:
                line = {"came": came, "went": time.monotonic(), "bytes": len(body)}
                with log.open("a") as out:
                    out.write(json.dumps(line) + "\n")


async def main(directory: Path) -> None:
    async def each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await converse(reader, writer, directory / "log")

    await serve(each, directory / "port")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(Path(sys.argv[1])))
