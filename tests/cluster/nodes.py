"""Starts workers and web nodes as processes, and has clients of their pages.

`test_nodes` uses them for a short story, `outages` for long runs in which many processes are killed;
`judge` then checks the result.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread
from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from refold.provider.script import Reply
from refold.server.access import load_access
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, Pause, ReceivedRequest

SETTINGS = """
memory = false
model = "openai-chat/m-1"

[sandbox]
profile = "off"

[permissions]
allow = ["bash", "background_run", "task"]
ask = ["bash(true *)"]
"""
KEPT_FILE = "kept.txt"  # in the workspace: a line for each command of the session itself
_KEY_PATTERN = re.compile(r"do (key-[0-9a-z-]+)")
_WORDS = " ".join(f"word{n}" for n in range(20))
_RESEND_SECONDS = 5.0
_LIMIT_SECONDS = 300.0  # a busy machine needs minutes for a turn
_YES_PREFIX = "yes "  # the client key of an approval is this, its call and its request


def model_of(effects: Path, seconds: float = 0.3) -> Any:
    """Return a model that answers a message by a command with an effect outside, then by words.

    The model knows the conversation from the request alone, so any worker can ask it. The last digit of
    a message says whether its command is passed to a subagent, must be approved, or runs in the
    background. Commands that must be approved, and those without any of this, also add a line to a file
    of the workspace and print the file.
    """

    def answer_request(request: ReceivedRequest) -> Answer:
        body = json.loads(request.body)
        messages = [m for m in body["messages"] if m["role"] != "system"]
        texts = json.dumps([m for m in messages if m["role"] == "user"])
        key, is_child = _KEY_PATTERN.findall(texts)[-1], "subagent" in texts
        # Notes of refold may follow the message and the call. A call is made only once.
        asked = max(
            n
            for n, m in enumerate(messages)
            if m["role"] == "user" and f"do {key}" in str(m)
        )
        if any(m["role"] == "tool" for m in messages[asked:]):
            reply = Reply(f"{key} is done. {_WORDS}")
        elif key.endswith(("2", "5", "8")) and not is_child:
            task = {"prompt": f"As a subagent, do {key}", "agent": "code"}
            reply = Reply(calls=(("task", json.dumps(task)),))
        else:
            command = f"echo {key} >> {effects}; sleep {seconds}"
            tool = "background_run" if key.endswith("4") and not is_child else "bash"
            if tool == "bash" and not is_child:
                command = f"echo {key} >> {KEPT_FILE}; cat {KEPT_FILE}; {command}"
            if key.endswith(("1", "6")) and not is_child:
                command = f"true approved; {command}"
            reply = Reply(calls=((tool, json.dumps({"command": command})),))
        whole = answer("openai-chat", reply)
        assert isinstance(whole.body, bytes)
        pieces = list[bytes | Pause]()
        for piece in whole.body.split(b"\n\n"):
            if piece:
                pieces += [piece + b"\n\n", Pause(0.01)]
        return Answer(tuple(pieces), headers=whole.headers)

    return answer_request


class Servers(Struct, frozen=True):
    """The servers and settings that all nodes share: addresses, and the variables of a bucket.

    An empty value means that the nodes do without this server.
    """

    url: str
    model: str
    temporal: str = ""
    nats: str = ""
    bucket: Mapping[str, str] = {}
    settings: str = SETTINGS
    collector: str = ""

    @property
    def variables(self) -> Mapping[str, str]:
        return {
            "REFOLD_SESSIONS": self.url, "REFOLD_TEMPORAL": self.temporal, "REFOLD_NATS": self.nats,
            "OPENAI_BASE_URL": f"{self.model}/v1", "OPENAI_API_KEY": "sk-nobody", **self.bucket,
            "REFOLD_OTEL__ENDPOINT": self.collector, "OTEL_METRIC_EXPORT_INTERVAL": "200",
        }  # fmt: skip


class Nodes:
    """The processes of a cluster.

    Each worker has a directory and a home that the other workers cannot see. All workers see their own
    at the same path, as on machines that are set up alike.
    """

    def __init__(self, directory: Path, servers: Servers) -> None:
        self._directory, self._servers = directory, servers
        self.workers = dict[str, subprocess.Popen[str]]()
        self.web_nodes = dict[str, str]()  # addresses
        self.variables: Mapping[
            str, str
        ] = {}  # further ones, of processes that start later
        self._processes = list[subprocess.Popen[str]]()
        self._web = dict[str, subprocess.Popen[str]]()

    def start_worker(self, name: str) -> None:
        own = self._directory / "workers" / name
        arguments = "worker", "--drain-seconds", "5"
        if os.geteuid() != 0:  # only root can hide the directories of other workers
            self.workers[name] = self._start(name, *arguments, own=own, home=own)
            return
        machine = self._directory / "machine"
        machine.mkdir(exist_ok=True)
        script = 'mount --bind "$2" "$3" && mount -t tmpfs none "$1" && cd "$3/work" && shift 3 && exec "$@"'
        places = map(str, (own.parent, own, machine))
        before = "unshare", "--mount", "sh", "-c", script, "sh", *places
        self.workers[name] = self._start(
            name, *arguments, own=own, home=machine, before=before
        )

    def wait_for_worker(self, name: str) -> None:
        """Wait until the worker is ready."""
        log = self._directory / f"{name}.log"
        with anyio_deadline():
            while "works for" not in log.read_text() and self.workers[name].poll() is None:
                time.sleep(0.05)
        assert self.workers[name].poll() is None, log.read_text()

    def log_lines(self) -> Sequence[str]:
        """Return the lines in the logs of workers, each once, with how often it occurs."""
        texts = (file.read_text() for file in self._directory.glob("worker-*.log"))
        lines = Counter(line for text in texts for line in text.splitlines())
        return [f"{n} times: {line[:300]}" for line, n in sorted(lines.items())]

    def start_web_node(self, name: str, command: str = "web-node") -> None:
        own, home = self._directory / name, self._directory / "web"
        process = self._start(name, command, "--port", "0", own=own, home=home)
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"http://([^/]+)/", line)
        assert match is not None, (self._directory / f"{name}.log").read_text()
        self.web_nodes[name], self._web[name] = match[1], process

    def kill_web_node(self, name: str) -> None:
        self.web_nodes.pop(name)
        self._web[name].kill()
        self._web[name].wait()

    @property
    def token(self) -> Mapping[str, str]:
        bearer = load_access(self._directory / "web" / "home" / "server.key").bearer
        return {"Authorization": f"Bearer {bearer}"}

    def stop(self) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _start(
        self, name: str, *arguments: str, own: Path, home: Path, before: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """Start a process with the directory `own`. `home` has its REFOLD_HOME, as it sees it."""
        work, real_home = own / "work", (own if before else home) / "home"
        work.mkdir(parents=True, exist_ok=True)
        real_home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (real_home / "config.toml").write_text(self._servers.settings)
        environ = {
            **os.environ, "REFOLD_HOME": str(home / "home"), **self._servers.variables,
            **self.variables,
        }  # fmt: skip
        with (self._directory / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                [*before, sys.executable, "-m", "refold", *arguments],
                cwd=work, env=environ, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        self._processes.append(process)
        return process


@contextmanager
def anyio_deadline(seconds: float = _LIMIT_SECONDS) -> Generator[None]:
    """Fail if the block, which polls and does not await, takes longer than this."""
    until = time.monotonic() + seconds
    yield
    assert time.monotonic() < until


@asynccontextmanager
async def nodes(
    directory: Path, servers: Servers, *, workers: int, web_nodes: int
) -> AsyncGenerator[Nodes]:
    """Start a cluster, and stop its processes at the end of the block."""
    started = Nodes(directory, servers)
    try:
        for n in range(workers):
            await to_thread.run_sync(started.start_worker, f"worker-{n}")
        for n in range(web_nodes):
            await to_thread.run_sync(started.start_web_node, f"web-{n}")
        for name in started.workers:
            await to_thread.run_sync(started.wait_for_worker, name)
        yield started
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(started.stop)


class Page:
    """A client of one conversation, which connects to any web node and sends again until it succeeds.

    `start` are the start values of the conversation, such as its workspace.
    """

    def __init__(
        self, started: Nodes, choose: random.Random, start: Mapping[str, object] = {}
    ) -> None:
        self._nodes, self._random, self._start = started, choose, start
        self.is_elsewhere = "workspace" in start
        self.id = ""
        self.acknowledged = list[str]()
        # The calls and requests whose approvals were acknowledged.
        self.approved = set[str]()
        self._requests = dict[str, tuple[str, str]]()  # waiting ones by call: id and hash
        self.received = list[str]()  # ids of documents, over all connections
        self._snapshot = ""
        self._last, self._asked, self._finished = "0", "", set[str]()

    async def begin(self) -> None:
        while not self.id:
            self.id = await to_thread.run_sync(self._ask_for_conversation)

    async def say(self, key: str, seconds: float = _LIMIT_SECONDS) -> None:
        """Send a message until it is acknowledged, and follow until its turn has ended."""
        is_done = False
        with anyio.fail_after(seconds):
            while not is_done:
                with suppress(OSError, WebSocketException, TimeoutError, EOFError):
                    is_done = await self._exchange(key)
                if not is_done:
                    await anyio.sleep(0.2)

    async def _exchange(self, key: str) -> bool:
        async with self.connect(f"?after={self._last}") as socket:
            if key not in self.acknowledged:
                order = {"type": "user_message", "text": f"do {key}", "client_key": key}
                await socket.send(json.dumps(order))
            for call in tuple(self._requests):
                await self._approve(socket, call)
            while True:
                with anyio.fail_after(_RESEND_SECONDS):
                    document = json.loads(await socket.recv())
                if id_ := document.get("id"):
                    if document["type"] == "snapshot":  # lines were lost with the database
                        self.received.clear()
                        self._snapshot = id_
                    else:
                        self.received.append(id_)
                    self._last = id_
                self._note(document, key)
                if document["type"] == "tool_approval_request":
                    self._requests[document["call_id"]] = document["id"], document["hash"]
                    await self._approve(socket, document["call_id"])
                if key in self.acknowledged and key in self._finished:
                    return True

    async def _approve(self, socket: ClientConnection, call: str) -> None:
        request, hash_ = self._requests[call]  # another worker may ask again
        order = {
            "type": "tool_approval_response", "call_id": call, "hash": hash_,
            "allowed": True, "client_key": f"{_YES_PREFIX}{call} {request}",
        }  # fmt: skip
        await socket.send(json.dumps(order))

    def _note(self, document: dict[str, Any], key: str) -> None:
        match document:
            case {"type": "user_message", "text": str(text)}:
                self._asked = text.removeprefix("do ")
            case {"type": "result"}:
                self._finished.add(self._asked)
            case {"type": "tool_approval_result", "call_id": str(call)}:
                self._requests.pop(call, None)
            case {"type": "order_taken", "client_key": str(taken)} if taken.startswith(
                _YES_PREFIX
            ):
                self.approved.add(taken.removeprefix(_YES_PREFIX))
            case {"type": "order_taken", "client_key": str(taken)}:
                self.acknowledged.append(taken)
            case {"type": "error", "client_key": str(failed)} if failed == key:
                raise AssertionError(document)
            case _:
                pass

    async def read_again(self) -> list[str]:
        """Return the ids of the documents since the last snapshot, as a new page gets them."""
        ids = list[str]()
        async with self.connect(f"?after={self._snapshot or 0}") as socket:
            while (document := json.loads(await socket.recv()))["type"] != "status":
                if id_ := document.get("id"):
                    ids.append(id_)
        return ids

    def connect(self, query: str) -> connect:
        address = self._random.choice(sorted(self._nodes.web_nodes.values()))
        url = f"ws://{address}/api/conversations/{self.id}/ws{query}"
        return connect(
            url, additional_headers=self._nodes.token, open_timeout=5, close_timeout=1
        )

    def _ask_for_conversation(self) -> str:
        address = self._random.choice(sorted(self._nodes.web_nodes.values()))
        connection = HTTPConnection(address, timeout=_LIMIT_SECONDS)
        headers = {**self._nodes.token, "Content-Type": "application/json"}
        try:
            body = json.dumps(self._start)
            connection.request("POST", "/api/conversations", body, headers)
            response = connection.getresponse()
            data = response.read()
            if self.is_elsewhere and b"cannot be reached" in data:
                return ""  # the connection to its workspace was cut
            assert response.status == 201, data
            return json.loads(data)["id"]
        except (OSError, HTTPException):  # the web node was killed
            time.sleep(0.2)
            return ""
        finally:
            connection.close()
