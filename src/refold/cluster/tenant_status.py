"""What the workers of a tenant do now, for `refold cluster status` and for alarms."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from refold.cluster.database import Database
from refold.cluster.worker_rows import WorkerStatus, list_workers

_STATUS_SQL = """
select
  (select count(*) from refold.journal where tenant = refold.tenant()
    and session = root and lines > 0) as sessions,
  (select count(*) from refold.placed_order where tenant = refold.tenant()
    and outcome is null) as open_orders,
  (select coalesce(extract(epoch from now() - min(placed)), 0)::float8 from refold.placed_order
    where tenant = refold.tenant() and outcome is null) as oldest_order_seconds,
  (select count(*) from refold.procrastinate_jobs where queue_name = refold.queue()
    and status = 'doing') as at_work,
  (select count(*) from refold.procrastinate_jobs where queue_name = refold.queue()
    and status = 'todo') as waiting
"""


class TenantStatus(Struct, frozen=True):
    """How many sessions and orders of a tenant are open, run or wait, and which workers it has.

    `at_work` and `waiting` count jobs of the queue. With Temporal they are 0, because only
    Temporal knows these numbers.
    """

    sessions: int
    open_orders: int
    oldest_order_seconds: float
    at_work: int
    waiting: int
    workers: Sequence[WorkerStatus]


async def read_status(database: Database) -> TenantStatus:
    """Return the status of the tenant of `database`.

    The login must be the owner of the tables, because nodes may not read the queue.
    """
    row: Any = await database.run(lambda db: db.fetchrow(_STATUS_SQL))
    return TenantStatus(workers=await list_workers(database), **dict(row))
