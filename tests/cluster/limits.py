"""Checks with each runner that the limit of a tenant holds for it, and not for another tenant."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TypeAlias

import anyio

from refold.client.host_ports import Runner, SessionClaim
from refold.cluster.database import Database

_LIMIT_SQL = (
    "insert into refold.tenant_settings(tenant, max_running) values(refold.tenant(), 2)"
)


StartWorker: TypeAlias = Callable[
    [Database, Callable[[], None]], AbstractAsyncContextManager[Runner]
]


async def check_a_limit_holds_for_all_workers_of_a_tenant_and_for_no_other(
    start: StartWorker, mine: Database, theirs: Database, waiting: int
) -> None:
    await mine.run(lambda db: db.execute(_LIMIT_SQL))
    claims, fulls = list[SessionClaim](), list[None]()

    async def collect(runner: Runner) -> None:
        async with aclosing(_claims(runner)) as new:
            async for claim in new:
                claims.append(claim)

    with anyio.fail_after(200):
        async with (
            start(mine, lambda: fulls.append(None)) as first,
            start(mine, lambda: fulls.append(None)) as second,
            start(theirs, lambda: None) as other,
            anyio.create_task_group() as group,
        ):
            for runner in (first, second):
                group.start_soon(collect, runner)
            for number in range(waiting):
                await first.wake(f"session-{number}")
            while len(claims) < 2 or not fulls:
                await anyio.sleep(0.05)
            await other.wake("their-session")
            async with aclosing(_claims(other)) as new:
                claim = await anext(new)
            assert (claim.session, len(claims)) == ("their-session", 2)
            await claim.end()
            await claims[0].end()
            while len(claims) < 3:
                await anyio.sleep(0.05)
            for left in claims[1:]:
                await left.end()
            group.cancel_scope.cancel()


async def _claims(runner: Runner) -> AsyncGenerator[SessionClaim]:
    async for claim in runner.claims():
        yield claim
