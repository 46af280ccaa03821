"""Measures what a web node, a worker and their servers cost: delays, and the throughput.

Usage: python -m bench.cluster [--sessions 20] [--at-once 200] [--database-only]

The servers are those of the tests of clusters, on this machine, with the development server of
Temporal. The time of an order is that from its row in the database to its event in the journal. An
order is cold if no worker has the session, and warm otherwise. The time of the first piece of a
response is that from the request to the model to the document on a page, measured in turn for a
cluster and for `refold serve`.
"""

import argparse
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import anyio
from anyio import to_thread
from msgspec import Struct, field

from bench import table
from refold.cluster.database import Database
from refold.cluster.store import PostgreSQLStore
from refold.provider.script import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, Pause, ReceivedRequest, wire_server
from tests.cluster.nodes import Nodes, Page, Servers, nodes
from tests.cluster.postgresql import Server, postgresql_server
from tests.cluster.servers import nats_server, temporal_server

_WARM_ORDERS = 5  # in each session
_WRITERS, _BATCH_EVENTS, _APPEND_SECONDS = 64, 10, 5.0
_LINE = b'{"kind":"ModelAnswered","data":"%s"}' % (b"x" * 400)
_ORDER_SQL = """
select o.key, extract(epoch from o.placed)::float8 as placed,
  (convert_from(l.line, 'UTF8')::jsonb->>'at')::float8 as recorded
from refold.placed_order o join refold.line l on l.tenant = o.tenant and l.session = o.session
  and position(convert_to('"' || o.key || '"', 'UTF8') in l.line) > 0
  and position('"kind":"Said"'::bytea in l.line) > 0
where o.key like 'key-%'
"""


class Model(Struct):
    """A model whose response begins at once. `asked` has the time of its request, by message key."""

    asked: dict[str, float] = field(default_factory=dict[str, float])

    def answer_request(self, request: ReceivedRequest) -> Answer:
        text = json.dumps(json.loads(request.body)["messages"][-1])
        self.asked.setdefault(text.partition("do ")[2].partition('"')[0], time.monotonic())
        whole = answer("openai-chat", Reply("It is done. " * 5))
        assert isinstance(whole.body, bytes)
        pieces = list[bytes | Pause]()
        for piece in filter(None, whole.body.split(b"\n\n")):
            pieces += [piece + b"\n\n", Pause(0.001)]
        return Answer(tuple(pieces), headers=whole.headers)


class TimedPage(Page):
    """A page that notes when the first piece of each response came, by message key."""

    def __init__(self, started: Nodes, choose: random.Random) -> None:
        super().__init__(started, choose)
        self.pieces = dict[str, float]()

    def _note(self, document: dict[str, Any], key: str) -> None:
        if document["type"] == "text_delta":
            self.pieces.setdefault(key, time.monotonic())
        super()._note(document, key)


class Figures(Struct):
    """The figures: seconds, and events a second. `pieces_here` is that of `refold serve`."""

    cold: Sequence[float] = ()
    warm: Sequence[float] = ()
    at_once: Sequence[float] = ()
    at_once_seconds: float = 0.0
    pieces: Sequence[float] = ()
    pieces_here: Sequence[float] = ()
    events: float = 0.0


@asynccontextmanager
async def _one_machine(directory: Path, model: str) -> AsyncGenerator[Nodes]:
    """Start `refold serve`, without a database, until the block ends."""
    started = Nodes(directory, Servers("", model))
    try:
        await to_thread.run_sync(started.start_web_node, "web-0", "serve")
        yield started
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(started.stop)


async def _measure(server: Server, directory: Path, chosen: argparse.Namespace) -> Figures:
    model, figures, database = Model(), Figures(), Database(server.url)
    async with wire_server(model.answer_request) as wire, AsyncExitStack() as stack:
        servers = Servers(server.url, wire.url)
        if not chosen.database_only:
            temporal = stack.enter_context(temporal_server())
            nats = stack.enter_context(nats_server())
            servers = Servers(
                server.url, wire.url, temporal.address, f"nats://{nats.address}"
            )
        cluster = await stack.enter_async_context(
            nodes(directory / "cluster", servers, workers=1, web_nodes=1)
        )
        here = await stack.enter_async_context(_one_machine(directory / "one", wire.url))
        pages = [TimedPage(cluster, random.Random(n)) for n in range(chosen.sessions)]
        pages_here = [TimedPage(here, random.Random(n)) for n in range(chosen.sessions)]
        for page in (*pages, *pages_here):
            await page.begin()
            await page.say(f"key-first-{page.id}")
        await to_thread.run_sync(_replace_worker, cluster)
        for page, page_here in zip(pages, pages_here, strict=True):
            await page.say(f"key-cold-{page.id}")
            for n in range(_WARM_ORDERS):
                await page.say(f"key-warm-{page.id}-{n}")
                await page_here.say(f"key-warm-{page_here.id}-{n}")
        orders = await _read_orders(database)
        figures.cold, figures.warm = orders["cold"], orders["warm"]
        figures.pieces = _delays(model, pages)
        figures.pieces_here = _delays(model, pages_here)
        figures.at_once_seconds = await _run_at_once(cluster, chosen.at_once)
        figures.at_once = (await _read_orders(database))["once"]
    figures.events = await _append(database)
    await to_thread.run_sync(database.close)
    return figures


