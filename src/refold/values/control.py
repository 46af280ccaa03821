"""Control values, which a tool returns with its text, and values for todo lists and task
boards.

The text of a tool, a file or a model is never searched for commands. `journal.board` stores
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


# What a program or a person records about a task.
TaskNotes: TypeAlias = Mapping[str, Any]


class BoardTask(Struct, frozen=True):
    """A task of the project's board. `blocks` are the tasks that it blocks.

    `waits_for` are the tasks of `blocked_by` that are still open. If there are none, the
    task can be claimed.
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
    """Changes to a task. `metadata` is merged into the metadata of the task; null removes a
    key.
    """

    subject: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    status: Progress | UnsetType = UNSET
    blocked_by: tuple[int, ...] | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    metadata: TaskNotes | UnsetType = UNSET


CompactionKind: TypeAlias = Literal["prune", "full"]


class Final(Struct, frozen=True, tag="final"):
    """The answer of an agent whose task is done. The turn ends with the outcome `final`."""

    answer: str
    as_json: bool = False  # the answer is the JSON of a value, and not text


class EnterPlan(Struct, frozen=True, tag="enter_plan"):
    """Begins plan mode: only read-only calls run until a plan is approved."""


class PlanReady(Struct, frozen=True, tag="plan_ready"):
    """A plan for the user to approve. The turn ends with the outcome `plan_ready`."""

    title: str
    plan: str


class Todos(Struct, frozen=True, tag="todos"):
    """The complete todo list, which replaces the earlier one."""

    items: tuple[Todo, ...]


class TasksChanged(Struct, frozen=True, tag="tasks_changed"):
    """The changes that a call made to tasks on the board. `journal.board` stores the board
    itself.
    """

    tasks: Sequence[BoardTask]


class Compact(Struct, frozen=True, tag="compact"):
    """The model requests a compaction: "prune" shortens old results, "full" makes a summary.

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
