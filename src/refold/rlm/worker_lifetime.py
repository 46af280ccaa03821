"""Start a worker when it is first needed, and end it with the turn.

The context of a process must be left in the task that entered it, and a call may be cancelled
anywhere; so a task of its own holds the process, in the background of the turn. Its variables
end with it: `repl` stores snapshots.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct

from refold.errors import ToolFailed
from refold.rlm.interfaces import Worker, WorkerLimits, Workers


class _Held(Struct):
    worker: Worker
    end: anyio.Event
    gone: anyio.Event


class WorkerKeeper:
    """Holds the worker of a session while a turn runs."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._group: TaskGroup | None = None
        self._held: _Held | None = None

    @asynccontextmanager
    async def background(self) -> AsyncGenerator[None, None]:
        """While this context is open there may be a worker; leaving it ends the process."""
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                yield
            finally:
                self._group = None
                if self._held is not None:
                    self._held.end.set()
                self._held = None

    @property
    def there(self) -> bool:
        return self._held is not None

    async def worker(
        self, limits: WorkerLimits, functions: Mapping[str, tuple[str, ...]]
    ) -> Worker:
        """The running worker, or a fresh one with these limits and functions."""
        held = self._held
        if held is None:
            if self._group is None:
                raise ToolFailed("Python runs only while a turn does.")
            held = self._held = cast(
                "_Held", await self._group.start(self._hold, limits, functions)
            )
        return held.worker

    async def discard(self) -> None:
        """End the process, if there is one."""
        held, self._held = self._held, None
        if held is not None:
            held.end.set()
            await held.gone.wait()

    async def _hold(
        self,
        limits: WorkerLimits,
        functions: Mapping[str, tuple[str, ...]],
        *,
        task_status: TaskStatus[_Held],
    ) -> None:
        end, gone = anyio.Event(), anyio.Event()
        try:
            async with self._workers(limits, functions) as worker:
                task_status.started(_Held(worker, end, gone))
                await end.wait()
        finally:
            gone.set()
