"""Collects the facts in journals: the files that were read, their content, and the calls.

Pure; blobs come through a function. Calls of subagents count, with ids that begin with
the subagent's name: "child-1/call-7". Text of an agent is not a fact, be it an answer,
thinking or the report of a subagent.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from os.path import join, normpath
from re import compile as pattern
from typing import cast

import msgspec
from msgspec import Struct, field

from refold.claims.passages import Passage, lazy_passage, passage, passage_of_rows
from refold.journal.events.child_events import ChildEnded, NestedCallMade, VariableInjected
from refold.journal.events.kinds import (
    Checkpointed,
    Ended,
    Entry,
    ModelAnswered,
    SessionStarted,
    Settled,
    Started,
)
from refold.journal.state.changed_files import merge_changes
from refold.rlm.initial_variables import Files, files_in
from refold.values.display import Diff, Output
from refold.values.messages import ToolCall
from refold.values.printable_names import escape_name

_ROW_PATTERN = pattern(r"(\d{1,9})\t(.*)")
_HIT_PATTERN = pattern(r"(\d{1,9})[:-] (.*)")
_HUNK_PATTERN = pattern(r"@@ -(\d+),\d+ \+(\d+),\d+ @@")
_CUT_MARK = "characters are left out here"  # of a result that was cut in the middle
# Tools that may change files without reporting them.
RUN_TOOLS = ("bash", "python")


class SessionRecord(Struct, frozen=True):
    """The journal of a session, or of a child below it, and where its blobs come from."""

    entries: Sequence[Entry]
    name: str = ""  # "child-1/child-2"; "" is the session itself
    blob: Callable[[str], bytes | None] = lambda _: None
    damage: str = ""  # of the next event; more events may follow it


class ObservedCall(Struct, frozen=True):
    """A call that was made. `outcome` is "" while it has not ended."""

    id: str
    tool: str
    arguments: Mapping[str, object]
    order: tuple[float, int]
    outcome: str = ""
    text: str = ""
    whole: bool = True  # `text` is complete
    output: Output | None = None
    rows: Passage = field(default_factory=lambda: passage(""))  # of a file that it showed

    @property
    def command(self) -> str:
        return str(self.arguments.get("command", "")) if self.tool == "bash" else ""

    @property
    def code(self) -> int | None:
        return self.output.code if self.output else None

    @property
    def argument_text(self) -> str:
        """All arguments as one text."""
        return " ".join(str(value) for value in self.arguments.values())


class FileRead(Struct, frozen=True):
    """A file as it was shown or written. `sha256` is "" if its hash is unknown."""

    sha256: str
    shown: Passage
    whole: bool = True  # False: more than `shown` may have been read


class ReadFiles(Struct, frozen=True):
    """The facts of a session and its subagents. Paths are real and printable."""

    directories: tuple[str, ...] = ()
    began: float = 0.0
    calls: tuple[ObservedCall, ...] = ()  # in the order of their ends
    readings: Mapping[str, tuple[FileRead, ...]] = {}  # the newest first
    changes: Mapping[str, str] = {}  # "created", "changed", "deleted"
    originals: Mapping[str, str] = {}  # the sha256 of a file before its first change
    edits: tuple[tuple[tuple[float, int], str], ...] = ()  # order, and the changed path
    said: tuple[Passage, ...] = ()  # by models that code asked, and by children
    doubtful: bool = False  # commands may have changed files unnoticed


def collect_facts(records: Sequence[SessionRecord]) -> ReadFiles:
    """The facts in these journals. The first is the session's own."""
    gathering = _Gathering()
    for record in records:
        gathering.add_record(record)
    return gathering.to_facts()


