"""A terminal joins a session through the address of a server, with a token alone.

`tests/cluster/test_attach_by_address.py` does the same with web nodes and workers as processes.
"""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import convert

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.client.launch import Launch
from refold.client.service.joined_session import ServiceSink, attach_through_address
from refold.client.service.service_client import ServiceClient, parse_service_url
from refold.client.session import Session
from refold.client.types import Entry, Permission
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import paths
from refold.errors import BadInput, Disconnected
from refold.journal.events.kinds import Said
from refold.journal.journal_directory import JournalDirectory
from refold.provider.port import Delta, Request
from refold.testing.providers import ScriptedProvider
from refold.values.display import RunConditions
from refold.values.live import TextCame
from tests.client.test_joined_sessions import TOUCH, HandleContract
from tests.server.serving import Client, open_server, read_until

pytestmark = pytest.mark.anyio
_ENDS = (
    anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, anyio.IncompleteRead,
    OSError,
)  # fmt: skip


def laptop(directory: Path, flags: Mapping[str, object] = {}) -> Launch:
    """A start on another machine: it has none of the sessions, and settings of its own."""
    directory.mkdir(exist_ok=True)
    places = paths(os.environ)
    loaded = load_folder_settings(directory, places, os.environ, flags, trust=False)
    sessions = JournalDirectory(directory / "no-sessions")
    options = LaunchOptions(directory=directory, sessions=sessions)
    return Launch(App(loaded.settings, places, os.environ, options))


@asynccontextmanager
async def join(
    directory: Path, url: str, token: str, id_: str, flags: Mapping[str, object] = {}
) -> AsyncGenerator[tuple[Session, ServiceSink]]:
    launch = laptop(directory / "laptop", flags)
    client = ServiceClient(parse_service_url(url).place, token, os.environ)
    try:
        async with attach_through_address(launch, client, id_, "ann") as joined:
            yield joined
    finally:
        with anyio.CancelScope(shield=True):
            await launch.aclose()
            await client.aclose()


class TestASessionOfAServer(HandleContract):
    @pytest.fixture
    def open_session(self, tmp_path: Path) -> Any:
        @asynccontextmanager
        async def open_at_address(*replies: Any) -> AsyncGenerator[Session, None]:
            scripted = [reply for reply in replies if isinstance(reply, ScriptedProvider)]
            provider = scripted[0] if scripted else ScriptedProvider(*replies)
            flags = {"permissions.ask": ("bash(touch *)",)}
            server = open_server(tmp_path, provider=lambda: provider, flags=flags)
            async with server as client:
                id_ = await client.begin()
                token = client.access.bearer
                async with join(tmp_path, client.address, token, id_) as (session, _):
                    yield session

        return open_at_address


class Cable:
    """Passes connections on to a server, as a reverse proxy does, until it is cut."""

    def __init__(self, netloc: str) -> None:
        self._netloc, self._connections = netloc, list[SocketStream]()
        self.name, self.is_cut = "", False

    async def cut(self) -> None:
        """Break all connections, and pass on no other one until `mend`."""
        self.is_cut = True
        while self._connections:
            await anyio.aclose_forcefully(self._connections.pop())

    def mend(self) -> None:
        self.is_cut = False

    async def serve(self, near: SocketStream) -> None:
        """Pass on one request under the server's own name, or one WebSocket."""
        host, _, port = self._netloc.rpartition(":")
        async with near:
            with suppress(*_ENDS):
                request = BufferedByteReceiveStream(near)
                head = await request.receive_until(b"\r\n\r\n", 65536)
                head = head.replace(self.name.encode(), self._netloc.encode())
                if b"Upgrade: websocket" not in head:
                    head += b"\r\nConnection: close"
                if self.is_cut:
                    return
                far = await anyio.connect_tcp(host, int(port))
                self._connections += (near, far)
                await far.send(head + b"\r\n\r\n")
                async with far, anyio.create_task_group() as group:
                    group.start_soon(_copy, request, far)
                    await _copy(far, near)
                    group.cancel_scope.cancel()


async def _copy(source: BufferedByteReceiveStream | SocketStream, to: SocketStream) -> None:
    with suppress(*_ENDS):
        while True:
            await to.send(await source.receive())


