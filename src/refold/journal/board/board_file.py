"""The file of a project's task board: events, one a line, written by one process at a time.

    <data>/projects/<name>-<hash>/tasks.jsonl

A change takes the lock, reads what others wrote, decides, appends and syncs, and gives the
lock back: two processes that claim a task cannot both have it. Lines are chained as those of
a session (`events.codec`). Half a line, left by a crash, is cut off before the next one is
written. `task_graph` decides what may be changed. It blocks on the disk: call it in a thread.
"""

import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Raw

from refold.errors import Corrupt, Held, JournalError
from refold.journal.board.task_graph import (
    PERSON,
    Board,
    BoardEvent,
    TaskAdded,
    TaskClaimed,
    TaskUpdated,
    folded,
)
from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.events.kinds import Entry, Unknown
from refold.journal.store.disk import Disk, make_directories, told
from refold.journal.store.log_file import LogFile
from refold.journal.store.reader import Reader
from refold.values.control import BoardTask, NewTask, TaskChange

FILE = "tasks.jsonl"
_TIMEOUT = 10.0  # seconds that the lock is waited for: who has it needs a moment
_LOOK_AGAIN = 0.005
_KINDS: dict[str, type[BoardEvent]] = {
    kind.__name__: kind for kind in (TaskAdded, TaskUpdated, TaskClaimed)
}


class TaskBoard:
    """The board in `directory`. `masked` replaces secrets in what is written."""

    def __init__(
        self,
        directory: Path,
        masked: Callable[[BoardEvent], BoardEvent] = lambda event: event,
        disk: Disk | None = None,
    ) -> None:
        self.path = directory / FILE
        self._masked, self._disk = masked, disk or Disk()
        self._alone = threading.Lock()  # of the threads here; the file has the other one
        self._start()

    def read(self) -> Board:
        """The board as it is now. Raises `JournalError` if the file is damaged."""
        with self._alone:
            return self._read()

    def add(self, task: NewTask, by: str = PERSON, key: str = "") -> BoardTask:
        """Raises `BadInput`."""
        made = self._do(by, lambda board: board.added(task, key))
        return self._board.task(made.id if made else self._board.calls[key])

    def change(self, id_: int, change: TaskChange, by: str = PERSON) -> BoardTask:
        """Raises `BadInput`."""
        self._do(by, lambda board: board.changed(id_, change, by))
        return self._board.task(id_)

    def claim(self, id_: int, owner: str, key: str = "") -> BoardTask:
        """Take a task, or with 0 the next that is free. Raises `BadInput`."""
        made = self._do(owner, lambda board: board.claimed(id_, owner, key))
        return self._board.task(made.id if made else id_ or self._board.calls[key])

    def _read(self) -> Board:
        try:
            about = self.path.stat()
        except OSError:
            about = None
        file = (about.st_dev, about.st_ino) if about else None
        if file != self._file:  # it was moved away
            self._start()
            self._file = file
        try:
            with told("read", self.path):
                lines = self._lines.read(self._head.seq)
            events = list[BoardEvent]()
            for entry, head in codec.decode(lines, self._head):
                events += _events(entry)
                self._head = head
        except Corrupt as error:
            self._start()
            raise JournalError(
                f"{self.path}: {error}: move the file away to begin a new board"
            ) from error
        if events:
            self._board = folded(self._board, events)
        return self._board

    def _start(self) -> None:
        self._lines, self._head, self._board = Reader(self.path), Head(), Board()
        self._file: tuple[int, int] | None = None

    def _do(
        self, by: str, decide: Callable[[Board], BoardEvent | None]
    ) -> BoardEvent | None:
        with self._alone, told("write", self.path), self._locked() as log:
            event = decide(self._read())
            if event is None:
                return None
            event = self._masked(event)
            data = Raw(msgspec.json.encode(event))
            entry = Entry(
                self._head.seq + 1, Unknown(type(event).__name__, data), time.time(), by=by
            )
            line, _ = codec.encode(entry, self._head)
            log.write([line])
            log.sync()
            self._read()
        return event

    @contextmanager
    def _locked(self) -> Generator[LogFile]:
        made = make_directories(self.path.parent, self._disk)
        log = self._opened()
        try:
            empty = not self.path.stat().st_size
            log.mend(sys.maxsize, [*made, self.path.parent] if empty else ())
            yield log
        finally:
            log.close()

    def _opened(self) -> LogFile:
        until = time.monotonic() + _TIMEOUT
        while True:
            try:
                log = LogFile(self.path, self._disk, new=not self.path.exists())
            except FileExistsError:  # another process was quicker
                continue
            except Held as error:
                if time.monotonic() >= until:
                    raise Held(
                        f"{self.path} is held by another process: try again when that has "
                        "ended"
                    ) from error
                time.sleep(_LOOK_AGAIN)
                continue
            if log.in_place():
                return log
            log.close()


def _events(entry: Entry) -> Iterable[BoardEvent]:
    """The event of a line; none for a kind of another version."""
    if isinstance(entry.event, Unknown) and (kind := _KINDS.get(entry.event.kind)):
        try:
            yield msgspec.json.decode(entry.event.data, type=kind)
        except msgspec.DecodeError:
            return
