"""The Python of one session, behind the tool `python`: cells in, an observation out.

The variables that belong to the conversation are those of the snapshot in the view. If the
process holds others (after a rewind, a crash or an interrupt), it is discarded, and a fresh
one is given that snapshot. So the process is only a copy, and may be lost. Before the first
snapshot it is given the initial variables of the session.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import anyio
import msgspec
from msgspec import Raw, Struct

from refold.agents.profile import CodeLimits
from refold.engine.world import World
from refold.errors import BadInput, JournalError, ToolFailed
from refold.journal.events.child_events import VariablesRestored, VariablesSaved
from refold.rlm.call_context import CallContext, Journal, call_context
from refold.rlm.host import (
    HostContext,
    HostFunctions,
    Subagents,
    VariableSource,
    tool_functions,
)
from refold.rlm.initial_variables import InitialVariables, inject
from refold.rlm.leaves import Leaves
from refold.rlm.memo import Memo
from refold.rlm.rate_limit import RateLimit
from refold.rlm.worker_port import (
    Cell,
    OtherVariables,
    VariableReport,
    Worker,
    WorkerKeeper,
    WorkerLimits,
    WorkerLost,
)
from refold.tools.python_tool import PythonResult
from refold.values.control import Final
from refold.values.json_check import Schema

_MAX_NAMES = 40  # in one note
NOT_RUN = "not run"
GONE_TEXT = "Python was stopped: {why}. The variables are as before this call."
UNKEPT_TEXT = (
    "What code did could not be kept: {why}. The variables are as before this call."
)
CUT_TEXT = "The previous call was stopped; its variable changes were discarded."
MISNAMED_TEXT = "The Python worker gave a part of its variables a wrong name."
REFUSED_TEXT = "FINAL was refused, its value does not match the schema: {problem}"


class ReplLimits(Struct, frozen=True, kw_only=True):
    """Limits of a session's Python, its initial variables, and what it may reach.

    `rate` is shared by all callers of the same models. `memo` None: no answer is cached.
    """

    code_limits: CodeLimits
    steps: int = 0  # model steps of a turn, as code sees them
    memory: int = 2 * 1024**3  # bytes
    rate: RateLimit
    memo: Memo | None = None
    below: Subagents | None = None
    snapshots: VariableSource | None = None
    begins: InitialVariables = InitialVariables()
    depth: int = 0  # the number of sessions above this one


class Repl:
    """Implements the port `tools.python_tool.Repl`. It runs only while the context of the keeper is open."""

    def __init__(
        self,
        record: Journal,
        world: Callable[[], World],
        keeper: WorkerKeeper,
        limits: ReplLimits,
    ) -> None:
        self._record, self._world, self._repl_limits = record, world, limits
        code_limits, self._keeper = limits.code_limits, keeper
        self._limits = WorkerLimits(code_limits.cell, limits.memory)
        self._means = HostContext(
            record,
            world,
            code_limits,
            limits.steps,
            Leaves(record, world, code_limits, limits.rate, limits.memo),
            anyio.CapacityLimiter(code_limits.at_once),
            limits.below,
            limits.snapshots,
            limits.depth,
        )
        self._one = anyio.Lock()
        self._holds: str | None = None  # the snapshot that the process is a copy of
        self._known: set[str] = set()  # parts of variables that the disk has
        self._cut = False  # a call was interrupted in the middle
        self._reported: frozenset[tuple[str, str]] = frozenset()

    async def run(
        self, call_id: str, cells: Sequence[str], progress: Callable[[str], None]
    ) -> PythonResult:
        async with self._one:
            context = await call_context(call_id, self._record)
            try:
                worker, notes = await self._prepare_worker(context)
            except (WorkerLost, BadInput, JournalError) as error:
                raise ToolFailed(f"Python could not be started: {error}") from error
            self._holds, self._cut = None, True
            run = _Run(len(cells), self._world().prompt.schema)
            host = HostFunctions(self._means, context, progress)
            try:
                for cell in cells:
                    if run.is_over:
                        break
                    run.add(await worker.run(cell, host, progress))
                notes += await self._store_variables(context, worker)
            except WorkerLost as error:
                run.add_loss(GONE_TEXT.format(why=error))
            except JournalError as error:  # a full disk must not lose the answer
                run.add_loss(UNKEPT_TEXT.format(why=error))
            self._cut = False
            return run.result(notes)

    async def _prepare_worker(self, context: CallContext) -> tuple[Worker, list[str]]:
        """A process with the variables that the call begins with, and notes for the model."""
        if self._keeper.has_worker and self._holds == context.before:
            return await self._worker(), []
        await self._keeper.discard()
        worker = await self._worker()
        notes = [CUT_TEXT] if self._cut else []
        if context.before:
            worker, restore_notes = await self._restore(
                worker, context.before, context.parts
            )
            return worker, notes + restore_notes
        return await self._initialize(worker, notes)

    async def _worker(self) -> Worker:
        return await self._keeper.worker(self._limits, tool_functions(self._world()))

    async def _initialize(
        self, worker: Worker, notes: list[str]
    ) -> tuple[Worker, list[str]]:
        """Give a fresh process the initial variables: there is no snapshot yet."""
        record, begins, snapshots = (
            self._record,
            self._repl_limits.begins,
            self._repl_limits.snapshots,
        )
        if begins.attached and snapshots is not None:
            variables = await snapshots.find_variables(begins.attached)
            blob, parts = await self._copy_variables(variables)
            worker, restore_notes = await self._restore(
                worker, blob, parts, variables.session
            )
            notes = notes + restore_notes
        await inject(begins, record)
        for name, blob in record.view.account.injected:
            await worker.set_variable(name, blob, await record.get(blob))
        return worker, notes

    async def _copy_variables(
        self, variables: OtherVariables
    ) -> tuple[str, tuple[str, ...]]:
        """Copy another session's variables into our blobs, except for missing parts."""
        parts = list[str]()
        for name in variables.parts:
            with suppress(JournalError):
                parts.append(await self._record.put_bytes(await variables.read(name)))
        return await self._record.put_bytes(variables.index), tuple(parts)

    async def _restore(
        self, worker: Worker, blob: str, parts: Sequence[str], source: str = ""
    ) -> tuple[Worker, list[str]]:
        """Restore a snapshot. If that ends the process, use a fresh, empty one."""
        self._known.clear()
        try:
            index = await self._record.get(blob)
            report = await worker.restore(index, parts, self._read_part)
        except (WorkerLost, JournalError) as error:
            report = VariableReport(lost=(("all variables", str(error)),))
            await self._keeper.discard()
            worker = await self._worker()
        event = VariablesRestored(blob, source, report.kept, report.lost, tuple(parts))
        await self._record(event, author="code")
        notes = [f"Not restored: {_loss_reasons(report.lost)}"] if report.lost else []
        if source:
            names = _names_text(name for name, _ in report.kept)
            notes.insert(0, f"These variables are of the session {source}: {names}")
        return worker, notes

    async def _read_part(self, name: str) -> bytes:
        part = await self._record.get(name)
        self._known.add(name)
        return part

    async def _store_variables(self, context: CallContext, worker: Worker) -> list[str]:
        """After each call, store all variables as blobs; equal variables are the same blobs."""
        record = self._record
        handed = (blob for _, blob in record.view.account.injected)
        variables, report = await worker.persist(self._known.union(handed))
        for name, part in variables.new.items():
            if await record.put_bytes(part) != name:
                raise WorkerLost(MISNAMED_TEXT)
        self._known = set(variables.parts)
        blob = await record.put_bytes(variables.index)
        if blob != record.view.conversation.variables:
            parts, lost = variables.parts, report.lost
            await record(
                VariablesSaved(context.call_id, blob, report.kept, lost, parts),
                author="code",
            )
        self._holds = blob
        new = [pair for pair in report.lost if pair not in self._reported]
        self._reported = frozenset(report.lost)
        return [f"Not kept for later: {_loss_reasons(new)}"] if new else []


