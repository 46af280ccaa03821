"""Measures the server: start, memory with idle conversations, delay of frames under load.

`python -m bench.server` starts `refold serve` with a scripted model. A token is one letter, which
the model writes at a fixed time. Its delay is the time from then until a client has the frame with
it, so letters that waited for the end of their frame are late, too. The delay of a client's quickest
frame counts as 0. Clients and server are on this machine, so the figures are valid only if nothing
else runs: the load is printed with them. With `--peers`, start and memory of `opencode serve` are measured in the same
way, if scripts/peers could get it.
"""

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec
from websockets.asyncio.client import ClientConnection, connect

from refold.app.model_connections import NO_BACKGROUND
from refold.server.access import load_access

EVERY = 0.02  # seconds between two tokens: 50 a second
WORDS = 150  # of an answer
IDLE = (100, 500)  # conversations that are open and idle
OPENCODE = Path(".peers/opencode/node_modules")


def main() -> None:
    parser = ArgumentParser(prog="python -m bench.server", description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--peers", action="store_true", help="beside opencode serve, too")
    args = parser.parse_args()
    print(
        f"load of this machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    for line in report(args.streams, args.clients):
        print(line, flush=True)
    if args.peers:
        print(measure_opencode(), flush=True)


class Serving:
    def __init__(self, directory: Path, words: int) -> None:
        script = directory / "answers.jsonl"
        text = self.text = " ".join(f"w{n}" for n in range(words))
        script.write_text(json.dumps({"text": text, "pace": EVERY}) + "\n", "utf-8")
        home = directory / "home"
        start = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "refold", "serve", "--port", "0", "--script", str(script)],
            # No process may still write to the directory when it is removed.
            cwd=directory, env={**os.environ, "REFOLD_HOME": str(home), NO_BACKGROUND: "1"},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        match = re.search(r"http://([^/]+)/", self.process.stdout.readline())
        assert match is not None
        self.start, self.netloc = time.perf_counter() - start, match[1]
        self.headers = {
            "Authorization": f"Bearer {load_access(home / 'server.key').bearer}"
        }

    def begin(self) -> str:
        connection = http.client.HTTPConnection(self.netloc, timeout=60)
        headers = {**self.headers, "Content-Type": "application/json"}
        connection.request("POST", "/api/conversations", b"{}", headers)
        data = json.loads(connection.getresponse().read())
        connection.close()
        return data["id"]

    def follow(self, id_: str) -> connect:
        url = f"ws://{self.netloc}/api/conversations/{id_}/ws"
        return connect(url, additional_headers=self.headers, open_timeout=60)

    @property
    def megabytes(self) -> float:
        return resident(self.process.pid)

    @property
    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text("ascii").split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """Return the resident size of a process in megabytes."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@contextmanager
def serve(words: int = 3) -> Generator[Serving]:
    with tempfile.TemporaryDirectory() as directory:
        result = Serving(Path(directory), words)
        try:
            yield result
        finally:
            result.process.terminate()
            result.process.communicate()


def report(streams: int, clients: int) -> Iterator[str]:
    with serve() as server:
        yield f"start to listening: {server.start:.2f} s"
        sizes, result = [f"0: {server.megabytes:.0f}"], 0
        for wanted in IDLE:
            while result < wanted:
                server.begin()
                result += 1
            sizes.append(f"{wanted}: {server.megabytes:.0f}")
        yield f"MB with open idle conversations: {', '.join(sizes)} (target: 500: < 300)"
        used = anyio.run(_measure_crowd, server, clients)
        yield f"{clients} connections to one conversation: {used:.0f} MB in all"
    with serve(WORDS) as server:
        ids = [server.begin() for _ in range(streams)]
        before = server.cpu
        start = time.perf_counter()
        delays = sorted(anyio.run(_measure_streams, server, ids))
        used = server.cpu - before
        share = used / (time.perf_counter() - start)
        half, most = delays[len(delays) // 2], delays[int(len(delays) * 0.99)]
        tokens = streams * len(server.text)
        yield (
            f"{streams} conversations, {1 / EVERY:.0f} tokens/s each: delay p50 {half:.0f} ms, "
            f"p99 {most:.0f} ms (target: < 100); {used:.1f} s of CPU, {share:.0%} of one core, "
            f"{used / tokens * 1e6:.0f} µs a token (target: < {1e6 * EVERY / streams:.0f})"
        )


def measure_opencode() -> str:
    """Measure start and memory of `opencode serve`, with as many idle sessions as refold."""
    paths = sorted(
        OPENCODE.glob("opencode-linux-*/bin/opencode"), key=lambda p: len(str(p))
    )
    if not paths:
        return "opencode serve: not measured, scripts/peers has not got it"
    with tempfile.TemporaryDirectory() as directory:
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": directory,
            **dict.fromkeys(_OFFLINE, "1"),
        }
        starts = list[float]()
        for last in (False, False, True):  # the first start makes a database
            start = time.perf_counter()
            process = subprocess.Popen(
                [paths[0].resolve(), "serve", "--port", "0", "--hostname", "127.0.0.1"],
                cwd=directory, env=environ, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            try:
                assert process.stdout is not None
                lines = (re.search(r"http://([\w.:]+)", line) for line in process.stdout)
                address = next(item[1] for item in lines if item)
                starts.append(time.perf_counter() - start)
                sizes = _idle_sessions(address, process.pid) if last else []
            finally:
                process.kill()
                process.communicate()
    return (
        f"opencode serve: start to listening {min(starts[1:]):.2f} s (first: {starts[0]:.2f} s); "
        f"MB with idle sessions: {', '.join(sizes)}"
    )


_OFFLINE = ("OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH",
            "OPENCODE_DISABLE_LSP_DOWNLOAD")  # fmt: skip


def _idle_sessions(address: str, pid: int) -> list[str]:
    sizes, result = [f"0: {resident(pid):.0f}"], 0
    for wanted in IDLE:
        while result < wanted:
            connection = http.client.HTTPConnection(address, timeout=60)
            connection.request(
                "POST", "/session", b"{}", {"Content-Type": "application/json"}
            )
            connection.getresponse().read()
            connection.close()
            result += 1
        sizes.append(f"{wanted}: {resident(pid):.0f}")
    return sizes


async def _measure_crowd(server: Serving, clients: int) -> float:
    id_ = server.begin()
    complete, ended = anyio.Event(), anyio.Event()
    there, used = list[ClientConnection](), 0.0

    async def client() -> None:
        async with server.follow(id_) as socket:
            await socket.recv()
            there.append(socket)
            if len(there) == clients:
                complete.set()
            await ended.wait()

    async with anyio.create_task_group() as group:
        for at in range(clients):
            group.start_soon(client)
            if at % 50 == 49:
                await anyio.sleep(0.2)
        await complete.wait()
        used = server.megabytes
        ended.set()
    return used


class _Frame(msgspec.Struct):
    type: str
    text: str = ""
    offset: int = 0


async def _measure_streams(server: Serving, ids: Sequence[str]) -> list[float]:
    """Return, for each token, how many milliseconds after the model wrote it it comes."""
    numbers = list[float]()

    async def one(id_: str, wait: float) -> None:
        await anyio.sleep(wait)
        async with server.follow(id_) as socket:
            await socket.send('{"type": "user_message", "text": "Go."}')
            came = list[
                float
            ]()  # when each token came, minus when it is due after the first
            while True:
                frame = msgspec.json.decode(await socket.recv(), type=_Frame)
                if frame.type == "text_delta":
                    now = time.perf_counter()
                    last = frame.offset + len(frame.text)
                    came += (now - EVERY * n for n in range(frame.offset, last))
                elif frame.type == "result":
                    break
        numbers.extend((number - min(came)) * 1000 for number in came)

    async with anyio.create_task_group() as group:
        for n, id_ in enumerate(ids):
            group.start_soon(one, id_, n * 0.02)
    return numbers


if __name__ == "__main__":
    main()
