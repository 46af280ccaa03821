"""Many ends of workers, web nodes and the database, while clients give orders; then the judge.

Usage: python -m tests.cluster.outages [--seconds 300] [--sessions 12] [--workers 3] [--seed N]

The seed says which outage comes when. Failover is from the kill of a worker to the next event of each
session whose turn it ran.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
from anyio import to_thread
from msgspec import Struct, field

from refold.cluster.database import Database
from refold.testing.wire_server import wire_server
from tests.cluster.nodes import Nodes, Page, Verdict, judge, model_of, nodes
from tests.cluster.postgresql import Server, postgresql_server

_PAUSED_SECONDS = 8.0
_RUNNING_SQL = """
select session, lines from refold.journal
where root = session and (holder::jsonb->>'pid')::int = $1 and refold.is_claimed(session)
  and exists(select from refold.line l where l.session = journal.session and l.seq = head_seq
    and position('"TurnEnded"'::bytea in l.line) = 0)
"""


class Run(Struct):
    """A run, and what it measured."""

    started: Nodes
    server: Server
    database: Database
    choose: random.Random
    failovers: list[float] = field(default_factory=list)
    outages: list[str] = field(default_factory=list)

    async def kill_worker(self) -> None:
        name = self.choose.choice(sorted(self.started.workers))
        process = self.started.workers[name]
        cut = await self.database.run(lambda db: db.fetch(_RUNNING_SQL, process.pid))
        process.kill()
        killed = time.monotonic()
        process.wait()
        async with anyio.create_task_group() as group:
            for row in cut:
                group.start_soon(self._time_failover, row["session"], row["lines"], killed)
            await anyio.sleep(1)
            await to_thread.run_sync(self.started.start_worker, name)

    async def pause_worker(self) -> None:
        process = self.started.workers[self.choose.choice(sorted(self.started.workers))]
        process.send_signal(signal.SIGSTOP)
        await anyio.sleep(_PAUSED_SECONDS)
        process.send_signal(signal.SIGCONT)

    async def drain_worker(self) -> None:
        name = self.choose.choice(sorted(self.started.workers))
        process = self.started.workers[name]
        process.send_signal(signal.SIGTERM)
        await to_thread.run_sync(process.wait, 60)
        await to_thread.run_sync(self.started.start_worker, name)

    async def kill_web_node(self) -> None:
        name = self.choose.choice(sorted(self.started.web_nodes))
        await to_thread.run_sync(self.started.kill_web_node, name)
        await to_thread.run_sync(self.started.start_web_node, name)

    async def crash_database(self) -> None:
        self.server.crash()

    async def _time_failover(self, session: str, lines: int, killed: float) -> None:
        query = "select lines from refold.journal where session = $1"
        while await self.database.run(lambda db: db.fetchval(query, session)) <= lines:
            await anyio.sleep(0.05)
        self.failovers.append(time.monotonic() - killed)

    @property
    def kinds(self) -> list[Callable[[], Awaitable[None]]]:
        return [
            self.kill_worker, self.kill_worker, self.pause_worker, self.drain_worker,
            self.kill_web_node, self.crash_database,
        ]  # fmt: skip


async def talk(page: Page, number: int, until: float) -> None:
    await page.begin()
    turn = 0
    while time.monotonic() < until:
        await page.say(f"key-{number}-{turn}")
        turn += 1


async def run(
    server: Server, url: str, directory: Path, options: argparse.Namespace
) -> tuple[Run, Verdict]:
    choose, effects = random.Random(options.seed), directory / "effects"
    database = Database(url)
    async with (
        wire_server(model_of(effects)) as model,
        nodes(directory, url, model.url, workers=options.workers, web_nodes=2) as started,
    ):
        until = time.monotonic() + options.seconds
        measured = Run(started, server, database, choose)
        pages = [Page(started, choose) for _ in range(options.sessions)]
        async with anyio.create_task_group() as group:
            for number, page in enumerate(pages):
                group.start_soon(talk, page, number, until)
            await anyio.sleep(3)
            while time.monotonic() < until:
                outage = choose.choice(measured.kinds)
                measured.outages.append(outage.__name__)
                await outage()
                await anyio.sleep(options.pause)
        verdict = await judge(url, pages, effects)
    await to_thread.run_sync(database.close)
    return measured, verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--pause", type=float, default=5, help="between two outages")
    parser.add_argument("--sessions", type=int, default=12)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with (
        postgresql_server() as server,
        tempfile.TemporaryDirectory(prefix="refold-outages-") as directory,
    ):
        measured, verdict = anyio.run(run, server, server.url, Path(directory), options)
    times = sorted(measured.failovers)
    p50, p95 = (times[int(len(times) * p)] if times else 0 for p in (0.5, 0.95))
    lines = (
        f"{len(measured.outages)} outages: {', '.join(measured.outages)}",
        f"{verdict.orders} orders acknowledged, {verdict.calls} calls, {verdict.unknown} unknown, "
        f"{verdict.events} events; load {os.getloadavg()[0]:.0f}",
        f"failover of {len(times)} turns: p50 {p50:.1f} s, p95 {p95:.1f} s",
        *(verdict.problems or ("no order lost or done twice, no gap, all chains good",)),
    )
    print("\n".join(lines))
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