class _Run:
    """The cells of one call, while they run, and their results."""

    def __init__(self, count: int, schema: Raw) -> None:
        self._many, self._schema = count, schema
        self._texts: list[str] = []
        self._failed = False
        self._final: Final | None = None
        self._seconds = 0.0

    @property
    def is_over(self) -> bool:
        return self._failed or self._final is not None

    def add(self, cell: Cell) -> None:
        self._seconds += cell.seconds
        self._failed, text = cell.failed, cell.text.rstrip()
        if cell.final is not None:
            final, problem = parse_final(cell.final, self._schema)
            if problem:
                self._failed = True
                text = f"{text}\n{REFUSED_TEXT.format(problem=problem)}".lstrip()
            else:
                self._final = final
        self._texts.append(text or ("FINAL" if self._final else "(nothing was printed)"))

    def add_loss(self, reason: str) -> None:
        """Record that the process exited, or that the disk failed."""
        if self._final is None:
            self._failed = True
        self._texts.append(reason)

    def result(self, notes: Sequence[str]) -> PythonResult:
        """The result for the model. Raises `ToolFailed`, with the same text, if a cell failed."""
        texts = self._texts
        if self._many > 1:
            left = [NOT_RUN] * (self._many - len(texts))
            texts = [f"[{n}] {text}" for n, text in enumerate((*texts, *left), start=1)]
        text = "\n".join((*notes, *texts))
        if self._failed:
            raise ToolFailed(text)
        cells = "1 cell" if self._many == 1 else f"{self._many} cells"
        return PythonResult(text, self._final, f"{cells}, {self._seconds:.1f} s")


def _loss_reasons(losses: Sequence[tuple[str, str]]) -> str:
    rest = f"; and {len(losses) - _MAX_NAMES} more" if len(losses) > _MAX_NAMES else ""
    return "; ".join(f"{name} ({why})" for name, why in losses[:_MAX_NAMES]) + rest


def _names_text(names: Iterable[str]) -> str:
    all_names = list(names)
    rest = f" and {len(all_names) - _MAX_NAMES} more" if len(all_names) > _MAX_NAMES else ""
    return (", ".join(all_names[:_MAX_NAMES]) or "none") + rest


def parse_final(raw: Raw, schema: Raw) -> tuple[Final, str]:
    """The argument of FINAL as the answer of the turn, and how it violates the schema, or "".

    A string is the answer as it is, anything else its JSON. If there is a schema, a string may be
    the JSON of a value, or the value itself.
    """
    value: object = msgspec.json.decode(raw)
    written = bytes(raw).decode()
    ways = (value, written) if isinstance(value, str) else (written,)
    if bytes(schema) in (b"", b"null"):
        return Final(ways[0], as_json=not isinstance(value, str)), ""
    known = Schema(schema)
    problems = [known.problem(way) for way in ways]
    for way, problem in zip(ways, problems, strict=True):
        if not problem:
            return Final(way, as_json=True), ""
    return Final(ways[-1], as_json=True), problems[-1]
