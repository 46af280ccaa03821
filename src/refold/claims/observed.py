"""Collects facts from journals: the files that were read, their content, and the calls.

Pure: blobs are read by a function that the caller passes. Calls of subagents count; their ids
begin with the name of the subagent: "child-1/call-7". Text of an agent does not count as a
fact, whether it is an answer, thinking or the report of a subagent.
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
# A result that was cut in the middle contains this.
_CUT_MARK = "characters are left out here"
# Tools that may change files without reporting them.
RUN_TOOLS = ("bash", "python")


class SessionRecord(Struct, frozen=True):
    """The journal of a session or of one of its subagents, and a function that reads its blobs."""

    entries: Sequence[Entry]
    name: str = ""  # "child-1/child-2"; "" for the session itself
    blob: Callable[[str], bytes | None] = lambda _: None
    damage: str = ""  # damage of the next event; more events may follow it


class ObservedCall(Struct, frozen=True):
    """A call that was made. `outcome` is "" if the call has not ended."""

    id: str
    tool: str
    arguments: Mapping[str, object]
    order: tuple[float, int]
    outcome: str = ""
    text: str = ""
    whole: bool = True  # whether `text` is complete
    output: Output | None = None
    # The lines of a file that `read_file` showed.
    rows: Passage = field(default_factory=lambda: passage(""))

    @property
    def command(self) -> str:
        return str(self.arguments.get("command", "")) if self.tool == "bash" else ""

    @property
    def code(self) -> int | None:
        return self.output.code if self.output else None

    @property
    def argument_text(self) -> str:
        """The values of all arguments, as one text."""
        return " ".join(str(value) for value in self.arguments.values())


class FileRead(Struct, frozen=True):
    """A file's content that was shown or written. `sha256` is "" if its hash is unknown."""

    sha256: str
    shown: Passage
    whole: bool = True  # False if more than `shown` may have been read


class ReadFiles(Struct, frozen=True):
    """The facts in the journals of a session and its subagents. Paths are real, printable."""

    directories: tuple[str, ...] = ()
    began: float = 0.0
    calls: tuple[ObservedCall, ...] = ()  # ordered by their ends
    readings: Mapping[str, tuple[FileRead, ...]] = {}  # the newest first
    changes: Mapping[str, str] = {}  # "created", "changed", "deleted"
    originals: Mapping[str, str] = {}  # the sha256 of each file before its first change
    edits: tuple[tuple[tuple[float, int], str], ...] = ()  # order, and the changed path
    # The text of models that code asked, and of subagents.
    model_texts: tuple[Passage, ...] = ()
    doubtful: bool = False  # whether commands may have changed files unnoticed


def collect_facts(records: Sequence[SessionRecord]) -> ReadFiles:
    """Return the facts in these journals. The first journal is that of the session itself."""
    collector = _FactCollector()
    for record in records:
        collector.add_record(record)
    return collector.to_facts()


