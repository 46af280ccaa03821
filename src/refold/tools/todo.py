"""The tools for work to be done: the checklist of a session, and the task board of a project.

`todo_write` is for the session alone. `task_create`, `task_get`, `task_update`, `task_list` and
`task_claim` are for tasks that sessions share; the port `Board` stores them. `tools.task`
starts subagents.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, Protocol, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from refold.tools.contract import Context, Reply, tool
from refold.values.control import (
    BoardTask,
    NewTask,
    TaskChange,
    TaskNotes,
    TasksChanged,
    Todo,
    Todos,
)
from refold.values.display import Checklist, Note
from refold.values.tools import Effect

MAX_TODOS = 100


class Item(Struct, frozen=True):
    """A todo. The status "completed", which many models write, means "done"."""

    subject: str
    status: Literal["pending", "in_progress", "done", "cancelled", "completed"] = "pending"


@tool(Effect.SELF)
async def todo_write(
    todos: Annotated[
        tuple[Item, ...],
        Meta(max_length=MAX_TODOS, description="the whole list as it is from now on"),
    ],
) -> Reply:
    """Keep a checklist of a task with three or more steps: write it when you begin, and again whenever something is done, with exactly one item in_progress."""
    items = tuple(
        Todo(item.subject, "done" if item.status == "completed" else item.status)
        for item in todos
    )
    left = sum(todo.open for todo in items)
    text = f"{len(todos)} todos, {left} of them open." if todos else "No todos any more."
    under_way = [todo.subject for todo in items if todo.status == "in_progress"]
    if len(under_way) > 1:
        text += " More than one is in_progress: work on one at a time."
    return Reply(text, (Checklist(items),), control=Todos(items))


class Board(Protocol):
    """The task board of the project. Each method raises `ToolFailed` with the reason.

    `author` is the session, and `key` is the id of the call: if the call is repeated after a
    crash, nothing is changed a second time.
    """

    async def add(self, task: NewTask, author: str, key: str) -> BoardTask:
        """Add a task, and return it with its number."""
        ...

    async def change(self, id_: int, change: TaskChange, author: str) -> BoardTask:
        """Change a task, and return the changed task."""
        ...

    async def claim(self, id_: int, author: str, key: str) -> BoardTask:
        """Assign a task to the session `author`. The id 0 means the next free task."""
        ...

    async def task(self, id_: int) -> BoardTask:
        """Return the task with this number."""
        ...

    async def tasks(self) -> Sequence[BoardTask]:
        """Return all tasks, also those that are done."""
        ...


_Status: TypeAlias = Literal["pending", "in_progress", "done", "cancelled", "completed"]
_Blockers: TypeAlias = Annotated[
    tuple[int, ...], Meta(description="tasks that must be done first")
]
_MAX_LISTED_TASKS = 200  # in one list


@tool(Effect.SELF, subject="subject")
async def task_create(  # noqa: PLR0913 - the parameters are the schema
    subject: str,
    description: str = "",
    blocked_by: _Blockers = (),
    owner: Annotated[str, Meta(description="the only owner that may claim it")] = "",
    metadata: TaskNotes = {},  # noqa: B006 - never changed
    *,
    board: Board,
    context: Context,
) -> Reply:
    """Add a task to the board that all sessions of this project share."""
    task = NewTask(subject, description, blocked_by, owner, metadata)
    return _reply_changed("Added", await board.add(task, context.session_id, _key(context)))


@tool(Effect.SELF, subject="id")
async def task_get(id: int, *, board: Board) -> Reply:
    """Read one task of the board whole."""
    task = await board.task(id)
    return Reply(_task_text(task), (Note(_row(task)),))


@tool(Effect.SELF, subject="id")
async def task_update(  # noqa: PLR0913, PLR0917 - the parameters are the schema
    id: int,
    subject: str | UnsetType = UNSET,
    description: str | UnsetType = UNSET,
    status: _Status | UnsetType = UNSET,
    blocked_by: _Blockers | UnsetType = UNSET,
    owner: str | UnsetType = UNSET,
    metadata: Annotated[
        TaskNotes | UnsetType, Meta(description="merged; null removes a key")
    ] = UNSET,
    *,
    board: Board,
    context: Context,
) -> Reply:
    """Change a task of the board; status done completes it, pending gives it back."""
    new_status = "done" if status == "completed" else status
    change = TaskChange(subject, description, new_status, blocked_by, owner, metadata)
    return _reply_changed("Changed", await board.change(id, change, context.session_id))


@tool(Effect.SELF, subject="status")
async def task_list(
    status: Literal["open", "free", "all"] = "open", *, board: Board
) -> Reply:
    """List the tasks of the board: open, free to be claimed, or all."""
    tasks = [task for task in await board.tasks() if _is_wanted(task, status)]
    rows = [_row(task) for task in tasks[-_MAX_LISTED_TASKS:]]
    if left_out := len(tasks) - len(rows):
        rows.insert(0, f"({left_out} older tasks are left out)")
    words = "" if status == "all" else f"{status} "
    text = "\n".join(rows) or f"There are no {words}tasks on the board."
    return Reply(text, (_checklist(tasks[-_MAX_LISTED_TASKS:]),) if rows else (Note(text),))


@tool(Effect.SELF, subject="id")
async def task_claim(
    id: Annotated[int, Meta(description="0: the next free one")] = 0,
    *,
    board: Board,
    context: Context,
) -> Reply:
    """Take a task of the board to work on. Only one session gets it."""
    task = await board.claim(id, context.session_id, _key(context))
    return _reply_changed("Yours now", task)


def _reply_changed(verb: str, task: BoardTask) -> Reply:
    text = f"{verb}: {_task_text(task)}"
    return Reply(text, (_checklist([task]),), control=TasksChanged((task,)))


def _key(context: Context) -> str:
    return f"{context.session_id}/{context.call_id}"


def _is_wanted(task: BoardTask, status: str) -> bool:
    """Return whether a task belongs to a list: open, free to be claimed, or all."""
    match status:
        case "open":
            return task.open
        case "free":
            return task.status == "pending" and not (task.waits_for or task.owner)
        case _:
            return True


def _checklist(tasks: Sequence[BoardTask]) -> Checklist:
    return Checklist(tuple(Todo(f"#{t.id} {t.subject}", t.status) for t in tasks))


def _row(task: BoardTask) -> str:
    return f"#{task.id} [{task.status}] {task.subject}{_facts_text(task)}"


def _task_text(task: BoardTask) -> str:
    notes = [f"{key}: {value}" for key, value in task.metadata.items()]
    return "\n".join([_row(task), *filter(None, [task.description]), *notes])


def _facts_text(task: BoardTask) -> str:
    facts = "; ".join(_facts(task))
    return f" ({facts})" if facts else ""


def _facts(task: BoardTask) -> Iterator[str]:
    """Yield clauses about the owner of a task, and how it depends on other tasks."""
    if task.owner:
        yield f"owner {task.owner}"
    if task.waits_for:
        yield f"waits for {', '.join(f'#{id_}' for id_ in task.waits_for)}"
    if task.blocks and task.open:
        yield f"blocks {', '.join(f'#{id_}' for id_ in task.blocks)}"
