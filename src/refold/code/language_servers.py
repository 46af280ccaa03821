"""The language servers of a workspace, started at the first question.

They are stopped with the session. They run in the event loop of a separate thread, because they
outlive the turn that first needed them. A server that exits is restarted once; one that hangs
is not. `language_server` handles one server, and `source_code` asks the questions.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup, TaskStatus
from anyio.from_thread import start_blocking_portal
from msgspec import Struct

from refold.code.language_server import LanguageServer
from refold.code.languages import ServerSpec
from refold.code.server_process import ServerLaunch
from refold.errors import ToolFailed
from refold.place.port import Commands
from refold.values.log_level import WriteLog

if TYPE_CHECKING:
    from concurrent.futures import Future

    from anyio.from_thread import BlockingPortal

T = TypeVar("T")
_MAX_EXITS = 2  # of a server in one session; then it is not restarted
_STOP_SECONDS = 3.0  # for all servers to stop


class ServerContext(Struct, frozen=True):
    """What all servers of a workspace need.

    `find` returns the absolute path of a program, or "". `seconds` is the limit of a request.
    """

    root: str
    commands: Commands
    find: Callable[[str], str]
    log: WriteLog
    seconds: float = 30.0


class _Slot:
    """One of the servers of a workspace; `server` is None while it does not run.

    `exits` counts the server's exits, and `why` is the reason of the last exit. `sent_files`
    are the files that the server knows, with their states.
    """

    def __init__(self) -> None:
        self.server: LanguageServer | None = None
        self.exits, self.why = 0, ""
        self.lock = anyio.Lock()
        self.sent_files: Mapping[str, object] | None = None


class LanguageServers:
    """The language servers of a workspace. Call `close` in a thread."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._slots = dict[str, _Slot]()  # by program
        self._stack = ExitStack()
        self._lock = Lock()
        self._portal: BlockingPortal | None = None
        self._group: TaskGroup | None = None
        self._closed = False

    def runs(self, spec: ServerSpec) -> bool:
        """Whether the server has been started and still runs."""
        slot = self._slots.get(spec.program)
        return bool(slot and slot.server and not slot.server.process.ended.is_set())

    async def ask(
        self,
        spec: ServerSpec,
        files: Mapping[str, object],
        function: Callable[[LanguageServer, Mapping[str, int]], Awaitable[T]],
    ) -> T:
        """Run `function` with a server, which is started if necessary. Raises `ToolFailed`.

        `files` are the files in the server's languages, each with a value that changes with the
        file. `function` gets the server, and the files that have changed since the last call
        with this server. Calls with the same server run one at a time.
        """
        portal = await to_thread.run_sync(self._start_portal)
        future: Future[T] = portal.start_task_soon(
            self._run_with_server, spec, files, function
        )
        try:
            # A limiter of its own, so that waiting takes no thread from other work.
            return await to_thread.run_sync(
                future.result, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
            )
        finally:
            future.cancel()  # no effect if it has ended

    def restart(self) -> None:
        """Stop the running servers. A server that is answering is stopped after its answer.

        The next call of `ask` starts the servers again, with the files that their sandbox then
        shows.
        """
        if (portal := self._portal) is not None:
            portal.start_task_soon(self._end_running)

    def close(self) -> None:
        """Stop all servers. Later calls of `ask` fail."""
        with self._lock:
            self._closed = True
            portal = self._portal
        if portal is not None:
            portal.call(self._shut_down)
        self._stack.close()
        self._context.commands.close()

    def _start_portal(self) -> "BlockingPortal":
        """Return the portal to the servers' event loop. The first call starts it."""
        with self._lock:
            if self._closed:
                raise ToolFailed("The session is being closed. Nothing was done.")
            if self._portal is None:
                portal = start_blocking_portal(name="language servers")
                self._portal = self._stack.enter_context(portal)
                self._portal.start_task(self._serve_until_closed)
            return self._portal

    async def _serve_until_closed(self, *, task_status: TaskStatus[None]) -> None:
        """Keep the task group of all servers open until `close` is called."""
        async with anyio.create_task_group() as self._group:
            task_status.started()
            await anyio.sleep_forever()

    async def _shut_down(self) -> None:
        """Stop all servers at the same time, and end their task group."""
        with anyio.move_on_after(_STOP_SECONDS):
            async with anyio.create_task_group() as group:
                for slot in self._slots.values():
                    if slot.server is not None:
                        group.start_soon(slot.server.shut_down)
        assert self._group is not None  # the portal runs in the group
        self._group.cancel_scope.cancel()

    async def _end_running(self) -> None:
        """Stop the servers one after the other, each after its current answer."""
        for slot in self._slots.values():
            async with slot.lock:
                if (server := slot.server) is not None:
                    slot.server = None
                    with anyio.move_on_after(_STOP_SECONDS):
                        await server.shut_down()

    async def _run_with_server(
        self,
        spec: ServerSpec,
        files: Mapping[str, object],
        function: Callable[[LanguageServer, Mapping[str, int]], Awaitable[T]],
    ) -> T:
        """Run `function` with a server. If the server exits meanwhile, try once more."""
        slot = self._slots.setdefault(spec.program, _Slot())
        async with slot.lock:
            while True:
                server = self._server(slot, spec)
                changed = _find_changes(slot.sent_files, files)
                try:
                    result = await function(server, changed)
                except ToolFailed as error:
                    if not server.process.ended.is_set():
                        raise
                    # The server has exited, so the next round asks a new one.
                    self._drop(slot, server, error)
                else:
                    slot.sent_files = files
                    return result

    def _server(self, slot: _Slot, spec: ServerSpec) -> LanguageServer:
        """Return the running server, or start it. Raises `ToolFailed` after too many exits."""
        if slot.server is not None and slot.server.process.ended.is_set():
            self._drop(slot, slot.server)
        if slot.exits >= _MAX_EXITS:
            raise _give_up_error(spec.program, slot.why)
        if slot.server is None:
            context, group = self._context, self._group
            assert group is not None  # this runs in the group
            launch = ServerLaunch(
                spec,
                context.root,
                context.commands,
                context.log,
                program=context.find(spec.program),
                seconds=context.seconds,
            )
            slot.server = LanguageServer(launch)
            slot.sent_files = None
            group.start_soon(slot.server.run)
        return slot.server

    def _drop(
        self, slot: _Slot, server: LanguageServer, error: ToolFailed | None = None
    ) -> None:
        """Remove a server that has exited. Raises `ToolFailed` if it must stay off."""
        slot.server = None
        slot.why = server.process.why
        slot.exits = _MAX_EXITS if server.process.hung else slot.exits + 1
        self._context.log("warning", f"{server.name} has ended: {server.process.why}")
        if slot.exits >= _MAX_EXITS:
            raise _give_up_error(server.name, slot.why) from error


def _give_up_error(name: str, reason: str) -> ToolFailed:
    return ToolFailed(
        f"The language server {name} failed ({reason.rstrip('.')}), and is not started again in this session."
    )


_CREATED, _CHANGED, _DELETED = 1, 2, 3  # the protocol's numbers


def _find_changes(
    earlier: Mapping[str, object] | None, files: Mapping[str, object]
) -> dict[str, int]:
    """Return the created, changed and deleted files, each with the number of its change.

    The numbers are those of the protocol. `earlier` is None for a new server: the result is
    then empty, because the server reads the files itself.
    """
    if earlier is None or earlier is files:
        return {}
    changes = dict[str, int]()
    for path, state in files.items():
        if path not in earlier:
            changes[path] = _CREATED
        elif earlier[path] != state:
            changes[path] = _CHANGED
    return changes | {path: _DELETED for path in earlier if path not in files}