class _FactCollector:
    def __init__(self) -> None:
        self._directories = list[str]()
        self._began = 0.0  # the time of the first event
        self._calls = list[ObservedCall]()
        # Each with its path and its place in the order of events: time and event number.
        self._readings = list[tuple[str, FileRead, tuple[float, int]]]()
        self._changes: Mapping[str, str] = {}  # the kind of change of each file
        self._originals = dict[str, str]()  # the hash of each file before its first change
        # The order and path of each edit.
        self._edits = list[tuple[tuple[float, int], str]]()
        self._model_texts = list[str]()
        self._doubtful = False  # whether commands may have changed files without a record

    def add_record(self, record: SessionRecord) -> None:
        """Add the facts of a journal.

        Commands after its last checkpoint may have changed files without a record.
        """
        calls = dict[str, ToolCall]()  # by id
        unended = dict[str, ObservedCall]()  # calls that have begun and not ended, by id
        directory = ""
        doubtful = False  # whether a command has run since the last checkpoint
        for entry in record.entries:
            match entry.event:
                case SessionStarted(path):
                    directory = path
                    self._directories.append(path)
                    self._began = self._began or entry.at
                case ModelAnswered(message):
                    calls |= {call.id: call for call in message.calls}
                case NestedCallMade(call):
                    calls[call.id] = call
                case Started(id_) if id_ in calls:
                    unended[id_] = _observe(calls[id_], record.name, entry)
                    doubtful = doubtful or calls[id_].name in RUN_TOOLS
                case Checkpointed(changed=changed):
                    doubtful = False
                    self._changes = merge_changes(self._changes, changed)
                case Ended() as end if end.call_id in calls:
                    unended.pop(end.call_id, None)
                    self._add_end(calls[end.call_id], end, entry, record, directory)
                case _:
                    self._add_text(entry, record)
        self._doubtful = self._doubtful or doubtful
        self._calls += unended.values()

    def _add_text(self, entry: Entry, record: SessionRecord) -> None:
        """Add the text that an event has from a model, a subagent or a variable."""
        match entry.event:
            case Settled(text=text, full_blob=blob_name) if text or blob_name:
                content = record.blob(blob_name) if blob_name else None
                self._model_texts.append(
                    content.decode(errors="replace") if content else text
                )
            case ChildEnded(text=text) if text:
                self._model_texts.append(text)
            case VariableInjected() as injected:
                for path, sha256, shown, is_whole in variable_files(injected, record.blob):
                    reading = FileRead(sha256, shown, is_whole)
                    self._readings.append((path, reading, (entry.at, entry.seq)))
            case _:
                pass

    def to_facts(self) -> ReadFiles:
        """Return the facts of all added journals. The newest reading of a file comes first."""
        readings = dict[str, tuple[FileRead, ...]]()
        oldest_first = sorted(self._readings, key=lambda item: item[2])
        for path, reading, _ in oldest_first:
            readings[path] = (reading, *readings.get(path, ()))
        return ReadFiles(
            directories=tuple(dict.fromkeys(self._directories)),
            began=self._began,
            calls=tuple(sorted(self._calls, key=lambda call: call.order)),
            readings=readings,
            changes=self._changes,
            originals=self._originals,
            edits=tuple(self._edits),
            model_texts=tuple(passage(text) for text in self._model_texts),
            doubtful=self._doubtful,
        )

    def _add_end(
        self,
        call: ToolCall,
        end: Ended,
        entry: Entry,
        record: SessionRecord,
        directory: str,
    ) -> None:
        """Add the result of a call, and the files that it read or changed."""
        order = (entry.at, entry.seq)
        text, whole = _output_text(end, record)
        output = next((part for part in end.shown if isinstance(part, Output)), None)
        rows = list(_parse_rows(text)) if call.name == "read_file" else []
        lines_read = passage_of_rows(rows)
        observed = msgspec.structs.replace(
            _observe(call, record.name, entry),
            outcome=end.outcome,
            text=text,
            whole=whole,
            output=output,
            rows=lines_read,
        )
        self._calls.append(observed)
        is_whole_reading = whole and bool(rows)
        for path, content_hash in end.file_hashes:
            reading = FileRead(content_hash, lines_read, is_whole_reading)
            self._readings.append((path, reading, order))
        if call.name == "grep" and end.outcome == "done":
            hits_by_file = _parse_hits(text, directory)
            self._readings += [
                (path, FileRead(sha256="", shown=hits), order)
                for path, hits in hits_by_file
            ]
        for part in end.shown:
            if isinstance(part, Diff):
                self._add_diff(part, observed, order)

    def _add_diff(self, diff: Diff, call: ObservedCall, order: tuple[float, int]) -> None:
        """Add a change of a file, with the lines before and after it as readings."""
        path = diff.path
        self._changes = merge_changes(self._changes, [(path, diff.kind)])
        self._originals.setdefault(path, diff.before)
        self._edits.append((order, path))
        before, after = _parse_diff(diff.text)
        if diff.before:
            reading = FileRead(diff.before, passage_of_rows(before), whole=False)
            self._readings.append((path, reading, order))
        if diff.after:
            content = call.arguments.get("content")
            if isinstance(content, str) and _has_hash(content, diff.after):
                reading = FileRead(diff.after, passage(content))
            else:
                # A hunk is only a part; the rest was read before, perhaps at other lines.
                reading = FileRead(diff.after, passage_of_rows(after), whole=False)
            self._readings.append((path, reading, order))


