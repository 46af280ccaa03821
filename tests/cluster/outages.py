"""Many ends of workers, web nodes and servers, while clients give orders; then the judge.

Usage: python -m tests.cluster.outages [--seconds 300] [--sessions 12] [--workers 3] [--seed N]
           [--pause 5] [--database-only]

The long run is `--seconds 600 --sessions 40`. Messages have commands, of which some must be approved,
run in the background or run in a subagent. The seed says which outage comes when. Temporal and NATS
are there unless the database does all of it. Failover is from the kill of a worker to the next event of each session whose turn it ran; after an outage
of a server, from its return to the next event of each session that had something to do.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import anyio
from anyio import to_thread
from msgspec import Struct, field

from refold.cluster.database import Database, Row
from refold.testing.wire_server import wire_server
from tests.cluster.nodes import Nodes, Page, Servers, Verdict, judge, model_of, nodes
from tests.cluster.postgresql import Server, postgresql_server
from tests.cluster.servers import LoopbackServer, nats_server, temporal_server

_PAUSED_SECONDS = 15.0
_DOWN_SECONDS = 3.0  # of a server that was killed
_RETURN_TARGET = "all within 15 s"
_TARGETS = {
    "kill_worker": "p50 6.5 s, p95 13 s",
    "pause_worker": "all within 12 s",  # the limit of the heartbeat and 8 s
    "crash_database": _RETURN_TARGET,
    "kill_temporal": _RETURN_TARGET,
    "kill_nats": _RETURN_TARGET,
}
_MAX_TIMED_SECONDS = 60.0  # a session that has no line by then is measured with that
# Those with an order, or a turn that has not ended.
_BUSY_SQL = """
select session, lines, (holder::jsonb->>'pid')::int as pid from refold.journal j
where root = session and (exists(select from refold.placed_order o
    where o.session = j.session and o.outcome is null and o.key <> '')
  or (select coalesce(max(seq) filter (where position('"TurnStarted"'::bytea in line) > 0), 0)
    > coalesce(max(seq) filter (where position('"TurnEnded"'::bytea in line) > 0), 0)
    from refold.line l where l.session = j.session))