@asynccontextmanager
async def cable_to(netloc: str) -> AsyncGenerator[Cable]:
    cable = Cable(netloc)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        cable.name = f"127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        group.start_soon(listener.serve, cable.serve)
        yield cable
        group.cancel_scope.cancel()


class Halting(ScriptedProvider):
    """Sends its first words, and the rest once it may continue."""

    def __init__(self, *replies: Any) -> None:
        super().__init__(*replies)
        self.began, self.may_continue = anyio.Event(), anyio.Event()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        async for delta in super().stream(request):
            yield delta
            self.began.set()
            await self.may_continue.wait()


async def wait_for_end(session: Session) -> str:
    """Wait until the session gets no more events, and return the reason."""
    with suppress(BadInput):
        while True:
            await session.wait_for_change(after=session.view.seq)
    return session.end_reason


class Joined:
    """A session that is joined over a cable. `reports` are what the terminal shows of outages."""

    def __init__(
        self, session: Session, sink: ServiceSink, cable: Cable, server: Client
    ) -> None:
        self.session, self.cable, self._server = session, cable, server
        self.reports = list[str]()
        sink.report = self.reports.append

    def revoke(self) -> None:
        """Let the server accept another token only."""
        self._server.access.bearer = "another"

    async def wait_for_reports(self, number: int) -> None:
        while len(self.reports) < number:
            await anyio.sleep(0.005)


@asynccontextmanager
async def join_over_cable(
    directory: Path, provider: ScriptedProvider
) -> AsyncGenerator[Joined]:
    server = open_server(directory, provider=lambda: provider)
    async with server as client, cable_to(client.netloc) as cable:
        id_, token = await client.begin(), client.access.bearer
        async with join(directory, f"http://{cable.name}", token, id_) as (session, sink):
            yield Joined(session, sink, cable, client)


async def test_after_an_outage_no_event_and_no_text_is_missing_or_double(
    tmp_path: Path,
) -> None:
    provider = Halting("One two three four.")
    async with join_over_cable(tmp_path, provider) as joined:
        session = joined.session
        watch = session.watch()
        await session.say("Count.")
        await provider.began.wait()
        while session.view.seq < 5 or not watch.waiting:
            await anyio.sleep(0.005)
        await joined.cable.cut()
        await joined.wait_for_reports(1)
        joined.cable.mend()
        await joined.wait_for_reports(2)
        provider.may_continue.set()
        await session.settle()
        watch.close()
        items = [frame.item async for frame in watch.frames()]

    seqs = [item.seq for item in items if isinstance(item, Entry)]
    text = "".join(item.text for item in items if isinstance(item, TextCame))
    origin = f"http://{joined.cable.name}"
    assert session.view.conversation.messages[-1].message.text == "One two three four."
    assert seqs == list(range(seqs[0], session.view.seq + 1))
    assert "One two three four.".startswith(text)
    assert text
    assert "what runs there continues" in joined.reports[0]
    assert joined.reports[1] == f"connected to {origin} again"


async def test_a_question_shows_the_rules_and_the_sandbox_of_the_server(
    tmp_path: Path,
) -> None:
    flags = {"sandbox.profile": "off"}
    own_flags = {"permissions.deny": ("bash",)}
    server = open_server(
        tmp_path, provider=lambda: ScriptedProvider([TOUCH], "Done."), flags=flags
    )
    async with server as client:
        id_, token = await client.begin(), client.access.bearer
        joined = join(tmp_path, client.address, token, id_, own_flags)
        async with joined as (session, _), client.follow(id_) as page:
            await session.say("Go.")
            await session.settle()
            shown = (await read_until(page, "tool_approval_request"))[-1]
            (request,) = session.requests
            assert isinstance(request, Permission)
            rule_sets = session.permissions.rule_sets(request)
            conditions = session.permissions.run_conditions(request.call.call)

    assert conditions == convert(shown["conditions"], RunConditions)
    assert conditions == RunConditions(sandboxed=False)
    assert [list(rules) for rules in rule_sets] == [[rule] for rule in shown["rules"]]
    assert rule_sets


async def test_a_message_that_is_sent_during_an_outage_arrives_once(tmp_path: Path) -> None:
    async with join_over_cable(tmp_path, ScriptedProvider("Hi.")) as joined:
        session = joined.session
        await joined.cable.cut()
        await joined.wait_for_reports(1)
        async with anyio.create_task_group() as group:
            group.start_soon(session.say, "Hello.")
            await anyio.wait_all_tasks_blocked()
            joined.cable.mend()
        await session.settle()
        entries = await session.reports.entries()

    said = [entry.event.text for entry in entries if isinstance(entry.event, Said)]
    assert said == ["Hello."]


