"""Sends the spans and metrics of each turn when it has ended, where the settings name a collector.

It subscribes to the journals of a session and its subagents, and projects the entries since
the last turn (`views.traces`, `views.metrics`). A thread projects and sends; no turn waits
for it, and closing waits only briefly. A collector that does not answer is reported once.
`refold sessions export --otlp` sends sessions that have ended, and what was lost here.

The variables of OpenTelemetry alone switch nothing on: refold runs in shells where they are
set for the service that is worked on, and a session shows more than a service does. Spans
wait for the end of the turn, because a call needs the span of its turn as parent.
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
_MAX_CLOSE_SECONDS = 2.0  # seconds that closing waits for unsent turns
_TEMPORALITY_VARIABLE = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"


class TraceTargets(Struct, frozen=True):
    """The collectors of each signal; None: the signal is not sent."""

    traces: Collector | None
    metrics: Collector | None
    delta: bool  # the collector adds up metrics itself


def trace_targets(otel: Otel, environ: Mapping[str, str]) -> TraceTargets | None:
    """The collectors; None if there are none. Raises `BadInput` for a bad address."""
    endpoint = "" if otel.endpoint == FROM_ENVIRONMENT else otel.endpoint

    def collector_of(signal: Signal) -> Collector | None:
        named = bool(endpoint) or is_collector_configured(environ, signal)
        return find_collector(endpoint, environ, signal) if named else None

    delta = environ.get(_TEMPORALITY_VARIABLE, "").strip().lower() == "delta"
    pair = TraceTargets(collector_of("traces"), collector_of("metrics"), delta)
    return pair if pair.traces or pair.metrics else None


class LiveTraces:
    """Sends the traces of one start. All but the sender's thread runs in the event loop."""

    def __init__(self, to: TraceTargets, *, content: bool, log: WriteLog) -> None:
        self._seen = dict[str, list[Entry]]()  # by session: unsent entries
        self._steps = dict[str, int]()  # by session: steps before those entries
        self._sent = dict[str, set[str]]()  # by root: spans whose entries outlive a turn
        self._sender = _Sender(to, content=content, log=log)

    def listen(self, session: str, record: "Recorder") -> None:
        """Subscribe to the entries of a session that is about to be opened."""
        self._seen[session] = []
        record.hub.subscribe(partial(self._on_event, session))

    async def catch_up(self, session: str, record: "Recorder") -> None:
        """Add earlier entries of an opened session that belong to an unfinished turn."""
        new = self._seen[session]
        if record.view.seq == len(new):
            return
        start = new[0].seq if new else record.view.seq + 1
        earlier = [entry for entry in await record.entries() if entry.seq < start]
        ends = [
            n for n, entry in enumerate(earlier, 1) if isinstance(entry.event, TurnEnded)
        ]
        whole, last = (earlier[: ends[-1]], earlier[ends[-1] :]) if ends else ([], earlier)
        if any(entry.runs for entry in record.view.children.children):
            # What a teammate does is below an earlier turn, which was sent then.
            self._seen[session] = whole
            before = traces(self._build_node(session, ROOT_ADDRESS, None))
            self._sent[session] = {entry.span_id for entry in before}
            self._seen[session] = [*earlier, *new]
            return
        if not any(isinstance(entry.event, TurnStarted) for entry in last):
            whole, last = earlier, []
        self._steps[session] = _count_steps(whole)
        self._seen[session] = [*_entries_for_next_turn(whole), *last, *new]

    @property
    def problem(self) -> str:
        """Why something was not sent, or ""."""
        return self._sender.problem

    async def aclose(self) -> None:
        for session in tuple(self._seen):
            if "/" not in session:
                self._send(session)
        await anyio.to_thread.run_sync(self._sender.finish, _MAX_CLOSE_SECONDS)

    def _on_event(self, session: str, entry: Entry) -> None:
        self._seen.setdefault(session, []).append(entry)
        if isinstance(entry.event, TurnEnded) and "/" not in session:
            self._send(session)

    def _send(self, root: str) -> None:
        node = self._build_node(root, ROOT_ADDRESS, None)
        entries = node.entries
        if not any(isinstance(entry.event, TurnEnded | Settled) for entry in entries):
            return
        ids = self._sent.get(root, set[str]())
        self._sender.queue(_Turn(node, dict(self._steps), ids))
        if any(entry.child and entry.child.end is None for entry in node.children):
            self._sent[root] = ids  # the span of a teammate continues below this turn
            return
        self._sent.pop(root, None)
        self._seen[root] = _entries_for_next_turn(entries)
        self._steps[root] = self._steps.get(root, 0) + _count_steps(entries)
        for entry in [entry for entry in self._seen if entry.startswith(f"{root}/")]:
            del self._seen[entry]
            self._steps.pop(entry, None)

    def _build_node(self, session: str, address: str, child: Child | None) -> Node:
        entries = tuple(self._seen.get(session, ()))
        ends = {e.event.child: e.event for e in entries if isinstance(e.event, ChildEnded)}
        born = [
            Child(e.event, e.seq, at=e.at, end=ends.get(e.event.child))
            for e in entries
            if isinstance(e.event, ChildBorn)
        ]
        below = tuple(
            self._build_node(f"{session}/{branch.name}", f"{address}/{branch.name}", branch)
            for branch in born
        )
        runs = child is None or child.end is None
        return Node(address, session, entries, View(), child, written=runs, children=below)


