"""A worker that lives as long as somebody is at work: made when it is first needed.

The context of a process must be left where it was entered, and a call may be cancelled
anywhere; so the process is held by a task of its own, beside the turn. What it holds is
forgotten with it: snapshots are the business of `repl`.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct

from refold.errors import ToolFailed
from refold.rlm.port import Worker, WorkerLimits, Workers


class _Held(Struct):
    worker: Worker
    end: anyio.Event
    gone: anyio.Event


class Keeper:
    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._group: TaskGroup | None = None
        self._held: _Held | None = None

    @asynccontextmanager
    async def beside(self) -> AsyncGenerator[None, None]:
        """While this is entered there may be a worker; leaving it ends the process."""
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
        """The one there is, or a fresh one with these limits and functions."""
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
