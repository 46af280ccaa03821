"""The host's side of a worker: sends requests, measures time, answers calls of the code.

It implements `worker_port.Workers`. The package `worker_side` runs in the process, and
`process` starts and connects it. `host` implements the functions that code calls, and `repl`
stores the snapshots.
"""

import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Raw

from refold.errors import JournalError, first
from refold.place.port import Commands
from refold.rlm.process import (
    MAX_BLOB_BYTES,
    Done,
    Finaled,
    FromWorker,
    HostCall,
    Pairs,
    Part,
    Printed,
    Process,
)
from refold.rlm.worker_port import (
    Cell,
    Engine,
    Host,
    HostFailed,
    ReadPart,
    VariableReport,
    Variables,
    Worker,
    WorkerLimits,
    WorkerLost,
)
from refold.rlm.worker_side.signatures import PRIMITIVE_SIGNATURES

_GRACE_SECONDS = 2.0  # for interrupted code to stop
_MAX_WAITING_CALLS = 1_000  # at the same time, by one cell
_MAX_CALLS = 100_000  # by one cell
# The limits of characters apply to the name, and to the type or the reason, of each variable.
_MAX_VARIABLES, _MAX_NAME_CHARS, _MAX_ABOUT_CHARS = 10_000, 200, 500
_SLACK_CHARS = 500  # an observation may exceed its limit by this much
_MIN_WAIT_SECONDS = 0.01  # between checks of the clock


class PythonWorkers:
    """Starts workers. `cwd` is the code's working directory, `engine` its interpreter."""

    def __init__(self, commands: Commands, cwd: str, engine: Engine = "cpython") -> None:
        self._commands, self._cwd = commands, cwd
        self._engine: Engine = engine

    def __call__(
        self, limits: WorkerLimits, functions: Mapping[str, tuple[str, ...]]
    ) -> AbstractAsyncContextManager[Worker]:
        return self._open(limits, functions)

    @asynccontextmanager
    async def _open(
        self, limits: WorkerLimits, functions: Mapping[str, tuple[str, ...]]
    ) -> AsyncGenerator[Worker]:
        """Yield a running worker. Errors in the block are raised without an exception group."""
        worker: PythonWorker | None = None
        try:
            async with anyio.create_task_group() as group:
                worker = PythonWorker(
                    limits, group, (*PRIMITIVE_SIGNATURES, *functions), self._engine
                )
                orders = {"functions": functions, "output": limits.output}
                await worker.process.begin(self._commands, self._cwd, limits.memory, orders)
                yield worker
                group.cancel_scope.cancel()
        except BaseExceptionGroup as several:
            raise first(several) from None
        finally:
            if worker:
                worker.process.close()


