"""Sends metrics of a node of a service to a collector of OpenTelemetry, from time to time.

`services` creates a `NodeMetrics` only if the settings name a collector. `app.live_traces`
sends the traces and metrics of turns to the same collector. The open orders are counted in
the database, everything else in this process.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import anyio
from msgspec import Struct

from refold.app.live_traces import trace_targets
from refold.app.otlp import Collector, MetricSums, send_metrics
from refold.client.hosted_conversation import Conversation
from refold.cluster.database import Connection, Database
from refold.cluster.outage import Outage
from refold.cluster.store import parse_holder
from refold.config.settings import Otel
from refold.errors import BadInput, JournalError, RefoldError
from refold.views.metrics import Metric, NumberMetric, NumberPoint, Point

OLDEST_ORDER_METRIC = "refold.orders.oldest.age"
OPEN_ORDERS_METRIC = "refold.orders.open"
OPEN_SESSIONS_METRIC = "refold.sessions.open"
RUNNING_TURNS_METRIC = "refold.turns.running"
FAILOVERS_METRIC = "refold.sessions.failovers"
OPEN_DURATION_METRIC = Metric(
    "refold.session.open.duration",
    "s",
    "Time to read and fold the journal of a session.",
    tuple(0.001 * 2**n for n in range(15)),
)
_INTERVAL_VARIABLE = "OTEL_METRIC_EXPORT_INTERVAL"
_DEFAULT_INTERVAL_MS = "60000"  # the default of OpenTelemetry
_ORDERS_SQL = """
select count(*) as open_orders,
  coalesce(extract(epoch from clock_timestamp() - min(placed)), 0)::float8 as oldest
from refold.placed_order where tenant = refold.tenant() and outcome is null
"""
_HOLDER_SQL = (
    "select holder from refold.journal where tenant = refold.tenant() and session = $1"
)


class MetricsExport(Struct, frozen=True):
    """Where metrics are sent, and how often. `instance` names the process."""

    to: Collector
    interval_seconds: float
    is_delta: bool  # the collector adds up counts itself
    instance: str
    report: Callable[[str], None]


def metrics_export(
    otel: Otel, environ: Mapping[str, str], report: Callable[[str], None]
) -> MetricsExport | None:
    """Return where the settings send metrics; None if they name no collector.

    Raises `BadInput` if the environment has an invalid interval.
    """
    targets = trace_targets(otel, environ)
    if targets is None or targets.metrics is None:
        return None
    text = environ.get(_INTERVAL_VARIABLE, "").strip() or _DEFAULT_INTERVAL_MS
    if not text.isdecimal() or not int(text):
        raise BadInput(
            f"{_INTERVAL_VARIABLE} is {text!r}: give milliseconds, as in {_DEFAULT_INTERVAL_MS}"
        )
    instance_id = os.urandom(8).hex()  # tells the collector this process from others
    seconds = int(text) / 1000
    return MetricsExport(targets.metrics, seconds, targets.delta, instance_id, report)


class NodeMetrics:
    """The metrics of one tenant at this node."""

    def __init__(
        self, export: MetricsExport, database: Database, role: Literal["worker", "web"]
    ) -> None:
        self._export = export
        self._database = database
        self._role = role
        self._attributes = {"refold.tenant": database.tenant, "refold.node": role}
        self._since = time.time_ns()  # the beginning of the time that is counted
        self._outage = Outage(f"OpenTelemetry: {export.to.display_address}", export.report)
        self._failovers = 0
        self._openings = self._new_openings()  # how long sessions took to open

    def add_opening(self, seconds: float) -> None:
        """Count a session that was opened. Opening it took this number of seconds."""
        self._openings.add(seconds, OPEN_DURATION_METRIC.bounds)

    async def read_failover(self, session: str) -> bool:
        """Whether another process leased the session last; False if the database does not
        answer.
        """
        try:
            text = await self._database.run(lambda db: db.fetchval(_HOLDER_SQL, session))
        except JournalError:
            return False
        holder = parse_holder(text or "")
        return (holder.pid, holder.host) != (os.getpid(), os.uname().nodename)

    def add_failover(self) -> None:
        """Count a session with an open turn that another worker had left."""
        self._failovers += 1

    async def run(self, conversations: Callable[[], Sequence[Conversation]]) -> None:
        """Send the metrics until this is cancelled.

        Report when the collector stops accepting them, and when it accepts them again.
        """
        while True:
            await anyio.sleep(self._export.interval_seconds)
            try:
                refusals = await self._send(conversations())
            except RefoldError as error:
                refusals = [str(error)]
            if refusals:
                self._outage.begin(f"OpenTelemetry: {refusals[0]}")
            else:
                self._outage.end()

    async def _send(self, conversations: Sequence[Conversation]) -> Sequence[str]:
        """Send all metrics, and return why the collector refused some of them."""
        now = time.time_ns()
        export = self._export
        numbers = [*await self._order_metrics(), *self._node_metrics(conversations)]
        histograms = list[tuple[Metric, list[Point]]]()
        if any(self._openings.counts):
            histograms.append((OPEN_DURATION_METRIC, [self._openings]))
        sums = MetricSums(
            histograms,
            self._since,
            now,
            export.instance,
            is_cumulative=not export.is_delta,
            numbers=numbers,
        )
        refusals = await send_metrics(sums, export.to)
        if export.is_delta:  # the next figures count from now on
            self._since = now
            self._failovers = 0
            self._openings = self._new_openings()
        return refusals

    async def _order_metrics(self) -> Sequence[NumberMetric]:
        """Return the metrics about open orders; () while the database cannot be reached."""

        async def read(db: Connection) -> tuple[int, float]:
            row = await db.fetchrow(_ORDERS_SQL)
            assert row is not None, "a query that counts returns a row"
            return row["open_orders"], row["oldest"]

        try:
            count, oldest = await self._database.run(read)
        except JournalError:
            return ()
        return (
            self._number(OLDEST_ORDER_METRIC, "s", "Age of the oldest open order.", oldest),
            self._number(OPEN_ORDERS_METRIC, "{order}", "Open orders.", count),
        )

    def _node_metrics(
        self, conversations: Sequence[Conversation]
    ) -> Sequence[NumberMetric]:
        """Return the metrics about this process.

        Metrics of turns are included only if the process is a worker.
        """
        count = len(conversations)
        open_sessions = self._number(
            OPEN_SESSIONS_METRIC, "{session}", "Open sessions.", count
        )
        if self._role == "web":
            return (open_sessions,)
        running = sum(chat.session.running for chat in conversations)
        about = "Sessions whose open turn this worker took over from another process."
        return (
            open_sessions,
            self._number(RUNNING_TURNS_METRIC, "{turn}", "Turns that run.", running),
            self._number(
                FAILOVERS_METRIC, "{session}", about, self._failovers, counts=True
            ),
        )

    def _number(
        self, name: str, unit: str, about: str, value: float, *, counts: bool = False
    ) -> NumberMetric:
        return NumberMetric(
            name, unit, about, [NumberPoint(self._attributes, value)], counts
        )

    def _new_openings(self) -> Point:
        return Point(self._attributes, [0] * (len(OPEN_DURATION_METRIC.bounds) + 1))
