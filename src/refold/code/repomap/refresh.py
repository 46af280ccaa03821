"""Brings the facts of a repository up to date: lists its files, and reads those that have changed.

A file is read as an agent may read it: what git ignores, what a rule hides and what is not a source file is never
opened. Reading may be stopped at any time; the next refresh continues. `rank` runs when enough has changed.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.code.repomap import rank
from refold.code.repomap.facts import (
    MAX_FILE_BYTES,
    FileFacts,
    family,
    is_source,
    is_test,
    parser_of,
    read_facts,
)
from refold.code.repomap.map_file import LISTED_FILES, KnownFile, MapFile
from refold.errors import ToolFailed
from refold.place.file_walk import walk
from refold.place.port import Files, Real
from refold.safe_open import open_checked, read_regular

_WALK_SECONDS = 3.0  # of one look; what is not listed by then is missing from an answer
_BATCH_FILES = 200
_BATCH_SECONDS = 1.0
_RACY_NANOSECONDS = (
    50_000_000  # a file that changed so shortly before it was read is read again
)
_QUICK_RANK_FILES = 4_000  # ranked at once, for less than a second
_STALE_RANK_SHARE = 0.02  # of the files changed since they were ranked
_RACY_MARK = " racy"
_MAX_FAILURES = 2
_CRASH_REASON = "the parser failed at it"


class Coverage(Struct, frozen=True):
    """How much of the repository the map knows: `known` of `listed` files of source."""

    listed: int
    known: int
    read: int = 0  # just now
    left_out: int = 0  # known, but not read for a reason
    is_listed_whole: bool = True
    is_ranked: bool = False
    seconds: float = 0.0

    @property
    def is_whole(self) -> bool:
        return self.is_listed_whole and self.known >= self.listed


OnProgress: TypeAlias = Callable[[Coverage], None]


class Refresher:
    """`root` is absolute, with links followed; `files` decides what may be read."""

    def __init__(self, root: str, files: Files, map_file: MapFile) -> None:
        self._root, self._files, self.map = root, files, map_file
        self.states: Mapping[str, str] = {}  # of the files that were listed last
        self.known: dict[str, KnownFile] = {}  # those of them that the map has
        self._is_listed_whole = True

    def refresh(
        self,
        seconds: float | None = None,
        *,
        first: Sequence[str] = (),
        share: tuple[int, int] = (0, 1),
        most: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> Coverage:
        """Read what has changed, for at most `seconds`; paths with a word of `first` come first.

        If more than `most` files have changed, none is read. `share` (number, of) reads only a part, for several processes; the first also deletes and
        ranks. Raises `MapUnwritable`.
        """
        began = time.monotonic()
        until = began + seconds if seconds is not None else None
        number, shares = share
        self.states = self._list(until)
        known = self.map.files()
        if number == 0:
            self._forget_deleted(known)
        self.known = {path: file for path, file in known.items() if path in self.states}
        pending = self._pending(known, first)
        # A file that was read while it could still change without a trace is known all the same.
        unknown = {path for path in pending if not self._is_read(known.get(path), path)}
        coverage = Coverage(len(self.states), len(self.states) - len(unknown))
        if most is not None and len(pending) > most:
            return replace(coverage, is_listed_whole=self._is_listed_whole)
        self._attempt = _Attempt(self.map.path, number)
        for done in self._read(pending[number::shares], known, until):
            self.known |= self.map.files_at(done)
            read = coverage.read + len(done)
            learned = coverage.known + len(unknown.intersection(done))
            coverage = replace(coverage, read=read, known=learned)
            if on_progress is not None:
                on_progress(coverage)
        return replace(
            coverage,
            left_out=self.map.counts()[1],
            is_listed_whole=self._is_listed_whole,
            is_ranked=number == 0 and shares == 1 and self._rank_if_stale(until),
            seconds=time.monotonic() - began,
        )

    def rank(self) -> None:
        """Rank all files, which takes about 20 s for 80,000. Raises `MapUnwritable`."""
        names = [
            rank.NamesOfFile(key, family(path), defines, mentions)
            for key, path, defines, mentions in self.map.all_names()
        ]
        self.map.put_ranks(rank.rank_files(names, self.map.definitions), len(names))

    def _forget_deleted(self, known_files: Mapping[str, KnownFile]) -> None:
        if not self._is_listed_whole:
            return
        gone = [file.key for path, file in known_files.items() if path not in self.states]
        if gone:
            self.map.remove(gone)
        if self.map.about(LISTED_FILES) != str(len(self.states)):
            self.map.put_metadata({LISTED_FILES: str(len(self.states))})

    def _list(self, deadline: float | None) -> Mapping[str, str]:
        limit = time.monotonic() + _WALK_SECONDS if deadline is not None else None
        states, start = dict[str, str](), len(self._root.rstrip("/")) + 1

        def stop_late() -> None:
            if limit is not None and time.monotonic() > limit:
                raise TimeoutError

        self._is_listed_whole = True
        try:
            for path in walk(self._root, stop_late):
                if is_source(path) and _is_text(path):
                    with suppress(OSError):
                        states[path[start:]] = _state(os.lstat(path))
        except TimeoutError:
            self._is_listed_whole = False
        return states

    def _pending(
        self, known_files: Mapping[str, KnownFile], first: Sequence[str]
    ) -> Sequence[str]:
        parsers = dict[str, str]()

        def is_current(path: str, state: str) -> bool:
            file = known_files.get(path)
            if file is None or file.state != state:
                return False
            if file.parser != "plain" or file.problem == _CRASH_REASON:
                return True
            suffix = os.path.splitext(path)[1]
            if suffix not in parsers:
                parsers[suffix] = parser_of(path)
            return parsers[suffix] == "plain"

        pending = [
            path for path, state in self.states.items() if not is_current(path, state)
        ]
        words = [word.casefold() for word in first if word]

        def order(path: str) -> tuple[bool, bool, int, str]:
            named = any(word in path.casefold() for word in words)
            return not named, is_test(path), path.count("/"), path

        return sorted(pending, key=order)

    def _is_read(self, file: KnownFile | None, path: str) -> bool:
        return file is not None and file.state.removesuffix(_RACY_MARK) == self.states[path]

    def _read(
        self,
        paths: Sequence[str],
        known_files: Mapping[str, KnownFile],
        deadline: float | None,
    ) -> Iterator[Sequence[str]]:
        """Read files and keep their facts; yield the paths of each batch that is kept."""
        batch, touched = list[tuple[str, str, str, FileFacts]](), dict[str, str]()
        since = time.monotonic()
        for path in paths:
            now = time.monotonic()
            if deadline is not None and now > deadline:
                break
            entry = self._read_file(path, known_files.get(path))
            if entry is None:
                touched[path] = self._state_to_keep(path)
            else:
                batch.append(entry)
            if len(batch) + len(touched) >= _BATCH_FILES or now - since > _BATCH_SECONDS:
                self.map.put(batch, touched)
                yield [*touched, *(entry[0] for entry in batch)]
                batch, touched, since = [], {}, now
        if batch or touched:
            self.map.put(batch, touched)
            yield [*touched, *(entry[0] for entry in batch)]
        self._attempt.forget()

    def _read_file(
        self, path: str, before: KnownFile | None
    ) -> tuple[str, str, str, FileFacts] | None:
        """What to keep of a file; None if its content is as it was."""
        state, real = self._state_to_keep(path), Real(os.path.join(self._root, path))
        if reason := self._files.why_hidden(real):
            return path, state, "", FileFacts("", reason)
        try:
            content = self._files.read(real, MAX_FILE_BYTES)
        except ToolFailed as error:
            return path, state, "", FileFacts("", str(error).rstrip("."))
        digest = hashlib.sha256(content).hexdigest()
        if before and before.hash == digest and before.parser == parser_of(path):
            return None
        plain = self._attempt.begin(digest)
        facts = read_facts(path, content, plain=plain)
        if plain:
            facts = replace(facts, problem=_CRASH_REASON)
        return path, state, digest, facts

    def _state_to_keep(self, path: str) -> str:
        """The state of a file when it was listed, or "" if it may change without a new
        state.
        """
        state = self.states[path]
        changed = int(state.split()[1])
        return (
            state
            if changed < time.time_ns() - _RACY_NANOSECONDS
            else f"{state}{_RACY_MARK}"
        )

    def _rank_if_stale(self, deadline: float | None) -> bool:
        """Whether the ranks are those of these files, or nearly."""
        ranked, changed = self.map.rank_state()
        if ranked >= 0 and changed <= ranked * _STALE_RANK_SHARE:
            return True
        count = self.map.counts()[0]
        if count and (deadline is None or count <= _QUICK_RANK_FILES):
            self.rank()
            return True
        return False


class _Attempt:
    """Notes which content is being parsed, so that one that kills the process is not parsed again.

    A process can be killed for other reasons: only the second time counts. Nothing is noted if no
    file can be written.
    """

    def __init__(self, map_path: Path, share: int) -> None:
        path = Path(f"{map_path}.attempt{share}")
        self._failures, self._number = 0, -1
        try:
            text = read_regular(path, 200, follow=False)[0].decode("ascii")
            digest, _, count = text.partition(" ")
            self._failed, self._failures = digest, int(count)
        except (OSError, ValueError):
            self._failed = ""
        with suppress(OSError):
            self._number = open_checked(path, os.O_WRONLY | os.O_CREAT)

    def begin(self, digest: str) -> bool:
        """Note that this content is parsed now. Return whether that failed twice."""
        failures = self._failures if digest == self._failed else 0
        if failures < _MAX_FAILURES and self._number >= 0:
            with suppress(OSError):
                os.pwrite(self._number, f"{digest} {failures + 1}".encode(), 0)
        return failures >= _MAX_FAILURES

    def forget(self) -> None:
        """Forget the noted contents: their parsing has ended."""
        if self._number >= 0:
            with suppress(OSError):
                os.ftruncate(self._number, 0)
            os.close(self._number)
            self._number = -1


def _state(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_ctime_ns} {status.st_mtime_ns} {status.st_ino}"


def _is_text(path: str) -> bool:
    """Whether the name is UTF-8, as the file of the map needs it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
