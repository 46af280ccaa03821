"""Transports messages between refold and one server: as lines of a program, or over HTTP.

A program runs in the sandbox like any command, with a socket as its input and output; its
stderr goes to the log. The connection ends if the program writes an endless line, or too much
that is not a message. The SDK has the transport over HTTP, and `sse_transport` the older one.
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

MAX_LINE_BYTES = 16 * 1024 * 1024  # the size of one message
_MAX_LINE_CHARS = 2_000  # of a line that a program prints, in the log
_MAX_QUOTED_BYTES = 200  # of an invalid line, in the log
_MAX_GARBAGE_LINES = 100  # lines that are not messages; then a server is given up
_READ_BYTES = 256 * 1024
# One half of a surrogate pair in its JSON escape.
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")
# The SDK begins errors about an HTTP answer with these, before many lines of its parser.
_PARSE_ERRORS = ("Failed to parse JSON response: ", "Failed to parse SSE message: ")
_LAST_CHARS = 4_000  # of its output, searched for the reason of its exit
# age and number of output lines that may explain its exit
_RECENT_SECONDS, _MAX_RECENT = 5.0, 500
_END_SECONDS = 2.0  # for a program to exit after its input is closed

Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception],
    MemoryObjectSendStream[SessionMessage],
]


class ConnectionEnd:
    """Records whether a connection has ended, and whether the server's lists have changed."""

    def __init__(self) -> None:
        self.why = ""  # the reason for its end
        self.ended = False
        self.changes = 0
        self.for_user = False  # only the user can fix the cause of its end
        self.renewed = False  # it was closed to reconnect at once
        self.news = anyio.Event()
        self.listed = anyio.Event()
        self.listed.set()

    def end(self, reason: str) -> None:
        """End the connection. If it has ended already, the first reason is kept."""
        self.why = self.why or escape_marks(reason)
        self.ended = True
        self.news.set()
        self.listed.set()

    def stop(self, reason: str) -> None:
        """End the connection, and do not reconnect, because only the user can fix the cause."""
        self.for_user = True
        self.end(reason)

    def renew(self) -> None:
        """End the connection, in order to reconnect at once."""
        self.renewed = True
        self.end("it is connected again")

    def mark_changed(self) -> None:
        """Mark the server's lists as outdated, until `note_read` is called."""
        self.changes += 1
        self.news.set()
        if self.listed.is_set() and not self.ended:
            self.listed = anyio.Event()

    def note_read(self, changes: int) -> None:
        """Record that the lists were read after `changes` changes.

        The lists may have changed again since then.
        """
        self.changes -= changes
        if not self.changes:  # there was none while they were read
            self.listed.set()


class HostAttempts:
    """The hosts that a server's program has tried to reach since the last result of a call.

    Each attempt is also logged, because without a call there is no result to show it in.
    """

    def __init__(self, log: Callable[[Level, str], None]) -> None:
        self._new, self._log = list[HostAttempt](), log

    def add(self, attempt: HostAttempt) -> None:
        """Add and log an attempt to reach a host. Called in another thread."""
        self._new.append(attempt)
        for remark in attempt_remarks([attempt]):
            self._log("warning" if attempt.refused else "info", remark)

    async def add_remarks(self, answer: Awaitable[Reply]) -> Reply:
        """Return the result of a call, with a remark on the hosts since the previous result.

        If the call fails, raise `ToolFailed` with the same remark.
        """
        try:
            reply = await answer
        except ToolFailed as error:
            raise ToolFailed(f"{error}{self._remarks()}") from error
        return replace(reply, text=f"{reply.text}{self._remarks()}")

    def _remarks(self) -> str:
        """Return remarks on attempts since the last call, in brackets; "" if there are none."""
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
    """Start the program, and yield the streams from and to it. Stop it after the block."""
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
        # The program is still running, so its exit is not the reason for this error.
        except Exception as error:
            failure = first(error)
            if not was_closed(failure):
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
    """Connect over Streamable HTTP, and yield the streams from and to the server."""
    client = http_client(transport, dict(config.headers), auth=login)
    async with client, streamable_http_client(config.url, http_client=client) as streams:
        yield streams  # pyright: ignore[reportReturnType]


