"""What the nodes of one service share: the database, the runner of sessions, and the bus.

The database can serve as all three. If Temporal is set, it assigns sessions to workers; if
NATS is set, it carries live documents. Their packages are imported only if they are used.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from refold.client.host_ports import Bus, Runner
from refold.client.nodes.database_orders import DatabaseOrders
from refold.cluster.database import EXTRA_MISSING, Database
from refold.cluster.notify_bus import NotifyBus
from refold.cluster.session_runner import ProcrastinateRunner
from refold.errors import BadInput

if TYPE_CHECKING:
    from refold.client.nodes.node_metrics import MetricsExport, NodeMetrics


class NodeRunner(Runner, Protocol):
    """A `Runner` across processes. While `run` runs, this process gets claims."""

    async def run(self) -> None:
        """Get claims for this process until this is cancelled."""
        ...

    async def drain(self) -> None:
        """Cancel the claims of this worker, and take no further ones; wait until the claims
        have ended.
        """
        ...


class NodeBus(Bus, Protocol):
    """A `Bus` across processes, which carries documents while `run` runs."""

    async def run(self) -> None:
        """Carry documents until this is cancelled."""
        ...


class Services(Struct, frozen=True):
    """The services of a node.

    `temporal` is an address and `nats` a URL; if one is "", the database takes its place.
    `report` is called with a sentence when one of these services is lost, and when it is
    back. `metrics` says where the metrics of the node are sent; None: nowhere.
    """

    database: Database
    temporal: str = ""
    nats: str = ""
    report: Callable[[str], None] = lambda _: None
    metrics: "MetricsExport | None" = None

    def runner(self, on_full: Callable[[], None] = lambda: None) -> NodeRunner:
        """Return the runner, which assigns sessions to workers.

        `on_full` is called while sessions wait because the tenant has reached its limit
        of running sessions.
        """
        if not self.temporal:
            return ProcrastinateRunner(self.database, on_full=on_full)
        try:
            from refold.cluster.temporal_runner import TemporalRunner
        except ImportError as error:
            raise BadInput(EXTRA_MISSING) from error
        runner = TemporalRunner(self.database, self.temporal, report=self.report)
        runner.on_full = on_full
        return runner

    def node_metrics(self, role: Literal["worker", "web"]) -> "NodeMetrics | None":
        """Return the metrics of this node; None if they are sent nowhere."""
        if self.metrics is None:
            return None
        from refold.client.nodes.node_metrics import NodeMetrics

        return NodeMetrics(self.metrics, self.database, role)

    def orders(self, runner: NodeRunner) -> DatabaseOrders:
        return DatabaseOrders(self.database, runner.wake if self.temporal else None)

    def bus(self, role: Literal["worker", "web"]) -> NodeBus:
        """Return the bus for a node of this role: NATS if it is set, otherwise the database."""
        if not self.nats:
            return NotifyBus(self.database)
        try:
            from refold.cluster.nats_bus import NatsBus
        except ImportError as error:
            raise BadInput(EXTRA_MISSING) from error
        return NatsBus(self.database.tenant, self.nats, role, self.report)
