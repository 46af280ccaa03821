"""Measures what each wire costs: CPU per event of a stream, and the start to a first request.

The streams are those of the scripted servers. refold turns their bytes into deltas and into an
answer, without the network. The least that any client does is to split lines and decode each
event; this is measured with the standard library and with msgspec.

Usage: python -m bench.wires [-n 10] [--events 20000]
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median

import msgspec

from bench import runs, table
from refold.engine.answer_draft import Draft
from refold.provider.error_mapping import Peer
from refold.provider.port import Provider, Request
from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text

WIRES: tuple[WireName, ...] = (
    "anthropic",
    "openai-responses",
    "openai-chat",
    "gemini",
    "ollama",
)
CHUNK = 4096  # bytes that arrive at once
MODELS = {
    "anthropic": ("anthropic/m-1", "ANTHROPIC", ""),
    "openai-responses": ("openai/m-1", "OPENAI", "/v1"),
    "openai-chat": ("openai-chat/m-1", "OPENAI", "/v1"),
    "gemini": ("gemini/m-1", "GEMINI", ""),
    "ollama": ("ollama/m-1", "OLLAMA", ""),
}
WORDS = "The next piece of the answer says a little more about it. "
ASKED = Request(Log([StoredMessage(1, Message("user", (Text("?"),)))]), model="m-1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=10, help="runs of each (10)")
    parser.add_argument("--events", type=int, default=20_000, help="of one stream (20000)")
    chosen = parser.parse_args()
    report(chosen.n, chosen.events)


def report(times: int, events: int) -> None:
    report_decoding(events, times)
    report_starts(times)


def report_decoding(events: int, times: int) -> None:
    rows = []
    for wire in WIRES:
        body, count = stream(wire, events)
        took = time_in_turn(
            [
                decode_with_json(body),
                decode_with_msgspec(body),
                decode_with_wire(wire, body),
            ],
            times,
        )
        with_json, with_msgspec, ours = (seconds / count for seconds in took)
        rows.append(
            (
                wire,
                micro(with_json),
                micro(with_msgspec),
                micro(ours),
                table.times(ours, with_json),
                table.times(ours, with_msgspec),
            )
        )
    table.show(
        f"CPU per event, {events} pieces in chunks of {CHUNK} bytes, best of {times}",
        ["json", "msgspec", "refold", "to json", "to msgspec"],
        rows,
    )


def stream(wire: WireName, events: int) -> tuple[bytes, int]:
    """Return a streamed answer of about `events` pieces, and the number of its events."""
    text = (WORDS * (3 * events // len(WORDS) + 1))[: 3 * events]
    body = answer(wire, Reply(text)).body
    assert isinstance(body, bytes)
    return body, body.count(b"\n{" if wire == "ollama" else b"data: {")


def time_in_turn(works: Sequence[Callable[[], None]], times: int) -> list[float]:
    """Run the works in turn, so that other load falls on all. Return the least CPU seconds."""
    best = [float("inf")] * len(works)
    for _ in range(times):
        for n, work in enumerate(works):
            began = time.process_time()
            work()
            best[n] = min(best[n], time.process_time() - began)
    return best


def decode_with_json(body: bytes) -> Callable[[], None]:
    return lambda: split(body, json.loads)


def decode_with_msgspec(body: bytes) -> Callable[[], None]:
    return lambda: split(body, msgspec.json.Decoder().decode)


def split(body: bytes, decode: Callable[[bytes], object]) -> None:
    """Split the chunks into lines, and decode the event in each line."""
    rest = b""
    for at in range(0, len(body), CHUNK):
        *lines, rest = (rest + body[at : at + CHUNK]).split(b"\n")
        for line in lines:
            if line.startswith(b"data: {"):
                decode(line[6:])
            elif line.startswith(b"{"):
                decode(line)


def decode_with_wire(wire: WireName, body: bytes) -> Callable[[], None]:
    recorded = Recorded([body[at : at + CHUNK] for at in range(0, len(body), CHUNK)])
    provider = provider_of(wire, recorded)
    asyncio.run(read_answer(provider))  # some providers look up the model once

    def scenario() -> None:
        asyncio.run(read_answer(provider))

    return scenario


async def read_answer(provider: Provider) -> None:
    draft = Draft(1, "m-1", lambda model, usage: None)
    async for delta in provider.stream(ASKED):
        draft.add(delta)
    if draft.to_answer() is None:
        raise RuntimeError("the recorded stream is no answer")


def provider_of(wire: WireName, http: "Recorded") -> Provider:
    match wire:
        case "anthropic":
            from refold.provider.anthropic import Anthropic as Wire
        case "openai-responses":
            from refold.provider.responses import OpenAIResponses as Wire
        case "openai-chat":
            from refold.provider.openai_chat import OpenAIChat as Wire
        case "gemini":
            from refold.provider.gemini import Gemini as Wire
        case "ollama":
            from refold.provider.ollama import Ollama as Wire
    return Wire(http)


class Recorded:
    """Replaces the HTTP client, and has the answer already."""

    peer = Peer("nobody", "http://127.0.0.1:1")

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self.chunks = chunks

    @asynccontextmanager
    async def post(
        self, path: str, body: bytes, *, model: str = ""
    ) -> AsyncGenerator["Coming", None]:
        yield Coming(self.chunks if not path.endswith("/api/show") else [SHOWN])


class Coming:
    def __init__(self, chunks: Sequence[bytes]) -> None:
        self.chunks = iter(chunks)

    async def read(self) -> bytes:
        return next(self.chunks, b"")

    def mark_complete(self) -> None:
        """Do nothing: there is no connection to release."""


SHOWN = b'{"model_info":{"llama.context_length":4096}}'


def report_starts(times: int) -> None:
    """Report the time from the command line to the first request, for every wire."""
    took: dict[str, list[float]] = {}
    for _ in range(times):
        for name, agent in agent_starters():
            with tempfile.TemporaryDirectory(prefix="refold-bench-") as directory:
                here = Path(directory)
                with serve(here) as port:
                    run = runs.watch(agent(port), 0, port, here, 60)
            took.setdefault(name, []).append(run.first_request)
    floor = took["floor"]
    table.show(
        f"start to first request, {times} runs each, in turn (median; best in brackets)",
        ["median", "", "ratio", "over the floor"],
        [
            (
                name,
                table.ms(median(seconds)),
                f"({table.ms(min(seconds))})",
                table.times(median(seconds), median(floor)),
                table.ms(median(seconds) - median(floor)),
            )
            for name, seconds in took.items()
        ],
    )


def agent_starters() -> Iterator[tuple[str, Callable[[int], runs.Agent]]]:
    floor = runs.agents()[0]
    yield floor.name, lambda port: floor
    refold = Path(sys.executable).parent / "refold"
    for wire in WIRES:
        yield wire, starter(str(refold), *MODELS[wire])


def starter(refold: str, model: str, vendor: str, path: str) -> Callable[[int], runs.Agent]:
    url = {"GEMINI": "GOOGLE_GEMINI_BASE_URL", "OLLAMA": "OLLAMA_HOST"}
    command = (refold, "-p", "{prompt}", "-m", model, "--max-turns", "{steps}")

    def agent(port: int) -> runs.Agent:
        address = (url.get(vendor, f"{vendor}_BASE_URL"), f"http://127.0.0.1:{port}{path}")
        return runs.Agent(model, command, (address, (f"{vendor}_API_KEY", "sk-nobody")))

    return agent


@contextmanager
def serve(directory: Path) -> Iterator[int]:
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.wires_server", str(directory)], cwd=runs.ROOT
    )
    try:
        while not (directory / "port").exists():
            if server.poll() is not None:
                raise RuntimeError("the server of the wires did not start")
            time.sleep(0.005)
        yield int((directory / "port").read_text())
    finally:
        server.terminate()
        server.wait()


def micro(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} µs"


if __name__ == "__main__":
    main()