class _Program:
    """Runs the program of a server, and records what it prints."""

    def __init__(
        self,
        server: PreparedServer,
        commands: Commands,
        connection_end: ConnectionEnd,
        log: Callable[[str], None],
        hosts: HostAttempts,
    ) -> None:
        self._server, self._commands = server, commands
        self._ending, self._log, self._hosts = connection_end, log, hosts
        self.over = anyio.Event()
        self._recent: deque[tuple[float, str]] = deque(maxlen=_MAX_RECENT)

    async def run(self, connection: socket.socket) -> None:
        """Run the program until it exits, and then end the connection."""
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
                # its output goes to the socket that is its input
                f"exec {shlex.join(config.command)} >&0",
                cwd=config.cwd,
                seconds=None,
                confines=Confinement(
                    writes=True,
                    network=config.network,
                    hosts=hosts,
                    narrow=self._server.narrow,
                ),
                on_output=self._note_output,
                extras=extras,
            )
            for sentence in finished.guarded.sentences(escape_name):
                self._log(sentence)
            why = _describe_exit(finished, self._last_printed())
            advice = self._server.advice(finished.text)
            self._ending.end("; ".join(filter(None, (why, advice))))
        except ToolFailed as error:
            self._ending.end(str(error))
        finally:
            connection.close()
            # each start has a private /tmp, which must be deleted
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._commands.close)
            self.over.set()

    def _note_output(self, text: str) -> None:
        """Log the lines that the program printed, and keep them with their time, each cut."""
        for line in text.splitlines():
            if line.strip():
                shortened = line[:_MAX_LINE_CHARS]
                self._log(shortened)
                self._recent.append((anyio.current_time(), shortened))

    def _last_printed(self) -> str:
        """Return the lines that the program printed in its last `_RECENT_SECONDS` seconds."""
        since = anyio.current_time() - _RECENT_SECONDS
        return "\n".join(line for moment, line in self._recent if moment >= since)


def _describe_exit(finished: Finished, output: str) -> str:
    """Return a description of an unexpected exit, with the error that the program printed."""
    error = failure_line(output)
    cause = f": {error}" if error else ""
    if finished.no_namespaces and reports_no_namespaces(finished.text[-_LAST_CHARS:]):
        cause = f"{cause}; {NAMESPACES_REFUSED}"
    if finished.stopped:
        return f"its process exited ({finished.stopped}){cause}"
    return f"its process exited with code {finished.code}{cause}"


async def _receive(
    connection: SocketStream,
    session: MemoryObjectSendStream[SessionMessage | Exception],
    connection_end: ConnectionEnd,
    log: Callable[[str], None],
) -> None:
    """Pass on each message line to the session, until the program exits or the session ends."""
    unfinished = bytearray()  # the line whose end has not arrived
    invalid_lines = 0
    async with session:
        try:
            while invalid_lines <= _MAX_GARBAGE_LINES and len(unfinished) <= MAX_LINE_BYTES:
                unfinished += await connection.receive(_READ_BYTES)
                *lines, last = unfinished.split(b"\n")
                unfinished = bytearray(last)
                for line in lines:
                    if not await _pass_on(bytes(line), session):
                        invalid_lines += 1
                        shown = line[:_MAX_QUOTED_BYTES].decode(errors="replace")
                        log(f"wrote a line that is not a valid message: {shown}")
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # the program's output says why it exited
        if invalid_lines > _MAX_GARBAGE_LINES:
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
    """Pass on the message in a line to the session. Return False if the line is invalid.

    An invalid answer becomes an error for the session. Empty lines are skipped, as are messages
    beyond the limits that answer no request.
    """
    if not line.strip():
        return True
    limited_line = limit_message(line)
    if not limited_line:
        return True
    if message := _parse_message(limited_line):
        await session.send(SessionMessage(message))
        return True
    if error := _parse_message(to_failure(limited_line)):
        await session.send(SessionMessage(error))
    return False


def _parse_message(line: bytes) -> mcp_types.JSONRPCMessage | None:
    """Return the message in a line; None if the line is not a valid message."""
    try:
        return mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except (ValidationError, ValueError):
        pass
    if not _HALF_CHARACTER.search(line):
        return None
    try:  # for text that was cut inside a surrogate pair, which JavaScript allows
        repaired = json.dumps(json.loads(line), ensure_ascii=False).encode(errors="replace")
        return mcp_types.jsonrpc_message_adapter.validate_json(repaired, by_name=False)
    except (ValueError, RecursionError):
        return None


def reason(error: BaseException) -> str:
    """Return the reason of an SDK error, as a text to put after a colon."""
    if isinstance(error, ValidationError):
        problem = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, problem["loc"]))
        return f"it answered what the protocol does not allow: {field}: {problem['msg']}"
    if isinstance(error, MCPError) and str(error).startswith(_PARSE_ERRORS):
        return INVALID_ANSWER
    return str(error) or type(error).__name__


def was_closed(error: BaseException) -> bool:
    """Return whether the error only means that the connection was closed."""
    has_code = isinstance(error, MCPError) and error.code == mcp_types.CONNECTION_CLOSED
    # Servers use this code for errors of their own, too.
    return has_code and str(error) == "Connection closed"


async def _send(
    connection: SocketStream,
    messages: MemoryObjectReceiveStream[SessionMessage],
    session: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    """Write the messages of the session to the program, one on each line.

    If the connection fails, close `session`, the stream to the session.
    """
    try:
        async with messages:
            async for message in messages:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await connection.send(f"{text}\n".encode(errors="replace"))
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        await session.aclose()
