"""What the nodes of one service share: the database, what says who runs a session, and the bus.

The database can do all of it. With Temporal, that says who runs a session; with NATS, that carries live
documents. Their packages are imported only then.
"""

from collections.abc import Callable
from typing import Literal, Protocol

from msgspec import Struct

from refold.client.host_ports import Bus, Runner
from refold.client.nodes.database_orders import DatabaseOrders
from refold.cluster.database import EXTRA_MISSING, Database
from refold.cluster.notify_bus import NotifyBus
from refold.cluster.session_runner import ProcrastinateRunner
from refold.errors import BadInput


class NodeRunner(Runner, Protocol):
    """A `Runner` across processes. While it runs, this process gets claims."""

    async def run(self) -> None: ...
    async def drain(self) -> None:
        """Take no further claims, and wait until the present ones have ended."""
        ...


class NodeBus(Bus, Protocol):
    """A `Bus` across processes, which carries documents while it runs."""

    async def run(self) -> None: ...


class Services(Struct, frozen=True):
    """`temporal` is an address and `nats` a URL; "": the database does that, too.

    `report` is called with what a connection lacks.
    """

    database: Database
    temporal: str = ""
    nats: str = ""
    report: Callable[[str], None] = lambda _: None

    def runner(self, on_full: Callable[[], None] = lambda: None) -> NodeRunner:
        """`on_full` is called while sessions wait because the tenant has reached its limit
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

    def orders(self, runner: NodeRunner) -> DatabaseOrders:
        return DatabaseOrders(self.database, runner.wake if self.temporal else None)

    def bus(self, role: Literal["worker", "web"]) -> NodeBus:
        if not self.nats:
            return NotifyBus(self.database)
        try:
            from refold.cluster.nats_bus import NatsBus
        except ImportError as error:
            raise BadInput(EXTRA_MISSING) from error
        return NatsBus(self.database.tenant, self.nats, role, self.report)
