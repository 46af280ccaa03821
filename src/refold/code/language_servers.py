"""The language servers of one workspace: started at the first question, ended with the session.

They run in the event loop of a thread of their own, because they outlive the turn that asked
first. A server that ends is started again once; one that hangs is not. `language_server` is one
server, and `source_code` asks the questions.
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
_MAX_EXITS = 2  # of a server in one session, until it is not started again
_STOP_SECONDS = 3.0  # for all servers to end


class ServerContext(Struct, frozen=True):
    """Context of all servers of a workspace. `find` returns a program's absolute path, or ""."""

    root: str
    commands: Commands
    find: Callable[[str], str]
    log: WriteLog
    seconds: float = 30.0


class _Slot:
    """A server, if it runs. `known` is the state of the workspace's files that was last
    sent to it.
    """

    def __init__(self) -> None:
        self.server: LanguageServer | None = None
        self.ends, self.why = 0, ""
        self.lock = anyio.Lock()
        self.known: Mapping[str, object] | None = None


class LanguageServers:
    """`close` it in a thread."""

    def __init__(self, context: ServerContext) -> None:
        self._around, self._slots = context, dict[str, _Slot]()
        self._stack, self._lock = ExitStack(), Lock()
        self._portal: BlockingPortal | None = None
        self._group: TaskGroup | None = None
        self._closed = False

    def runs(self, spec: ServerSpec) -> bool:
        """Whether this server has been started and still runs."""
        slot = self._slots.get(spec.program)
        return bool(slot and slot.server and not slot.server.process.ended.is_set())

    async def ask(
        self,
        spec: ServerSpec,
        files: Mapping[str, object],
        function: Callable[[LanguageServer, Mapping[str, int]], Awaitable[T]],
    ) -> T:
        """Run `function` with this server, one call at a time. Raises `ToolFailed`.

        `files` are the files of its languages, each with a value that differs after a change.
        `function` gets those that changed since the server was last asked.
        """
        portal = await to_thread.run_sync(self._start)
        future: Future[T] = portal.start_task_soon(self._ask, spec, files, function)
        try:
            return await to_thread.run_sync(
                future.result, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
            )
        finally:
            future.cancel()

    def restart(self) -> None:
        """End the servers that run, one that answers after its answer. The next call starts them
        again, with what their sandbox shows then.
        """
        if (portal := self._portal) is not None:
            portal.start_task_soon(self._end_running)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            portal = self._portal
        if portal is not None:
            portal.call(self._shut_down)
        self._stack.close()
        self._around.commands.close()

    def _start(self) -> "BlockingPortal":
        with self._lock:
            if self._closed:
                raise ToolFailed("The session is being closed. Nothing was done.")
            if self._portal is None:
                portal = start_blocking_portal(name="language servers")
                self._portal = self._stack.enter_context(portal)
                self._portal.start_task(self._serve_until_closed)
            return self._portal

    async def _serve_until_closed(self, *, task_status: TaskStatus[None]) -> None:
        """The task that all servers run in, until they are closed."""
        async with anyio.create_task_group() as self._group:
            task_status.started()
            await anyio.sleep_forever()

    async def _shut_down(self) -> None:
        with anyio.move_on_after(_STOP_SECONDS):
            async with anyio.create_task_group() as group:
                for slot in self._slots.values():
                    if slot.server is not None:
                        group.start_soon(slot.server.shut_down)
        assert self._group is not None  # the portal runs in it
        self._group.cancel_scope.cancel()

    async def _end_running(self) -> None:
        for slot in self._slots.values():
            async with slot.lock:
                if (server := slot.server) is not None:
                    slot.server = None
                    with anyio.move_on_after(_STOP_SECONDS):
                        await server.shut_down()

    async def _ask(
        self,
        spec: ServerSpec,
        files: Mapping[str, object],
        function: Callable[[LanguageServer, Mapping[str, int]], Awaitable[T]],
    ) -> T:
        slot = self._slots.setdefault(spec.program, _Slot())
        async with slot.lock:
            while True:
                server = self._server(slot, spec)
                changed = _find_changes(slot.known, files)
                try:
                    result = await function(server, changed)
                except ToolFailed as error:
                    if not server.process.ended.is_set():
                        raise
                    self._drop(slot, server, error)
                else:
                    slot.known = files
                    return result

    def _server(self, slot: _Slot, spec: ServerSpec) -> LanguageServer:
        """The running server, or a new one. Raises `ToolFailed` if it failed too often."""
        if slot.server is not None and slot.server.process.ended.is_set():
            self._drop(slot, slot.server)
        if slot.ends >= _MAX_EXITS:
            raise _give_up_error(spec.program, slot.why)
        if slot.server is None:
            around, group = self._around, self._group
            assert group is not None  # this runs in it
            launch = ServerLaunch(
                spec,
                around.root,
                around.commands,
                around.log,
                around.find(spec.program),
                around.seconds,
            )
            slot.server, slot.known = LanguageServer(launch), None
            group.start_soon(slot.server.run)
        return slot.server

    def _drop(
        self, slot: _Slot, server: LanguageServer, error: ToolFailed | None = None
    ) -> None:
        """Remove an ended server. Raises `ToolFailed` if it must not be started again."""
        slot.server, slot.why = None, server.process.why
        slot.ends = _MAX_EXITS if server.process.hung else slot.ends + 1
        self._around.log("warning", f"{server.name} has ended: {server.process.why}")
        if slot.ends >= _MAX_EXITS:
            raise _give_up_error(server.name, slot.why) from error


def _give_up_error(name: str, reason: str) -> ToolFailed:
    return ToolFailed(
        f"The language server {name} failed ({reason.rstrip('.')}), and is not started again in this session."
    )


_CREATED, _CHANGED, _DELETED = 1, 2, 3  # as the protocol numbers them


def _find_changes(
    earlier: Mapping[str, object] | None, files: Mapping[str, object]
) -> dict[str, int]:
    """How `files` differ from what a server knows; empty for a new one, which reads them."""
    if earlier is None or earlier is files:
        return {}
    versions = {
        path: _CHANGED if path in earlier else _CREATED
        for path, state in files.items()
        if earlier.get(path) != state
    }
    return versions | {path: _DELETED for path in earlier if path not in files}
