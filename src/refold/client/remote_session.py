"""Joins a session that is open in another process of this machine, through its socket.

`attach` returns the usual `Session`: its orders go over the socket, and its state is folded
from the journal. Turns run in the process that has the session open; `step` waits for them.
Leaving the session stops nothing. The other end of the socket is `session_socket`.

The engine in this process has the usual state, folded from the lines that the writer
appends (`followed_journal`). Every method that would record an event raises `BadInput`.
"""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import msgspec
from anyio.abc import SocketAttribute
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.app.app import App
from refold.client.followed_journal import OPEN_ELSEWHERE, FollowedJournal
from refold.client.launch import Launch, OpenedSession
from refold.client.order_sink import OrderResult, error_of_order
from refold.client.protocol import (
    Cancel,
    CompactConversation,
    Continue,
    Fork,
    Interrupt,
    Order,
    Rewind,
    UploadFile,
)
from refold.client.session import Session
from refold.client.session_socket import (
    MAX_ORDER_BYTES,
    Hello,
    LineConnection,
    receive_lines,
    socket_path,
)
from refold.client.workspace import SessionWorkspace
from refold.engine.world import World
from refold.errors import BadInput, Held, RefoldError, first
from refold.journal.events.kinds import Compacted, Entry
from refold.journal.state.fold import View
from refold.session.pending_requests import RequestElsewhere, requests
from refold.session.session import Session as Engine
from refold.session.session import SessionOptions
from refold.values.display import RunConditions
from refold.values.messages import ToolCall
from refold.values.modes import Mode
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

_MAX_LINE_BYTES = 256 * 1024 * 1024  # a snapshot has the whole conversation in one line
_SESSION_GONE = (
    "the process in which this session was open has closed it: refold -r {id} resumes it"
)
LIVE_TYPES = ("text_delta", "thinking_delta", "call_coming", "tool_progress", "retry", "within",
         "child_moved", "ports")  # fmt: skip
_TOO_LARGE = (
    "this session is open in another process, which takes orders and files of at most "
    f"{MAX_ORDER_BYTES // 1024**2} MB, in base64: send it there"
)
_EXPECTS_NOTHING = -1  # below the number of every event


class FollowedEngine(Engine):
    """The engine of a session whose turns run in another process.

    Both mappings have the calls that wait for an answer, by id: `whole_calls` with the
    secrets that the journal masks, and `requests` with what the other process would offer
    to the user: rules, conditions and an easier mode.
    """

    def __init__(
        self,
        journal: FollowedJournal,
        whole_calls: Mapping[str, ToolCall],
        requests: Mapping[str, RequestElsewhere],
    ) -> None:
        super().__init__(journal, _refuse_turn, SessionOptions())
        self.journal = journal
        self._whole_calls = whole_calls
        self._requests = requests
        self.cut_off = False  # whether no process runs the open turn

    @property
    def running(self) -> bool:
        return bool(self.view.turn.seq) and not self.cut_off

    def unmasked_call(self, call: ToolCall) -> ToolCall:
        return self._whole_calls.get(call.id, call)

    def request_elsewhere(self, id_: str) -> RequestElsewhere | None:
        return self._requests.get(id_)


def _refuse_turn(view: View) -> World:
    raise BadInput(OPEN_ELSEWHERE)


class _DocumentHead(Struct, frozen=True):
    """The fields that say the kind of a document, and to which order the document replies."""

    type: str
    seq: int = 0
    client_key: str = ""


class _Request(Struct, frozen=True):
    call_id: str
    tool: str = ""
    arguments: Raw = Raw(b"null")
    rules: tuple[str, ...] = ()
    rule_set: tuple[str, ...] = ()
    easier_mode: Mode | None = None
    conditions: RunConditions | None = None


