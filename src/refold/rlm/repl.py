"""The Python of one session, behind the tool `python`: cells in, an observation out.

The variables that belong to the talk are those of the snapshot that the fold names. What
holds others (after a rewind, a crash, a stop in the middle) is thrown away, and a fresh
process is given that snapshot. So the process is only ever a copy, and may be lost. Where
nothing was kept yet, it is given what the session was handed.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import anyio
from msgspec import Raw, Struct

from refold.agents.profile import Leash
from refold.engine.world import World
from refold.errors import BadInput, JournalError, ToolFailed
from refold.journal.below import VariablesKept, VariablesRestored
from refold.rlm.below import Beginning, Below
from refold.rlm.final import answer_of
from refold.rlm.handing import hand_over
from refold.rlm.host import HostSide, Means, Snapshots, functions
from refold.rlm.keeping import Keeper
from refold.rlm.leaves import Leaves
from refold.rlm.memo import Memo
from refold.rlm.port import Cell, Found, Kept, Worker, WorkerLimits, WorkerLost
from refold.rlm.rate import Rate
from refold.rlm.within import Journal, Within, within
from refold.tools.python import Ran
from refold.values.control import Final

_NAMES = 40  # of variables that are told at once
NOT_RUN = "not run"
GONE = "Python was ended: {why}. The variables are as before this call."
UNKEPT = "What code did could not be kept: {why}. The variables are as before this call."
CUT = "Python was stopped in the call before. The variables are as before that call."
MISNAMED = "The Python worker gave a part of its variables a wrong name."
REFUSED = "FINAL was refused, its value does not match the schema: {problem}"


class ReplLimits(Struct, frozen=True, kw_only=True):
    """What a session's Python is bounded by, begins with and may reach.

    `rate` is shared with all who ask the same models. `memo` None: nothing is remembered.
    """

    leash: Leash
    steps: int = 0  # answers in a turn, as far as code is told
    memory: int = 2 * 1024**3  # bytes
    rate: Rate
    memo: Memo | None = None
    below: Below | None = None
    snapshots: Snapshots | None = None
    begins: Beginning = Beginning()
    depth: int = 0  # sessions above, whose code called for the next one


class Repl:
    """Implements the port `tools.python.Repl`. It runs only while the keeper is `beside`."""

    def __init__(
        self, record: Journal, world: Callable[[], World], keeper: Keeper, given: ReplLimits
    ) -> None:
        self._record, self._world, self._given = record, world, given
        leash, self._keeper = given.leash, keeper
        self._limits = WorkerLimits(leash.cell, given.memory)
        self._means = Means(
            record,
            world,
            leash,
            given.steps,
            Leaves(record, world, leash, given.rate, given.memo),
            anyio.CapacityLimiter(leash.at_once),
            given.below,
            given.snapshots,
            given.depth,
        )
        self._one = anyio.Lock()
        self._holds: str | None = None  # the snapshot that the process is a copy of
        self._known: set[str] = set()  # parts of variables that the disk has
        self._cut = False  # was a call broken off in the middle?
        self._told: frozenset[tuple[str, str]] = frozenset()

    async def run(
        self, call_id: str, cells: Sequence[str], progress: Callable[[str], None]
    ) -> Ran:
        async with self._one:
            now = await within(call_id, self._record)
            try:
                worker, notes = await self._ready(now)
            except (WorkerLost, BadInput, JournalError) as error:
                raise ToolFailed(f"Python could not be started: {error}") from error
            self._holds, self._cut = None, True
            run = _Run(len(cells), self._world().brief.schema)
            host = HostSide(self._means, now, progress)
            try:
                for cell in cells:
                    if run.over:
                        break
                    run.add(await worker.run(cell, host, progress))
                notes += await self._keep(now, worker)
            except WorkerLost as error:
                run.lost(GONE.format(why=error))
            except JournalError as error:  # a full disk takes no answer that is there
                run.lost(UNKEPT.format(why=error))
            self._cut = False
            return run.ran(notes)

    async def _ready(self, now: Within) -> tuple[Worker, list[str]]:
        """A process with the variables that the call begins with, and what is to be told."""
        if self._keeper.there and self._holds == now.before:
            return await self._worker(), []
        await self._keeper.discard()
        worker = await self._worker()
        notes = [CUT] if self._cut else []
        if now.before:
            worker, more = await self._restored(worker, now.before, now.parts)
            return worker, notes + more
        return await self._begun(worker, notes)

    async def _worker(self) -> Worker:
        return await self._keeper.worker(self._limits, functions(self._world()))

    async def _begun(self, worker: Worker, notes: list[str]) -> tuple[Worker, list[str]]:
        """With the material of the session, for nothing was kept yet."""
        record, begins, snapshots = self._record, self._given.begins, self._given.snapshots
        if begins.attached and snapshots is not None:
            found = await snapshots.of(begins.attached)
            blob, parts = await self._taken(found)
            worker, more = await self._restored(worker, blob, parts, found.session)
            notes = notes + more
        await hand_over(begins, record)
        for name, blob in record.view.account.handed:
            await worker.put(name, blob, await record.get(blob))
        return worker, notes

    async def _taken(self, found: Found) -> tuple[str, tuple[str, ...]]:
        """What another session has of its own. Parts that are missing there, are here."""
        parts = list[str]()
        for name in found.parts:
            with suppress(JournalError):
                parts.append(await self._record.put_bytes(await found.read(name)))
        return await self._record.put_bytes(found.index), tuple(parts)

    async def _restored(
        self, worker: Worker, blob: str, parts: Sequence[str], source: str = ""
    ) -> tuple[Worker, list[str]]:
        """What a snapshot can do to a process, it does to this one only."""
        self._known.clear()
        try:
            index = await self._record.get(blob)
            report = await worker.restore(index, parts, self._part)
        except (WorkerLost, JournalError) as error:
            report = Kept(lost=(("all variables", str(error)),))
            await self._keeper.discard()
            worker = await self._worker()
        told = VariablesRestored(blob, source, report.kept, report.lost, tuple(parts))
        await self._record(told, by="code")
        notes = [f"Not restored: {_reasons(report.lost)}"] if report.lost else []
        if source:
            names = _names(name for name, _ in report.kept)
            notes.insert(0, f"These variables are of the session {source}: {names}")
        return worker, notes

    async def _part(self, name: str) -> bytes:
        found = await self._record.get(name)
        self._known.add(name)
        return found

    async def _keep(self, now: Within, worker: Worker) -> list[str]:
        """After each call, all variables as blobs; the same ones are the same blobs."""
        record = self._record
        handed = (blob for _, blob in record.view.account.handed)
        variables, report = await worker.keep(self._known.union(handed))
        for name, part in variables.new.items():
            if await record.put_bytes(part) != name:
                raise WorkerLost(MISNAMED)
        self._known = set(variables.parts)
        blob = await record.put_bytes(variables.index)
        if blob != record.view.talk.variables:
            parts, lost = variables.parts, report.lost
            await record(
                VariablesKept(now.call_id, blob, report.kept, lost, parts), by="code"
            )
        self._holds = blob
        new = [each for each in report.lost if each not in self._told]
        self._told = frozenset(report.lost)
        return [f"Not kept for later: {_reasons(new)}"] if new else []


class _Run:
    """The cells of one call, and what came of each."""

    def __init__(self, many: int, schema: Raw) -> None:
        self._many, self._schema = many, schema
        self._texts: list[str] = []
        self._failed = False
        self._final: Final | None = None
        self._seconds = 0.0

    @property
    def over(self) -> bool:
        return self._failed or self._final is not None

    def add(self, cell: Cell) -> None:
        self._seconds += cell.seconds
        self._failed, text = cell.failed, cell.text.rstrip()
        if cell.final is not None:
            final, problem = answer_of(cell.final, self._schema)
            if problem:
                self._failed = True
                text = f"{text}\n{REFUSED.format(problem=problem)}".lstrip()
            else:
                self._final = final
        self._texts.append(text or ("FINAL" if self._final else "(nothing was printed)"))

    def lost(self, why: str) -> None:
        """The process is gone, in a cell or when its variables were to be kept; or the disk."""
        if self._final is None:
            self._failed = True
        self._texts.append(why)

    def ran(self, notes: Sequence[str]) -> Ran:
        """Raises `ToolFailed` where a cell has failed: the model reads the same."""
        texts = self._texts
        if self._many > 1:
            left = [NOT_RUN] * (self._many - len(texts))
            texts = [f"[{n}] {text}" for n, text in enumerate((*texts, *left), start=1)]
        text = "\n".join((*notes, *texts))
        if self._failed:
            raise ToolFailed(text)
        cells = "1 cell" if self._many == 1 else f"{self._many} cells"
        return Ran(text, self._final, f"{cells}, {self._seconds:.1f} s")


def _reasons(lost: Sequence[tuple[str, str]]) -> str:
    more = f"; and {len(lost) - _NAMES} more" if len(lost) > _NAMES else ""
    return "; ".join(f"{name} ({why})" for name, why in lost[:_NAMES]) + more


def _names(names: Iterable[str]) -> str:
    found = list(names)
    more = f" and {len(found) - _NAMES} more" if len(found) > _NAMES else ""
    return (", ".join(found[:_NAMES]) or "none") + more