class _Gathering:
    def __init__(self) -> None:
        self._directories = list[str]()
        self._began = 0.0
        self._calls = list[ObservedCall]()
        self._readings = list[tuple[str, FileRead, tuple[float, int]]]()
        self._changes: Mapping[str, str] = {}
        self._originals = dict[str, str]()
        self._edits = list[tuple[tuple[float, int], str]]()
        self._said = list[str]()
        self._doubtful = False

    def add_record(self, record: SessionRecord) -> None:
        calls, begun = dict[str, ToolCall](), dict[str, ObservedCall]()
        directory, doubtful = "", False
        for entry in record.entries:
            match entry.event:
                case SessionStarted(found):
                    directory = found
                    self._directories.append(found)
                    self._began = self._began or entry.at
                case ModelAnswered(message):
                    calls |= {call.id: call for call in message.calls}
                case NestedCallMade(call):
                    calls[call.id] = call
                case Started(id_) if id_ in calls:
                    begun[id_] = _observe(calls[id_], record.name, entry)
                    doubtful = doubtful or calls[id_].name in RUN_TOOLS
                case Checkpointed(changed=changed):
                    doubtful = False
                    self._changes = merge_changes(self._changes, changed)
                case Ended() as end if end.call_id in calls:
                    begun.pop(end.call_id, None)
                    self._take_end(calls[end.call_id], end, entry, record, directory)
                case _:
                    self._take_text(entry, record)
        self._doubtful = self._doubtful or doubtful
        self._calls += begun.values()

    def _take_text(self, entry: Entry, record: SessionRecord) -> None:
        """Text from models, subagents and injected variables."""
        match entry.event:
            case Settled(text=text, full_blob=whole) if text or whole:
                content = record.blob(whole) if whole else None
                self._said.append(content.decode(errors="replace") if content else text)
            case ChildEnded(text=text) if text:
                self._said.append(text)
            case VariableInjected() as injected:
                for path, sha256, shown, is_whole in variable_files(injected, record.blob):
                    reading = FileRead(sha256, shown, is_whole)
                    self._readings.append((path, reading, (entry.at, entry.seq)))
            case _:
                pass

    def to_facts(self) -> ReadFiles:
        readings = dict[str, tuple[FileRead, ...]]()
        for path, reading, _ in sorted(self._readings, key=lambda reading: reading[2]):
            readings[path] = (reading, *readings.get(path, ()))
        return ReadFiles(
            directories=tuple(dict.fromkeys(self._directories)),
            began=self._began,
            calls=tuple(sorted(self._calls, key=lambda call: call.order)),
            readings=readings,
            changes=self._changes,
            originals=self._originals,
            edits=tuple(self._edits),
            said=tuple(passage(text) for text in self._said),
            doubtful=self._doubtful,
        )

    def _take_end(
        self,
        call: ToolCall,
        end: Ended,
        entry: Entry,
        record: SessionRecord,
        directory: str,
    ) -> None:
        order = (entry.at, entry.seq)
        text, whole = _text(end, record)
        output = next((s for s in end.shown if isinstance(s, Output)), None)
        rows = list(_parse_rows(text)) if call.name == "read_file" else []
        shown = passage_of_rows(rows)
        observed = _observe(call, record.name, entry)
        self._calls.append(
            msgspec.structs.replace(
                observed,
                outcome=end.outcome,
                text=text,
                whole=whole,
                output=output,
                rows=shown,
            )
        )
        self._readings += [
            (p, FileRead(h, shown, whole and bool(rows)), order) for p, h in end.file_hashes
        ]
        if call.name == "grep" and end.outcome == "done":
            hits_by_file = _parse_hits(text, directory)
            self._readings += [
                (path, FileRead("", hits), order) for path, hits in hits_by_file
            ]
        for diff in end.shown:
            if isinstance(diff, Diff):
                self._take_diff(diff, observed, order)

    def _take_diff(self, diff: Diff, call: ObservedCall, order: tuple[float, int]) -> None:
        path = diff.path
        self._changes = merge_changes(self._changes, [(path, diff.kind)])
        self._originals.setdefault(path, diff.before)
        self._edits.append((order, path))
        before, after = _parse_diff(diff.text)
        if diff.before:
            self._readings.append(
                (path, FileRead(diff.before, passage_of_rows(before), False), order)
            )
        if diff.after:
            content = call.arguments.get("content")
            written = (
                isinstance(content, str)
                and sha256(content.encode(errors="replace")).hexdigest() == diff.after
            )
            shown = (
                passage(content)
                if isinstance(content, str) and written
                else passage_of_rows(after)
            )
            # A hunk is a part; the rest was read before, perhaps at other lines.
            self._readings.append((path, FileRead(diff.after, shown, written), order))