async def test_a_revoked_token_ends_the_joined_session_with_one_reason(
    tmp_path: Path,
) -> None:
    async with join_over_cable(tmp_path, ScriptedProvider("Hi.")) as joined:
        await joined.cable.cut()
        joined.revoke()
        joined.cable.mend()
        reason = await wait_for_end(joined.session)

    assert "does not accept this token: it was revoked" in reason


@asynccontextmanager
async def answering(
    status: str, body: str, health: str = ""
) -> AsyncGenerator[ServiceClient]:
    """Yield a client of a server that gives each request this answer; `health` is for that path."""

    async def serve(stream: SocketStream) -> None:
        async with stream:
            with suppress(*_ENDS):
                request = BufferedByteReceiveStream(stream)
                head = await request.receive_until(b"\r\n\r\n", 65536)
                is_health = health and head.startswith(b"GET /api/health")
                line, text = ("200 OK", health) if is_health else (status, body)
                answer = f"HTTP/1.1 {line}\r\nContent-Length: {len(text)}\r\n\r\n{text}"
                await stream.send(answer.encode())

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        port = listener.extra(SocketAttribute.local_port)
        place = parse_service_url(f"http://127.0.0.1:{port}").place
        client = ServiceClient(place, "refold_x", os.environ)
        yield client
        await client.aclose()
        group.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        ("200 OK", "<html>", BadInput, "not the address of a refold service: it answered with '<html>'"),
        ("302 Found", "", BadInput, "not the address of a refold service: it answered with status 302"),
        ("401 Unauthorized", '{"kind": "Rejected", "reason": "no"}', BadInput, r"set REFOLD_TOKEN \(no\)"),
        ("421 Misdirected", '{"kind": "Rejected", "reason": "another name"}', BadInput, ": another name"),
        ("503 Unavailable", "", Disconnected, "cannot be reached now: status 503"),
    ],
)  # fmt: skip
async def test_an_answer_that_is_not_of_a_service_becomes_one_error(
    status: str, body: str, kind: type[Exception], message: str
) -> None:
    async with answering(status, body) as client:
        with pytest.raises(kind, match=message):
            await client.check()


async def test_a_service_that_is_too_old_to_be_joined_is_named_with_its_version() -> None:
    missing = '{"kind": "HTTPException", "reason": "Not Found"}'
    async with answering("404 Not Found", missing, '{"version": "0.2.0"}') as client:
        with pytest.raises(
            BadInput, match=r"is refold 0\.2\.0, whose sessions cannot be joined"
        ):
            await client.lines("x", 0)


async def test_a_session_is_found_by_its_name_or_id_and_an_unknown_name_is_refused(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, "Hi.") as server:
        id_ = await server.begin()
        await server.ask("PATCH", f"/api/conversations/{id_}", {"name": "roof"})
        place = parse_service_url(server.address).place
        client = ServiceClient(place, server.access.bearer, os.environ)
        by_name = await client.find_session("roof")
        by_prefix = await client.find_session(id_[:-2])
        with pytest.raises(BadInput, match="has no session 'door' for you"):
            await client.find_session("door")
        await client.aclose()

    assert (by_name, by_prefix) == (id_, id_)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://refold.example.org/", "has no TLS, so others could read your token"),
        ("http://10.0.0.7:3500/?c=x", "has no TLS"),
        ("https://ann:secret@refold.example.org/", "holds a user name"),
        ("https://", "is not a web address"),
    ],
)
def test_an_unsafe_or_invalid_service_address_is_refused(url: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_service_url(url)


def test_the_address_of_a_page_names_its_session() -> None:
    address = parse_service_url("https://refold.example.org/dev?c=20261128-abc")

    assert str(address.place) == "https://refold.example.org/"
    assert address.session == "20261128-abc"


@pytest.mark.parametrize(
    "url", ["http://localhost:3500", "http://[::1]:3500/", "http://127.0.0.2"]
)
def test_an_address_of_this_machine_needs_no_tls(url: str) -> None:
    assert parse_service_url(url).session == ""