class RemoteSink:
    """The order sink of a session that runs in another process.

    A subclass implements `_exchange`, which sends an order to that process. It calls
    `receive` with each document that the process sends.
    """

    owns_turns = False
    sees_files = True

    def __init__(self, journal: FollowedJournal, app: App) -> None:
        self._journal = journal
        self._app = app
        # Calls that wait for an answer, with their secrets.
        self._whole_calls = dict[str, ToolCall]()
        self._requests = dict[str, RequestElsewhere]()  # by the ids of their calls
        self.engine = FollowedEngine(journal, self._whole_calls, self._requests)
        self.model = ""
        # The number of the last event before an order that begins work in the other process.
        # Until an event follows, that work is awaited.
        self._expects_after = _EXPECTS_NOTHING
        self._compaction: anyio.CancelScope | None = None  # while a compaction runs there
        self._news = anyio.Event()
        self._problem = ""  # the error that the other process has reported last

    @property
    def end_reason(self) -> str:
        return self._journal.ended

    @property
    def rejoin_command(self) -> str:
        return f"refold attach {self.engine.view.session.id}"

    @property
    def waiting(self) -> bool:
        return self._expects_after >= self._journal.view.seq

    async def send(self, order: Order) -> OrderResult:
        """Send an order to the other process, and return its result.

        The result of a rewind has a report: a preview that this process makes before the
        order is sent.
        """
        seq_before = self._journal.view.seq
        rewound: RewindPreview | None = None
        if isinstance(order, Rewind):
            rewound = await self._preview_rewind(order)
        result = await self._exchange(order)
        if result.changed and isinstance(order, Continue | CompactConversation):
            self._expects_after = seq_before
        stops = result.changed and isinstance(order, Interrupt | Cancel)
        if stops and self._compaction is not None:
            self._compaction.cancel()
        if rewound is not None:
            undo = self._journal.view.seq if result.changed else 0  # 0: nothing changed
            return OrderResult(result.changed, rewound=RewindReport(rewound, undo=undo))
        return result

    async def _preview_rewind(self, order: Rewind) -> RewindPreview:
        if self.sees_files:  # they are on this machine
            workspace = SessionWorkspace(self._app, self.engine, self.send)
            return await workspace.preview(order.to, order.what)
        from refold.session.rewind import plan_rewind  # imported late, as in `workspace`

        return RewindPreview(plan_rewind(self._journal.view, order.to, order.what))

    async def _exchange(self, order: Order) -> OrderResult:
        """Send an order to the other process, and wait until it is taken.

        Raises `BadInput` if the order is refused.
        """
        raise NotImplementedError

    async def step(self) -> bool:
        """Wait for the next event of a turn.

        Return False if no turn runs, or if the turn waits for the user. Raises `BadInput` if
        the other process has reported a problem, or if the session has ended.
        """
        self._raise_problem()
        view = self._journal.view
        is_in_turn = bool(view.turn.seq)
        waits_for_user = is_in_turn and bool(requests(view))
        if not self.waiting and (self.engine.idle or waits_for_user):
            return False
        self._expects_after = _EXPECTS_NOTHING
        await self._journal.wait_for_event(after=view.seq)
        return True

    async def compact(self, order: CompactConversation) -> bool:
        """Have the other process compact the conversation, and wait for the result.

        Return False if the compaction was stopped.
        """
        compacted = anyio.Event()

        def on_entry(entry: Entry) -> None:
            if isinstance(entry.event, Compacted):
                compacted.set()

        unsubscribe = self._journal.hub.subscribe(on_entry)
        self.engine.beside = True
        try:
            with anyio.CancelScope() as self._compaction:  # `send` cancels it
                await self._exchange(order)
                while not compacted.is_set():
                    await self._wait_for_document()
        finally:
            self._compaction = None
            self.engine.beside = False
            unsubscribe()
        return compacted.is_set()

    def forget(self) -> None:
        """Do nothing, because orders are sent to the other process at once."""

    async def receive(self, line: bytes, kind: str) -> None:
        """Handle a document of the other process."""
        match kind:
            case "recorded":
                recorded = msgspec.json.decode(line, type=EventRecorded)
                await self._follow_to(recorded.seq)
            case "error":
                self._problem = msgspec.json.decode(line, type=Error).reason
            case "status":
                status = msgspec.json.decode(line, type=Status)
                # Events before a status may have had no documents.
                await self._follow_to(status.seq)
                self.engine.cut_off = status.cut_off
                self.model = status.choices.model
            case "tool_approval_request":
                self._store_request(msgspec.json.decode(line, type=_Request))
            case kind if kind in LIVE_TYPES:
                live = msgspec.json.decode(line, type=LiveDocument)
                await self._follow_to(live.after)
                self._journal.hub.publish_live(to_live(live))
            case _:
                pass

    async def _wait_for_document(self) -> None:
        """Wait for a document of the other process. Raises the error that the process has
        reported.
        """
        self._raise_problem()
        if self.end_reason:
            raise BadInput(self.end_reason)
        await self._news.wait()

    def _raise_problem(self) -> None:
        """Raise the error that the other process has reported since the last call."""
        problem, self._problem = self._problem, ""
        if problem:
            raise RefoldError(problem)

    def _store_request(self, request: "_Request") -> None:
        """Store the parts of a request that the journal lacks: secrets, and possible
        answers.
        """
        if request.tool:
            call = ToolCall(request.call_id, request.tool, request.arguments)
            self._whole_calls[request.call_id] = call
        rule_sets = list[tuple[str, ...]]((rule,) for rule in request.rules)
        if request.rule_set:
            rule_sets.append(request.rule_set)
        self._requests[request.call_id] = RequestElsewhere(
            request.conditions, tuple(rule_sets), request.easier_mode
        )

    async def _follow_to(self, seq: int) -> None:
        """Read the journal up to event `seq`, unless it was read that far already."""
        if seq > self._journal.view.seq:
            await self._journal.follow(seq)
            self.engine.cut_off = False  # an event shows that the turn continues

    def _wake(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()


class ConversingSink(RemoteSink):
    """Sends orders over a connection that also delivers documents."""

    def __init__(self, journal: FollowedJournal, app: App) -> None:
        super().__init__(journal, app)
        self.joined = anyio.Event()
        self._copy = ""  # the id of the newest fork
        # The answers to orders, by client key. None: the answer has not come yet.
        self._answers = dict[str, Error | OrderTaken | None]()

    async def _exchange(self, order: Order) -> OrderResult:
        if self.end_reason:
            raise BadInput(self.end_reason)
        key = order.client_key or os.urandom(8).hex()
        order = replace(order, client_key=key)
        data = msgspec.json.encode(order)
        if len(data) > MAX_ORDER_BYTES:
            raise BadInput(_TOO_LARGE)
        self._answers[key] = None  # not answered yet
        try:
            await self._send_order(order, data)
            while (answer := self._answers[key]) is None:
                if self.end_reason:
                    raise BadInput(self.end_reason)
                await self._wait_for_answer(key)
        finally:
            del self._answers[key]
        if isinstance(answer, Error):
            raise error_of_order(answer.kind, answer.reason, BadInput)
        copy = self._copy if isinstance(order, Fork) else ""  # the id of the copy
        uploaded = self._stored_path(order) if isinstance(order, UploadFile) else ""
        return OrderResult(answer.changed, copy=copy, uploaded=uploaded)

    async def _send_order(self, order: Order, data: bytes) -> None:
        raise NotImplementedError

    async def _wait_for_answer(self, key: str) -> None:
        """Wait for the next document, which may be the answer to the order with this key."""
        await self._news.wait()

    def _stored_path(self, order: UploadFile) -> str:
        """Return the path of the uploaded file, in the directory that the order names.

        With `renames`, the journal says which name the file got.
        """
        directory, _, name = order.path.rpartition("/")
        uploads = self._journal.view.checkpoints.uploads  # the newest is the last
        if order.renames and uploads:
            name = os.path.basename(uploads[-1].path)
        return os.path.join(directory, name)

    async def _take_document(self, line: bytes) -> None:
        """Handle a document, and wake what waits for one.

        With the first status document, the session is joined.
        """
        head = msgspec.json.decode(line, type=_DocumentHead)
        await self._on_document(line, head)
        self._wake()
        if head.type == "status":
            self.joined.set()

    async def _on_document(self, line: bytes, head: _DocumentHead) -> None:
        match head.type:
            case "order_taken" | "error" if head.client_key in self._answers:
                answer = msgspec.json.decode(line, type=Error | OrderTaken)
                self._answers[head.client_key] = answer
            case "error" if head.seq:
                pass  # documents of events need no handling: the journal has them
            case "fork_made":
                self._copy = msgspec.json.decode(line, type=ForkMade).session_id
            case kind:
                await self.receive(line, kind)


class SocketSink(ConversingSink):
    """Sends orders over the socket of the other process."""

    def __init__(
        self, connection: LineConnection, journal: FollowedJournal, app: App
    ) -> None:
        super().__init__(journal, app)
        self._connection = connection
        self._sending = anyio.Lock()  # one order after the other

    async def follow(self, hello: Hello) -> None:
        """Send `hello`, and handle the documents of the other process until it closes the
        connection.
        """
        try:
            await self._send(msgspec.json.encode(hello))
            async for line in receive_lines(self._connection.receive, _MAX_LINE_BYTES):
                await self._take_document(line)
        except OSError:
            pass  # a lost connection is the same as a closed one
        finally:
            self._journal.end(_SESSION_GONE.format(id=self.engine.view.session.id))
            self.joined.set()
            self._wake()

    async def _send_order(self, order: Order, data: bytes) -> None:
        try:
            await self._send(data)
        except OSError as error:
            raise BadInput(_SESSION_GONE.format(id=self.engine.view.session.id)) from error

    async def _send(self, document: bytes) -> None:
        async with self._sending:
            await self._connection.send(document + b"\n")


@asynccontextmanager
async def attach(
    launch: Launch, id_: str, environ: Mapping[str, str] = os.environ
) -> AsyncGenerator[Session, None]:
    """Join the session with this full id, which another process has open.

    Yield its handle. Raises `Held` if that process cannot be joined.
    """
    path = launch.app.home.path(id_)
    connection = await connect(path, environ)
    journal = FollowedJournal(launch.app.home.store(id_))
    try:
        with closing(connection):
            async with anyio.create_task_group() as group:
                sink = SocketSink(connection, journal, launch.app)
                await journal.follow()
                group.start_soon(sink.follow, Hello(reads_journal=True))
                await sink.joined.wait()
                try:
                    yield Session(
                        launch, OpenedSession(launch.app, sink.engine), orders=sink
                    )
                finally:
                    group.cancel_scope.cancel()
    except BaseExceptionGroup as group_of_errors:
        raise first(group_of_errors) from group_of_errors


async def connect(session: Path, environ: Mapping[str, str]) -> LineConnection:
    """Connect to the process that has the session in the directory `session` open.

    Raises `Held` if no process has it open, or if the process has no socket.
    """
    try:
        stream = await anyio.connect_unix(socket_path(session, environ))
    except OSError as error:
        raise Held(f"no process can be joined that has {session.name} open") from error
    return LineConnection(stream.extra(SocketAttribute.raw_socket))