class PythonWorker:
    """One worker process. It handles one request at a time, and further requests wait."""

    def __init__(
        self,
        limits: WorkerLimits,
        group: TaskGroup,
        functions: tuple[str, ...],
        engine: Engine,
    ) -> None:
        self.process = Process(
            group,
            on_message=self._on_message,
            on_end=self._on_end,
            on_use=self._count_time,
            engine=engine,
        )
        self._limits, self._group, self._functions = limits, group, frozenset(functions)
        self._lock = anyio.Lock()
        self._request = _Request(number=0)
        self._request.over.set()  # there is no request to wait for
        self._cell: _Cell | None = None

    async def run(self, cell: str, host: Host, progress: Callable[[str], None]) -> Cell:
        async with self._lock:
            await self._wait_until_idle()
            request = self._send_request({"t": "run", "cell": cell})
            running = _Cell(host, progress)
            try:
                await self._wait_for_result(running, request)
            finally:
                self._cell = None
                await self._stop_leftover_code(running, request)
            return self._result(running, request)

    async def _stop_leftover_code(self, cell: "_Cell", request: "_Request") -> None:
        """Stop the code of a cell that still runs after FINAL or a cancellation."""
        if request.over.is_set():
            return
        if cell.final is not None:
            self._group.start_soon(self._stop, request, "FINAL was called")
        else:
            with anyio.CancelScope(shield=True):
                await self._stop(request, "the cell was stopped")

    async def set_variable(self, name: str, part: str, value: bytes) -> None:
        await self._send_and_wait({"t": "put", "name": name, "part": part}, value)

    async def persist(
        self, stored_names: Collection[str]
    ) -> tuple[Variables, VariableReport]:
        """Return all variables without the bytes of parts in `stored_names`, and a report."""
        message = {"t": "persist", "known": list(stored_names)}
        request = await self._send_and_wait(message, longest=MAX_BLOB_BYTES)
        names = request.done.parts
        # The worker must not get other blobs of the session by naming them.
        if any(name not in request.parts and name not in stored_names for name in names):
            raise WorkerLost("The Python worker named a part that does not exist.")
        new = {name: request.parts[name] for name in names if name in request.parts}
        return Variables(request.blob, names, new), request.variables

    async def restore(
        self, index: bytes, parts: Collection[str], read: ReadPart
    ) -> VariableReport:
        """Send the worker its parts and then the index. Return its report."""
        for name in parts:
            try:
                part = await read(name)
            except JournalError:
                continue  # its variables are reported as lost
            await self._send_and_wait({"t": "part", "name": name}, part)
        return (await self._send_and_wait({"t": "restore"}, index)).variables

    async def list_variables(self) -> tuple[tuple[str, str], ...]:
        return (await self._send_and_wait({"t": "names"})).variables.kept

    async def _send_and_wait(
        self, message: Mapping[str, object], blob: bytes = b"", longest: int = 0
    ) -> "_Request":
        """Send a request about variables, wait, and return the request with its response.

        `longest` is the maximum size of all blobs that the worker may send back. Raises
        `WorkerLost`.
        """
        async with self._lock:
            await self._wait_until_idle()
            self.process.frames.longest_blob = longest
            request = self._send_request(message, blob)
            try:
                # Pickling may run code of the variables, so its time is limited.
                with anyio.move_on_after(self._limits.seconds):
                    await request.over.wait()
            finally:
                if not request.over.is_set():
                    why = f"the variables took more than {self._limits.seconds:g} s"
                    with anyio.CancelScope(shield=True):
                        await self._stop(request, why)
            self.process.check()
            if request.done.failed:
                self.process.end(f"The Python worker was killed: {request.done.text}.")
                self.process.check()
            return request

    def _send_request(self, message: Mapping[str, object], blob: bytes = b"") -> "_Request":
        """Send a message with a new number. The returned request gets the response."""
        self.process.check()
        self._request = _Request(self._request.id + 1)
        self.process.send({**message, "id": self._request.id}, blob)
        return self._request

    async def _wait_until_idle(self) -> None:
        """Wait for the end of code that was interrupted before."""
        await self._request.over.wait()
        self.process.check()

    async def _wait_for_result(self, cell: "_Cell", request: "_Request") -> None:
        """Wait for the end of a cell or of the process. Stop a cell that takes too long."""
        try:
            async with anyio.create_task_group() as calls:
                cell.calls, self._cell = calls, cell
                while not cell.over.is_set() and not request.over.is_set():
                    seconds_left = self._limits.seconds - cell.computing_seconds
                    if seconds_left <= 0:
                        why = f"the cell ran over {self._limits.seconds:g} s"
                        await self._stop(request, why)
                        break
                    # The clock may stop during the wait, so it is checked again after it.
                    with anyio.move_on_after(max(_MIN_WAIT_SECONDS, seconds_left)):
                        await cell.over.wait()
                self._cell = None
                calls.cancel_scope.cancel()
        except BaseExceptionGroup as several:
            raise first(several) from None

    def _result(self, cell: "_Cell", request: "_Request") -> Cell:
        """Return the result of the cell. FINAL counts even if the process has exited."""
        seconds = cell.computing_seconds
        if cell.final is not None:
            return Cell(self._shorten(cell.text), final=cell.final, seconds=seconds)
        self.process.check()
        return Cell(self._shorten(request.done.text), request.done.failed, seconds=seconds)

    def _shorten(self, text: str) -> str:
        """Cut text that exceeds the limit, because code has bypassed the worker's own limit."""
        return text[: self._limits.output + _SLACK_CHARS]

    async def _stop(self, request: "_Request", reason: str) -> None:
        """Interrupt the code of a request, and kill the process if the code does not end."""
        self.process.send({"t": "interrupt", "why": reason})
        with anyio.move_on_after(_GRACE_SECONDS):
            await request.over.wait()
        if not request.over.is_set():
            self.process.end(
                f"The Python worker was killed: {reason}, and the code did not stop."
            )

    def _count_time(self, seconds: float) -> None:
        if self._cell:
            self._cell.update_clock(seconds)

    def _on_end(self) -> None:
        self._request.over.set()
        if self._cell:
            self._cell.over.set()

    def _on_message(self, message: FromWorker, blob: bytes) -> None:
        """Handle a message of the worker: a response, a part, a call or printed text."""
        cell = self._cell
        match message:
            case Done(id=number) if number == self._request.id:
                self._request.done, self._request.blob = message, blob
                self.process.frames.longest_blob = 0
                self._request.over.set()
                if cell:
                    cell.over.set()
            case Part(name):
                self._add_part(name, blob)
            case HostCall():
                self._start_call(message, cell)
            case Printed(text) if cell:
                cell.progress(self._shorten(text))
            case Finaled(value, text) if cell and cell.final is None:
                cell.finish(_check_json(value), text)
            case _:
                pass  # sent by a thread of a cell that has ended

    def _add_part(self, name: str, part: bytes) -> None:
        """Store a part of the variables that the current request asked for.

        Unexpected parts are ignored. The limit on the size of a blob applies to all parts
        together.
        """
        request = self._request
        if request.over.is_set() or not part:
            return
        if len(request.parts) >= _MAX_VARIABLES:
            return
        self.process.frames.longest_blob -= len(part)
        request.parts[name] = part

    def _start_call(self, call: HostCall, cell: "_Cell | None") -> None:
        """Start a call of a host function in the background, or refuse it."""
        if cell is None or cell.calls is None or cell.over.is_set():
            self._refuse(call, f"{call.name} was called when no cell ran.")
        elif call.name not in self._functions:
            self._refuse(call, f"There is no function {call.name!r}.")
        elif cell.waiting >= _MAX_WAITING_CALLS:
            self._refuse(
                call, f"More than {_MAX_WAITING_CALLS:,} calls at a time are too many."
            )
        elif cell.called >= _MAX_CALLS:
            self._refuse(call, f"More than {_MAX_CALLS:,} calls in one cell are too many.")
        else:
            cell.count_waiting(change=1)
            cell.calls.start_soon(self._answer, call, cell)

    async def _answer(self, call: HostCall, cell: "_Cell") -> None:
        """Run the host's function that code has called, and reply even if cancelled."""
        is_answered = False
        try:
            value = await cell.host(call.name, call.arguments)
            self.process.send({"t": "reply", "call": call.call, "value": value})
            is_answered = True
        except HostFailed as failed:
            self._refuse(call, str(failed))
            is_answered = True
        finally:
            cell.count_waiting(change=-1)
            if not is_answered:
                self._refuse(call, f"{call.name} was stopped.")

    def _refuse(self, call: HostCall, reason: str) -> None:
        self.process.send({"t": "reply", "call": call.call, "error": reason})


