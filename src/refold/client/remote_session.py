"""A session that is open in another process of this machine, through its socket.

`attached` gives the same handle as any other: a `Session`, whose orders go over the socket
and whose state is followed in the journal. Turns run where the session is open; `step` waits
for them. Leaving it stops nothing. The other end is `session_socket`.

The engine here has the state of any other, folded from the lines that the writer appends;
whatever would record an event raises `BadInput`.
"""

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import anyio
import msgspec
from anyio.abc import SocketStream
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.client.dispatch import AlreadyAnswered
from refold.client.launch import Ask, Launch, OpenedSession, ResumeTarget
from refold.client.protocol import (
    ChangeTags,
    CompactConversation,
    Continue,
    Fork,
    Order,
    Rename,
    Rewind,
    SendMessage,
    SetAgent,
    ShellOutput,
)
from refold.client.session import Session, SwitchResult
from refold.client.session_socket import Hello, received, socket_path
from refold.client.workspace import SessionWorkspace
from refold.engine.world import World
from refold.errors import BadInput, Held, RefoldError, first
from refold.journal.events import codec
from refold.journal.events.kinds import Compacted, Entry
from refold.journal.state.fold import View, apply
from refold.journal.store import log_file
from refold.journal.store.port import Store
from refold.journal.store.reader import Reader
from refold.session.recorder import MakeEvents, Recorder
from refold.session.session import Session as Engine
from refold.session.session import SessionOptions
from refold.tools.contract import ImageData
from refold.values.messages import ToolCall
from refold.views.stream_json.documents import Error, ForkMade, OrderTaken
from refold.views.stream_json.encode import live_of
from refold.views.stream_json.live_documents import LiveDocument
from refold.views.stream_json.snapshot import Status

if TYPE_CHECKING:
    from refold.views.rewind_points import RewindReport, What

_LONGEST_LINE = 256 * 1024 * 1024  # bytes: a snapshot has the whole conversation
_GONE = (
    "the process in which this session was open has closed it: refold -r {id} resumes it"
)
_ALONE = "this session is open in another process: leave it, and start refold for another"
_LIVE = ("text_delta", "thinking_delta", "call_coming", "tool_progress", "retry", "within",
         "child_moved")  # fmt: skip
_ELSEWHERE = "this session is open in another process: do this there"


class FollowedJournal(Recorder):
    """Follows the journal in `path`. `ended` says why nothing more comes of it; or ""."""

    def __init__(self, store: Store, path: Path) -> None:
        super().__init__(store)
        self._path, self.ended = path / log_file.NAME, ""
        self._lines = Reader(self._path)

    async def open(self) -> View:
        return await self.follow()

    async def close(self) -> None:
        """The journal is its writer's."""

    async def append_if(
        self, make_events: MakeEvents, *, kept: bool = False, by: str = "agent"
    ) -> bool:
        raise BadInput(self.ended or _ELSEWHERE)

    async def follow(self) -> View:
        """Fold what is new in the journal, and publish it."""
        async with self._lock:
            after = self._head.seq
            lines = await anyio.to_thread.run_sync(self._lines.read, after)
            for entry, head in codec.decode(lines, self._head):
                self.view, self._head = apply(self.view, entry), head
                self.hub.publish(entry)
        self._wake()
        return self.view

    async def entries(self, after: int = 0) -> Sequence[Entry]:
        async with self._lock:
            read, since = Reader(self._path).read, max(after - 1, 0)
            lines = await anyio.to_thread.run_sync(read, since)
        return codec.decode_after(after, lines)

    async def wait_for_event(self, after: int) -> None:
        """Raises `BadInput` where nothing more can come."""
        while self.view.seq <= after:
            if self.ended:
                raise BadInput(self.ended)
            self._news = self._news or anyio.Event()
            await self._news.wait()

    def end(self, why: str) -> None:
        self.ended = self.ended or why
        self._wake()
        self.hub.close()

    def _wake(self) -> None:
        woken, self._news = self._news, None
        if woken:
            woken.set()


class FollowedEngine(Engine):
    """`made` has calls as the model made them, by their ids, where the journal masks them."""

    def __init__(self, journal: FollowedJournal, made: Mapping[str, ToolCall]) -> None:
        super().__init__(journal, _no_turns, SessionOptions())
        self.journal, self._made, self.cut_off = journal, made, False

    @property
    def running(self) -> bool:
        return bool(self.view.turn.seq) and not self.cut_off

    def as_made(self, call: ToolCall) -> ToolCall:
        return self._made.get(call.id, call)


