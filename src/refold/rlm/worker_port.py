"""The interfaces of a worker, which runs cells, and a keeper that reuses it between calls.

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

# The interpreter of the code: the Python that runs refold, or Monty, a separate
# implementation.
Engine: TypeAlias = Literal["cpython", "monty"]


class HostFailed(RefoldError):
    """Raised if a function of the host failed. The code gets an exception with this message."""


class WorkerLost(RefoldError):
    """Raised if the process exited: it was killed, ran out of memory or took too long.

    Its variables are lost, too.
    """


# Takes the name of a function and its arguments by name. Returns a JSON value, or raises
# `HostFailed`. Several calls may run at the same time.
Host: TypeAlias = Callable[[str, Mapping[str, object]], Awaitable[object]]


class Cell(Struct, frozen=True):
    """The result of a cell. `text` is the observation: what it printed, its value, its error.

    `final` is the argument of FINAL as JSON; None means that FINAL was not called.
    """

    text: str
    failed: bool = False
    final: Raw | None = None
    seconds: float = 0.0  # excludes time in which the cell waited for the host


class VariableReport(Struct, frozen=True):
    """The variables that were kept, with their types, and the lost variables, with reasons."""

    kept: tuple[tuple[str, str], ...] = ()
    lost: tuple[tuple[str, str], ...] = ()


class Variables(Struct, frozen=True):
    """All variables as bytes: small variables in `index`, each large variable as a separate
    part.

    `parts` are the names of the parts, which are their sha256. `new` has the bytes of the parts
    that the caller did not have.
    """

    index: bytes
    parts: tuple[str, ...] = ()
    new: Mapping[str, bytes] = {}


# Returns a part by its name, or raises `JournalError`.
ReadPart: TypeAlias = Callable[[str], Awaitable[bytes]]


class OtherVariables(Struct, frozen=True):
    """The variables of another session. `read` returns the bytes of a part by its name."""

    session: str
    index: bytes
    parts: tuple[str, ...]
    read: ReadPart


class Worker(Protocol):
    """A process with variables. All methods raise `WorkerLost` if it has ended.

    `run` runs one cell; `host` is called for each call of a host function by the code.
    `set_variable` sets a variable to a JSON value, which the host stores as the part named
    `part`. `persist` returns all variables as bytes that only `restore` of another worker can
    read, without the bytes of parts in `stored_names`. `restore` replaces all variables.
    `list_variables` returns the names of the variables with their types.
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
    seconds: float = 120.0  # for one cell, excluding waits for the host
    memory: int = 2 * 1024**3  # bytes
    output: int = 10_000  # characters in one observation


class Workers(Protocol):
    """Starts a worker in an `async with` block, which kills it and its children at the end.

    `functions` maps each function of the host to its parameters; code passes arguments by name
    or in this order.
    """

    def __call__(
        self, limits: WorkerLimits, functions: Mapping[str, tuple[str, ...]]
    ) -> AbstractAsyncContextManager[Worker]: ...


class _RunningWorker(Struct):
    worker: Worker
    end_requested: anyio.Event
    ended: anyio.Event


class WorkerKeeper:
    """Keeps the worker process of a session running between calls, while a turn runs."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._group: TaskGroup | None = None
        self._running: _RunningWorker | None = None

    @asynccontextmanager
    async def background(self) -> AsyncGenerator[None, None]:
        """Allow a worker within this block. At its end the process is killed."""
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                yield
            finally:
                self._group = None
                if self._running is not None:
                    self._running.end_requested.set()
                self._running = None

    @property
    def has_worker(self) -> bool:
        return self._running is not None

    async def worker(
        self, limits: WorkerLimits, functions: Mapping[str, tuple[str, ...]]
    ) -> Worker:
        """Return the running worker, or start one with these limits and functions.

        Raises `ToolFailed` outside of `background`.
        """
        running = self._running
        if running is None:
            if self._group is None:
                raise ToolFailed("Python runs only while a turn does.")
            started = await self._group.start(self._keep_worker, limits, functions)
            running = cast("_RunningWorker", started)
            self._running = running
        return running.worker

    async def discard(self) -> None:
        """Kill the process if it runs."""
        running, self._running = self._running, None
        if running is not None:
            running.end_requested.set()
            await running.ended.wait()

    async def _keep_worker(
        self,
        limits: WorkerLimits,
        functions: Mapping[str, tuple[str, ...]],
        *,
        task_status: TaskStatus[_RunningWorker],
    ) -> None:
        """Run a worker until its end is requested."""
        end_requested, ended = anyio.Event(), anyio.Event()
        try:
            async with self._workers(limits, functions) as worker:
                task_status.started(_RunningWorker(worker, end_requested, ended))
                await end_requested.wait()
        finally:
            ended.set()
