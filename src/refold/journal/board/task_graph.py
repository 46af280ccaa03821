"""The task board as a fold of its events, and the rules for changing it. Pure.

Each of `addition`, `update` and `claim` returns the event of a change, or None if nothing
would change, and raises `BadInput` with the reason if the change is not allowed. A task is
free if it is pending and all tasks that block it are done or cancelled. That is computed
from the tasks, so completing one frees others, and reopening it blocks them again.
`board_file` writes events, one writer at a time.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from refold.errors import BadInput
from refold.values.control import BoardTask, NewTask, Progress, TaskChange, TaskNotes
from refold.values.text import clean

PERSON_NAME = "person"  # this author may change every task
MAX_SUBJECT_CHARS = 200
MAX_DESCRIPTION_CHARS = 8_000
MAX_OWNER_CHARS = 200
MAX_NOTES_BYTES = 4_096  # bytes of JSON
MAX_OPEN_TASKS = 1_000
MAX_BLOCKERS = 100


class TaskAdded(Struct, frozen=True):
    """A task was added. `key` names the call that added it: repeating that call adds
    nothing.
    """

    id: int
    subject: str
    description: str = ""
    blocked_by: tuple[int, ...] = ()
    owner: str = ""
    metadata: TaskNotes = {}
    key: str = ""


class TaskUpdated(Struct, frozen=True, omit_defaults=True):
    """Fields of a task were changed. `metadata` is complete: it replaces earlier metadata."""

    id: int
    subject: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    status: Progress | UnsetType = UNSET
    blocked_by: tuple[int, ...] | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    metadata: TaskNotes | UnsetType = UNSET


class TaskClaimed(Struct, frozen=True):
    """A task was claimed: it is in progress, with this owner."""

    id: int
    owner: str
    key: str = ""


BoardEvent: TypeAlias = TaskAdded | TaskUpdated | TaskClaimed


class Board(Struct, frozen=True):
    """The state of a task board.

    `stored` has the tasks by number. `calls` maps the key of each call that added a task to the
    number of the task.
    """

    stored: Mapping[int, BoardTask] = {}
    calls: Mapping[str, int] = {}

    @property
    def tasks(self) -> tuple[BoardTask, ...]:
        """All tasks in order. Each has the tasks that it blocks and the open tasks that
        block it.
        """
        blocks: dict[int, list[int]] = {}
        for task in self.stored.values():
            for blocker in task.blocked_by:
                blocks.setdefault(blocker, []).append(task.id)
        return tuple(
            replace(
                task, blocks=tuple(blocks.get(id_, ())), waits_for=self._open_blockers(task)
            )
            for id_, task in self.stored.items()
        )

    def task(self, id_: int) -> BoardTask:
        """Return the task with this number. Raises `BadInput` if there is none."""
        task = self._find(id_)
        blocks = tuple(t.id for t in self.stored.values() if id_ in t.blocked_by)
        return replace(task, blocks=blocks, waits_for=self._open_blockers(task))

    def addition(self, task: NewTask, key: str = "") -> TaskAdded | None:
        """Return the event that adds a task; None if the call `key` has added it already."""
        if key and key in self.calls:
            return None
        open_count = sum(other.open for other in self.stored.values())
        if open_count >= MAX_OPEN_TASKS:
            raise BadInput(
                f"the board has {MAX_OPEN_TASKS:,} open tasks: finish or cancel some first"
            )
        id_ = max(self.stored, default=0) + 1
        return TaskAdded(
            id_,
            _check_subject(task.subject),
            _check_text(task.description, MAX_DESCRIPTION_CHARS, "description"),
            self._blockers(id_, task.blocked_by),
            _check_line(task.owner, MAX_OWNER_CHARS, "owner"),
            _merge_notes({}, task.metadata),
            key,
        )

    def update(self, id_: int, change: TaskChange, author: str) -> TaskUpdated | None:
        """Return the event that changes a task; None if nothing would change."""
        old = self._find(id_)
        may_change = old.owner in ("", author) or author == PERSON_NAME
        if old.status == "in_progress" and not may_change:
            raise BadInput(
                f"task {id_} is in progress with {old.owner}: only that one, or a person, "
                "changes it"
            )
        new = old
        if change.subject is not UNSET:
            new = replace(new, subject=_check_subject(change.subject))
        if change.description is not UNSET:
            text = _check_text(change.description, MAX_DESCRIPTION_CHARS, "description")
            new = replace(new, description=text)
        if change.blocked_by is not UNSET:
            new = replace(new, blocked_by=self._blockers(id_, change.blocked_by))
        if change.metadata is not UNSET:
            new = replace(new, metadata=_merge_notes(old.metadata, change.metadata))
        if change.owner is not UNSET:
            new = replace(new, owner=_check_line(change.owner, MAX_OWNER_CHARS, "owner"))
        if change.status is not UNSET and not _has_status(old, change.status, author):
            new = self._with_status(
                new, change.status, author, owner_is_set=change.owner is not UNSET
            )
        return _difference(old, new)

    def claim(self, id_: int, owner: str, key: str = "") -> TaskClaimed | None:
        """Return the event by which `owner` takes a task; None if it has the task already.

        If `id_` is 0, take the first free task of this owner, or else the first free task.
        """
        if key and key in self.calls:
            return None
        if not id_:
            return TaskClaimed(self._next_free_task(owner), owner, key)
        task = self._find(id_)
        if task.status == "in_progress" and task.owner == owner:
            return None
        self._check_free(task, owner)
        return TaskClaimed(id_, owner, key)

    def _find(self, id_: int) -> BoardTask:
        """Return the task with this number. Raises `BadInput` if there is none."""
        if (task := self.stored.get(id_)) is None:
            range_text = f"it has 1 to {max(self.stored)}" if self.stored else "it has none"
            raise BadInput(f"there is no task {id_} on the board: {range_text}")
        return task

    def _open_blockers(self, task: BoardTask) -> tuple[int, ...]:
        """Return the open tasks that block this task; () if this task is not open."""
        if not task.open:
            return ()
        return tuple(blocker for blocker in task.blocked_by if self.stored[blocker].open)

    def _with_status(
        self, task: BoardTask, status: Progress, author: str, *, owner_is_set: bool
    ) -> BoardTask:
        """Return the task with this status, and with the owner that the status requires."""
        match status:
            case "in_progress":
                self._check_free(task, author)
                return replace(task, status=status, owner=task.owner or author)
            case "done":
                return replace(task, status=status, owner=task.owner or author)
            case "pending":
                return replace(
                    task, status=status, owner=task.owner if owner_is_set else ""
                )
            case "cancelled":
                return replace(task, status=status)

    def _check_free(self, task: BoardTask, owner: str) -> None:
        """Raise `BadInput` unless `owner` may take the task now.

        A person may also take a task of another owner.
        """
        if task.status != "pending":
            owner_note = f" with {task.owner}" if task.owner and task.open else ""
            raise BadInput(f"task {task.id} is {task.status.replace('_', ' ')}{owner_note}")
        if task.owner not in ("", owner) and owner != PERSON_NAME:
            raise BadInput(f"task {task.id} is meant for {task.owner}")
        if waits := self._open_blockers(task):
            raise BadInput(f"task {task.id} waits for {_tasks_phrase(waits)}")

    def _next_free_task(self, owner: str) -> int:
        """Return the number of the first free task of `owner`.

        If there is none, return that of the first free task without an owner. Raises `BadInput`
        if no task is free.
        """
        free = [
            task
            for task in self.stored.values()
            if task.status == "pending"
            and task.owner in ("", owner)
            and not self._open_blockers(task)
        ]
        if free:
            own = [task for task in free if task.owner == owner]
            return min(task.id for task in own or free)
        states = [task.status for task in self.stored.values()]
        busy, pending = states.count("in_progress"), states.count("pending")
        raise BadInput(
            f"no task is free: {busy} in progress, {pending} waiting for others or meant "
            "for another owner"
        )

    def _blockers(self, id_: int, blocked_by: Sequence[int]) -> tuple[int, ...]:
        """Return the ids in `blocked_by` without duplicates.

        Raises `BadInput` if there are too many ids, for the id of an unknown task, and for a
        cycle.
        """
        blockers = tuple(dict.fromkeys(blocked_by))
        if len(blockers) > MAX_BLOCKERS:
            raise BadInput(f"a task is blocked by {MAX_BLOCKERS} tasks at most")
        for blocker in blockers:
            if blocker == id_:
                raise BadInput(f"task {id_} cannot wait for itself")
            self._find(blocker)
            if path := self._find_path(blocker, id_):
                chain = ", which waits for ".join(f"task {n}" for n in path[1:])
                raise BadInput(
                    f"task {id_} cannot wait for task {blocker}: task {blocker} waits for {chain}"
                )
        return blockers

    def _find_path(self, start: int, goal: int) -> Sequence[int]:
        """Return the tasks of a path from `start` to `goal` along `blocked_by`; none if no
        path exists.
        """
        # Each task that was reached, and the task before it.
        predecessors: dict[int, int] = {start: 0}
        to_visit = [start]
        while to_visit:
            task_id = to_visit.pop()
            if task_id == goal:
                path = [task_id]
                while path[-1] != start:
                    path.append(predecessors[path[-1]])
                return path[::-1]
            task = self.stored.get(task_id)
            for blocker in task.blocked_by if task else ():
                if blocker not in predecessors:
                    predecessors[blocker] = task_id
                    to_visit.append(blocker)
        return ()


def fold_board(board: Board, events: Iterable[BoardEvent]) -> Board:
    """Return `board` as changed by these events. An event about an unknown task is ignored."""
    stored, calls = dict(board.stored), dict(board.calls)
    for event in events:
        if isinstance(event, TaskAdded):
            stored[event.id] = BoardTask(
                event.id, event.subject, event.description, "pending", event.blocked_by,
                owner=event.owner, metadata=event.metadata,
            )  # fmt: skip
        else:
            task = stored.get(event.id)
            if task is None:
                continue
            if isinstance(event, TaskClaimed):
                stored[event.id] = replace(task, status="in_progress", owner=event.owner)
            else:
                stored[event.id] = replace(task, **_set_fields(event))
        if not isinstance(event, TaskUpdated) and event.key:
            calls[event.key] = event.id
    return Board(stored, calls)


def _set_fields(event: TaskUpdated) -> dict[str, object]:
    """Return the fields that the event changes, by name."""
    named = {field: getattr(event, field) for field in event.__struct_fields__}
    return {name: value for name, value in named.items() if value is not UNSET}


def _difference(old: BoardTask, new: BoardTask) -> TaskUpdated | None:
    """Return the event that changes `old` to `new`; None if they are equal."""
    fields = {
        name: getattr(new, name)
        for name in TaskUpdated.__struct_fields__
        if getattr(new, name) != getattr(old, name)
    }
    return TaskUpdated(old.id, **fields) if fields else None


def _has_status(task: BoardTask, status: Progress, author: str) -> bool:
    """Whether the task already has this status and, if in progress, the owner `author`."""
    return task.status == status and (status != "in_progress" or task.owner == author)


def _tasks_phrase(ids: Sequence[int]) -> str:
    return f"task {ids[0]}" if len(ids) == 1 else f"tasks {', '.join(map(str, ids))}"


def _check_subject(text: str) -> str:
    if not (line := _check_line(text, MAX_SUBJECT_CHARS, "subject")):
        raise BadInput("the subject is empty: say in one line what should be done")
    return line


def _check_line(text: str, max_chars: int, name: str) -> str:
    return _check_text(" ".join(text.split()), max_chars, name)


def _check_text(text: str, max_chars: int, name: str) -> str:
    if len(text) > max_chars:
        raise BadInput(f"the {name} has {len(text):,} characters: {max_chars:,} at most")
    return clean(text)


def _merge_notes(old: TaskNotes, new: TaskNotes) -> TaskNotes:
    """Return the old metadata with the new. A key whose new value is None is removed."""
    notes = {
        clean(key): value for key, value in {**old, **new}.items() if value is not None
    }
    if (size := len(msgspec.json.encode(notes))) > MAX_NOTES_BYTES:
        raise BadInput(
            f"the metadata has {size:,} bytes of JSON: {MAX_NOTES_BYTES:,} at most"
        )
    return notes