def _no_turns(view: View) -> World:
    raise BadInput(_ELSEWHERE)


class _DocumentHead(Struct, frozen=True):
    """What is read of a document to know which it is, and whether it answers an order."""

    type: str
    seq: int = 0
    client_key: str = ""


class _Request(Struct, frozen=True):
    call_id: str
    tool: str = ""
    arguments: Raw = Raw(b"null")


class OwnerConnection:
    """The process that has the session open, and what it says."""

    def __init__(self, stream: SocketStream, journal: FollowedJournal) -> None:
        self._stream, self._journal = stream, journal
        self.made = dict[str, ToolCall]()  # calls that wait for an answer, unmasked
        self.engine = FollowedEngine(journal, self.made)
        self.copy = ""  # the newest fork
        self.model = ""  # of the next turn, where none was chosen
        self.joined = anyio.Event()
        self._answers = dict[str, Error | OrderTaken | None]()
        self._news, self._problem = anyio.Event(), ""

    async def order(self, order: Order) -> bool:
        """Send it, and wait until it is taken. Raises `BadInput` as the owner does."""
        if self._journal.ended:
            raise BadInput(self._journal.ended)
        key = order.client_key or os.urandom(8).hex()
        self._answers[key] = None
        data = msgspec.json.encode(replace(order, client_key=key))
        try:
            await self._stream.send(data + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise BadInput(_GONE.format(id=self.engine.view.session.id)) from error
        try:
            while (answer := self._answers[key]) is None:
                if self._journal.ended:
                    raise BadInput(self._journal.ended)
                await self._news.wait()
        finally:
            del self._answers[key]
        if isinstance(answer, Error):
            late = answer.kind == AlreadyAnswered.__name__
            raise AlreadyAnswered(answer.reason) if late else BadInput(answer.reason)
        return answer.changed

    def check(self) -> None:
        """Raises what went wrong at the owner, once."""
        problem, self._problem = self._problem, ""
        if problem:
            raise RefoldError(problem)

    async def follow(self, hello: Hello) -> None:
        """Hear what the owner says, to the end."""
        try:
            await self._stream.send(msgspec.json.encode(hello) + b"\n")
            async for line in received(self._stream.receive, _LONGEST_LINE):
                told = msgspec.json.decode(line, type=_DocumentHead)
                await self._on_line(line, told)
                self._tell()
                if told.type == "status":
                    self.joined.set()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            self._journal.end(_GONE.format(id=self.engine.view.session.id))
            self.joined.set()
            self._tell()

    async def _on_line(self, line: bytes, told: _DocumentHead) -> None:
        match told.type:
            case "recorded":
                await self._reach(told.seq)
            case "order_taken" | "error" if told.client_key in self._answers:
                await self._journal.follow()
                answer = msgspec.json.decode(line, type=Error | OrderTaken)
                self._answers[told.client_key] = answer
            case "error" if not told.seq:
                self._problem = msgspec.json.decode(line, type=Error).reason
            case "status":
                status = msgspec.json.decode(line, type=Status)
                self.engine.cut_off, self.model = status.cut_off, status.choices.model
            case "fork_made":
                self.copy = msgspec.json.decode(line, type=ForkMade).session_id
            case "tool_approval_request":
                asks = msgspec.json.decode(line, type=_Request)
                call = ToolCall(asks.call_id, asks.tool, asks.arguments)
                self.made |= {asks.call_id: call} if asks.tool else {}
            case kind if kind in _LIVE:
                live = msgspec.json.decode(line, type=LiveDocument)
                await self._reach(live.after)
                self._journal.hub.tell(live_of(live))
            case _:
                pass

    async def _reach(self, seq: int) -> None:
        if seq > self._journal.view.seq:
            await self._journal.follow()
            self.engine.cut_off = False  # something happens in it

    def _tell(self) -> None:
        told, self._news = self._news, anyio.Event()
        told.set()


class RemoteSession(Session):
    """`close`, `new` and `switch` would end the session for its owner: they do not."""

    def __init__(self, launch: Launch, owner: OwnerConnection) -> None:
        super().__init__(launch, OpenedSession(launch.app, owner.engine))
        self._owner, self._follows = owner, owner.engine.journal
        self._after = -1  # the seq behind which an order has something to come
        self._compacting, self.owns_turns = False, False

    @property
    def ended(self) -> str:
        return self._follows.ended

    @property
    def model(self) -> str:
        return self.view.session.model or self._owner.model

    @property
    def has_work(self) -> bool:
        return self.running or not self.idle

    @property
    def compacting(self) -> bool:
        return self._compacting

    @property
    def workspace(self) -> "SessionWorkspace":
        return _RemoteWorkspace(self._app, self._engine, self._owner)

    async def send(self, order: Order) -> bool:
        seq = self.view.seq
        taken = await self._owner.order(order)
        if taken and isinstance(order, Continue | CompactConversation):
            self._after = seq
        return taken

    async def say(
        self,
        text: str,
        *,
        when: Literal["now", "next"] = "now",
        client_key: str = "",
        images: Sequence[ImageData] = (),
        typed: str | None = None,
    ) -> bool:
        order = SendMessage(text, when, tuple(images), typed, client_key=client_key)
        return await self.send(order)

    async def step(self) -> bool:
        """Wait for the next event of a turn. False if none runs, or a person is asked."""
        self._owner.check()
        seq = self.view.seq
        if seq > self._after:
            if self.idle or (self.requests and self.view.turn.seq):
                return False
            self._after = -1
        await self.changed(after=seq)
        return True

    def forget_orders(self) -> None:
        """They are with the owner already."""

    async def compact(self, focus: str = "", *, prune: bool = False) -> bool:
        seq, turn = self.view.seq, self.view.turn.seq
        kind: Literal["prune", "full"] = "prune" if prune else "full"
        await self.send(CompactConversation(kind, focus))
        self._after = -1
        if turn:
            return True
        self._compacting = True
        try:
            async for entry in self.events(seq):
                if isinstance(entry.event, Compacted):
                    return True
        finally:
            self._compacting = False
        raise BadInput(self.ended)

    async def rename(self, name: str) -> bool:
        return await self.send(Rename(name))

    async def tag(self, changes: Sequence[str]) -> bool:
        return await self.send(ChangeTags(tuple(changes)))

    async def ran(self, command: str, output: str) -> bool:
        return await self.send(ShellOutput(command, output))

    async def fork(self, at: int | None = None) -> str:
        await self.send(Fork(at))
        return self._owner.copy

    async def set_agent(self, agent: str) -> bool:
        return await self.send(SetAgent(agent))

    async def close(self) -> None:
        """Nothing is open here."""

    async def new(self) -> Session:
        raise BadInput(_ALONE)

    async def switch(self, target: ResumeTarget, ask: Ask | None = None) -> SwitchResult:
        raise BadInput(_ALONE)

    async def set_directory(
        self, directory: str | Path = "", added: Sequence[str | Path] = ()
    ) -> Sequence[str]:
        raise BadInput("the terminal in which this session is open changes its directory")


class _RemoteWorkspace(SessionWorkspace):
    def __init__(self, app: Any, engine: Any, owner: OwnerConnection) -> None:
        super().__init__(app, engine)
        self._owner = owner

    async def rewind(
        self, seq: int, what: "What" = "both", *, force: bool = False
    ) -> "RewindReport":
        from refold.views.rewind_points import RewindReport

        preview = await self.preview(seq, what)
        await self._owner.order(Rewind(seq, what, force))
        return RewindReport(preview, undo=self._engine.view.seq)


@asynccontextmanager
async def attached(
    launch: Launch, id_: str, environ: Mapping[str, str] = os.environ
) -> AsyncGenerator[RemoteSession, None]:
    """The session with this whole id, which another process has open.

    Raises `Held` where no process can be joined there.
    """
    path = launch.app.home.path(id_)
    stream = await connected(path, environ)
    journal = FollowedJournal(launch.app.home.store(id_), path)
    try:
        async with stream, anyio.create_task_group() as group:
            owner = OwnerConnection(stream, journal)
            await journal.follow()
            group.start_soon(owner.follow, Hello(reads_journal=True))
            await owner.joined.wait()
            try:
                yield RemoteSession(launch, owner)
            finally:
                group.cancel_scope.cancel()
    except BaseExceptionGroup as group_of_errors:
        raise first(group_of_errors) from group_of_errors


async def connected(session: Path, environ: Mapping[str, str]) -> SocketStream:
    """A connection to the process that has the session in this directory open.

    Raises `Held` where there is none: it is not open, or not in a terminal.
    """
    try:
        return await anyio.connect_unix(socket_path(session, environ))
    except OSError as error:
        raise Held(f"no process can be joined that has {session.name} open") from error
