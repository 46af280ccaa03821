"""Workers are rows that people see, and drain from elsewhere."""

import anyio
import pytest

from refold.cluster.database import Database
from refold.cluster.tenant_status import read_status
from refold.cluster.worker_rows import WorkerRow, WorkerStatus, drain, list_workers

pytestmark = [pytest.mark.anyio, pytest.mark.peer]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_worker_is_shown_with_its_sessions_until_it_has_drained(
    database: Database,
) -> None:
    first, second = WorkerRow(database, lambda: 3), WorkerRow(database, lambda: 0)
    ended, shown, left = list[WorkerStatus](), list[WorkerStatus](), list[WorkerStatus]()

    async def work() -> None:
        async with anyio.create_task_group() as beats:
            beats.start_soon(first.run)
            await first.wait_for_drain()
            draining = [
                worker for worker in await list_workers(database) if worker.is_draining
            ]
            assert [(worker.id, worker.sessions) for worker in draining] == [(first.id, 3)]
            beats.cancel_scope.cancel()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(second.run)
            group.start_soon(work)
            while len(shown) < 2:
                shown = list((await read_status(database)).workers)
            await drain(database, [first.id], ended.append)
            left += await list_workers(database)
            group.cancel_scope.cancel()

    assert {worker.id for worker in shown} == {first.id, second.id}
    assert [worker.id for worker in ended] == [first.id]
    assert [(worker.id, worker.is_draining) for worker in left] == [(second.id, False)]
    assert await list_workers(database) == []


async def test_a_worker_that_begins_to_drain_by_itself_is_listed_as_draining(
    database: Database,
) -> None:
    row, shown = WorkerRow(database, lambda: 1), list[WorkerStatus]()

    async with anyio.create_task_group() as group:
        group.start_soon(row.run)
        row.show_draining()
        with anyio.fail_after(60):
            await row.wait_for_drain()
        shown += await list_workers(database)
        group.cancel_scope.cancel()

    assert [worker.is_draining for worker in shown] == [True]
