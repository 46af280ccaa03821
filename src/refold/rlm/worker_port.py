"""The worker that runs cells, as the host sees it, and the keeper that reuses it between calls.

The worker process holds variables and knows nothing of sessions; the host knows the session and
runs no code. Values are passed as JSON. `worker` starts the process.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, Protocol, TypeAlias, cast

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Raw, Struct

from refold.errors import RefoldError, ToolFailed

# What runs the code: the Python that refold runs on, or Monty, an interpreter of its own.
Engine: TypeAlias = Literal["cpython", "monty"]


class HostFailed(RefoldError):
    """A function of the host failed; its caller gets an exception with this message."""


class WorkerLost(RefoldError):
    """The process has exited: killed, out of memory or out of time.

    Its variables are lost, too.
    """


# Takes the name of a function and its arguments by name. Returns a JSON value, or raises
# `HostFailed`. Several calls may run at once.
Host: TypeAlias = Callable[[str, Mapping[str, object]], Awaitable[object]]


class Cell(Struct, frozen=True):
    """The result of a cell. `text` is the observation: what it printed, its value, its error.

    `final` is the argument of FINAL, as JSON; JSON null is a value, None means no call of FINAL.
    """

    text: str
    failed: bool = False
    final: Raw | None = None
    seconds: float = 0.0  # without those in which it waited for the host


class VariableReport(Struct, frozen=True):
    """Names and types of the variables that were kept, and the lost ones with the reason."""

    kept: tuple[tuple[str, str], ...] = ()
    lost: tuple[tuple[str, str], ...] = ()


class Variables(Struct, frozen=True):
    """All variables as bytes: small ones in `index`, each large one as a part of its own.

    Parts are named by their sha256. `new` has the parts that the caller did not know.
    """

    index: bytes
    parts: tuple[str, ...] = ()
    new: Mapping[str, bytes] = {}


# Gives a part by its name, or raises `JournalError`.
ReadPart: TypeAlias = Callable[[str], Awaitable[bytes]]


class OtherVariables(Struct, frozen=True):
    """The variables of another session, and a function that reads their parts."""

    session: str
    index: bytes
    parts: tuple[str, ...]
    read: ReadPart


class Worker(Protocol):
    """A process with variables. All methods raise `WorkerLost` if it has ended.

    `run` runs one cell; `functions` are the names of the host's functions that code may
    call besides the primitives. `set_variable` sets a variable to a value in JSON, which becomes the
    part of that name. `persist` returns all variables as bytes that only `restore` in
    another worker can read, without the parts that are `known`; `restore` replaces all
    variables. `list_variables` returns the variables with their types.
    """

    async def run(self, cell: str, host: Host, progress: Callable[[str], None]) -> Cell: ...
    async def set_variable(self, name: str, part: str, value: bytes) -> None: ...
    async def persist(
        self, stored_names: Collection[str]
    ) -> tuple[Variables, VariableReport]: ...
    async def restore(
        self, index: bytes, parts: Collection[str], read: ReadPart
    ) -> VariableReport: ...
    async def list_variables(self) -> tuple[tuple[str, str], ...]: ...


class WorkerLimits(Struct, frozen=True):
    seconds: float = 120.0  # of one cell, not counting waits for the host
    memory: int = 2 * 1024**3  # bytes
    output: int = 10_000  # characters of one observation


class Workers(Protocol):
    """Make workers. Leaving the context ends the process and all that it started.

    `functions` are functions of the host by name, with their parameters; code passes them by name
    or in this order.
    """

    def __call__(
        self, limits: WorkerLimits, functions: Mapping[str, tuple[str, ...]]
    ) -> AbstractAsyncContextManager[Worker]: ...


class _RunningWorker(Struct):
    worker: Worker
    end: anyio.Event
    gone: anyio.Event


class WorkerKeeper:
    """Holds the worker of a session while a turn runs."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._group: TaskGroup | None = None
        self._running: _RunningWorker | None = None

    @asynccontextmanager
    async def background(self) -> AsyncGenerator[None, None]:
        """While this context is open there may be a worker; leaving it ends the process."""
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                yield
            finally:
                self._group = None
                if self._running is not None:
                    self._running.end.set()
                self._running = None

    @property
    def has_worker(self) -> bool:
        return self._running is not None

    async def worker(
        self, limits: WorkerLimits, functions: Mapping[str, tuple[str, ...]]
    ) -> Worker:
        """The running worker, or a fresh one with these limits and functions."""
        running = self._running
        if running is None:
            if self._group is None:
                raise ToolFailed("Python runs only while a turn does.")
            running = self._running = cast(
                "_RunningWorker",
                await self._group.start(self._keep_worker, limits, functions),
            )
        return running.worker

    async def discard(self) -> None:
        """End the process, if there is one."""
        running, self._running = self._running, None
        if running is not None:
            running.end.set()
            await running.gone.wait()

    async def _keep_worker(
        self,
        limits: WorkerLimits,
        functions: Mapping[str, tuple[str, ...]],
        *,
        task_status: TaskStatus[_RunningWorker],
    ) -> None:
        end, gone = anyio.Event(), anyio.Event()
        try:
            async with self._workers(limits, functions) as worker:
                task_status.started(_RunningWorker(worker, end, gone))
                await end.wait()
        finally:
            gone.set()
