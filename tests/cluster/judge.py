"""Checks everything after a run: journals, effects outside, and files in the bucket.

Each message of a client is done by one command. Most commands add a line to the kept file, a file in the
workspace, and print the file. So the results show the state of the workspace on each worker. After a
take-over it must be the state at the checkpoint that the worker has recorded as restored.
"""

import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
from anyio import to_thread
from msgspec import Struct, field

from refold.app.workspace import checkpoints
from refold.cluster.bucket import TenantObjects
from refold.cluster.database import Database
from refold.cluster.sessions import PostgreSQLSessions
from refold.cluster.workspace_packs import WorkspacePacks
from refold.config.paths import Paths
from refold.errors import JournalError, ToolFailed
from refold.journal.events.child_events import BackgroundStarted, ChildBorn, PlaceRebuilt
from refold.journal.events.kinds import (
    Answered,
    Ended,
    Entry,
    ModelAnswered,
    Said,
    Started,
)
from tests.cluster.nodes import KEPT_FILE, Page

_CHILDREN_SQL = (
    "select session, claim from refold.journal where starts_with(session, $1 || '/')"
)
_KEY_PATTERN = re.compile(r"key-[0-9a-z-]+")
_RECORD_PATTERN = re.compile(r"(.+)/files/(\d+-\d+)\.json")
_LIST_SECONDS = 1.0
_STILL_SECONDS = 10.0  # after such a time without new files, no more are sent
# A worker looks for the newest files before it records that it has restored them.
_RESTORE_SECONDS = 20.0


class Verdict:
    """The problems that the judge found, and numbers for a report."""

    def __init__(self) -> None:
        self.problems = list[str]()
        self.orders = self.calls = self.unknown = self.events = self.children = 0
        self.approvals = self.background = self.restored = self.workspaces = 0


class WatchedBucket(Struct):
    """The files of sessions in a bucket, and when each record of them was first seen."""

    objects: TenantObjects
    directory: Path  # an empty directory, for restored files
    seen: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])

    async def watch(self) -> None:
        while True:
            await to_thread.run_sync(self._look)
            await anyio.sleep(_LIST_SECONDS)

    async def wait_until_still(self) -> None:
        """Wait until no new files have been seen for some time.

        A worker that is drained with a limit does not wait until its files are sent.
        """
        while time.time() - self.newest_time < _STILL_SECONDS:
            await anyio.sleep(_LIST_SECONDS)

    @property
    def newest_time(self) -> float:
        return max(
            (at for records in self.seen.values() for at in records.values()), default=0.0
        )

    def newest_seq(self, session: str, until: float) -> int:
        """Return the event of the newest checkpoint that was in the bucket by this time, or 0."""
        names = [name for name, at in self.seen.get(session, {}).items() if at < until]
        return int(max(names).partition("-")[2]) if names else 0

    def restored_keys(self, session: str) -> list[str]:
        """Return the lines of the kept file in the newest files of the bucket.

        Raises `ToolFailed`.
        """
        here = self.directory / session
        work, home = here / "work", here / "home"
        work.mkdir(parents=True)
        paths = Paths(home, home, home)
        packs = WorkspacePacks(
            self.objects,
            session,
            lambda place, id_: checkpoints((place,), paths, os.environ, id_),
        )
        stored = packs.newest()
        if stored is None:
            return []
        packs.restore(stored, work)
        file = work / KEPT_FILE
        return file.read_text().split() if file.exists() else []

    def _look(self) -> None:
        try:
            keys = [item.key for item in self.objects.list()]
        except JournalError:
            return  # the next look may succeed
        for key in keys:
            if record := _RECORD_PATTERN.fullmatch(key):
                self.seen.setdefault(record[1], {}).setdefault(record[2], time.time())


