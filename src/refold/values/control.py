"""Control values, which a tool returns with its text, and the todo list.

The text of a tool, a file or a model is never searched for commands.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from refold.values.claims import Claim

Progress: TypeAlias = Literal["pending", "in_progress", "done", "cancelled"]


class Todo(Struct, frozen=True):
    subject: str
    status: Progress = "pending"

    @property
    def open(self) -> bool:
        return self.status in ("pending", "in_progress")


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


class Compact(Struct, frozen=True, tag="compact"):
    """The model asks to compact: prune old results, or summarize ("full").

    `focus` says what the summary must preserve.
    """

    kind: CompactionKind = "full"
    focus: str = ""


class Claimed(Struct, frozen=True, tag="claimed"):
    """Claims of the model, each with its evidence."""

    claims: tuple[Claim, ...]


Control: TypeAlias = Final | EnterPlan | PlanReady | Todos | Compact | Claimed
