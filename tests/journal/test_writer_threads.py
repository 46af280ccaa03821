"""Work for the disk keeps its order, and is completed even if its waiter is cancelled."""

import threading
import weakref
from functools import partial

import anyio
import pytest

from refold.journal.store.writer_threads import WorkQueue, Writers


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_jobs_of_a_queue_run_in_order_alongside_other_queues(threads: int) -> None:
    writers, queues = Writers(threads), [WorkQueue() for _ in range(6)]
    done = {queue: list[int]() for queue in queues}

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for n in range(30):
                for queue in queues:
                    group.start_soon(writers.run, queue, partial(done[queue].append, n))

    anyio.run(main)

    assert list(done.values()) == [list(range(30))] * 6


def test_a_shared_queue_runs_one_job_for_all_waiting_callers() -> None:
    writers, queue, times = Writers(), WorkQueue(shared=True), list[int]()
    started, go_on = threading.Event(), threading.Event()

    def scenario() -> int:
        times.append(len(times))
        started.set()
        go_on.wait()
        return len(times)

    async def main() -> list[int]:
        job_results = list[int]()

        async def wait() -> None:
            job_results.append(await writers.run(queue, scenario))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.to_thread.run_sync(started.wait)
            for _ in range(10):
                group.start_soon(wait)
            await anyio.lowlevel.checkpoint()  # all ten are in the queue now
            go_on.set()
        return job_results

    assert anyio.run(main) == [1] + [2] * 10


class Large:
    """A result that reports when it is freed."""


def test_an_idle_thread_does_not_hold_the_result_of_its_last_job() -> None:
    writers, freed = Writers(1), threading.Event()

    def scenario() -> Large:
        large = Large()
        weakref.finalize(large, freed.set)
        return large

    async def main() -> bool:
        await writers.run(WorkQueue(), scenario)
        return await anyio.to_thread.run_sync(freed.wait, 10)

    assert anyio.run(main)


def test_a_slow_writer_queue_does_not_delay_another_queue() -> None:
    writers, slow, quick = Writers(2), WorkQueue(), WorkQueue()
    go_on = threading.Event()

    async def main() -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(writers.run, slow, go_on.wait)
            await anyio.lowlevel.checkpoint()
            text = await writers.run(quick, lambda: "quick")
            go_on.set()
        return text

    assert anyio.run(main) == "quick"


def test_exception_of_a_job_reaches_its_waiter_and_the_queue_continues() -> None:
    writers, queue = Writers(), WorkQueue()

    async def main() -> int:
        with pytest.raises(ZeroDivisionError):
            await writers.run(queue, lambda: 1 // 0)
        return await writers.run(queue, lambda: 1)

    assert anyio.run(main) == 1


def test_a_job_completes_even_if_its_event_loop_has_ended() -> None:
    writers, queue, go_on, done = (
        Writers(),
        WorkQueue(),
        threading.Event(),
        threading.Event(),
    )

    async def leave() -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await writers.run(queue, go_on.wait)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await writers.run(queue, done.set)

    anyio.run(leave)
    go_on.set()

    assert done.wait(60)


def test_idle_threads_end_and_new_ones_start_when_needed() -> None:
    writers, queue = Writers(idle=0.001), WorkQueue()

    async def thread() -> threading.Thread:
        return await writers.run(queue, threading.current_thread)

    first = anyio.run(thread)
    first.join(10)
    second = anyio.run(thread)

    assert not first.is_alive()
    assert second is not first
