"""Kills workers, web nodes and servers while clients give orders; then the judge checks.

Usage: python -m tests.cluster.outages [--seconds 300] [--sessions 12] [--workers 3] [--seed N]
           [--pause 5] [--dense] [--database-only]

The long run is `--seconds 600 --sessions 40 --dense`. Messages cause commands. Some commands must be approved,
run in the background or run in a subagent. Each session has files of its own, which follow it through a bucket;
every fifth session has a workspace elsewhere, behind a connection that is cut, too. The seed determines the
order of the outages. Temporal and NATS run unless the database does their work.

The time of a failover is that from the kill of a worker to the next event of each session whose turn the
worker ran. After an outage of a server it is the time from the server's return to the next event of each
busy session. With `--dense`, the next outage does not wait for these events, so the times contain other
outages. After the last outage, everything that waits must be answered.
"""

import argparse
import math
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup
from msgspec import Struct, field
from msgspec.structs import replace

from bench.relay import relay_argv
from refold.cluster.bucket import tenant_objects
from refold.cluster.database import Database, Row
from refold.testing.wire_server import wire_server
from tests.cluster.judge import Verdict, WatchedBucket, judge
from tests.cluster.nodes import SETTINGS, Nodes, Page, Servers, model_of, nodes
from tests.cluster.postgresql import Server, postgresql_server
from tests.cluster.servers import (
    LoopbackServer,
    nats_server,
    s3_server,
    temporal_server,
)

_PAUSED_SECONDS = 15.0
_DRAIN_SECONDS = 60.0
_DOWN_SECONDS = 3.0  # of a server that was killed
_RETURN_TARGET = "all within 15 s"
_TARGETS = {
    "kill_worker": "p50 6.5 s, p95 13 s",
    "pause_worker": "all within 12 s",  # the limit of the heartbeat, and 8 s more
    "crash_database": _RETURN_TARGET,
    "kill_temporal": _RETURN_TARGET,
    "kill_nats": _RETURN_TARGET,
}
_QUIET_SECONDS = 300.0  # after the outages; by then, everything that waits must be answered
_BUCKET = "s3://refold/outages"
_ELSEWHERE_EVERY = 5  # every fifth session has its workspace elsewhere
_SOURCE = Path(__file__).parents[2]
_LATE_SECONDS = 20.0  # then the report has what is known of the session
_MAX_TIMED_SECONDS = 60.0  # counts as the time of a session that has no new line by then
# The sessions that are busy: with an order, or with a turn that has not ended.
_BUSY_SQL = """
select session, lines, (holder::jsonb->>'pid')::int as pid from refold.journal j
where root = session and (exists(select from refold.placed_order o
    where o.session = j.session and o.outcome is null and o.key <> '')
  or (select coalesce(max(seq) filter (where position('"TurnStarted"'::bytea in line) > 0), 0)
    > coalesce(max(seq) filter (where position('"TurnEnded"'::bytea in line) > 0), 0)
    from refold.line l where l.session = j.session))
"""


# Rows of text about a session whose client has waited too long.
_STUCK_SQL = """
select format('journal: lines %s, claim %s, holder %s', lines, claim, holder)
  from refold.journal where session = $1
union all (select format('order %s %s: claim %s, outcome %s, %s', number, key, claim,
    convert_from(outcome, 'utf8'), left(convert_from(body, 'utf8'), 200))
  from refold.placed_order where session = $1 order by number desc limit 6)
union all (select now() || ' ' || left(convert_from(line, 'utf8'), 300) from refold.line where session = $1
  order by seq desc limit 6)
"""


