"""A few threads that write to the disk, so that the event loop never waits for it.

Work is put into a queue. A queue runs its jobs in order; several queues run in parallel, if
threads are free. A shared queue runs one job for all waiting callers: that is group commit.
The work itself is in `journal_writer` and `blobs`.

Cancelling a caller stops nothing: its work is completed, and the result is dropped.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar, cast

import anyio
from anyio.lowlevel import current_token

T = TypeVar("T")

MAX_THREADS = 4
IDLE_SECONDS = 10.0  # a thread ends after this time without work


class WorkQueue:
    """Jobs that must stay in order.

    In a `shared` queue, one job runs for all waiting callers.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self._shared = shared
        self.jobs = deque[Job[Any]]()
        self.busy = False  # a thread serves it, or it waits for a thread

    def drain(self, jobs: Sequence["Job[Any]"]) -> None:
        """Run the jobs, and wake their callers.

        The caller of the last job is not woken: the thread wakes this caller later. In a shared
        queue only the first job runs, and its outcome is that of all.
        """
        for index, job in enumerate(jobs):
            if self._shared and index > 0:
                job.copy_outcome(jobs[0])
            else:
                job.run()
            if job is not jobs[-1]:
                job.wake_waiter()


class Writers:
    """Threads that start when work arrives, and end after a while without work."""

    def __init__(self, threads: int = MAX_THREADS, idle: float = IDLE_SECONDS) -> None:
        self._max_threads, self._running, self._busy_queues = threads, 0, 0
        self._idle_seconds = idle
        self._queues = SimpleQueue[WorkQueue]()
        self._lock = threading.Lock()

    async def run(self, queue: WorkQueue, function: Callable[[], T]) -> T:
        """Run `function` after the queue's earlier jobs, and return its result."""
        job = self.start(queue, function)
        await job.ended.wait()
        return job.outcome()

    def start(self, queue: WorkQueue, function: Callable[[], T]) -> "Job[T]":
        """Run `function` after the queue's earlier jobs, without waiting for it."""
        job = Job(function)
        with self._lock:
            queue.jobs.append(job)
            if not queue.busy:
                queue.busy = True
                self._busy_queues += 1
                self._queues.put(queue)
                if self._running < min(self._max_threads, self._busy_queues):
                    self._start()
        return job

    def run_here(self, queue: WorkQueue, function: Callable[[], object]) -> bool:
        """Call `function` in this thread if the queue is idle; otherwise return False.

        It is for work that does not wait for the disk: passing it to a thread and back
        costs twenty times as much as a write to the page cache.
        """
        with self._lock:
            if queue.busy:
                return False
            queue.busy = True
            self._busy_queues += 1
        try:
            function()
        finally:
            with self._lock:
                self._requeue(queue)
                # Jobs that arrived meanwhile found the queue busy, so they started no thread.
                if queue.busy and not self._running:
                    self._start()
        return True

    def _start(self) -> None:
        self._running += 1
        threading.Thread(target=self._run_queues, daemon=True).start()

    def _requeue(self, queue: WorkQueue) -> None:
        """Put the queue back if it has new jobs; otherwise mark it as idle."""
        if queue.jobs:
            self._queues.put(queue)
        else:
            queue.busy = False
            self._busy_queues -= 1

    def _run_queues(self) -> None:
        """Run the jobs of one queue after the other, until there has been no work for a
        while.
        """
        while (queue := self._wait_for_queue()) is not None:
            with self._lock:
                jobs = list(queue.jobs)
                queue.jobs.clear()
            queue.drain(jobs)
            with self._lock:
                self._requeue(queue)
            # The last caller is woken after the queue is idle, so that it may append without a
            # thread.
            if jobs:
                jobs[-1].wake_waiter()
            # A waiting thread must not keep the data of its last job in memory.
            del jobs, queue

    def _wait_for_queue(self) -> WorkQueue | None:
        """Wait for a queue with work. Return None after a long wait, so that this thread ends."""
        try:
            return self._queues.get(timeout=self._idle_seconds)
        except Empty:
            with self._lock:
                if not self._queues.empty():
                    return self._queues.get()
                self._running -= 1
                return None


class Job(Generic[T]):
    """Work, and the way to wake the caller in its event loop."""

    def __init__(self, function: Callable[[], T]) -> None:
        self.ended = anyio.Event()
        self._work, self._schedule = function, this_loop_scheduler()
        self._result: T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do the work in a thread, and store its result or its error."""
        try:
            self._result = self._work()
        except BaseException as error:  # passed to the caller
            self._error = error

    def copy_outcome(self, other: "Job[T]") -> None:
        self._result, self._error = other._result, other._error

    def outcome(self) -> T:
        """Return the result of the work, or raise its error."""
        if self._error is not None:
            raise self._error
        return cast(T, self._result)

    def wake_waiter(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, so no caller waits
            self._schedule(self.ended.set)


class _Asyncio(Protocol):
    def call_soon_threadsafe(self, call: Callable[[], object], /) -> object:
        """Run `call` in the event loop soon, from any thread."""
        ...


class _Trio(Protocol):
    def run_sync_soon(self, call: Callable[[], object], /) -> object:
        """Run `call` in the event loop soon, from any thread."""
        ...


def this_loop_scheduler() -> Callable[[Callable[[], object]], object]:
    """Return a function that lets any thread run a call in this event loop."""
    loop = current_token().native_token
    if hasattr(loop, "call_soon_threadsafe"):
        return cast(_Asyncio, loop).call_soon_threadsafe
    return cast(_Trio, loop).run_sync_soon
