"""The socket of an open session, by which other processes of its owner join the session.

The first line that a client sends is a `Hello`, and each line after it is an order. Each line
that the client gets is a document, as on the WebSocket. `shared_session` carries the orders
out, and `feed` makes the documents; the other end is `remote_session`. Turns run in the
process that has the session open. `SessionSocket` serves the clients of a terminal; a server
calls `serve_clients` for each of its sessions.
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

# Returns the session shared by all clients; its tasks run in the given group.
GetShared: TypeAlias = Callable[[TaskGroup], "SharedSession"]
MAX_ORDER_BYTES = 8 * 1024 * 1024  # of an order with its images, as on the WebSocket
_READ_BYTES = 64 * 1024
_RETRY_SECONDS = 0.1  # after a connection that could not be accepted
_DIGEST_CHARS = 24  # few, because the path of a socket may have about 100 bytes


class Hello(Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of a client.

    The client gets the documents that follow `after`. If `after` is None, the client gets a
    snapshot first. With `reads_journal`, the client also gets a document for each recorded
    event.
    """

    after: str | None = None
    reads_journal: bool = False


def runtime_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory of the sockets, which may not exist yet."""
    directory = environ.get("XDG_RUNTIME_DIR", "")
    if directory.startswith("/") and os.path.isdir(directory):
        return Path(directory) / "refold"
    return Path(tempfile.gettempdir()) / f"refold-{os.getuid()}"


def socket_path(session: Path, environ: Mapping[str, str]) -> Path:
    """Return the path of the socket for the session whose journal is in the directory
    `session`.

    A socket exists there only while the session is open.
    """
    name = sha256(os.fsencode(os.path.realpath(session))).hexdigest()[:_DIGEST_CHARS]
    return runtime_directory(environ) / name


class SessionSocket:
    """Accepts clients for the session that was last passed to `follow`."""

    def __init__(self, session: "Session", environ: Mapping[str, str]) -> None:
        self._session = session
        self._environ = environ
        self._moved = anyio.Event()  # set when `follow` gets another session
        # Set when a client has sent an order for `Session.step`.
        self._ordered = anyio.Event()
        self._shared: SharedSession | None = None

    def follow(self, session: "Session") -> None:
        """Listen for clients of this session from now on, and no more for those of an
        earlier one.

        The terminal calls it with the session that it shows.
        """
        self._session = session
        self._moved.set()

    async def wait_for_order(self) -> None:
        """Wait until a client has sent an order that needs `Session.step`."""
        await self._ordered.wait()
        self._ordered = anyio.Event()

    def report_error(self, error: RefoldError) -> None:
        """Report an error to every client."""
        if self._shared is not None:
            from refold.client.shared_session import problem

            self._shared.feed.broadcast(problem(error))

    async def run(self) -> None:
        """Listen until this task is cancelled.

        A session that is not stored has no socket.
        """
        while True:
            self._moved = anyio.Event()
            async with anyio.create_task_group() as group:
                if self._session.is_saved:
                    group.start_soon(self._listen, self._session)
                await self._moved.wait()
                group.cancel_scope.cancel()

    async def _listen(self, session: "Session") -> None:
        """Serve the clients of the session's socket until this is cancelled."""
        try:
            await serve_clients(session.journal_directory, self._environ, self._get_shared)
        finally:
            self._shared = None

    def _get_shared(self, clients: TaskGroup) -> "SharedSession":
        """Return the session that all clients share. It is created for the first client."""
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
    """Serve clients of the session in this directory until this is cancelled.

    Each client is served within the context `hold`. Return at once if no socket can be
    created: other processes then only read the journal of the session.
    """
    path = socket_path(session, environ)
    try:
        _create_private(path.parent)
        listener = _bind(path)
    except (OSError, BadInput):
        return
    own_inode = path.stat().st_ino
    try:
        with closing(listener):
            async with anyio.create_task_group() as clients:
                while True:
                    await anyio.wait_readable(listener)
                    try:
                        connection, _ = listener.accept()
                    except OSError:  # the client has left, or too many files are open
                        await anyio.sleep(_RETRY_SECONDS)
                        continue
                    connection.setblocking(False)
                    client = LineConnection(connection)
                    clients.start_soon(_serve_client, client, clients, get_shared, hold)
    finally:
        with suppress(OSError):  # another process may listen at this path by now
            if path.stat().st_ino == own_inode:
                path.unlink()