"""


class Run(Struct):
    """A run, and what it measured."""

    started: Nodes
    server: Server
    database: Database
    choose: random.Random
    effects: Path  # a file that the commands write
    temporal: LoopbackServer | None = None
    nats: LoopbackServer | None = None
    times: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    outages: list[str] = field(default_factory=list[str])

    async def kill_worker(self) -> None:
        name = self.choose.choice(sorted(self.started.workers))
        process = self.started.workers[name]
        cut = await self._run_by(process.pid)
        process.kill()
        killed = time.monotonic()
        process.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(self._time, "kill_worker", cut, killed)
            await anyio.sleep(1)
            await to_thread.run_sync(self.started.start_worker, name)

    async def _run_by(self, pid: int) -> Sequence[Row]:
        """The sessions with something to do that this worker runs."""
        busy = await self.database.run(lambda db: db.fetch(_BUSY_SQL))
        return [row for row in busy if row["pid"] == pid]

    async def pause_worker(self) -> None:
        process = self.started.workers[self.choose.choice(sorted(self.started.workers))]
        process.send_signal(signal.SIGSTOP)
        cut, paused = await self._run_by(process.pid), time.monotonic()
        async with anyio.create_task_group() as group:
            group.start_soon(self._time, "pause_worker", cut, paused)
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

    async def kill_commands(self) -> None:
        """End the commands of all sessions in the middle, as if their places were cut off."""
        for process in Path("/proc").iterdir():
            with suppress(OSError):
                if bytes(self.effects) in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)

    async def crash_database(self) -> None:
        self.server.crash()
        await self._time_return("crash_database")

    async def kill_temporal(self) -> None:
        assert self.temporal is not None
        await self._restart(self.temporal)
        await self._time_return("kill_temporal")

    async def kill_nats(self) -> None:
        assert self.nats is not None
        await self._restart(self.nats)
        await self._time_return("kill_nats")

    async def _restart(self, server: LoopbackServer) -> None:
        server.kill()
        await anyio.sleep(_DOWN_SECONDS)
        server.launch()
        await to_thread.run_sync(server.wait_until_ready)

    async def _time_return(self, kind: str) -> None:
        busy = await self.database.run(lambda db: db.fetch(_BUSY_SQL))
        await self._time(kind, busy, time.monotonic())

    async def _time(self, kind: str, rows: Sequence[Row], start: float) -> None:
        """Measure until each of these sessions has another line."""
        async with anyio.create_task_group() as group:
            for row in rows:
                group.start_soon(self._time_one, kind, row["session"], row["lines"], start)

    async def _time_one(self, kind: str, session: str, lines: int, start: float) -> None:
        query = "select lines from refold.journal where session = $1"
        with anyio.move_on_after(_MAX_TIMED_SECONDS):
            while await self.database.run(lambda db: db.fetchval(query, session)) <= lines:
                await anyio.sleep(0.05)
        self.times.setdefault(kind, []).append(time.monotonic() - start)

    @property
    def kinds(self) -> list[Callable[[], Awaitable[None]]]:
        own = [self.kill_temporal, self.kill_nats] if self.temporal else []
        return [
            self.kill_worker, self.kill_worker, self.pause_worker, self.drain_worker,
            self.kill_web_node, self.crash_database, self.kill_commands, *own,
        ]  # fmt: skip


async def talk(page: Page, number: int, until: float) -> None:
    await page.begin()
    turn = 0
    while time.monotonic() < until:
        await page.say(f"key-{number}-{turn}")
        turn += 1


async def run(
    server: Server, directory: Path, options: argparse.Namespace
) -> tuple[Run, Verdict]:
    choose, effects = random.Random(options.seed), directory / "effects"
    database = Database(server.url)
    temporal = nats = None
    async with wire_server(model_of(effects)) as model, AsyncExitStack() as stack:
        servers = Servers(server.url, model.url)
        if not options.database_only:
            temporal = stack.enter_context(temporal_server())
            nats = stack.enter_context(nats_server())
            servers = Servers(
                server.url, model.url, temporal.address, f"nats://{nats.address}"
            )
        several = nodes(directory, servers, workers=options.workers, web_nodes=2)
        started = await stack.enter_async_context(several)
        until = time.monotonic() + options.seconds
        measured = Run(started, server, database, choose, effects, temporal, nats)
        pages = [
            Page(started, random.Random(f"{options.seed} {n}"))
            for n in range(options.sessions)
        ]
        async with anyio.create_task_group() as group:
            for number, page in enumerate(pages):
                group.start_soon(talk, page, number, until)
            await anyio.sleep(3)
            deck = list[Callable[[], Awaitable[None]]]()
            while time.monotonic() < until:
                deck = deck or choose.sample(measured.kinds, len(measured.kinds))
                outage = deck.pop()
                measured.outages.append(outage.__name__)
                print(
                    f"{until - time.monotonic():.0f} s left: {outage.__name__}", flush=True
                )
                await outage()
                await anyio.sleep(options.pause)
        verdict = await judge(server.url, pages, effects)
    await to_thread.run_sync(database.close)
    return measured, verdict


def describe_times(kind: str, times: Sequence[float]) -> str:
    ordered = sorted(times)
    p50, p95 = (ordered[int(len(ordered) * part)] for part in (0.5, 0.95))
    figures = f"p50 {p50:.1f} s, p95 {p95:.1f} s, max {ordered[-1]:.1f} s"
    return f"{kind}, {len(times)} sessions: {figures} (target: {_TARGETS[kind]})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--pause", type=float, default=5, help="between two outages")
    parser.add_argument("--sessions", type=int, default=12)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument(
        "--database-only", action="store_true", help="without Temporal and NATS"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with (
        postgresql_server() as server,
        tempfile.TemporaryDirectory(prefix="refold-outages-") as directory,
    ):
        measured, verdict = anyio.run(run, server, Path(directory), options)
    kinds = Counter(measured.outages)
    lines = (
        f"{kinds.total()} outages: "
        + ", ".join(f"{n} {kind}" for kind, n in kinds.items()),
        f"{verdict.orders} orders acknowledged, {verdict.calls} calls, {verdict.children} subagents, "
        f"{verdict.approvals} approvals acknowledged, {verdict.background} commands in the background, "
        f"{verdict.unknown} unknown, {verdict.events} events; load {os.getloadavg()[0]:.0f}",
        *(describe_times(kind, times) for kind, times in measured.times.items()),
        *(verdict.problems or ("no order lost or done twice, no gap, all chains good",)),
    )
    print("\n".join(lines))
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
