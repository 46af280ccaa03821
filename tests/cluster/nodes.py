"""Workers and web nodes as processes, clients of their pages, and a judge who reads everything.

`test_nodes` uses them for a short story, `outages` for long runs with many ends of processes.
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
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread
from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from refold.cluster.database import Database
from refold.cluster.sessions import PostgreSQLSessions
from refold.journal.events.child_events import BackgroundStarted
from refold.journal.events.kinds import Answered, Ended, Entry, Said, Started
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
_KEY_PATTERN = re.compile(r"do (key-[0-9a-z-]+)")
_WORDS = " ".join(f"word{n}" for n in range(20))
_CHILDREN_SQL = (
    "select session, claim from refold.journal where starts_with(session, $1 || '/')"
)
_RESEND_SECONDS = 5.0
_LIMIT_SECONDS = 300.0  # a busy machine needs minutes for a turn
_YES_PREFIX = "yes "  # of the client key of an approval, before its call and its request


def model_of(effects: Path, seconds: float = 0.3) -> Any:
    """The answers of a model: to a message a command that has an effect outside, then words.

    It knows the conversation from the request alone, so any worker can ask it. By the last digit of a
    message, its command is passed to a subagent, must be approved, or runs in the background.
    """

    def answer_request(request: ReceivedRequest) -> Answer:
        body = json.loads(request.body)
        messages = [m for m in body["messages"] if m["role"] != "system"]
        texts = json.dumps([m for m in messages if m["role"] == "user"])
        key, is_child = _KEY_PATTERN.findall(texts)[-1], "subagent" in texts
        # Notes of refold may follow both: a call that was made is not made again.
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
            if key.endswith(("1", "6")) and not is_child:
                command = f"true approved; {command}"
            tool = "background_run" if key.endswith("4") and not is_child else "bash"
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
    """What the nodes share: the database by its URL, a model, and Temporal, NATS and the variables of a
    bucket if they have them.
    """

    url: str
    model: str
    temporal: str = ""
    nats: str = ""
    bucket: Mapping[str, str] = {}

    @property
    def variables(self) -> Mapping[str, str]:
        return {
            "REFOLD_SESSIONS": self.url, "REFOLD_TEMPORAL": self.temporal, "REFOLD_NATS": self.nats,
            "OPENAI_BASE_URL": f"{self.model}/v1", "OPENAI_API_KEY": "sk-nobody", **self.bucket,
        }  # fmt: skip


class Nodes:
    """The processes. Each worker has a directory and a home that the others cannot see."""

    def __init__(self, directory: Path, servers: Servers) -> None:
        self._directory, self._servers = directory, servers
        self.workers = dict[str, subprocess.Popen[str]]()
        self.web_nodes = dict[str, str]()  # addresses
        self._processes = list[subprocess.Popen[str]]()
        self._web = dict[str, subprocess.Popen[str]]()

    def start_worker(self, name: str) -> None:
        drain = "worker", "--drain-seconds", "5"
        self.workers[name] = self._start(name, *drain, before=self._hide_others(name))

    def _hide_others(self, name: str) -> Sequence[str]:
        """What starts a program that sees no directory of another worker, where root can."""
        if os.geteuid() != 0:
            return ()
        all_, own = self._directory / "workers", self._directory / "workers" / name
        script = (
            'mount --bind "$2" "$1.own" && mount -t tmpfs none "$1" && mkdir "$2" && '
            'mount --bind "$1.own" "$2" && cd "$2/work" && shift 2 && exec "$@"'
        )
        all_.with_name("workers.own").mkdir(exist_ok=True)
        return "unshare", "--mount", "sh", "-c", script, "sh", str(all_), str(own)

    def wait_for_worker(self, name: str) -> None:
        """Wait until it is ready."""
        log = self._directory / f"{name}.log"
        with anyio_deadline():
            while "works for" not in log.read_text() and self.workers[name].poll() is None:
                time.sleep(0.05)
        assert self.workers[name].poll() is None, log.read_text()

    def start_web_node(self, name: str, command: str = "web-node") -> None:
        process = self._start(name, command, "--port", "0", home="web")
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
        self, name: str, *arguments: str, home: str = "", before: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        own = self._directory / ("workers" if not home else "") / name
        work, where = own / "work", (self._directory / home if home else own) / "home"
        work.mkdir(parents=True, exist_ok=True)
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        (where / "config.toml").write_text(SETTINGS)
        environ = {**os.environ, "REFOLD_HOME": str(where), **self._servers.variables}
        with (self._directory / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                [*before, sys.executable, "-m", "refold", *arguments],
                cwd=work, env=environ, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        self._processes.append(process)
        return process


@contextmanager
def anyio_deadline(seconds: float = _LIMIT_SECONDS) -> Generator[None]:
    """Fail if the block, which does not await, is stuck: it polls."""
    until = time.monotonic() + seconds
    yield
    assert time.monotonic() < until


@asynccontextmanager
async def nodes(
    directory: Path, servers: Servers, *, workers: int, web_nodes: int
) -> AsyncGenerator[Nodes]:
    """Processes that have started, and that are stopped with the block."""
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
    """A client of one conversation: it connects again, to any web node, and sends again."""

    def __init__(self, started: Nodes, choose: random.Random) -> None:
        self._nodes, self._random = started, choose
        self.id = ""
        self.acknowledged = list[str]()
        self.approved = set[
            str
        ]()  # calls whose approvals were acknowledged, with the requests
        self._requests = dict[str, tuple[str, str]]()  # those that wait: id and hash
        self.received = list[str]()  # ids of documents, over all connections
        self._snapshot = ""
        self._last, self._asked, self._finished = "0", "", set[str]()

    async def begin(self) -> None:
        while not self.id:
            self.id = await to_thread.run_sync(self._ask_for_conversation)

    async def say(self, key: str) -> None:
        """Send a message until it is acknowledged, and follow until its turn has ended."""
        is_done = False
        with anyio.fail_after(_LIMIT_SECONDS):
            while not is_done:
                with suppress(OSError, WebSocketException, TimeoutError, EOFError):
                    is_done = await self._exchange(key)
                if not is_done:
                    await anyio.sleep(0.2)

    async def _exchange(self, key: str) -> bool:
        async with self._connect(f"?after={self._last}") as socket:
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
        """The ids of the documents since the last snapshot, as a new page gets them."""
        ids = list[str]()
        async with self._connect(f"?after={self._snapshot or 0}") as socket:
            while (document := json.loads(await socket.recv()))["type"] != "status":
                if id_ := document.get("id"):
                    ids.append(id_)
        return ids

    def _connect(self, query: str) -> connect:
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
            connection.request("POST", "/api/conversations", b"{}", headers)
            response = connection.getresponse()
            data = response.read()
            assert response.status == 201, data
            return json.loads(data)["id"]
        except OSError:
            time.sleep(0.2)
            return ""
        finally:
            connection.close()


class Verdict:
    """What the judge found, with numbers for a report."""

    def __init__(self) -> None:
        self.problems = list[str]()
        self.orders = self.calls = self.unknown = self.events = self.children = 0
        self.approvals = self.background = 0


async def judge(url: str, pages: Sequence[Page], effects: Path) -> Verdict:
    """Compare what clients were acknowledged with the journals and the world outside."""
    verdict = Verdict()
    database = Database(url)
    sessions = PostgreSQLSessions(database, Path("/nowhere"))
    done = Counter(effects.read_text().split() if effects.exists() else ())
    verdict.problems += [f"{key} was done {n} times" for key, n in done.items() if n > 1]
    for page in pages:
        damages = await to_thread.run_sync(lambda p=page: sessions.check(p.id).damages)
        verdict.problems += map(str, damages)
        entries, _ = await to_thread.run_sync(sessions.entries, page.id)
        _judge_orders(verdict, page, entries)
        _judge_calls(verdict, page.id, entries)
        for child, claim in await database.run(
            lambda db, p=page: db.fetch(_CHILDREN_SQL, p.id)
        ):
            entries, _ = await to_thread.run_sync(sessions.entries, child)
            _judge_calls(verdict, child, entries)
            verdict.children += 1
            if not claim:
                verdict.problems.append(f"{child} was run without a claim")
        whole = await page.read_again()
        whole = whole[: len(page.received)]  # it left before what came last
        if page.received != whole:
            missing = [id_ for id_ in whole if id_ not in page.received]
            twice = [id_ for id_, n in Counter(page.received).items() if n > 1]
            verdict.problems.append(f"{page.id}: missing {missing}, twice {twice}")
    await to_thread.run_sync(database.close)
    return verdict


def _judge_orders(verdict: Verdict, page: Page, entries: Sequence[Entry]) -> None:
    said = Counter(e.event.client_key for e in entries if isinstance(e.event, Said))
    for key in page.acknowledged:
        if said[key] != 1:
            verdict.problems.append(f"{page.id}: {key} is {said[key]} times in the journal")
    verdict.orders += len(page.acknowledged)
    answered = Counter(e.event.call_id for e in entries if isinstance(e.event, Answered))
    approved = Counter(approval.split()[0] for approval in page.approved)
    for call, n in approved.items():
        if answered[call] < n:
            verdict.problems.append(
                f"{page.id}: {call} was approved {n} times, and {answered[call]} recorded"
            )
    verdict.approvals += len(page.approved)


def _judge_calls(verdict: Verdict, session: str, entries: Sequence[Entry]) -> None:
    started, ended = Counter[str](), Counter[str]()
    epochs = [entry.epoch for entry in entries]
    if epochs != sorted(epochs):
        verdict.problems.append(f"{session}: epochs do not rise")
    for entry in entries:
        match entry.event:
            case BackgroundStarted():
                verdict.background += 1
            case Started(call_id):
                started[call_id] += 1
            case Ended(call_id, outcome):
                ended[call_id] += 1
                verdict.unknown += outcome == "unknown"
            case _:
                pass
    for call, n in started.items():
        if n != 1 or ended[call] != 1:
            verdict.problems.append(
                f"{session}: {call} began {n}, ended {ended[call]} times"
            )
    verdict.calls += len(started)
    verdict.events += len(entries)
