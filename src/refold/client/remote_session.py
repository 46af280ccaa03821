"""A session that is open in another process of this machine, through its socket.

`attach` gives the same `Session` as any other: its orders go over the socket, and its state
is followed in the journal. Turns run where the session is open; `step` waits for them.
Leaving it stops nothing. The other end is `session_socket`.

The engine here has the state of any other, folded from the lines that the writer appends;
whatever would record an event raises `BadInput`.
"""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path

import anyio
import msgspec
from anyio.abc import SocketStream
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.app.app import App
from refold.client.launch import Launch, OpenedSession
from refold.client.order_sink import AlreadyAnswered, OrderResult
from refold.client.protocol import (
    Cancel,
    CompactConversation,
    Continue,
    Fork,
    Interrupt,
    Order,
    Rewind,
)
from refold.client.session import Session
from refold.client.session_socket import Hello, receive_lines, socket_path
from refold.client.workspace import SessionWorkspace
from refold.engine.world import World
from refold.errors import BadInput, Held, RefoldError, first
from refold.journal.events import codec
from refold.journal.events.kinds import Compacted, Entry
from refold.journal.state.fold import View, apply
from refold.journal.store.port import Store
from refold.session.pending_requests import requests
from refold.session.recorder import MakeEvents, Recorder
from refold.session.session import Session as Engine
from refold.session.session import SessionOptions
from refold.values.messages import ToolCall
from refold.views.rewind_points import RewindPreview, RewindReport
from refold.views.stream_json.documents import (
    Error,
    EventRecorded,
    ForkMade,
    OrderTaken,
)
from refold.views.stream_json.encode_live import to_live
from refold.views.stream_json.live_documents import LiveDocument
from refold.views.stream_json.snapshot import Status

_MAX_LINE_BYTES = 256 * 1024 * 1024  # bytes: a snapshot has the whole conversation
_SESSION_GONE = (
    "the process in which this session was open has closed it: refold -r {id} resumes it"
)
LIVE_TYPES = ("text_delta", "thinking_delta", "call_coming", "tool_progress", "retry", "within",
         "child_moved", "ports")  # fmt: skip
_OPEN_ELSEWHERE = "this session is open in another process: do this there"