def _has_hash(content: str, digest: str) -> bool:
    return sha256(content.encode(errors="replace")).hexdigest() == digest


def _observe(call: ToolCall, name: str, entry: Entry) -> ObservedCall:
    """Return a call that has begun, without its result.

    `name` is that of the subagent; "" for the session itself. `entry` records the beginning
    of the call. The time and the number of `entry` determine the order of calls.
    """
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        arguments = {}
    id_ = f"{name}/{call.id}" if name else call.id
    return ObservedCall(id_, call.name, arguments, (entry.at, entry.seq))


def _output_text(end: Ended, record: SessionRecord) -> tuple[str, bool]:
    """Return the output of the call, and whether it is complete."""
    if end.full_blob:
        blob = record.blob(end.full_blob)
        if blob is not None:
            return blob.decode(errors="replace"), True
        return end.text, False
    return end.text, _CUT_MARK not in end.text


def _parse_rows(text: str) -> Iterator[tuple[int, str]]:
    """Yield the numbers and texts of the lines in the output of `read_file`.

    The lines end before the first line that does not have the next number, such as a note.
    """
    last_number = 0  # 0: no line yet
    for line in text.split("\n"):
        row = _ROW_PATTERN.fullmatch(line)
        if row is None:
            return
        number = int(row[1])
        if last_number and number != last_number + 1:
            return
        last_number = number
        yield number, row[2]


def _parse_hits(text: str, directory: str) -> Iterator[tuple[str, Passage]]:
    """Yield each file in the output of `grep`, with the lines that it showed.

    `directory` is where relative paths start.
    """
    path = ""  # "": no file yet
    rows = list[tuple[int, str]]()
    for line in (*text.split("\n"), ""):
        if hit := _HIT_PATTERN.fullmatch(line):
            rows.append((int(hit[1]), hit[2]))
            continue
        if line == "--":  # between two groups of lines of one file
            continue
        # The line is the name of the next file, or blank: the present file ends.
        if path and rows:
            yield path, passage_of_rows(rows)
        # `grep` prints escaped names, so escaped names are compared.
        path = escape_name(normpath(join(directory, line))) if line else ""
        rows = []


def _parse_diff(diff: str) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Return the old lines and the new lines of a unified diff, each with its number."""
    before, after = list[tuple[int, str]](), list[tuple[int, str]]()
    old_number = new_number = 0  # of the next lines; 0 before the first hunk
    for line in diff.split("\n"):
        if hunk := _HUNK_PATTERN.fullmatch(line):
            old_number, new_number = int(hunk[1]), int(hunk[2])
        elif not old_number and not new_number:
            break  # it is not a diff
        elif line[:1] in (" ", "-", "+"):
            if line[0] != "+":
                before.append((old_number, line[1:]))
                old_number += 1
            if line[0] != "-":
                after.append((new_number, line[1:]))
                new_number += 1
        elif not line.startswith("\\"):  # cut off here, perhaps within the previous line
            return before[:-1], after[:-1]
    return before, after


def variable_files(
    event: VariableInjected, blob: Callable[[str], bytes | None]
) -> Iterator[tuple[str, str, Passage, bool]]:
    """Yield each file that the user passed in a variable: path, hash, text, and whether the
    text is known.

    These files count as read, because the user passed them completely.
    """
    files = event.files or _read_list(event.files_blob, blob)
    texts = _texts(event.blob, blob) if files else []
    is_whole = len(texts) == len(files)
    for index, (path, digest) in enumerate(files):
        # Most texts are never searched, so a passage is made when it is first used.
        get_text = partial(texts.__getitem__, index)
        shown = lazy_passage(get_text) if is_whole else passage("")
        yield path, digest, shown, is_whole


def _read_list(name: str, blob: Callable[[str], bytes | None]) -> Files:
    """Return the paths and hashes in the blob `name`; () if there is none or it is damaged."""
    content = blob(name) if name else None
    try:
        return files_in(content) if content else ()
    except msgspec.DecodeError:
        return ()


def _texts(name: str, blob: Callable[[str], bytes | None]) -> list[str]:
    """Return the texts of the files in a stored variable; [] if it cannot be read.

    `name` is the name of its blob.
    """
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
