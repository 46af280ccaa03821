"""A file of events that several processes change, one at a time, and the value they fold to.

A change takes the lock, reads what others wrote, decides, appends and syncs, and releases
the lock: two processes that claim one thing cannot both get it. Lines are chained like
those of a session (`events.codec`). A partial line that a crash left is cut off before the
next one is written. An `EventSchema` defines the events. Unlike this file, a session's own
journal keeps one writer for long (`journal_writer`). It blocks on the disk: call it in a
thread.
"""

import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from refold.errors import Corrupt, Held, JournalError
from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.events.kinds import Entry, Unknown
from refold.journal.store.disk import Disk, as_journal_errors, make_directories
from refold.journal.store.log_file import LogFile
from refold.journal.store.reader import Reader

State = TypeVar("State")
Change = TypeVar("Change", bound=Struct)
_TIMEOUT_SECONDS = 10.0  # of waiting for the lock, which is held only briefly
_POLL_SECONDS = 0.005


class EventSchema(Generic[State, Change]):
    """How events are read and folded. `noun` names the file in an error message."""

    def __init__(
        self,
        noun: str,
        kinds: Iterable[type[Change]],
        empty: State,
        fold: Callable[[State, Iterable[Change]], State],
    ) -> None:
        self.thing, self.empty, self.fold = noun, empty, fold
        self._kinds: Mapping[str, type[Change]] = {kind.__name__: kind for kind in kinds}

    def events(self, entry: Entry) -> Iterable[Change]:
        """The event of a line, or nothing for an unknown kind."""
        if isinstance(entry.event, Unknown) and (kind := self._kinds.get(entry.event.kind)):
            try:
                yield msgspec.json.decode(entry.event.data, type=kind)
            except msgspec.DecodeError:
                return


class SharedLog(Generic[State, Change]):
    """The file at `path`. `mask` replaces secrets in what is written."""

    def __init__(
        self,
        path: Path,
        meaning: EventSchema[State, Change],
        mask: Callable[[Change], Change] = lambda event: event,
        disk: Disk | None = None,
    ) -> None:
        self.path = path
        self._meaning, self._masked, self._disk = meaning, mask, disk or Disk()
        self._alone = threading.Lock()  # among threads; the file's lock is among processes
        self._start()

    def read(self) -> State:
        """The value as it is now. Raises `JournalError` if the file is damaged."""
        with self._alone:
            return self._read()

    def change(
        self, author: str, decide: Callable[[State], Change | None]
    ) -> tuple[Change | None, State]:
        """Append the event that `decide` returns for the current value, if it returns one.

        Returns the event and the value after it. Exceptions of `decide` are passed on.
        """
        with self._alone, as_journal_errors("write", self.path), self._open_locked() as log:
            event = decide(self._read())
            if event is None:
                return None, self._state
            event = self._masked(event)
            data = Raw(msgspec.json.encode(event))
            entry = Entry(
                self._head.seq + 1,
                Unknown(type(event).__name__, data),
                time.time(),
                by=author,
            )
            line, _ = codec.encode(entry, self._head)
            log.write([line])
            log.sync()
            return event, self._read()

    def _read(self) -> State:
        try:
            about = self.path.stat()
        except OSError:
            about = None
        file = (about.st_dev, about.st_ino) if about else None
        if file != self._file:  # the file was moved away or replaced
            self._start()
            self._file = file
        try:
            with as_journal_errors("read", self.path):
                lines = self._lines.read(self._head.seq)
            events = list[Change]()
            for entry, head in codec.decode(lines, self._head):
                events += self._meaning.events(entry)
                self._head = head
        except Corrupt as error:
            self._start()
            raise JournalError(
                f"{self.path}: {error}: move the file away to begin a new "
                f"{self._meaning.thing}"
            ) from error
        if events:
            self._state = self._meaning.fold(self._state, events)
        return self._state

    def _start(self) -> None:
        self._lines, self._head = Reader(self.path), Head()
        self._state = self._meaning.empty
        self._file: tuple[int, int] | None = None

    @contextmanager
    def _open_locked(self) -> Generator[LogFile]:
        created = make_directories(self.path.parent, self._disk)
        log = self._open_file()
        try:
            empty = not self.path.stat().st_size
            log.adopt(sys.maxsize, [*created, self.path.parent] if empty else ())
            yield log
        finally:
            log.close()

    def _open_file(self) -> LogFile:
        until = time.monotonic() + _TIMEOUT_SECONDS
        while True:
            try:
                log = LogFile(self.path, self._disk, new=not self.path.exists())
            except FileExistsError:  # another process was faster
                continue
            except Held as error:
                if time.monotonic() >= until:
                    raise Held(
                        f"{self.path} is held by another process: try again when that has "
                        "ended"
                    ) from error
                time.sleep(_POLL_SECONDS)
                continue
            if log.is_in_place():
                return log
            log.close()