class FollowedJournal(Recorder):
    """Follows the journal in `store`. `ended` is the reason why it stopped, or ""."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.ended = ""

    async def open(self) -> View:
        return await self.follow()

    async def close(self) -> None:
        """Do nothing: the journal belongs to the process that writes it."""

    async def append_if(
        self, make_events: MakeEvents, *, kept: bool = False, author: str = "agent"
    ) -> bool:
        raise BadInput(self.ended or _OPEN_ELSEWHERE)

    async def follow(self, up_to: float = inf) -> View:
        """Fold new entries of the journal, up to event `up_to`, and publish them."""
        async with self._lock:
            lines = await self._store.read(self._head.seq)
            for entry, head in codec.decode(lines, self._head):
                if entry.seq > up_to:
                    break
                self.view, self._head = apply(self.view, entry), head
                self.hub.publish(entry)
        self._wake()
        return self.view

    async def wait_for_event(self, after: int) -> None:
        """Raises `BadInput` if no more events can come."""
        while self.view.seq <= after:
            if self.ended:
                raise BadInput(self.ended)
            self._news = self._news or anyio.Event()
            await self._news.wait()

    def end(self, reason: str) -> None:
        self.ended = self.ended or reason
        self._wake()
        self.hub.close()

    def _wake(self) -> None:
        woken, self._news = self._news, None
        if woken:
            woken.set()


class FollowedEngine(Engine):
    """An engine without turns. `whole_calls` maps ids to calls that the journal masks."""

    def __init__(
        self, journal: FollowedJournal, whole_calls: Mapping[str, ToolCall]
    ) -> None:
        super().__init__(journal, _refuse_turn, SessionOptions())
        self.journal, self._made, self.cut_off = journal, whole_calls, False

    @property
    def running(self) -> bool:
        return bool(self.view.turn.seq) and not self.cut_off

    def unmasked_call(self, call: ToolCall) -> ToolCall:
        return self._made.get(call.id, call)


def _refuse_turn(view: View) -> World:
    raise BadInput(_OPEN_ELSEWHERE)


class _DocumentHead(Struct, frozen=True):
    """The fields with the kind of a document, and the order that it answers."""

    type: str
    seq: int = 0
    client_key: str = ""


class _Request(Struct, frozen=True):
    call_id: str
    tool: str = ""
    arguments: Raw = Raw(b"null")


class RemoteSink:
    """The order sink of a session that runs in another process: `_exchange` takes an order there.

    `receive` takes the documents of that process.
    """

    owns_turns = False

    def __init__(self, journal: FollowedJournal, app: App) -> None:
        self._journal, self._app = journal, app
        self._made = dict[str, ToolCall]()  # calls that wait for an answer, unmasked
        self.engine = FollowedEngine(journal, self._made)
        self.model = ""
        self._after = -1  # the seq behind which an order has something to come
        self._compaction: anyio.CancelScope | None = None  # while one runs there
        self._news, self._problem = anyio.Event(), ""

    @property
    def end_reason(self) -> str:
        return self._journal.ended

    @property
    def waiting(self) -> bool:
        return self._after >= self._journal.view.seq

    async def send(self, order: Order) -> OrderResult:
        before = self._journal.view
        rewound: RewindPreview | None = None
        if isinstance(order, Rewind):
            workspace = SessionWorkspace(self._app, self.engine, self.send)
            rewound = await workspace.preview(order.to, order.what)
        result = await self._exchange(order)
        if result.changed and isinstance(order, Continue | CompactConversation):
            self._after = before.seq
        stops = result.changed and isinstance(order, Interrupt | Cancel)
        if stops and self._compaction is not None:
            self._compaction.cancel()
        if rewound is not None:
            undo = self._journal.view.seq if result.changed else 0
            return OrderResult(result.changed, rewound=RewindReport(rewound, undo=undo))
        return result

    async def _exchange(self, order: Order) -> OrderResult:
        """Send an order, and wait until it is taken. Raises `BadInput` if it is refused."""
        raise NotImplementedError

    async def step(self) -> bool:
        """Wait for the next event of a turn."""
        self._check()
        view = self._journal.view
        asks = bool(requests(view)) and bool(view.turn.seq)
        if not self.waiting and (self.engine.idle or asks):
            return False
        self._after = -1
        await self._journal.wait_for_event(after=view.seq)
        return True

    async def compact(self, order: CompactConversation) -> bool:
        compacted = anyio.Event()

        def on_entry(entry: Entry) -> None:
            if isinstance(entry.event, Compacted):
                compacted.set()

        forget, self.engine.beside = self._journal.hub.subscribe(on_entry), True
        try:
            with anyio.CancelScope() as self._compaction:
                await self._exchange(order)
                while not compacted.is_set():
                    await self._wait_for_document()
        finally:
            self._compaction, self.engine.beside = None, False
            forget()
        return compacted.is_set()

    def forget(self) -> None:
        """Do nothing: orders were sent to the other process already."""

    async def receive(self, line: bytes, kind: str) -> None:
        """Take a document of the other process."""
        match kind:
            case "recorded":
                recorded = msgspec.json.decode(line, type=EventRecorded)
                await self._follow_to(recorded.seq)
            case "error":
                self._problem = msgspec.json.decode(line, type=Error).reason
            case "status":
                status = msgspec.json.decode(line, type=Status)
                self.engine.cut_off, self.model = status.cut_off, status.choices.model
            case "tool_approval_request":
                asks = msgspec.json.decode(line, type=_Request)
                call = ToolCall(asks.call_id, asks.tool, asks.arguments)
                self._made |= {asks.call_id: call} if asks.tool else {}
            case kind if kind in LIVE_TYPES:
                live = msgspec.json.decode(line, type=LiveDocument)
                await self._follow_to(live.after)
                self._journal.hub.publish_live(to_live(live))
            case _:
                pass

    async def _wait_for_document(self) -> None:
        """Wait for a document of the other process. Raises its error, if it reported one."""
        self._check()
        if self.end_reason:
            raise BadInput(self.end_reason)
        await self._news.wait()

    def _check(self) -> None:
        """Raise an error of the other process, once."""
        problem, self._problem = self._problem, ""
        if problem:
            raise RefoldError(problem)

    async def _follow_to(self, seq: int) -> None:
        if seq > self._journal.view.seq:
            await self._journal.follow(seq)
            self.engine.cut_off = False  # something happens in it

    def _wake(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()


class SocketSink(RemoteSink):
    """Sends orders over the socket of the other process."""

    def __init__(self, stream: SocketStream, journal: FollowedJournal, app: App) -> None:
        super().__init__(journal, app)
        self._stream, self.joined = stream, anyio.Event()
        self._copy = ""  # the newest fork
        self._answers = dict[str, Error | OrderTaken | None]()

    async def follow(self, hello: Hello) -> None:
        """Receive the documents of the other process until it ends."""
        try:
            await self._stream.send(msgspec.json.encode(hello) + b"\n")
            async for line in receive_lines(self._stream.receive, _MAX_LINE_BYTES):
                head = msgspec.json.decode(line, type=_DocumentHead)
                await self._on_line(line, head)
                self._wake()
                if head.type == "status":
                    self.joined.set()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            self._journal.end(_SESSION_GONE.format(id=self.engine.view.session.id))
            self.joined.set()
            self._wake()

    async def _exchange(self, order: Order) -> OrderResult:
        if self.end_reason:
            raise BadInput(self.end_reason)
        key = order.client_key or os.urandom(8).hex()
        self._answers[key] = None
        data = msgspec.json.encode(replace(order, client_key=key))
        try:
            await self._stream.send(data + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise BadInput(_SESSION_GONE.format(id=self.engine.view.session.id)) from error
        try:
            while (answer := self._answers[key]) is None:
                if self.end_reason:
                    raise BadInput(self.end_reason)
                await self._news.wait()
        finally:
            del self._answers[key]
        if isinstance(answer, Error):
            late = answer.kind == AlreadyAnswered.__name__
            raise AlreadyAnswered(answer.reason) if late else BadInput(answer.reason)
        copy = self._copy if isinstance(order, Fork) else ""
        return OrderResult(answer.changed, copy=copy)

    async def _on_line(self, line: bytes, head: _DocumentHead) -> None:
        match head.type:
            case "order_taken" | "error" if head.client_key in self._answers:
                answer = msgspec.json.decode(line, type=Error | OrderTaken)
                self._answers[head.client_key] = answer
            case "error" if head.seq:
                pass  # the document of an event
            case "fork_made":
                self._copy = msgspec.json.decode(line, type=ForkMade).session_id
            case kind:
                await self.receive(line, kind)


@asynccontextmanager
async def attach(
    launch: Launch, id_: str, environ: Mapping[str, str] = os.environ
) -> AsyncGenerator[Session, None]:
    """Join the session with this full id, which another process has open.

    Raises `Held` if no process can be joined.
    """
    path = launch.app.home.path(id_)
    stream = await connect(path, environ)
    journal = FollowedJournal(launch.app.home.store(id_))
    try:
        async with stream, anyio.create_task_group() as group:
            sink = SocketSink(stream, journal, launch.app)
            await journal.follow()
            group.start_soon(sink.follow, Hello(reads_journal=True))
            await sink.joined.wait()
            try:
                yield Session(launch, OpenedSession(launch.app, sink.engine), orders=sink)
            finally:
                group.cancel_scope.cancel()
    except BaseExceptionGroup as group_of_errors:
        raise first(group_of_errors) from group_of_errors


async def connect(session: Path, environ: Mapping[str, str]) -> SocketStream:
    """A connection to the process that has the session in this directory open.

    Raises `Held` if there is none: it is not open, or not in a terminal.
    """
    try:
        return await anyio.connect_unix(socket_path(session, environ))
    except OSError as error:
        raise Held(f"no process can be joined that has {session.name} open") from error
