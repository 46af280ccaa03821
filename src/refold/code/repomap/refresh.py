"""Updates the facts of a repository: lists its files, and reads those that have changed.

Files are read under the same rules as by an agent: those that git ignores or a rule hides, and
those that are not source code, are never opened. An update may be stopped at any time; the next
one continues. Files are ranked again when enough of them have changed.
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

# for one listing; files that are not listed by then are missing from an answer
_WALK_SECONDS = 3.0
_BATCH_FILES = 200
_BATCH_SECONDS = 1.0
# a file that changed so shortly before it was read is read again
_RACY_NANOSECONDS = 50_000_000
_QUICK_RANK_FILES = 4_000  # fewer files are ranked at once, in less than a second
_STALE_RANK_SHARE = 0.02  # share of the files that changed since the ranking
_RACY_MARK = " racy"
_MAX_FAILURES = 2
_CRASH_REASON = "the parser failed at it"


class Coverage(Struct, frozen=True):
    """How much of the repository the map knows: `known` of `listed` source files."""

    listed: int
    known: int
    read: int = 0  # files read just now
    left_out: int = 0  # known files that were not read for some reason
    is_listed_whole: bool = True
    is_ranked: bool = False
    seconds: float = 0.0

    @property
    def is_whole(self) -> bool:
        return self.is_listed_whole and self.known >= self.listed


OnProgress: TypeAlias = Callable[[Coverage], None]


class Refresher:
    """Updates the facts of the repository in `root`, an absolute path without links.

    `files` decides what may be read.
    """

    def __init__(self, root: str, files: Files, map_file: MapFile) -> None:
        self._root, self._files, self.map = root, files, map_file
        self.states: Mapping[str, str] = {}  # states of the files in the last listing
        # The files of the last listing that the map has.
        self.known: dict[str, KnownFile] = {}
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
        """Read changed files for at most `seconds`. Paths with a word of `first` come first.

        If more than `most` files have changed, none is read. With `share` (number, count), only
        one of `count` parts is read, so that several processes can share the work; only the
        process with the number 0 forgets deleted files. Raises `MapUnwritable`.
        """
        began = time.monotonic()
        until = began + seconds if seconds is not None else None
        process_number, process_count = share
        self.states = self._list(has_deadline=until is not None)
        known = self.map.files()
        if process_number == 0:
            self._forget_deleted(known)
        self.known = {path: file for path, file in known.items() if path in self.states}
        pending = self._pending(known, first)
        # A file that is only read again because of its `_RACY_MARK` is known.
        unknown = {path for path in pending if not self._was_read(known.get(path), path)}
        coverage = Coverage(len(self.states), len(self.states) - len(unknown))
        if most is not None and len(pending) > most:
            return replace(coverage, is_listed_whole=self._is_listed_whole)
        self._attempt = _Attempt(self.map.path, process_number)
        own_paths = pending[process_number::process_count]
        for stored_paths in self._read(own_paths, known, until):
            self.known |= self.map.files_at(stored_paths)
            read = coverage.read + len(stored_paths)
            learned = coverage.known + len(unknown.intersection(stored_paths))
            coverage = replace(coverage, read=read, known=learned)
            if on_progress is not None:
                on_progress(coverage)
        _, left_out = self.map.counts()
        is_only_process = process_number == 0 and process_count == 1
        return replace(
            coverage,
            left_out=left_out,
            is_listed_whole=self._is_listed_whole,
            is_ranked=is_only_process and self._rank_if_stale(until),
            seconds=time.monotonic() - began,
        )

    def rank(self) -> None:
        """Rank all files, which takes about 20 s for 80,000 files. Raises `MapUnwritable`."""
        names = [
            rank.NamesOfFile(key, family(path), defines, mentions)
            for key, path, defines, mentions in self.map.all_names()
        ]
        self.map.put_ranks(rank.rank_files(names, self.map.definitions), len(names))

    def _forget_deleted(self, known_files: Mapping[str, KnownFile]) -> None:
        """Remove deleted files from the map, and store how many files there are."""
        if not self._is_listed_whole:
            return
        deleted = [
            file.key for path, file in known_files.items() if path not in self.states
        ]
        if deleted:
            self.map.remove(deleted)
        if self.map.metadata(LISTED_FILES) != str(len(self.states)):
            self.map.put_metadata({LISTED_FILES: str(len(self.states))})

    def _list(self, *, has_deadline: bool) -> Mapping[str, str]:
        """Return the state of each source file by path.

        With a deadline, listing has a time limit, so files may be missing.
        """
        limit = time.monotonic() + _WALK_SECONDS if has_deadline else None
        states = dict[str, str]()
        root_chars = len(self._root.rstrip("/")) + 1

        def stop_late() -> None:
            if limit is not None and time.monotonic() > limit:
                raise TimeoutError

        self._is_listed_whole = True
        try:
            for path in walk(self._root, stop_late):
                if is_source(path) and _is_text(path):
                    with suppress(OSError):
                        states[path[root_chars:]] = _state(os.lstat(path))
        except TimeoutError:
            self._is_listed_whole = False
        return states

    def _pending(
        self, known_files: Mapping[str, KnownFile], first: Sequence[str]
    ) -> Sequence[str]:
        """Return the paths to read: first those with a word of `first`, and tests last."""
        parsers = dict[str, str]()  # by suffix

        def is_current(path: str, state: str) -> bool:
            """Whether the map has the file in this state, as read by its present parser."""
            file = known_files.get(path)
            if file is None or file.state != state:
                return False
            if file.parser != "plain" or file.problem == _CRASH_REASON:
                return True
            # Read it again if it has a grammar now.
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

    def _was_read(self, file: KnownFile | None, path: str) -> bool:
        """Whether a file was read in its listed state, even if it may have changed since."""
        return file is not None and file.state.removesuffix(_RACY_MARK) == self.states[path]

    def _read(
        self,
        paths: Sequence[str],
        known_files: Mapping[str, KnownFile],
        deadline: float | None,
    ) -> Iterator[Sequence[str]]:
        """Read files and store their facts. Yield the paths of each batch that was stored."""
        batch = list[tuple[str, str, str, FileFacts]]()
        unchanged = dict[str, str]()  # the new states of files with the same content
        batch_start = time.monotonic()
        for path in paths:
            now = time.monotonic()
            if deadline is not None and now > deadline:
                break
            entry = self._read_file(path, known_files.get(path))
            if entry is None:
                unchanged[path] = self._state_to_store(path)
            else:
                batch.append(entry)
            is_large = len(batch) + len(unchanged) >= _BATCH_FILES
            if is_large or now - batch_start > _BATCH_SECONDS:
                self.map.put(batch, unchanged)
                yield [*unchanged, *(stored_path for stored_path, *_ in batch)]
                batch, unchanged, batch_start = [], {}, now
        if batch or unchanged:
            self.map.put(batch, unchanged)
            yield [*unchanged, *(stored_path for stored_path, *_ in batch)]
        self._attempt.forget()

    def _read_file(
        self, path: str, before: KnownFile | None
    ) -> tuple[str, str, str, FileFacts] | None:
        """Return (path, state, hash, facts) to store, or None if the content is unchanged.

        The hash is "" if the file may not or cannot be read.
        """
        state = self._state_to_store(path)
        real = Real(os.path.join(self._root, path))
        if reason := self._files.why_hidden(real):
            return path, state, "", FileFacts(by="", problem=reason)
        try:
            content = self._files.read(real, MAX_FILE_BYTES)
        except ToolFailed as error:
            return path, state, "", FileFacts(by="", problem=str(error).rstrip("."))
        digest = hashlib.sha256(content).hexdigest()
        if before and before.hash == digest and before.parser == parser_of(path):
            return None
        plain = self._attempt.begin(digest)
        facts = read_facts(path, content, plain=plain)
        if plain:
            facts = replace(facts, problem=_CRASH_REASON)
        return path, state, digest, facts

    def _state_to_store(self, path: str) -> str:
        """Return the listed state of a file, with a mark if the file has only just changed.

        Another change could then leave its size and times the same.
        """
        state = self.states[path]
        _, change_time, *_ = state.split()
        is_racy = int(change_time) >= time.time_ns() - _RACY_NANOSECONDS
        return f"{state}{_RACY_MARK}" if is_racy else state

    def _rank_if_stale(self, deadline: float | None) -> bool:
        """Rank all files if many have changed and there is time.

        Return whether the ranks are now up to date, except for a few files.
        """
        ranked, changed = self.map.rank_state()
        if ranked >= 0 and changed <= ranked * _STALE_RANK_SHARE:
            return True
        count, _ = self.map.counts()
        if count and (deadline is None or count <= _QUICK_RANK_FILES):
            self.rank()
            return True
        return False


class _Attempt:
    """Records the content that is being parsed, because some content kills the process.

    A process may be killed for another reason, so a content is left out only if it was being
    parsed twice. If no file can be written, nothing is recorded.
    """

    def __init__(self, map_path: Path, share: int) -> None:
        path = Path(f"{map_path}.attempt{share}")
        # The content at which the last process was killed, and how many it has killed.
        self._failed_digest, self._failures = "", 0
        with suppress(OSError, ValueError):
            content, _ = read_regular(path, 200, follow=False)
            digest, _, count = content.decode("ascii").partition(" ")
            self._failures = int(count)
            self._failed_digest = digest
        self._descriptor = -1
        with suppress(OSError):
            self._descriptor = open_checked(path, os.O_WRONLY | os.O_CREAT)

    def begin(self, digest: str) -> bool:
        """Record that a content is now parsed.

        Return True if parsing this content has killed two processes.
        """
        failures = self._failures if digest == self._failed_digest else 0
        if failures < _MAX_FAILURES and self._descriptor >= 0:
            with suppress(OSError):
                os.pwrite(self._descriptor, f"{digest} {failures + 1}".encode(), 0)
        return failures >= _MAX_FAILURES

    def forget(self) -> None:
        """Delete the record, because no content is being parsed any more."""
        if self._descriptor >= 0:
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1


def _state(status: os.stat_result) -> str:
    """Return the size, times and inode of a file, by which a change of the file is noticed."""
    return f"{status.st_size} {status.st_ctime_ns} {status.st_mtime_ns} {status.st_ino}"


def _is_text(path: str) -> bool:
    """Whether a path is valid UTF-8, which the file of the map requires."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
