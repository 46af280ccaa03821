"""The Python of one session, behind the tool `python`: runs cells and returns an observation.

The snapshot in the session's view has the variables at this point of the conversation. If the
process holds other variables (after a rewind, a crash or an interrupt), it is discarded, and a
new process gets that snapshot. So the process only holds a copy, and may be lost. A session
without a snapshot begins with its initial variables.
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
from refold.rlm.leaf_calls import Leaves
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

_MAX_NAMES = 40  # of variables, in one note
NOT_RUN = "not run"
GONE_TEXT = "Python was stopped: {why}. The variables are as before this call."
UNKEPT_TEXT = (
    "What code did could not be kept: {why}. The variables are as before this call."
)
CUT_TEXT = "The previous call was stopped; its variable changes were discarded."
MISNAMED_TEXT = "The Python worker gave a part of its variables a wrong name."
REFUSED_TEXT = "FINAL was refused, its value does not match the schema: {problem}"


class ReplLimits(Struct, frozen=True, kw_only=True):
    """The limits of a session's Python, its initial variables, and its dependencies.

    `rate` is shared by all callers of the same models. If `memo` is None, no answer is cached.
    """

    code_limits: CodeLimits
    steps: int = 0  # model steps of a turn, as reported to code
    memory: int = 2 * 1024**3  # bytes
    rate: RateLimit
    memo: Memo | None = None
    subagents: Subagents | None = None
    snapshots: VariableSource | None = None
    initial_variables: InitialVariables = InitialVariables()
    depth: int = 0  # the number of sessions above this one


class Repl:
    """The Python of one session; implements `tools.python_tool.Repl`.

    It runs cells only while a turn runs, that is within `WorkerKeeper.background`; otherwise it
    raises `ToolFailed`.
    """

    def __init__(
        self,
        record: Journal,
        world: Callable[[], World],
        keeper: WorkerKeeper,
        limits: ReplLimits,
    ) -> None:
        self._record, self._world, self._repl_limits = record, world, limits
        self._keeper = keeper
        code_limits = limits.code_limits
        self._worker_limits = WorkerLimits(code_limits.cell, limits.memory)
        self._host_context = HostContext(
            record,
            world,
            code_limits,
            steps=limits.steps,
            leaves=Leaves(record, world, code_limits, limits.rate, limits.memo),
            children=anyio.CapacityLimiter(code_limits.at_once),
            subagents=limits.subagents,
            snapshots=limits.snapshots,
            depth=limits.depth,
        )
        self._call_lock = anyio.Lock()
        # The snapshot whose variables the process has; None if it has others.
        self._held_snapshot: str | None = None
        self._stored_parts: set[str] = set()  # names of parts that are blobs of the session
        self._was_interrupted = False  # True while a call runs, and if one was interrupted
        self._reported_losses: frozenset[tuple[str, str]] = frozenset()

    async def run(
        self, call_id: str, cells: Sequence[str], progress: Callable[[str], None]
    ) -> PythonResult:
        """Run cells until one fails or calls FINAL, and store the variables.

        Raises `ToolFailed` with the observations if a cell failed, or if Python did not start.
        """
        async with self._call_lock:
            context = await call_context(call_id, self._record)
            try:
                worker, notes = await self._prepare_worker(context)
            except (WorkerLost, BadInput, JournalError) as error:
                raise ToolFailed(f"Python could not be started: {error}") from error
            # Both stay like this if the call is cancelled or the process is lost.
            self._held_snapshot = None
            self._was_interrupted = True
            run = _Run(len(cells), self._world().prompt.schema)
            host = HostFunctions(self._host_context, context, progress)
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
            self._was_interrupted = False
            return run.result(notes)

    async def _prepare_worker(self, context: CallContext) -> tuple[Worker, list[str]]:
        """Return a process with the variables from before the call, and notes for the model."""
        if self._keeper.has_worker and self._held_snapshot == context.before:
            return await self._worker(), []
        await self._keeper.discard()
        worker = await self._worker()
        notes = [CUT_TEXT] if self._was_interrupted else []
        if context.before:
            worker, restore_notes = await self._restore(
                worker, context.before, context.parts
            )
            return worker, notes + restore_notes
        return await self._initialize(worker, notes)

    async def _worker(self) -> Worker:
        return await self._keeper.worker(self._worker_limits, tool_functions(self._world()))

    async def _initialize(
        self, worker: Worker, notes: list[str]
    ) -> tuple[Worker, list[str]]:
        """Give a new process the initial variables, because there is no snapshot yet.

        Return the process, which may be a new process, and `notes` with further notes for the
        model.
        """
        record, snapshots = self._record, self._repl_limits.snapshots
        initial_variables = self._repl_limits.initial_variables
        if initial_variables.attached and snapshots is not None:
            variables = await snapshots.find_variables(initial_variables.attached)
            blob, parts = await self._copy_variables(variables)
            worker, restore_notes = await self._restore(
                worker, blob, parts, variables.session
            )
            notes = notes + restore_notes
        await inject(initial_variables, record)
        for name, blob in record.view.account.injected:
            await worker.set_variable(name, blob, await record.get(blob))
        return worker, notes

    async def _copy_variables(
        self, variables: OtherVariables
    ) -> tuple[str, tuple[str, ...]]:
        """Copy another session's variables to blobs of this session, except missing parts.

        Return the name of the blob with the index, and the names of the parts.
        """
        parts = list[str]()
        for name in variables.parts:
            with suppress(JournalError):
                parts.append(await self._record.put_bytes(await variables.read(name)))
        return await self._record.put_bytes(variables.index), tuple(parts)

    async def _restore(
        self, worker: Worker, blob: str, parts: Sequence[str], source: str = ""
    ) -> tuple[Worker, list[str]]:
        """Restore the snapshot in `blob` and `parts`, and return the process and notes for the
        model.

        If the process exits meanwhile or the snapshot cannot be read, return a new process
        without variables. `source` is another session that the variables are from, or "".
        """
        self._stored_parts.clear()
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
        self._stored_parts.add(name)
        return part

    async def _store_variables(self, context: CallContext, worker: Worker) -> list[str]:
        """Store all variables as blobs after a call, and return notes for the model.

        A note lists the variables that could not be stored, without those of earlier notes.
        """
        record = self._record
        injected_blobs = (blob for _, blob in record.view.account.injected)
        variables, report = await worker.persist(self._stored_parts.union(injected_blobs))
        for name, part in variables.new.items():
            if await record.put_bytes(part) != name:
                raise WorkerLost(MISNAMED_TEXT)
        self._stored_parts = set(variables.parts)
        blob = await record.put_bytes(variables.index)
        if blob != record.view.conversation.variables:
            event = VariablesSaved(
                context.call_id, blob, report.kept, report.lost, variables.parts
            )
            await record(event, author="code")
        self._held_snapshot = blob
        new_losses = [loss for loss in report.lost if loss not in self._reported_losses]
        self._reported_losses = frozenset(report.lost)
        if not new_losses:
            return []
        return [f"Not kept for later: {_loss_reasons(new_losses)}"]


class _Run:
    """The results of the cells of one call, while the call runs."""

    def __init__(self, count: int, schema: Raw) -> None:
        self._cell_count, self._schema = count, schema
        self._texts: list[str] = []
        self._failed = False
        self._final: Final | None = None
        self._seconds = 0.0

    @property
    def is_over(self) -> bool:
        return self._failed or self._final is not None

    def add(self, cell: Cell) -> None:
        """Add the result of a cell. A FINAL that violates the schema is a failure."""
        self._seconds += cell.seconds
        self._failed = cell.failed
        text = cell.text.rstrip()
        if cell.final is not None:
            final, problem = parse_final(cell.final, self._schema)
            if problem:
                self._failed = True
                text = f"{text}\n{REFUSED_TEXT.format(problem=problem)}".lstrip()
            else:
                self._final = final
        self._texts.append(text or ("FINAL" if self._final else "(nothing was printed)"))

    def add_loss(self, reason: str) -> None:
        """Add the reason for which the process or the variables were lost."""
        if self._final is None:
            self._failed = True
        self._texts.append(reason)

    def result(self, notes: Sequence[str]) -> PythonResult:
        """Return the text for the model, and the answer if FINAL was called.

        Raises `ToolFailed` with the text if a cell failed.
        """
        texts = self._texts
        if self._cell_count > 1:
            texts = texts + [NOT_RUN] * (self._cell_count - len(texts))
            texts = [f"[{n}] {text}" for n, text in enumerate(texts, start=1)]
        text = "\n".join((*notes, *texts))
        if self._failed:
            raise ToolFailed(text)
        cells = "1 cell" if self._cell_count == 1 else f"{self._cell_count} cells"
        return PythonResult(text, self._final, f"{cells}, {self._seconds:.1f} s")


def _loss_reasons(losses: Sequence[tuple[str, str]]) -> str:
    """Return text about lost variables, each of which is a name and a reason."""
    texts = [f"{name} ({why})" for name, why in losses[:_MAX_NAMES]]
    if len(losses) > _MAX_NAMES:
        texts.append(f"and {len(losses) - _MAX_NAMES} more")
    return "; ".join(texts)


def _names_text(names: Iterable[str]) -> str:
    """Return the first names with commas and the number of the others, or "none"."""
    all_names = list(names)
    text = ", ".join(all_names[:_MAX_NAMES]) or "none"
    if len(all_names) > _MAX_NAMES:
        text += f" and {len(all_names) - _MAX_NAMES} more"
    return text


def parse_final(raw: Raw, schema: Raw) -> tuple[Final, str]:
    """Return the argument of FINAL as an answer, and how it violates the schema, or "".

    Without a schema, a string is the answer itself, and any other value is answered as JSON.
    With a schema, a string may be the value itself, or JSON of it.
    """
    value: object = msgspec.json.decode(raw)
    json_text = bytes(raw).decode()
    has_schema = bytes(schema) not in (b"", b"null")
    if not has_schema:
        if isinstance(value, str):
            return Final(value, as_json=False), ""
        return Final(json_text, as_json=True), ""
    candidates = (value, json_text) if isinstance(value, str) else (json_text,)
    validator = Schema(schema)
    problems = [validator.problem(candidate) for candidate in candidates]
    for candidate, problem in zip(candidates, problems, strict=True):
        if not problem:
            return Final(candidate, as_json=True), ""
    return Final(candidates[-1], as_json=True), problems[-1]