def _entries_for_next_turn(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of earlier turns that the spans of the next turn need."""
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
    """A session tree to send. `sent` are the ids of its spans that were sent before."""

    node: Node
    before: Mapping[str, int]
    sent: set[str]


class _Sender:
    """Sends in a thread, which starts when there is something to send and then ends."""

    def __init__(self, to: TraceTargets, *, content: bool, log: WriteLog) -> None:
        self._to, self._content, self._log = to, content, log
        self._waiting = Queue[_Turn](_MAX_WAITING_TURNS)
        self._lock = Lock()
        self._thread: Thread | None = None
        self._metrics, self._instance = Metrics(), os.urandom(8).hex()
        self._since = time.time_ns()
        self.problem = ""

    def queue(self, turn: _Turn) -> None:
        try:
            self._waiting.put_nowait(turn)
        except Full:
            self._report("the collector is too slow: turns were left out")
            return
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="refold otlp", daemon=True)
                self._thread.start()

    def finish(self, seconds: float) -> None:
        """Wait for unsent turns. Blocks until the thread ends."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(seconds)
            if thread.is_alive():
                self._report(f"not all was sent within {seconds:g} s of leaving")

    def _run(self) -> None:
        while True:
            with self._lock:
                try:
                    turn = self._waiting.get_nowait()
                except Empty:
                    self._thread = None
                    return
            try:
                anyio.run(self._deliver, turn)
            except Exception as error:  # a fault here must not end more than this
                self._report(f"{type(error).__name__}: {first(error)}")

    async def _deliver(self, turn: _Turn) -> None:
        every = traces(turn.node, content=self._content, before=turn.before)
        spans = [span for span in every if span.span_id not in turn.sent]
        if not spans:
            return
        turn.sent.update(span.span_id for span in spans)
        self._metrics.add(spans)
        now_ns = time.time_ns()
        sums = MetricSums(
            self._metrics.series,
            self._since,
            now_ns,
            self._instance,
            whole=not self._to.delta,
        )
        if self._to.traces is not None:
            await self._report_refusals(send(spans, self._to.traces))
        if self._to.metrics is not None:
            await self._report_refusals(send_metrics(sums, self._to.metrics))
        if self._to.delta:
            self._metrics, self._since = Metrics(), now_ns

    async def _report_refusals(self, sending: Awaitable[Sequence[str]]) -> None:
        try:
            for refused in await sending:
                self._report(refused)
        except RefoldError as error:
            self._report(str(error))

    def _report(self, problem: str) -> None:
        """Report a problem once: each turn would have the same."""
        if not self.problem:
            self.problem = f"OpenTelemetry: {problem}"
            self._log("warning", self.problem)
