"""Runs the program of one language server in the sandbox, and exchanges bytes with it.

The program reads the workspace and installed programs, and writes only to its own /tmp. It has
no network and no keys. If it exits, sends something other than a message, or does not read, the
connection ends, and `why` has the reason. `language_server` interprets the messages.

Servers run code of the workspace (build scripts, plug-ins), and the tools that ask them run
without asking the user. So they have no network even if `sandbox.network` is on, and without a
sandbox none is started.
"""

import os
import shlex
import socket
from collections.abc import Callable

import anyio
from anyio.abc import SocketStream
from msgspec import Struct

from refold.code import wire
from refold.code.languages import ServerSpec
from refold.code.wire import RpcMessage
from refold.errors import ToolFailed
from refold.place.port import CommandExtras, Commands, Finished
from refold.tools.code import one_line
from refold.values.log_level import WriteLog
from refold.values.tools import Confinement

_READ_BYTES = 256 * 1024
_MAX_QUEUED_MESSAGES = 20_000
_MAX_LOGGED_LINES = 200
_END_SECONDS = 2.0  # for the program to exit after its connection has ended


class ServerLaunch(Struct, frozen=True):
    """How to start a server, and in which directory. `log` gets its output."""

    spec: ServerSpec
    root: str
    commands: Commands
    log: WriteLog
    program: str  # its absolute path
    seconds: float = 30.0  # for one request


class ServerProcess:
    """The program of a server. Call `run` in a task. `on_message` gets each of its messages.

    `on_end` is called when the program has exited; `why` is then the reason.
    """

    def __init__(
        self,
        launch: ServerLaunch,
        on_message: Callable[[RpcMessage], None],
        on_end: Callable[[], None],
    ) -> None:
        self.why = ""
        self.hung = False
        self.ended = anyio.Event()
        self._launch, self._on_message, self._on_end = launch, on_message, on_end
        self._scope = anyio.CancelScope()
        self._frames = wire.Frames()
        self._to_send, self._outgoing = anyio.create_memory_object_stream[bytes](
            _MAX_QUEUED_MESSAGES
        )
        self._logged = 0

    async def run(self) -> None:
        """Run the program from its start to its exit."""
        try:
            with self._scope:
                own_end, child_end = socket.socketpair()
                connection = await SocketStream.from_socket(own_end)
                async with connection, anyio.create_task_group() as group:
                    group.start_soon(self._run, child_end)
                    group.start_soon(self._send, connection)
                    await self._receive(connection)
                    # The exit of the program is a better reason for `why` than the connection's.
                    with anyio.move_on_after(_END_SECONDS):
                        await self.ended.wait()
                    group.cancel_scope.cancel()
        finally:
            self._close("it was stopped")
            self._to_send.close()
            self._outgoing.close()

    def stop(self, reason: str, *, hung: bool = False) -> None:
        """Kill the program. Only the first reason is stored.

        `hung` says that the program did not respond.
        """
        self.hung = self.hung or hung
        self._close(reason)
        self._scope.cancel()

    def queue(self, data: bytes) -> None:
        """Send `data` later. Kill the program if it leaves too much data unread."""
        try:
            self._to_send.send_nowait(data)
        except anyio.WouldBlock:
            self.stop("it does not read what it is sent", hung=True)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass  # the program has exited

    def log_output(self, text: str) -> None:
        """Write output of the program to the log, up to `_MAX_LOGGED_LINES` lines."""
        for line in text.splitlines():
            if line.strip() and self._logged < _MAX_LOGGED_LINES:
                self._logged += 1
                self._launch.log("debug", f"{self._launch.spec.program}: {line[:1_000]}")

    async def _run(self, program_socket: socket.socket) -> None:
        """Run the program until it exits. Its input and output are `program_socket`."""
        launch, spec = self._launch, self._launch.spec
        extras = CommandExtras(
            stdin=program_socket.fileno(),
            seen=_visible_paths(spec, launch.program),
            environ=spec.environ,
            own_tmp=True,
        )
        try:
            # Its standard input is the socket, and `>&0` sends its output there, too.
            finished = await launch.commands.run(
                f"exec {shlex.join((launch.program, *spec.arguments))} >&0",
                cwd=launch.root,
                seconds=None,
                confines=Confinement(),
                on_output=self.log_output,
                extras=extras,
            )
            self._close(_describe_exit(finished))
        except ToolFailed as error:
            self._close(str(error))
        finally:
            program_socket.close()

    async def _send(self, connection: SocketStream) -> None:
        """Send queued data until the connection closes."""
        try:
            async for data in self._outgoing:
                await connection.send(data)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            pass  # the program's exit reports it

    async def _receive(self, connection: SocketStream) -> None:
        """Pass the program's messages on until the connection closes."""
        try:
            while True:
                for message in self._frames.feed(await connection.receive(_READ_BYTES)):
                    self._on_message(message)
                await anyio.lowlevel.checkpoint()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass
        except ToolFailed as error:
            self._close(str(error))

    def _close(self, reason: str) -> None:
        self.why = self.why or reason
        self.ended.set()
        self._on_end()


def _describe_exit(finished: Finished) -> str:
    """Describe an unexpected exit of the program, with the last line of its output."""
    lines = finished.text.strip().splitlines()
    last = f": {one_line(lines[-1], 300)}" if lines else ""
    if finished.stopped:
        return f"its process exited ({finished.stopped}){last}"
    return f"its process exited with code {finished.code}{last}"


def _visible_paths(spec: ServerSpec, program: str) -> tuple[str, ...]:
    """Return the existing directories that a server must see: of its program and its packages.

    If the program is in a virtual environment, the whole environment is included.
    """
    paths = [os.path.expanduser(path) for path in spec.packages]
    for name in (program, os.path.realpath(program)):  # the program may be a link
        folder = os.path.dirname(name)
        parent = os.path.dirname(folder)
        is_in_packages = os.path.basename(parent) == "node_modules"
        is_in_environment = os.path.isfile(os.path.join(parent, "pyvenv.cfg"))
        paths.append(parent if is_in_packages or is_in_environment else folder)
        paths.append(os.path.join(parent, "lib", "node_modules"))
    return tuple(path for path in dict.fromkeys(paths) if os.path.isdir(path))
