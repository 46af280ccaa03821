"""The socket of an open session: other processes of its owner join it there.

The first line that a client sends is a `Hello`; each line after it is an order, and each line
that it gets is a document, as on the WebSocket. What they mean is decided in `shared_session`
and `feed`; the other end is `remote_session`. The turns run where the session is open. Of a terminal,
`SessionSocket` has the clients; a server serves those of each of its sessions with `serve_clients`.
"""

import os
import socket
import stat
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from refold.errors import BadInput, RefoldError

if TYPE_CHECKING:
    from refold.client.feed import Follower
    from refold.client.session import Session
    from refold.client.shared_session import SharedSession

# The session shared by all clients; what it needs runs in the group.
GetShared: TypeAlias = Callable[[TaskGroup], "SharedSession"]
_MAX_LINE_BYTES = 8 * 1024 * 1024  # bytes: an order with its images, as on the WebSocket
_READ_BYTES = 64 * 1024  # bytes
_RETRY_SECONDS = 0.1  # after a connection that could not be accepted
_DIGEST_CHARS = 24  # of a digest: a socket's whole path has room for about 100 bytes


class Hello(Struct, frozen=True, forbid_unknown_fields=True):
    """A client's first line. It continues after `after`, or (None) with a snapshot.

    One that `reads_journal` also gets a document for each recorded event.
    """

    after: str | None = None
    reads_journal: bool = False


def runtime_directory(environ: Mapping[str, str]) -> Path:
    """Where sockets are; not created here."""
    directory = environ.get("XDG_RUNTIME_DIR", "")
    if directory.startswith("/") and os.path.isdir(directory):
        return Path(directory) / "refold"
    return Path(tempfile.gettempdir()) / f"refold-{os.getuid()}"


def socket_path(session: Path, environ: Mapping[str, str]) -> Path:
    """The socket of the session in this directory, whether it is open or not."""
    named = sha256(os.fsencode(os.path.realpath(session))).hexdigest()[:_DIGEST_CHARS]
    return runtime_directory(environ) / named


class SessionSocket:
    """Accepts clients of the session that was last passed to `follow`."""

    def __init__(self, session: "Session", environ: Mapping[str, str]) -> None:
        self._session, self._environ = session, environ
        self._moved, self._ordered = anyio.Event(), anyio.Event()
        self._shared: SharedSession | None = None

    def follow(self, session: "Session") -> None:
        """Listen for this session from now on: the terminal shows it."""
        self._session = session
        self._moved.set()

    async def wait_for_order(self) -> None:
        """Return when a client has ordered something that `Session.step` has to do."""
        await self._ordered.wait()
        self._ordered = anyio.Event()

    def report_error(self, error: RefoldError) -> None:
        """Report an error to every client."""
        if self._shared is not None:
            from refold.client.shared_session import problem

            self._shared.feed.broadcast(problem(error))

    async def run(self) -> None:
        """Listen until this is cancelled. A session that is not stored has no socket."""
        while True:
            self._moved = anyio.Event()
            async with anyio.create_task_group() as group:
                if self._session.is_saved:
                    group.start_soon(self._listen, self._session)
                await self._moved.wait()
                group.cancel_scope.cancel()

    async def _listen(self, session: "Session") -> None:
        try:
            await serve_clients(session.journal_directory, self._environ, self._get_shared)
        finally:
            self._shared = None

    def _get_shared(self, clients: TaskGroup) -> "SharedSession":
        """The session shared by all clients, created for the first of them."""
        if self._shared is None:
            from refold.client.shared_session import SharedSession

            self._shared = SharedSession(self._session, self._wake, in_terminal=True)
            clients.start_soon(self._shared.feed.run)
        return self._shared

    def _wake(self) -> None:
        if self._shared is not None and not self._shared.cut_off:
            self._ordered.set()


async def serve_clients(
    session: Path,
    environ: Mapping[str, str],
    get_shared: GetShared,
    hold: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Serve clients of the session in this directory, each within `hold`, until cancelled.

    Return at once where no socket can be made: the session is read from its journal then.
    """
    path = socket_path(session, environ)
    try:
        _create_private(path.parent)
        listener = _bind(path)
    except (OSError, BadInput):
        return
    own = path.stat().st_ino
    try:
        with closing(listener):
            async with anyio.create_task_group() as clients:
                while True:
                    await anyio.wait_readable(listener)
                    try:
                        connection = listener.accept()[0]
                    except OSError:  # it has left, or there are too many open files
                        await anyio.sleep(_RETRY_SECONDS)
                        continue
                    connection.setblocking(False)
                    client = _Client(connection)
                    clients.start_soon(_serve_client, client, clients, get_shared, hold)
    finally:
        with suppress(OSError):  # another process may listen there by now
            if path.stat().st_ino == own:
                path.unlink()


async def _serve_client(
    client: "_Client",
    clients: TaskGroup,
    get_shared: GetShared,
    hold: Callable[[], AbstractContextManager[None]],
) -> None:
    from refold.client.event_documents import parse_cursor

    with closing(client), suppress(OSError):
        lines = receive_lines(client.receive)
        try:
            hello = msgspec.json.decode(await anext(lines), type=Hello)
            after = None if hello.after is None else parse_cursor(hello.after)
        except (StopAsyncIteration, ValueError, BadInput):
            return  # it is not a client of refold
        shared = get_shared(clients)
        with hold():
            follower = await shared.join(after, reads_journal=hello.reads_journal)
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(client.send_all, follower)
                    async for line in lines:
                        await shared.receive(line, follower)
                    group.cancel_scope.cancel()
            finally:
                shared.leave(follower)


class _Client:
    """The connection of one client. Its failures are raised as `OSError`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    async def receive(self) -> bytes:
        """Some bytes. Raises `anyio.EndOfStream`."""
        while True:
            await anyio.wait_readable(self._connection)
            with suppress(BlockingIOError):
                try:
                    if data := self._connection.recv(_READ_BYTES):
                        return data
                except ConnectionError as error:  # it left with words that it had not read
                    raise anyio.EndOfStream from error
                raise anyio.EndOfStream

    async def send_all(self, follower: "Follower") -> None:
        """Send the follower's frames until it is cut off or the session is closed here."""
        with suppress(OSError):  # it has left
            async for batch in follower.batches():
                await self._send(b"".join(frame + b"\n" for frame in batch))
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()

    async def _send(self, data: bytes) -> None:
        remaining = memoryview(data)
        while remaining:
            with suppress(BlockingIOError):
                remaining = remaining[self._connection.send(remaining) :]
                continue
            await anyio.wait_writable(self._connection)


async def receive_lines(
    receive: Callable[[], Awaitable[bytes]], max_line_bytes: int = _MAX_LINE_BYTES
) -> AsyncGenerator[bytes, None]:
    """The received lines, without line ends. A line that is too long ends them."""
    buffer = bytearray()
    with suppress(anyio.EndOfStream):
        while len(buffer) < max_line_bytes:
            piece = await receive()
            buffer += piece
            if b"\n" in piece:
                *whole, rest = bytes(buffer).split(b"\n")
                for line in whole:
                    yield line
                buffer = bytearray(rest)


def _bind(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)  # left by a process that was killed
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen()
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _create_private(directory: Path) -> None:
    """Create the directory for its owner alone. Raises `BadInput` if others could have
    created it.
    """
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    status = directory.lstat()
    if (
        not stat.S_ISDIR(status.st_mode)
        or status.st_uid != os.getuid()
        or status.st_mode & 0o077
    ):
        raise BadInput(f"{directory} is a directory that other users can read or change")
