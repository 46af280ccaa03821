"""Serves a model with one script: N shell commands, one a turn, then DONE.

The server speaks OpenAI Chat Completions, streaming, over loopback. It parses as little as it can:
it knows the turn from the number of tool results in the raw bytes of the request. For each request
it logs one JSON line: when the last byte of the request came, when the last byte of the answer was
sent (both CLOCK_MONOTONIC, so any process can compare them), the size of the request, and the
processor time that the client had used until then (`--pid-file` names the client; only on Linux).

Usage: python -m bench.mock_server --turns 50 --log FILE --port-file FILE
"""

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import BinaryIO, TypeAlias

Converse: TypeAlias = Callable[
    [asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]
]
MODEL = "mock-model"
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n"
)
WORDS = "I take the next step of the task now and look at what it prints. "


class Server:
    def __init__(self, turns: int, last: str, log: BinaryIO, client: Path) -> None:
        self.turns, self.last, self.log, self.client = turns, last, log, client

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while await self.answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client closed the connection, as each client does at its end
        finally:
            writer.close()

    async def answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        body = await whole_body(head, reader)
        came, computed = time.monotonic(), self.cpu_seconds()
        method, path = head.split(b" ", 2)[:2]
        if method != b"POST" or not path.endswith(b"/chat/completions"):
            writer.write(get_answer(path))
            await writer.drain()
            return True
        done = body.count(b'"tool_call_id"')
        events = script(done, self.turns, self.last)
        streaming = b'"stream":true' in body or b'"stream": true' in body
        writer.write(encode_stream(events) if streaming else encode_whole(events))
        await writer.drain()
        line = {
            **{"turn": done, "came": came, "went": time.monotonic()},
            **{"bytes": len(body), "computed": computed},
        }
        self.log.write(json.dumps(line).encode() + b"\n")
        self.log.flush()
        return True

    def cpu_seconds(self) -> float:
        """Return the processor time of the client, without its children; 0.0 if unknown."""
        if sys.platform != "linux" or not self.client.exists():
            return 0.0
        # The kernel's number for the CPU clock of another process (CPUCLOCK_SCHED).
        return time.clock_gettime((~int(self.client.read_text()) << 3) | 2)


async def whole_body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    fields = {
        name.strip().lower(): value.strip()
        for name, _, value in (row.partition(b":") for row in head.split(b"\r\n")[1:])
    }
    if b"chunked" in fields.get(b"transfer-encoding", b""):
        data = b""
        while size := int((await reader.readline()).split(b";")[0], 16):
            data += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return data
    return await reader.readexactly(int(fields.get(b"content-length", b"0")))


def get_answer(path: bytes) -> bytes:
    """Return the answer to a GET request, of /v1/models for example."""
    if path.endswith(b"/models"):
        return document(
            b"200 OK", {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
        )
    error = {"message": "there is no such page", "type": "not_found"}
    return document(b"404 Not Found", {"error": error})


def script(done: int, turns: int, last: str) -> list[dict]:
    """Return the stream events of the answer to a request that brings `done` results."""
    if done >= turns and not last:
        events = [{"content": piece} for piece in ("DO", "NE")]
        return [*(choice(e) for e in events), choice({}, "stop"), usage(done)]
    command = last if done >= turns else f"echo step-{done + 1}"
    arguments = json.dumps({"command": command})
    call = {"index": 0, "id": f"call_{done + 1}", "type": "function"}
    return [
        *(choice({"content": word + " "}) for word in WORDS.split()),
        choice({"tool_calls": [call | {"function": {"name": "bash", "arguments": ""}}]}),
        *(
            choice({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
            for piece in (arguments[:9], arguments[9:])
        ),
        choice({}, "tool_calls"),
        usage(done),
    ]


def choice(delta: dict, end: str | None = None) -> dict:
    return event([{"index": 0, "delta": delta, "finish_reason": end}], None)


def usage(done: int) -> dict:
    read = 100 + 40 * done
    return event(
        [], {"prompt_tokens": read, "completion_tokens": 30, "total_tokens": read + 30}
    )


def event(choices: list, used: dict | None) -> dict:
    return {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": choices,
        "usage": used,
    }


def encode_stream(events: list[dict]) -> bytes:
    data = [piece(b"data: " + json.dumps(event).encode() + b"\n\n") for event in events]
    return HEAD + b"".join(data) + piece(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def piece(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def encode_whole(events: list[dict]) -> bytes:
    """Return the answer with these events for a client that does not stream."""
    deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    message = {
        "role": "assistant",
        "content": "".join(d.get("content", "") for d in deltas),
    }
    if calls:
        arguments = "".join(call["function"]["arguments"] for call in calls)
        function = {"name": calls[0]["function"]["name"], "arguments": arguments}
        message["tool_calls"] = [
            {"id": calls[0]["id"], "type": "function", "function": function}
        ]
    end = "tool_calls" if calls else "stop"
    choices = [{"index": 0, "message": message, "finish_reason": end}]
    whole = {**events[-1], "object": "chat.completion", "choices": choices}
    return document(b"200 OK", whole)


def document(status: bytes, data: dict) -> bytes:
    body = json.dumps(data).encode()
    kind = b"Content-Type: application/json\r\nContent-Length: %d" % len(body)
    return b"HTTP/1.1 %s\r\n%s\r\n\r\n%s" % (status, kind, body)


async def main(turns: int, last: str, log: Path, port_file: Path, client: Path) -> None:
    with log.open("ab") as out:
        await serve(Server(turns, last, out, client).serve, port_file)


async def serve(converse: Converse, port_file: Path, limit: int = 1 << 20) -> None:
    """Serve on a free port of loopback until cancelled. Write the port to `port_file`."""
    server = await asyncio.start_server(converse, "127.0.0.1", 0, limit=limit)
    waiting = port_file.with_suffix(".new")
    waiting.write_text(str(server.sockets[0].getsockname()[1]))
    waiting.replace(port_file)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, required=True)
    parser.add_argument("--last", default="", help="end with this command, not with DONE")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--port-file", type=Path, required=True)
    parser.add_argument("--pid-file", type=Path, default=Path("nobody"))
    chosen = parser.parse_args()
    said = (chosen.turns, chosen.last, chosen.log, chosen.port_file, chosen.pid_file)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*said))