async def judge(
    url: str, pages: Sequence[Page], effects: Path, bucket: WatchedBucket | None = None
) -> Verdict:
    """Compare the orders that clients know as accepted with the journals and the effects."""
    verdict = Verdict()
    database = Database(url)
    sessions = PostgreSQLSessions(database, Path("/nowhere"))
    done = Counter(effects.read_text().split() if effects.exists() else ())
    verdict.problems += [f"{key} was done {n} times" for key, n in done.items() if n > 1]
    for page in pages:
        damages = await to_thread.run_sync(lambda p=page: sessions.check(p.id).damages)
        verdict.problems += map(str, damages)
        entries, _ = await to_thread.run_sync(sessions.entries, page.id)
        _judge_orders(verdict, page, entries)
        _judge_calls(verdict, page.id, entries)
        not_done, calls = _calls_not_done(entries), _describe_calls(entries)
        if bucket is not None:  # without one, sessions share the directory of their worker
            kept = _judge_workspace(verdict, page.id, entries, bucket)
            if not page.is_elsewhere:
                stored = page.id, kept, bucket
                await to_thread.run_sync(_judge_stored_files, verdict, *stored)
        for child, claim in await database.run(
            lambda db, p=page: db.fetch(_CHILDREN_SQL, p.id)
        ):
            entries, _ = await to_thread.run_sync(sessions.entries, child)
            _judge_calls(verdict, child, entries)
            not_done += _calls_not_done(entries)
            calls += _describe_calls(entries, child)
            verdict.children += 1
            if not claim:
                verdict.problems.append(f"{child} was run without a claim")
        lacking = [key for key in page.acknowledged if not done[key]]
        if len(lacking) > not_done:
            problem = f"{page.id}: {lacking} had no effect, and {not_done} calls say that they may have had none"
            about = [call for call in calls if any(key in call for key in lacking)]
            verdict.problems.append("\n  ".join([problem, *about]))
        await _judge_received(verdict, page)
    await to_thread.run_sync(database.close)
    return verdict


async def _judge_received(verdict: Verdict, page: Page) -> None:
    whole = await page.read_again()
    whole = whole[: len(page.received)]  # the page was closed before later documents
    if page.received != whole:
        missing = [id_ for id_ in whole if id_ not in page.received]
        twice = [id_ for id_, n in Counter(page.received).items() if n > 1]
        verdict.problems.append(f"{page.id}: missing {missing}, twice {twice}")


def _judge_orders(verdict: Verdict, page: Page, entries: Sequence[Entry]) -> None:
    said = Counter(e.event.client_key for e in entries if isinstance(e.event, Said))
    for key in page.acknowledged:
        if said[key] != 1:
            verdict.problems.append(f"{page.id}: {key} is {said[key]} times in the journal")
    verdict.orders += len(page.acknowledged)
    answered = Counter(e.event.call_id for e in entries if isinstance(e.event, Answered))
    approved = Counter(approval.split()[0] for approval in page.approved)
    for call, n in approved.items():
        if answered[call] < n:
            verdict.problems.append(
                f"{page.id}: {call} was approved {n} times, and {answered[call]} recorded"
            )
    verdict.approvals += len(page.approved)


def _judge_calls(verdict: Verdict, session: str, entries: Sequence[Entry]) -> None:
    started, ended = Counter[str](), Counter[str]()
    epochs = [entry.epoch for entry in entries]
    if epochs != sorted(epochs):
        verdict.problems.append(f"{session}: epochs do not rise")
    for entry in entries:
        match entry.event:
            case BackgroundStarted():
                verdict.background += 1
            case Started(call_id):
                started[call_id] += 1
            case Ended(call_id, outcome):
                ended[call_id] += 1
                verdict.unknown += outcome == "unknown"
            case _:
                pass
    for call, n in started.items():
        if n != 1 or ended[call] != 1:
            about = [
                f"{e.seq} of writer {e.epoch} by {e.by}: {e.event}"[:300]
                for e in entries
                if isinstance(e.event, Started | Ended) and e.event.call_id == call
            ]
            verdict.problems.append(
                "\n  ".join(
                    [f"{session}: {call} began {n}, ended {ended[call]} times", *about]
                )
            )
    verdict.calls += len(started)
    verdict.events += len(entries)


def _calls_not_done(entries: Sequence[Entry]) -> int:
    """Count the calls that say that they were cut off, or that their command was killed."""
    ends = [entry.event for entry in entries if isinstance(entry.event, Ended)]
    return sum(end.outcome != "done" or "exit code" in end.text for end in ends)


def _describe_calls(entries: Sequence[Entry], child: str = "") -> list[str]:
    """The model responses, and the starts and ends of calls, a line each."""
    kinds = ModelAnswered | Started | Ended | ChildBorn
    return [
        f"{child} {e.seq} of writer {e.epoch} by {e.by}: {e.event}"[:400]
        for e in entries
        if isinstance(e.event, kinds)
    ]