class Run(Struct):
    """A run of outages, and its measurements."""

    started: Nodes
    server: Server
    database: Database
    choose: random.Random
    effects: Path  # a file that the commands write
    places: (
        Path  # has the ids of processes that connect sessions to their workspaces elsewhere
    )
    # The key of the message to which each session waits for an answer.
    waits: dict[str, str] = field(default_factory=dict[str, str])
    log_lines: Sequence[str] = ()  # lines in the logs of workers
    stuck: list[str] = field(default_factory=list[str])
    late: list[str] = field(default_factory=list[str])
    background: TaskGroup | None = None  # measures while there are further outages
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
        async with self._measuring() as group:
            group.start_soon(self._time, "kill_worker", cut, killed)
            await anyio.sleep(1)
            await to_thread.run_sync(self.started.start_worker, name)

    @asynccontextmanager
    async def _measuring(self) -> AsyncGenerator[TaskGroup]:
        """Yield a group for measurements. Wait for them, unless outages are dense."""
        if self.background is not None:
            yield self.background
            return
        async with anyio.create_task_group() as group:
            yield group

    async def _run_by(self, pid: int) -> Sequence[Row]:
        """Return the busy sessions that the worker with this process id runs."""
        busy = await self.database.run(lambda db: db.fetch(_BUSY_SQL))
        return [row for row in busy if row["pid"] == pid]

    async def pause_worker(self) -> None:
        process = self.started.workers[self.choose.choice(sorted(self.started.workers))]
        process.send_signal(signal.SIGSTOP)
        cut, paused = await self._run_by(process.pid), time.monotonic()
        async with self._measuring() as group:
            group.start_soon(self._time, "pause_worker", cut, paused)
            await anyio.sleep(_PAUSED_SECONDS)
            process.send_signal(signal.SIGCONT)

    async def drain_worker(self) -> None:
        name = self.choose.choice(sorted(self.started.workers))
        process = self.started.workers[name]
        process.send_signal(signal.SIGTERM)
        try:
            await to_thread.run_sync(process.wait, _DRAIN_SECONDS)
        except subprocess.TimeoutExpired:
            self.stuck.append(
                f"{name} did not end within {_DRAIN_SECONDS:.0f} s of SIGTERM"
            )
            process.kill()
            process.wait()
        await to_thread.run_sync(self.started.start_worker, name)

    async def kill_web_node(self) -> None:
        name = self.choose.choice(sorted(self.started.web_nodes))
        await to_thread.run_sync(self.started.kill_web_node, name)
        await to_thread.run_sync(self.started.start_web_node, name)

    async def cut_place(self) -> None:
        """Kill the process that connects a session to its workspace elsewhere."""
        for file in self.choose.sample(
            files := sorted(self.places.glob("*.pid")), len(files)
        ):
            with suppress(OSError, ValueError):
                pid = int(file.read_text())
                if b"bench.relay" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    return

    async def kill_commands(self) -> None:
        """Kill the commands that all sessions are running."""
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
        async with self._measuring() as group:
            group.start_soon(self._time, kind, busy, time.monotonic())

    async def _time(self, kind: str, rows: Sequence[Row], start: float) -> None:
        """Measure how long it takes until each of these sessions has another line."""
        async with anyio.create_task_group() as group:
            for row in rows:
                group.start_soon(self._time_one, kind, row["session"], row["lines"], start)

    async def _time_one(self, kind: str, session: str, lines: int, start: float) -> None:
        query = "select lines from refold.journal where session = $1"

        async def wait_for_line() -> None:
            while await self.database.run(lambda db: db.fetchval(query, session)) <= lines:
                await anyio.sleep(0.05)

        with anyio.move_on_after(_LATE_SECONDS) as limit:
            await wait_for_line()
        if limit.cancelled_caught:
            state = await self._describe_session(session)
            with anyio.move_on_after(_MAX_TIMED_SECONDS - _LATE_SECONDS):
                await wait_for_line()
            seconds = time.monotonic() - start
            self.late.append(
                f"{session} had no event for {seconds:.0f} s after {kind}{state}"
            )
        self.times.setdefault(kind, []).append(time.monotonic() - start)

    async def _describe_session(self, session: str) -> str:
        rows = await self.database.run(lambda db: db.fetch(_STUCK_SQL, session))
        return "".join(f"\n  {row[0]}" for row in rows)

    @property
    def kinds(self) -> list[Callable[[], Awaitable[None]]]:
        own = [self.kill_temporal, self.kill_nats] if self.temporal else []
        return [
            self.kill_worker, self.kill_worker, self.pause_worker, self.drain_worker,
            self.kill_web_node, self.crash_database, self.kill_commands, self.cut_place, *own,
        ]  # fmt: skip

    async def talk(self, page: Page, number: int, until: float) -> None:
        """Send one message after another, and wait for each answer, as long as the outages last.

        A last message follows the outages, so that the files of each session are stored once more.
        """
        await page.begin()
        turn = 0
        while time.monotonic() < until:
            await self._say(page, f"key-{number}-{turn}")
            turn += 1
        await self._say(page, f"key-{number}-{turn}-0")
        self.waits.pop(page.id)

    async def _say(self, page: Page, key: str) -> None:
        self.waits[page.id] = key
        await page.say(key, math.inf)

    async def report_stuck(self) -> None:
        """Report sessions that are still not answered, although all servers run again."""
        for session, key in self.waits.items():
            state = await self._describe_session(session)
            self.stuck.append(f"{session}: {key} is not answered{state}")

    async def make_outages(self, until: float, pause: float) -> None:
        await anyio.sleep(3)
        deck = list[Callable[[], Awaitable[None]]]()
        while (left := until - time.monotonic()) > 0:
            deck = deck or self.choose.sample(self.kinds, len(self.kinds))
            outage = deck.pop()
            self.outages.append(outage.__name__)
            print(f"{left:.0f} s left: {outage.__name__}", flush=True)
            await outage()
            await anyio.sleep(pause)

    async def drain(self) -> None:
        """Drain all workers, so that their files are stored."""
        for worker in self.started.workers.values():
            worker.send_signal(signal.SIGTERM)
        for worker in self.started.workers.values():
            await to_thread.run_sync(worker.wait, 120)


