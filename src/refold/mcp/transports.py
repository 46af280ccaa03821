"""How messages travel between refold and one server: as lines of a program, or over HTTP.

A program runs in the sandbox like any command, with a socket as its input and output; its
stderr goes to the log. An endless line, or too much output that is not a message, ends the
connection. The SDK has the transport over HTTP, and `sse_transport` is the older one.
`connections` decides when to connect.
"""

import json
import re
import shlex
import socket
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import httpx2
import mcp_types
from anyio.abc import SocketStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from msgspec.structs import replace
from pydantic import ValidationError

from refold.errors import ToolFailed, first
from refold.mcp.failure_lines import failure_line
from refold.mcp.http_transport import JudgedTransport, http_client
from refold.mcp.message_limits import INVALID_ANSWER, limit_message, to_failure
from refold.mcp.server_paths import PreparedServer
from refold.mcp.servers import ServerConfig
from refold.place.port import CommandExtras, Commands, Finished
from refold.tools.contract import Reply
from refold.values.display import HostAttempt
from refold.values.hosts import attempt_remarks, only_hosts
from refold.values.log_level import Level
from refold.values.namespaces import NAMESPACES_REFUSED, reports_no_namespaces
from refold.values.printable_names import escape_name
from refold.values.text import escape_marks
from refold.values.tools import Confinement

MAX_LINE_BYTES = 16 * 1024 * 1024  # bytes of one message
_MAX_GARBAGE_LINES = 100  # lines that are no message, before a server is given up
_READ_BYTES = 256 * 1024
# Half of a character, as JSON escapes it.
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")
# How errors of the SDK about an answer over HTTP begin, before many lines of its parser.
_PARSE_ERRORS = ("Failed to parse JSON response: ", "Failed to parse SSE message: ")
_LAST_CHARS = 4_000  # of its output that are searched for why it ended
_RECENT_SECONDS, _MAX_RECENT = 5.0, 500  # output, in lines, that may say why it ended
_END_SECONDS = 2.0  # seconds for a program to end when its input is closed

Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception],
    MemoryObjectSendStream[SessionMessage],
]


class ConnectionEnd:
    """The state of a connection: whether its lists have changed, or it has ended."""

    def __init__(self) -> None:
        self.why, self.ended, self.changes = "", False, 0
        self.for_user = False  # only the user can fix what ended it
        self.renewed = False  # it was closed to connect again at once
        self.news, self.listed = anyio.Event(), anyio.Event()
        self.listed.set()

    def end(self, reason: str) -> None:
        """End the connection. The first reason counts; it may quote the server."""
        self.why, self.ended = self.why or escape_marks(reason), True
        self.news.set()
        self.listed.set()

    def stop(self, reason: str) -> None:
        """End the connection without another try: only the user can fix it."""
        self.for_user = True
        self.end(reason)

    def renew(self) -> None:
        """End the connection, and connect again at once."""
        self.renewed = True
        self.end("it is connected again")

    def mark_changed(self) -> None:
        """Mark the lists as outdated, until `note_read` is called."""
        self.changes += 1
        self.news.set()
        if self.listed.is_set() and not self.ended:
            self.listed = anyio.Event()

    def note_read(self, changes: int) -> None:
        """Note that the lists were read after this many changes."""
        self.changes -= changes
        if not self.changes:
            self.listed.set()


class HostAttempts:
    """The hosts that the program reached, or tried to, and that no result has named yet.

    Each is logged: a server that is only tested has no results.
    """

    def __init__(self, log: Callable[[Level, str], None]) -> None:
        self._new, self._log = list[HostAttempt](), log

    def add(self, attempt: HostAttempt) -> None:
        """Add an attempt. Called in another thread."""
        self._new.append(attempt)
        for remark in attempt_remarks([attempt]):
            self._log("warning" if attempt.refused else "info", remark)

    async def add_remarks(self, answer: Awaitable[Reply]) -> Reply:
        """Return the result of a call with a remark on these hosts.

        Raises `ToolFailed` with the same remark if the call failed.
        """
        try:
            reply = await answer
        except ToolFailed as error:
            raise ToolFailed(f"{error}{self._remarks()}") from error
        return replace(reply, text=f"{reply.text}{self._remarks()}")

    def _remarks(self) -> str:
        attempts, self._new = self._new, []
        remarks = attempt_remarks(attempts)
        return f"\n({'; '.join(remarks)})" if remarks else ""