async def _serve_client(
    client: "LineConnection",
    clients: TaskGroup,
    get_shared: GetShared,
    hold: Callable[[], AbstractContextManager[None]],
) -> None:
    """Carry out the orders of one client and send it documents, until it leaves."""
    from refold.client.event_documents import parse_cursor

    with closing(client), suppress(OSError):
        lines = receive_lines(client.receive)
        try:
            hello = msgspec.json.decode(await anext(lines), type=Hello)
            after = None if hello.after is None else parse_cursor(hello.after)
        except (StopAsyncIteration, ValueError, BadInput):
            return  # the peer is not a client of refold
        shared = get_shared(clients)
        with hold():  # the session is not closed while a client is here
            follower = await shared.join(after, reads_journal=hello.reads_journal)
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(client.send_all, follower)
                    async for line in lines:
                        await shared.receive(line, follower)
                    group.cancel_scope.cancel()
            finally:
                shared.leave(follower)


class LineConnection:
    """One end of a connection of the socket. Its failures are raised as `OSError`.

    The stream that anyio has for UNIX sockets is not used: a `receive` that is cancelled
    just as data arrive makes the event loop report an `InvalidStateError` (anyio 4.16).
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    async def receive(self) -> bytes:
        """Return the next bytes. Raises `anyio.EndOfStream` once the client has left."""
        while True:
            await anyio.wait_readable(self._connection)
            try:
                data = self._connection.recv(_READ_BYTES)
            except BlockingIOError:  # another wake-up has taken the bytes
                continue
            except ConnectionError as error:  # it left before it had read all documents
                raise anyio.EndOfStream from error
            if not data:
                raise anyio.EndOfStream
            return data

    async def send(self, data: bytes) -> None:
        remaining = memoryview(data)
        while remaining:
            try:
                sent_bytes = self._connection.send(remaining)
            except BlockingIOError:
                await anyio.wait_writable(self._connection)
            else:
                remaining = remaining[sent_bytes:]

    async def send_all(self, follower: "Follower") -> None:
        """Send the follower's frames until it is cut off or this process closes the
        session.
        """
        with suppress(OSError):  # the client has left
            async for batch in follower.batches():
                await self.send(b"".join(frame + b"\n" for frame in batch))
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()


async def receive_lines(
    receive: Callable[[], Awaitable[bytes]], max_line_bytes: int = MAX_ORDER_BYTES
) -> AsyncGenerator[bytes, None]:
    """Yield lines without line ends; `receive` returns the next bytes.

    A line of more than `max_line_bytes` ends the iteration.
    """
    buffer = bytearray()
    with suppress(anyio.EndOfStream):
        while len(buffer) < max_line_bytes:
            piece = await receive()
            buffer += piece
            if b"\n" in piece:
                *lines, unfinished = bytes(buffer).split(b"\n")
                for line in lines:
                    yield line
                buffer = bytearray(unfinished)


def _bind(path: Path) -> socket.socket:
    """Return a socket that listens at `path`, for this user alone."""
    path.unlink(missing_ok=True)  # a process that was killed left it
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
    """Create the directory with access for its owner alone.

    Raises `BadInput` if another user could have created it.
    """
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    status = directory.lstat()
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    others_may_use_it = bool(status.st_mode & (stat.S_IRWXG | stat.S_IRWXO))
    if not is_own or others_may_use_it:
        raise BadInput(f"{directory} is a directory that other users can read or change")