def _replace_worker(cluster: Nodes) -> None:
    """Replace the worker by another one, which has no session yet."""
    process = cluster.workers["worker-0"]
    process.send_signal(signal.SIGTERM)
    process.wait()
    cluster.start_worker("worker-1")
    cluster.wait_for_worker("worker-1")


def _delays(model: Model, pages: Sequence[TimedPage]) -> list[float]:
    return [
        at - model.asked[key]
        for page in pages
        for key, at in page.pieces.items()
        if "warm" in key
    ]


async def _read_orders(database: Database) -> dict[str, list[float]]:
    """Return the seconds of the orders, by the second word of their keys, such as "cold"."""
    seconds = dict[str, list[float]]()
    for row in await database.run(lambda db: db.fetch(_ORDER_SQL)):
        kind = row["key"].split("-")[1]
        seconds.setdefault(kind, []).append(row["recorded"] - row["placed"])
    return seconds


async def _run_at_once(cluster: Nodes, count: int) -> float:
    """Run a turn in `count` sessions at once. Return the seconds until all have ended."""
    pages = [Page(cluster, random.Random(n)) for n in range(count)]
    for page in pages:
        await page.begin()
    start = time.monotonic()
    async with anyio.create_task_group() as group:
        for page in pages:
            group.start_soon(page.say, f"key-once-{page.id}")
    return time.monotonic() - start


async def _append(database: Database) -> float:
    """Append events with several writers. Return the number of events a second."""
    total, until = 0, time.monotonic() + _APPEND_SECONDS

    async def write(number: int) -> None:
        nonlocal total
        store = PostgreSQLStore(database, f"20260101-000000-{number:04}")
        lease, count = await store.lease(), 0
        while time.monotonic() < until:
            lines, end = [_LINE] * _BATCH_EVENTS, count + _BATCH_EVENTS
            await store.append(lines, expect=count, epoch=lease.epoch, head=(end, "0" * 16))
            count, total = end, total + _BATCH_EVENTS
        await store.release()

    start = time.monotonic()
    async with anyio.create_task_group() as group:
        for number in range(_WRITERS):
            group.start_soon(write, number)
    return total / (time.monotonic() - start)


def _row(name: str, seconds: Sequence[float], target: str) -> tuple[str, str, str, str]:
    ordered = sorted(seconds)
    p95 = ordered[int(len(ordered) * 0.95)]
    return name, table.ms(median(ordered)), table.ms(p95), target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=200)
    parser.add_argument("--database-only", action="store_true")
    chosen = parser.parse_args()
    with postgresql_server() as server, tempfile.TemporaryDirectory() as directory:
        for name in ("cluster", "one"):
            (Path(directory) / name).mkdir()
        figures = anyio.run(partial(_measure, server, Path(directory), chosen))
    added = median(figures.pieces) - median(figures.pieces_here)
    engine = "the database" if chosen.database_only else "Temporal and NATS"
    table.show(
        f"a cluster with {engine}; load {os.getloadavg()[0]:.0f}",
        ["p50", "p95", "target"],
        [
            _row("order to worker, cold", figures.cold, "p50 ≤ 120 ms"),
            _row("order to worker, warm", figures.warm, "p50 ≤ 5 ms"),
            _row("first piece on a page", figures.pieces, ""),
            _row("the same on one machine", figures.pieces_here, ""),
            ("what a cluster adds", table.ms(added), "", "p50 ≤ 5 ms"),
            _row(f"{chosen.at_once} orders at once", figures.at_once, ""),
        ],
    )
    print(
        f"  {chosen.at_once} sessions at once: a turn each in {figures.at_once_seconds:.1f} s"
    )
    print(f"  {figures.events:,.0f} events appended a second in batches (target: 10,000)")


if __name__ == "__main__":
    main()