@asynccontextmanager
async def stdio(
    server: PreparedServer,
    commands: Commands,
    connection_end: ConnectionEnd,
    log: Callable[[str], None],
    hosts: HostAttempts,
) -> AsyncGenerator[Streams]:
    """Start the program and connect to it; it is stopped when the block is left."""
    own_end, child_end = socket.socketpair()
    config = server.config
    program = _Program(server, commands, connection_end, log, hosts)
    to_session, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    connection = await SocketStream.from_socket(own_end)
    async with connection, anyio.create_task_group() as group:
        group.start_soon(program.run, child_end)
        group.start_soon(_receive, connection, to_session, connection_end, log)
        group.start_soon(_send, connection, from_session, to_session)
        try:
            yield read, write
        except anyio.get_cancelled_exc_class():
            connection_end.end(f"it did not answer within {config.connect_seconds:g} s")
            raise
        # Before the program is stopped, which is then not the reason.
        except Exception as error:
            if not was_closed(failure := first(error)):
                connection_end.end(reason(failure))
            raise
        finally:
            read.close()
            write.close()
            with anyio.move_on_after(_END_SECONDS, shield=True):
                await connection.send_eof()
                await program.over.wait()
            group.cancel_scope.cancel()


@asynccontextmanager
async def http(
    config: ServerConfig, transport: JudgedTransport, login: httpx2.Auth | None = None
) -> AsyncGenerator[Streams]:
    """Streamable HTTP."""
    client = http_client(transport, dict(config.headers), auth=login)
    async with client, streamable_http_client(config.url, http_client=client) as streams:
        yield streams  # pyright: ignore[reportReturnType]


class _Program:
    """The program of a server, from its start to its end."""

    def __init__(
        self,
        server: PreparedServer,
        commands: Commands,
        connection_end: ConnectionEnd,
        log: Callable[[str], None],
        hosts: HostAttempts,
    ) -> None:
        self._server, self._commands, self._ending = server, commands, connection_end
        self._log, self.over, self._hosts = log, anyio.Event(), hosts
        self._recent: deque[tuple[float, str]] = deque(maxlen=_MAX_RECENT)

    async def run(self, connection: socket.socket) -> None:
        config = self._server.config
        environ = dict(config.environment)
        hosts = only_hosts(config.hosts)
        paths = (config.cwd, *config.visible)
        extras = CommandExtras(
            stdin=connection.fileno(),
            seen=paths,
            environ=environ,
            tell_attempt=self._hosts.add,
        )
        try:
            finished = await self._commands.run(
                f"exec {shlex.join(config.command)} >&0",
                cwd=config.cwd,
                seconds=None,
                confines=Confinement(
                    writes=True,
                    network=config.network,
                    hosts=hosts,
                    narrow=self._server.narrow,
                ),
                on_output=self._print,
                extras=extras,
            )
            for sentence in finished.guarded.sentences(escape_name):
                self._log(sentence)
            why, advice = (
                _describe_exit(finished, self._last_printed()),
                self._server.advice(finished.text),
            )
            self._ending.end("; ".join(filter(None, (why, advice))))
        except ToolFailed as error:
            self._ending.end(str(error))
        finally:
            connection.close()
            with anyio.CancelScope(shield=True):  # each start has a private /tmp
                await anyio.to_thread.run_sync(self._commands.close)
            self.over.set()

    def _print(self, text: str) -> None:
        for line in text.splitlines():
            if line.strip():
                self._log(line[:2_000])
                self._recent.append((anyio.current_time(), line[:2_000]))

    def _last_printed(self) -> str:
        """Return the last lines that the program printed before it ended."""
        since = anyio.current_time() - _RECENT_SECONDS
        return "\n".join(line for moment, line in self._recent if moment >= since)


