"""The file of a project's task board: events, one a line, written by one process at a time.

    <data>/projects/<name>-<hash>/tasks.jsonl

`store.shared_log` locks and writes the file, so two processes cannot claim the same task.
`task_graph` decides which changes are allowed. Every method blocks on the disk: call it in
a thread.
"""

from collections.abc import Callable
from pathlib import Path

from refold.journal.board.task_graph import (
    PERSON_NAME,
    Board,
    BoardEvent,
    TaskAdded,
    TaskClaimed,
    TaskUpdated,
    fold_board,
)
from refold.journal.store.disk import Disk
from refold.journal.store.shared_log import EventSchema, SharedLog
from refold.values.control import BoardTask, NewTask, TaskChange

FILE_NAME = "tasks.jsonl"


class TaskBoard:
    """The task board whose file is in `directory`. `mask` replaces secrets in each written
    line.
    """

    def __init__(
        self,
        directory: Path,
        mask: Callable[[BoardEvent], BoardEvent] = lambda event: event,
        disk: Disk | None = None,
    ) -> None:
        self.path = directory / FILE_NAME
        kinds: tuple[type[BoardEvent], ...] = (TaskAdded, TaskUpdated, TaskClaimed)
        schema = EventSchema[Board, BoardEvent]("board", kinds, Board(), fold_board)
        self._log = SharedLog(self.path, schema, mask, disk)

    def read(self) -> Board:
        """Return the board as its file now has it. Raises `JournalError` if the file is
        damaged.
        """
        return self._log.read()

    def add(self, task: NewTask, author: str = PERSON_NAME, key: str = "") -> BoardTask:
        """Add a task and return it.

        If a call with this `key` has added the task before, only return the task. Raises
        `BadInput` if the board does not allow the task.
        """
        event, board = self._log.change(author, lambda board: board.addition(task, key))
        return board.task(event.id if event else board.calls[key])

    def change(self, id_: int, change: TaskChange, author: str = PERSON_NAME) -> BoardTask:
        """Change a task and return it. Raises `BadInput` if the board does not allow the
        change.
        """
        _, board = self._log.change(author, lambda board: board.update(id_, change, author))
        return board.task(id_)

    def claim(self, id_: int, owner: str, key: str = "") -> BoardTask:
        """Claim a task for `owner` and return it. If `id_` is 0, the next free task is claimed.

        Raises `BadInput` if the task cannot be claimed, or if no task is free.
        """
        event, board = self._log.change(owner, lambda board: board.claim(id_, owner, key))
        if event:
            return board.task(event.id)
        return board.task(id_ or board.calls[key])  # claimed before