class _Request:
    def __init__(self, number: int) -> None:
        self.id, self.over = number, anyio.Event()
        self.done, self.blob = Done(number), b""
        self.parts: dict[str, bytes] = {}

    @property
    def variables(self) -> VariableReport:
        return VariableReport(_limit_pairs(self.done.kept), _limit_pairs(self.done.lost))


class _Cell:
    """A running cell, and a clock that stops while the cell only waits for the host.

    If one thread waits for the host while another computes, the clock counts CPU seconds.
    """

    def __init__(self, host: Host, progress: Callable[[str], None]) -> None:
        self.host, self.progress = host, progress
        self.calls: TaskGroup | None = None
        self.over = anyio.Event()
        self.final: Raw | None = None
        self.text = ""
        self.waiting = self.called = 0
        self._earlier_seconds, self._resumed_at = 0.0, time.monotonic()
        self._seconds_at_update, self._updated_at = 0.0, self._resumed_at
        self._cpu_at_update: float | None = None  # None before the first update

    @property
    def computing_seconds(self) -> float:
        running = 0.0 if self.waiting else time.monotonic() - self._resumed_at
        return self._earlier_seconds + running

    def count_waiting(self, change: int) -> None:
        """Stop or start the clock, because a call of the host begins (1) or ends (-1)."""
        self._earlier_seconds, self._resumed_at = self.computing_seconds, time.monotonic()
        self.waiting += change
        if change > 0:
            self.called += change

    def update_clock(self, cpu_seconds: float) -> None:
        """Add the CPU time that the clock has missed.

        The clock stops while one thread waits for the host, although another thread may
        compute. `cpu_seconds` is the CPU time of the process so far.
        """
        now = time.monotonic()
        if self._cpu_at_update is not None:
            elapsed = now - self._updated_at
            counted = self.computing_seconds - self._seconds_at_update
            # Parallel threads do not count twice.
            used = min(cpu_seconds - self._cpu_at_update, elapsed)
            self._earlier_seconds += max(0.0, used - counted)
        self._updated_at = now
        self._seconds_at_update = self.computing_seconds
        self._cpu_at_update = cpu_seconds

    def finish(self, final: Raw, text: str) -> None:
        self.final, self.text = final, text
        self.over.set()


def _limit_pairs(pairs: Pairs) -> Pairs:
    """Limit the list of variables that a worker reports: its length, and that of each text."""
    return tuple(
        (name[:_MAX_NAME_CHARS], about[:_MAX_ABOUT_CHARS])
        for name, about in pairs[:_MAX_VARIABLES]
    )


def _check_json(value: str) -> Raw:
    """Return `value` as JSON. Raises `WorkerLost` if it is not JSON."""
    try:
        return Raw(msgspec.json.encode(msgspec.json.decode(value)))
    except (msgspec.DecodeError, RecursionError) as error:
        raise WorkerLost(
            f"The Python worker gave a final value that is not valid JSON: {error}."
        ) from error