def place_settings(places: Path, numbers: Sequence[int]) -> str:
    """Return settings that name workspaces elsewhere, behind a process that can be killed."""
    lines = list[str]()
    for number in numbers:
        (places / str(number)).mkdir(parents=True)
        relay = relay_argv(0, places / f"{number}.pid", "sh")
        variables = f"PYTHONPATH={_SOURCE}", f"XDG_DATA_HOME={places / 'data'}"
        command = shlex.join(("env", *variables, *relay))
        lines.append(f"place-{number} = 'cmd:{command} # {places / str(number)}'\n")
    return f"\n[workspaces]\n{''.join(lines)}" if lines else ""


async def run(
    server: Server, directory: Path, options: argparse.Namespace
) -> tuple[Run, Verdict]:
    choose, effects = random.Random(options.seed), directory / "effects"
    database, places = Database(server.url), directory / "places"
    elsewhere = range(_ELSEWHERE_EVERY - 1, options.sessions, _ELSEWHERE_EVERY)
    temporal = nats = None
    async with wire_server(model_of(effects)) as model, AsyncExitStack() as stack:
        s3 = stack.enter_context(s3_server())
        os.environ.update(s3.variables)
        objects = tenant_objects(_BUCKET, "default", os.environ)
        await to_thread.run_sync(objects.check)
        servers = Servers(
            server.url, model.url, bucket={**s3.variables, "REFOLD_BUCKET": _BUCKET},
            settings=SETTINGS + place_settings(places, elsewhere),
        )  # fmt: skip
        if not options.database_only:
            temporal = stack.enter_context(temporal_server())
            nats = stack.enter_context(nats_server())
            servers = replace(
                servers, temporal=temporal.address, nats=f"nats://{nats.address}"
            )
        several = nodes(directory, servers, workers=options.workers, web_nodes=2)
        started = await stack.enter_async_context(several)
        until = time.monotonic() + options.seconds
        measured = Run(
            started, server, database, choose, effects, places, temporal=temporal, nats=nats
        )
        bucket = WatchedBucket(objects, directory / "restored")
        pages = [
            Page(
                started,
                random.Random(f"{options.seed} {n}"),
                {"workspace": f"place-{n}"} if n in elsewhere else {"own_workspace": True},
            )
            for n in range(options.sessions)
        ]
        async with anyio.create_task_group() as watch:
            watch.start_soon(bucket.watch)
            async with anyio.create_task_group() as group:
                measured.background = group if options.dense else None
                for number, page in enumerate(pages):
                    group.start_soon(measured.talk, page, number, until)
                await measured.make_outages(until, options.pause)
                group.cancel_scope.deadline = anyio.current_time() + _QUIET_SECONDS
            await measured.report_stuck()
            await bucket.wait_until_still()
            await measured.drain()
            watch.cancel_scope.cancel()
        verdict = await judge(server.url, pages, effects, bucket)
        verdict.problems += measured.stuck
        measured.log_lines = started.log_lines()
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
    parser.add_argument(
        "--dense", action="store_true", help="let outages come while sessions still recover"
    )
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
        f"{verdict.unknown} unknown, {verdict.events} events; {verdict.workspaces} workspaces followed, "
        f"{verdict.restored} restored by another worker; load {os.getloadavg()[0]:.0f}",
        *(describe_times(kind, times) for kind, times in measured.times.items()),
        *measured.log_lines,
        *measured.late,
        *(verdict.problems or ("no order lost or done twice, no gap, all chains good",)),
    )
    print("\n".join(lines))
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