class _KeptFile(Struct):
    """The lines that the kept file must have.

    `unsure` has the lines of calls that may have been cut off. `history` has the lines after
    each event that changed them.
    """

    lines: list[str] = field(default_factory=list[str])
    unsure: set[str] = field(default_factory=set[str])
    history: list[tuple[int, list[str]]] = field(
        default_factory=list[tuple[int, list[str]]]
    )

    def matches(self, shown: Sequence[str]) -> bool:
        same = self._sure(shown) == self._sure(self.lines)
        return same and len(shown) == len(set(shown))

    def set_lines(self, seq: int, lines: list[str]) -> None:
        self.lines = lines
        self.history.append((seq, lines))

    def return_to(self, seq: int, checkpoint: int) -> None:
        earlier = [lines for at, lines in self.history if at < checkpoint]
        self.set_lines(seq, earlier[-1] if earlier else [])

    def _sure(self, lines: Sequence[str]) -> list[str]:
        return [line for line in lines if line not in self.unsure]


def _judge_workspace(
    verdict: Verdict, session: str, entries: Sequence[Entry], bucket: WatchedBucket
) -> _KeptFile:
    """Compare each result with the kept file as it must have been. Return its state at the end."""
    kept, keys = _KeptFile(), _keys_of_calls(entries)
    kept.unsure |= {
        keys[e.event.call_id]
        for e in entries
        if isinstance(e.event, Ended)
        and e.event.outcome != "done"
        and e.event.call_id in keys
    }
    for entry in entries:
        match entry.event:
            case Ended(call_id, "done", text) if call_id in keys:
                shown = _KEY_PATTERN.findall(text)
                if shown[-1:] != [keys[call_id]] or not kept.matches(shown[:-1]):
                    verdict.problems.append(
                        f"{session}: at {entry.seq} the workspace had {shown}, and not {kept.lines}"
                    )
                kept.set_lines(entry.seq, shown)
            case PlaceRebuilt() as rebuilt:
                left = bucket.newest_seq(session, entry.at - _RESTORE_SECONDS)
                if rebuilt.place or (rebuilt.problem and rebuilt.checkpoint):
                    verdict.problems.append(f"{session}: {rebuilt}")
                if rebuilt.checkpoint < left:
                    verdict.problems.append(
                        f"{session}: at {entry.seq} files of {rebuilt.checkpoint} were restored, and those of {left} had left"
                    )
                is_back = not (rebuilt.restored or rebuilt.problem)
                kept.return_to(
                    entry.seq,
                    _end_of_writer(entries, rebuilt.checkpoint)
                    if is_back
                    else rebuilt.checkpoint,
                )
                verdict.restored += rebuilt.restored
            case _:
                pass
    verdict.workspaces += 1
    return kept


def _end_of_writer(entries: Sequence[Entry], seq: int) -> int:
    """The event after the last one of the writer that recorded event `seq`."""
    epochs = {entry.seq: entry.epoch for entry in entries}
    return max(at for at, epoch in epochs.items() if epoch == epochs[seq]) + 1


def _keys_of_calls(entries: Sequence[Entry]) -> Mapping[str, str]:
    """Return the keys of calls that add a line to the kept file, by call."""
    keys = dict[str, str]()
    for entry in entries:
        if isinstance(entry.event, ModelAnswered):
            for call in entry.event.message.calls:
                arguments = bytes(call.arguments).decode()
                if KEPT_FILE in arguments and (key := _KEY_PATTERN.search(arguments)):
                    keys[call.id] = key[0]
    return keys


def _judge_stored_files(
    verdict: Verdict, session: str, kept: _KeptFile, bucket: WatchedBucket
) -> None:
    """Check that the files in the bucket are those of the end, after all workers were drained."""
    try:
        stored = bucket.restored_keys(session)
    except (JournalError, ToolFailed) as error:
        verdict.problems.append(f"{session}: its files cannot be restored: {error}")
        return
    if not kept.matches(stored):
        verdict.problems.append(
            f"{session}: the bucket has {stored}, and the workspace {kept.lines}"
        )