def _observe(call: ToolCall, name: str, entry: Entry) -> ObservedCall:
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        arguments = {}
    id_ = f"{name}/{call.id}" if name else call.id
    return ObservedCall(id_, call.name, arguments, (entry.at, entry.seq))


def _text(end: Ended, record: SessionRecord) -> tuple[str, bool]:
    """The output of the call, and whether it is complete."""
    if end.full_blob:
        blob = record.blob(end.full_blob)
        if blob is not None:
            return blob.decode(errors="replace"), True
        return end.text, False
    return end.text, _CUT_MARK not in end.text


def _parse_rows(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a file in the output of `read_file`."""
    before = 0
    for line in text.split("\n"):
        row = _ROW_PATTERN.fullmatch(line)
        if row is None or (before and int(row[1]) != before + 1):
            return
        before = int(row[1])
        yield before, row[2]


def _parse_hits(text: str, directory: str) -> Iterator[tuple[str, Passage]]:
    """The lines that `grep` showed, by file."""
    path, rows = "", list[tuple[int, str]]()
    for line in (*text.split("\n"), ""):
        if hit := _HIT_PATTERN.fullmatch(line):
            rows.append((int(hit[1]), hit[2]))
        elif line != "--":
            if path and rows:
                yield path, passage_of_rows(rows)
            # `grep` prints escaped names, so these are compared.
            path, rows = escape_name(normpath(join(directory, line))) if line else "", []


def _parse_diff(diff: str) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """The old and the new lines of a unified diff, each with its number."""
    before, after = list[tuple[int, str]](), list[tuple[int, str]]()
    old = new = 0
    for line in diff.split("\n"):
        if hunk := _HUNK_PATTERN.fullmatch(line):
            old, new = int(hunk[1]), int(hunk[2])
        elif not old and not new:
            break
        elif line[:1] in (" ", "-", "+"):
            if line[0] != "+":
                before.append((old, line[1:]))
                old += 1
            if line[0] != "-":
                after.append((new, line[1:]))
                new += 1
        elif not line.startswith("\\"):  # cut off here, perhaps within the line before
            return before[:-1], after[:-1]
    return before, after


def variable_files(
    event: VariableInjected, blob: Callable[[str], bytes | None]
) -> Iterator[tuple[str, str, Passage, bool]]:
    """Yield path, hash and text of each file of a variable, and whether the text is known.

    The user passed these files whole, so they count as read.
    """
    files = event.files or _read_list(event.files_blob, blob)
    texts = _texts(event.blob, blob) if files else []
    is_whole = len(texts) == len(files)
    for n, (path, digest) in enumerate(files):
        shown = lazy_passage(partial(texts.__getitem__, n)) if is_whole else passage("")
        yield path, digest, shown, is_whole


def _read_list(name: str, blob: Callable[[str], bytes | None]) -> Files:
    content = blob(name) if name else None
    try:
        return files_in(content) if content else ()
    except msgspec.DecodeError:
        return ()


def _texts(name: str, blob: Callable[[str], bytes | None]) -> list[str]:
    """The text of one file, or the texts of several."""
    content = blob(name)
    try:
        value: object = msgspec.json.decode(content) if content else None
    except msgspec.DecodeError:
        return []
    match value:
        case str():
            return [value]
        case dict():
            texts = list(cast("dict[str, object]", value).values())
            return [text for text in texts if isinstance(text, str)]
        case _:
            return []