def _describe_exit(finished: Finished, output: str) -> str:
    """Describe how a program exited unexpectedly, with the error that it printed."""
    error = failure_line(output)
    last = f": {error}" if error else ""
    if finished.no_namespaces and reports_no_namespaces(finished.text[-_LAST_CHARS:]):
        last = f"{last}; {NAMESPACES_REFUSED}"
    if finished.stopped:
        return f"its process exited ({finished.stopped}){last}"
    return f"its process exited with code {finished.code}{last}"


async def _receive(
    connection: SocketStream,
    session: MemoryObjectSendStream[SessionMessage | Exception],
    connection_end: ConnectionEnd,
    log: Callable[[str], None],
) -> None:
    """Pass on each line that is a message, until the program or the session has ended."""
    rest, garbage = bytearray(), 0
    async with session:
        try:
            while garbage <= _MAX_GARBAGE_LINES and len(rest) <= MAX_LINE_BYTES:
                rest += await connection.receive(_READ_BYTES)
                *lines, last = rest.split(b"\n")
                rest = bytearray(last)
                for line in lines:
                    if not await _pass_on(bytes(line), session):
                        garbage += 1
                        log(
                            f"wrote a line that is not a valid message: {line[:200].decode(errors='replace')}"
                        )
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # the program says why it ended
        if garbage > _MAX_GARBAGE_LINES:
            connection_end.end(
                "it wrote a line that is not a valid message of the protocol"
            )
        else:
            connection_end.end(
                f"it sent a line longer than {MAX_LINE_BYTES // 1024**2} MiB"
            )


async def _pass_on(
    line: bytes, session: MemoryObjectSendStream[SessionMessage | Exception]
) -> bool:
    """Pass on a line; return whether it is a message. Empty lines are not garbage."""
    if not line.strip():
        return True
    if not (line := limit_message(line)):
        return True  # it answered nothing
    message = _message(line)
    failure = to_failure(line) if message is None else b""
    if answer := message or (_message(failure) if failure else None):
        await session.send(SessionMessage(answer))
    return message is not None


def _message(line: bytes) -> mcp_types.JSONRPCMessage | None:
    try:
        return mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except (ValidationError, ValueError):
        pass
    if not _HALF_CHARACTER.search(line):
        return None
    try:  # text that was cut inside a character, which JavaScript allows
        whole = json.dumps(json.loads(line), ensure_ascii=False).encode(errors="replace")
        return mcp_types.jsonrpc_message_adapter.validate_json(whole, by_name=False)
    except (ValueError, RecursionError):
        return None


def reason(error: BaseException) -> str:
    """Return the message of an SDK error, in words that follow a colon."""
    if isinstance(error, ValidationError):
        wrong = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, wrong["loc"]))
        return f"it answered what the protocol does not allow: {place}: {wrong['msg']}"
    if isinstance(error, MCPError) and str(error).startswith(_PARSE_ERRORS):
        return INVALID_ANSWER
    return str(error) or type(error).__name__


def was_closed(error: BaseException) -> bool:
    """Return True if the SDK reports only that the connection was closed.

    The message is compared, too: servers use the same code for errors of their own.
    """
    closed = isinstance(error, MCPError) and error.code == mcp_types.CONNECTION_CLOSED
    return closed and str(error) == "Connection closed"


async def _send(
    connection: SocketStream,
    messages: MemoryObjectReceiveStream[SessionMessage],
    session: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    try:
        async with messages:
            async for message in messages:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await connection.send(f"{text}\n".encode(errors="replace"))
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        await session.aclose()
