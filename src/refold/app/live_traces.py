"""Sends the spans and metrics of each turn to a collector, if the settings name one.

It subscribes to the journals of a session and its subagents. When a turn has ended, it makes
spans and metrics from the entries since the last turn (`views.traces`, `views.metrics`). A
thread sends them; no turn waits for it, and closing waits only briefly. A collector that does
not answer is reported once. `refold sessions export --otlp` sends sessions that have ended, and
also what this module failed to send.

The environment variables of OpenTelemetry do not enable the sending. refold runs in
shells where they are set for the service under development, and a session contains more private
data than a service. Spans wait for the end of the turn, because the span of a call needs that
of its turn as parent.
"""

import os
import time
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from queue import Empty, Full, Queue
from threading import Lock, Thread
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from refold.app.otlp import (
    Collector,
    MetricSums,
    Signal,
    find_collector,
    is_collector_configured,
    send,
    send_metrics,
)
from refold.config.settings import Otel
from refold.errors import RefoldError, first
from refold.journal.events.kinds import (
    ChildBorn,
    ChildEnded,
    Delivered,
    Entry,
    Forked,
    ModelAsked,
    Reserved,
    Said,
    Settled,
    SystemPromptSet,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state.children import Child
from refold.journal.state.fold import View
from refold.journal.state.session_tree import ROOT_ADDRESS, Node
from refold.values.log_level import WriteLog
from refold.views.metrics import Metrics
from refold.views.traces import traces

if TYPE_CHECKING:
    from refold.session.recorder import Recorder

FROM_ENVIRONMENT = "environment"
_MAX_WAITING_TURNS = 16  # unsent turns
_MAX_CLOSE_SECONDS = 2.0  # for which closing waits for unsent turns
_TEMPORALITY_VARIABLE = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"


class TraceTargets(Struct, frozen=True):
    """The collectors of traces and of metrics. None means that these are not sent."""

    traces: Collector | None
    metrics: Collector | None
    delta: bool  # the collector adds up metrics itself


def trace_targets(otel: Otel, environ: Mapping[str, str]) -> TraceTargets | None:
    """Return the collectors of the settings or the environment; None if none is configured.

    Raises `BadInput` for an invalid address.
    """
    endpoint = "" if otel.endpoint == FROM_ENVIRONMENT else otel.endpoint

    def collector_of(signal: Signal) -> Collector | None:
        named = bool(endpoint) or is_collector_configured(environ, signal)
        return find_collector(endpoint, environ, signal) if named else None

    delta = environ.get(_TEMPORALITY_VARIABLE, "").strip().lower() == "delta"
    targets = TraceTargets(collector_of("traces"), collector_of("metrics"), delta)
    return targets if targets.traces or targets.metrics else None


class LiveTraces:
    """Sends the traces of all sessions of one start.

    Its methods run in the event loop; only the sender uses a thread.
    """

    def __init__(self, targets: TraceTargets, *, content: bool, log: WriteLog) -> None:
        self._unsent_entries = dict[str, list[Entry]]()  # by session: unsent entries
        self._earlier_steps = dict[str, int]()  # by session: steps before those entries
        # By root: spans that last longer than a turn and were sent.
        self._sent_span_ids = dict[str, set[str]]()
        self._sender = _Sender(targets, content=content, log=log)

    def listen(self, session: str, record: "Recorder") -> None:
        """Subscribe to the entries of a session that is about to be opened."""
        self._unsent_entries[session] = []
        record.hub.subscribe(partial(self._on_event, session))

    async def catch_up(self, session: str, record: "Recorder") -> None:
        """Add the earlier entries that the next spans of an opened session need."""
        new = self._unsent_entries[session]
        if record.view.seq == len(new):  # there are no earlier entries
            return
        start = new[0].seq if new else record.view.seq + 1
        earlier = [entry for entry in await record.entries() if entry.seq < start]
        finished_count = 0  # entries up to the end of the last finished turn
        for number, entry in enumerate(earlier, 1):
            if isinstance(entry.event, TurnEnded):
                finished_count = number
        finished, unfinished = earlier[:finished_count], earlier[finished_count:]
        if any(child.runs for child in record.view.children.children):
            # The actions of a teammate belong to an earlier turn, so all entries are kept. The
            # spans of finished turns were sent before.
            self._unsent_entries[session] = finished  # only for `_build_node`
            sent = traces(self._build_node(session, ROOT_ADDRESS, child=None))
            self._sent_span_ids[session] = {span.span_id for span in sent}
            self._unsent_entries[session] = [*earlier, *new]
            return
        if not any(isinstance(entry.event, TurnStarted) for entry in unfinished):
            finished, unfinished = earlier, []  # no turn was cut off
        self._earlier_steps[session] = _count_steps(finished)
        needed = _entries_for_next_turn(finished)
        self._unsent_entries[session] = [*needed, *unfinished, *new]

    @property
    def problem(self) -> str:
        """Why traces were not sent, or ""."""
        return self._sender.problem

    async def aclose(self) -> None:
        """Send what the sessions have not sent yet, and wait a short time for the collector."""
        for session in tuple(self._unsent_entries):
            if "/" not in session:
                self._send(session)
        await anyio.to_thread.run_sync(self._sender.finish, _MAX_CLOSE_SECONDS)

    def _on_event(self, session: str, entry: Entry) -> None:
        self._unsent_entries.setdefault(session, []).append(entry)
        if isinstance(entry.event, TurnEnded) and "/" not in session:
            self._send(session)

    def _send(self, root: str) -> None:
        """Queue the spans of a root session, and forget the entries that later turns do not
        need.
        """
        node = self._build_node(root, ROOT_ADDRESS, child=None)
        entries = node.entries
        if not any(isinstance(entry.event, TurnEnded | Settled) for entry in entries):
            return
        ids = self._sent_span_ids.get(root, set[str]())
        self._sender.queue(_Turn(node, dict(self._earlier_steps), ids))
        runs_teammate = any(
            subtree.child is not None and subtree.child.end is None
            for subtree in node.children
        )
        if runs_teammate:
            self._sent_span_ids[root] = ids  # the span of a teammate continues in this turn
            return
        self._sent_span_ids.pop(root, None)
        self._unsent_entries[root] = _entries_for_next_turn(entries)
        self._earlier_steps[root] = self._earlier_steps.get(root, 0) + _count_steps(entries)
        for session in tuple(self._unsent_entries):
            if session.startswith(f"{root}/"):
                del self._unsent_entries[session]
                self._earlier_steps.pop(session, None)

    def _build_node(self, session: str, address: str, child: Child | None) -> Node:
        """Return the tree of a session and its subagents, with their unsent entries.

        `address` is the place of the session in the tree. `child` is None for the root.
        """
        entries = tuple(self._unsent_entries.get(session, ()))
        ends = {e.event.child: e.event for e in entries if isinstance(e.event, ChildEnded)}
        subagents = [
            Child(e.event, e.seq, at=e.at, end=ends.get(e.event.child))
            for e in entries
            if isinstance(e.event, ChildBorn)
        ]
        child_nodes = tuple(
            self._build_node(f"{session}/{branch.name}", f"{address}/{branch.name}", branch)
            for branch in subagents
        )
        is_running = child is None or child.end is None
        return Node(
            address,
            session,
            entries,
            View(),
            child,
            written=is_running,
            children=child_nodes,
        )


def _entries_for_next_turn(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries of earlier turns that the spans of the next turn need."""
    delivered = set[int]()
    settled = set[int]()
    prompt = 0
    for entry in entries:
        match entry.event:
            case Delivered(messages):
                delivered.update(messages)
            case Settled(reserved):
                settled.add(reserved)
            case SystemPromptSet():
                prompt = entry.seq
            case _:
                pass
    return [entry for entry in entries if _is_needed(entry, delivered, settled, prompt)]


def _is_needed(
    entry: Entry, delivered_seqs: set[int], settled: set[int], prompt: int
) -> bool:
    """Whether the spans of the next turn need this entry of an earlier turn.

    The other arguments are numbers of entries: `delivered_seqs` of the messages that the model
    got, `settled` of the reservations that were settled, and `prompt` of the last system
    prompt.
    """
    match entry.event:
        case Said():
            return entry.seq not in delivered_seqs
        case Reserved():
            return entry.seq not in settled
        case SystemPromptSet():
            return entry.seq == prompt
        case Forked():
            return True
        case _:
            return False


def _count_steps(entries: Sequence[Entry]) -> int:
    return sum(isinstance(entry.event, ModelAsked) for entry in entries)


class _Turn(Struct, frozen=True):
    """A session and its subagents, whose spans are sent after a turn.

    `earlier_steps` has the number of model steps in earlier turns, by session. `sent_ids` has
    the ids of the spans that were sent before.
    """

    node: Node
    earlier_steps: Mapping[str, int]
    sent_ids: set[str]


class _Sender:
    """Sends spans in a thread.

    The thread starts when spans are queued, and ends when all spans are sent.
    """

    def __init__(self, targets: TraceTargets, *, content: bool, log: WriteLog) -> None:
        self._targets, self._content, self._log = targets, content, log
        self._unsent_turns = Queue[_Turn](_MAX_WAITING_TURNS)
        self._lock = Lock()
        self._thread: Thread | None = None
        self._instance = os.urandom(8).hex()
        self._metrics = Metrics()
        self._metrics_start_ns = time.time_ns()
        self.problem = ""

    def queue(self, turn: _Turn) -> None:
        """Send the spans of a turn in the thread, or leave them out if too many turns wait."""
        try:
            self._unsent_turns.put_nowait(turn)
        except Full:
            self._report("the collector is too slow: turns were left out")
            return
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="refold otlp", daemon=True)
                self._thread.start()

    def finish(self, seconds: float) -> None:
        """Wait until all turns are sent, at most this many seconds. It blocks."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(seconds)
            if thread.is_alive():
                self._report(f"not all was sent within {seconds:g} s of leaving")

    def _run(self) -> None:
        """Send the turns that wait, and end when there are none."""
        while True:
            with self._lock:
                try:
                    turn = self._unsent_turns.get_nowait()
                except Empty:
                    self._thread = None
                    return
            try:
                anyio.run(self._deliver, turn)
            except Exception as error:  # an error must only end the sending of this turn
                self._report(f"{type(error).__name__}: {first(error)}")

    async def _deliver(self, turn: _Turn) -> None:
        """Send those spans of a turn that were not sent yet, and then metrics about all spans."""
        all_spans = traces(turn.node, content=self._content, before=turn.earlier_steps)
        spans = [span for span in all_spans if span.span_id not in turn.sent_ids]
        if not spans:
            return
        turn.sent_ids.update(span.span_id for span in spans)
        self._metrics.add(spans)
        now_ns = time.time_ns()
        sums = MetricSums(
            self._metrics.series,
            self._metrics_start_ns,
            now_ns,
            self._instance,
            is_cumulative=not self._targets.delta,
        )
        if self._targets.traces is not None:
            await self._report_refusals(send(spans, self._targets.traces))
        if self._targets.metrics is not None:
            await self._report_refusals(send_metrics(sums, self._targets.metrics))
        if self._targets.delta:
            self._metrics, self._metrics_start_ns = Metrics(), now_ns

    async def _report_refusals(self, sending: Awaitable[Sequence[str]]) -> None:
        """Report what the collector refuses, and errors of the connection."""
        try:
            for refused in await sending:
                self._report(refused)
        except RefoldError as error:
            self._report(str(error))

    def _report(self, problem: str) -> None:
        """Report a problem unless another was reported before: most later turns have the same
        problem.
        """
        if not self.problem:
            self.problem = f"OpenTelemetry: {problem}"
            self._log("warning", self.problem)
