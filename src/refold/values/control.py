"""Control values, which a tool returns with its text, the todo list, and tasks of the board.

The text of a tool, a file or a model is never searched for commands. `journal.board` keeps
the task board of a project.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from refold.values.claims import Claim

Progress: TypeAlias = Literal["pending", "in_progress", "done", "cancelled"]


class Todo(Struct, frozen=True):
    subject: str
    status: Progress = "pending"

    @property
    def open(self) -> bool:
        return self.status in ("pending", "in_progress")


# What a program or a person notes about a task.
TaskNotes: TypeAlias = Mapping[str, Any]


class BoardTask(Struct, frozen=True):
    """A task of the project's board. `blocks` are the tasks that are blocked by it.

    `waits_for` are those of `blocked_by` that are still open: without any it is free.
    """

    id: int
    subject: str
    description: str = ""
    status: Progress = "pending"
    blocked_by: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    owner: str = ""
    metadata: TaskNotes = {}
    waits_for: tuple[int, ...] = ()

    @property
    def open(self) -> bool:
        return self.status in ("pending", "in_progress")


class NewTask(Struct, frozen=True):
    """A task that is not on the board yet."""

    subject: str
    description: str = ""
    blocked_by: tuple[int, ...] = ()
    owner: str = ""
    metadata: TaskNotes = {}


class TaskChange(Struct, frozen=True):
    """What becomes different of a task. `metadata` is merged; null removes a key."""

    subject: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    status: Progress | UnsetType = UNSET
    blocked_by: tuple[int, ...] | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    metadata: TaskNotes | UnsetType = UNSET


CompactionKind: TypeAlias = Literal["prune", "full"]


class Final(Struct, frozen=True, tag="final"):
    """The task is done, and this is the answer. The turn ends as `final`."""

    answer: str
    as_json: bool = False  # it is that of a value, and no text


class EnterPlan(Struct, frozen=True, tag="enter_plan"):
    """From here on only read-only calls run, until a plan is approved."""


class PlanReady(Struct, frozen=True, tag="plan_ready"):
    """A plan for the user to approve. The turn ends as `plan_ready`."""

    title: str
    plan: str


class Todos(Struct, frozen=True, tag="todos"):
    """The complete todo list from here on."""

    items: tuple[Todo, ...]


class TasksChanged(Struct, frozen=True, tag="tasks_changed"):
    """What this session made of tasks on the board. The board itself is kept elsewhere."""

    tasks: Sequence[BoardTask]


class Compact(Struct, frozen=True, tag="compact"):
    """The model asks to compact: prune old results, or summarize ("full").

    `focus` says what the summary must preserve.
    """

    kind: CompactionKind = "full"
    focus: str = ""


class Claimed(Struct, frozen=True, tag="claimed"):
    """Claims of the model, each with its evidence."""

    claims: tuple[Claim, ...]


Control: TypeAlias = (
    Final | EnterPlan | PlanReady | Todos | TasksChanged | Compact | Claimed
)
