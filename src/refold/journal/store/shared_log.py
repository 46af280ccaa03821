"""A file of events to which several processes append, one process at a time, and the value
folded from the events.

A change takes the lock, reads what others wrote, decides, appends and syncs, and releases the
lock. So two processes that claim one thing cannot both get it. Lines are chained like those of
a session (`events.codec`). A partial line that a crash left is cut off before the next line is
written. An `EventSchema` defines the events. Unlike this file, a session's own journal has one
writer for long (`journal_writer`). Every method blocks on the disk: call it in a thread.
"""

import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

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
StateOut = TypeVar("StateOut", covariant=True)
Change = TypeVar("Change", bound=Struct)
_TIMEOUT_SECONDS = 10.0  # of waiting for the lock, which is held only briefly
_POLL_SECONDS = 0.005


class EventSchema(Generic[State, Change]):
    """Defines how events are read and folded. `noun` names the file in an error message."""

    def __init__(
        self,
        noun: str,
        kinds: Iterable[type[Change]],
        empty: State,
        fold: Callable[[State, Iterable[Change]], State],
    ) -> None:
        self.noun, self.empty, self.fold = noun, empty, fold
        self._kinds: Mapping[str, type[Change]] = {kind.__name__: kind for kind in kinds}

    def events(self, entry: Entry) -> Iterable[Change]:
        """Return the event of a line, or nothing for an unknown kind."""
        if isinstance(entry.event, Unknown):
            yield from self.decode(entry.event.kind, bytes(entry.event.data))

    def decode(self, kind: str, data: bytes) -> Iterable[Change]:
        """Return the event in this JSON, or nothing for an unknown kind."""
        if kind in self._kinds:
            with suppress(msgspec.DecodeError):
                yield msgspec.json.decode(data, type=self._kinds[kind])


class EventLog(Protocol[StateOut, Change]):
    """Events that several processes add, and the value that the events fold to.

    `SharedLog` is such a log in a file.
    """

    def read(self) -> StateOut:
        """Return the present value. Raises `JournalError` if the events are damaged."""
        ...

    def change(
        self, author: str, decide: Callable[[StateOut], Change | None]
    ) -> tuple[Change | None, StateOut]:
        """Append the event that `decide` returns for the value. Return that event, or None if
        there is none, and the value after it.
        """
        ...

    def stamp(self) -> object:
        """Return a value that changes with every event; None if nothing was ever stored.

        Computing it costs less than reading the events.
        """
        ...


class SharedLog(Generic[State, Change]):
    """The file at `path`. `mask` replaces secrets in every written line."""

    def __init__(
        self,
        path: Path,
        schema: EventSchema[State, Change],
        mask: Callable[[Change], Change] = lambda event: event,
        disk: Disk | None = None,
    ) -> None:
        self.path = path
        self._schema, self._mask, self._disk = schema, mask, disk or Disk()
        # Between threads; the lock on the file is between processes.
        self._thread_lock = threading.Lock()
        self._start_over()

    def read(self) -> State:
        """Return the present value. Raises `JournalError` if the file is damaged."""
        with self._thread_lock:
            return self._read()

    def stamp(self) -> object:
        """Return a value that changes with every event; None if there is no file."""
        try:
            about = self.path.stat()
        except FileNotFoundError:
            return None
        return about.st_dev, about.st_ino, about.st_size

    def change(
        self, author: str, decide: Callable[[State], Change | None]
    ) -> tuple[Change | None, State]:
        """Append the event that `decide` returns for the current value, if it returns one.

        Return the event, or None if `decide` returns none, and the value after it. Exceptions
        of `decide` are passed on.
        """
        with (
            self._thread_lock,
            as_journal_errors("write", self.path),
            self._open_locked() as log,
        ):
            event = decide(self._read())
            if event is None:
                return None, self._state
            event = self._mask(event)
            # `Unknown`, because the kinds of this file are not among those of a session.
            data = Raw(msgspec.json.encode(event))
            unknown_event = Unknown(type(event).__name__, data)
            entry = Entry(self._head.seq + 1, unknown_event, time.time(), by=author)
            line, _ = codec.encode(entry, self._head)
            log.write([line])
            log.sync()
            return event, self._read()

    def _read(self) -> State:
        """Fold the lines that were added since the last call, and return the value."""
        try:
            status = self.path.stat()
        except OSError:
            status = None
        identity = (status.st_dev, status.st_ino) if status else None
        if identity != self._identity:  # the file was moved away or replaced
            self._start_over()
            self._identity = identity
        try:
            with as_journal_errors("read", self.path):
                lines = self._lines.read(self._head.seq)
            events = list[Change]()
            for entry, head in codec.decode(lines, self._head):
                events += self._schema.events(entry)
                self._head = head
        except Corrupt as error:
            self._start_over()
            raise JournalError(
                f"{self.path}: {error}: move the file away to begin a new "
                f"{self._schema.noun}"
            ) from error
        if events:
            self._state = self._schema.fold(self._state, events)
        return self._state

    def _start_over(self) -> None:
        """Read the file from its start the next time."""
        self._lines, self._head = Reader(self.path), Head()
        self._state = self._schema.empty
        self._identity: tuple[int, int] | None = None  # device and inode of the file

    @contextmanager
    def _open_locked(self) -> Generator[LogFile]:
        """Open and lock the file for the `with` block, and repair its end."""
        created = make_directories(self.path.parent, self._disk)
        log = self._open_file()
        try:
            is_new = not self.path.stat().st_size
            # All complete lines count as kept, so only a partial one at the end is cut off.
            log.adopt(sys.maxsize, [*created, self.path.parent] if is_new else ())
            yield log
        finally:
            log.close()

    def _open_file(self) -> LogFile:
        """Open and lock the file. Waits for other processes, up to `_TIMEOUT_SECONDS`."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while True:
            try:
                log = LogFile(self.path, self._disk, new=not self.path.exists())
            except FileExistsError:  # another process has created it
                continue
            except Held as error:
                if time.monotonic() >= deadline:
                    raise Held(
                        f"{self.path} is held by another process: try again when that has "
                        "ended"
                    ) from error
                time.sleep(_POLL_SECONDS)
                continue
            if log.is_in_place():
                return log
            log.close()
