"""Typed control values that a tool returns beside its text, and the todo list. Text never steers.

A tool returns one of these beside its text; no text of a tool, a file or a
model is ever searched for orders.
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
    """The task is done, and this is the answer. The turn ends `final`."""

    answer: str
    as_json: bool = False  # it is that of a value, and no text


class EnterPlan(Struct, frozen=True, tag="enter_plan"):
    """From here on the model only looks, until a plan is approved."""


class PlanReady(Struct, frozen=True, tag="plan_ready"):
    """A plan for the person to judge. The turn ends `plan_ready`."""

    title: str
    plan: str


class Todos(Struct, frozen=True, tag="todos"):
    """The checklist as it is from here on, whole."""

    items: tuple[Todo, ...]


class Compact(Struct, frozen=True, tag="compact"):
    """The talk is to be told shorter: only old results ("prune"), or a summary instead.

    `focus` says in words what the summary must not lose.
    """

    kind: CompactionKind = "full"
    focus: str = ""


class Claimed(Struct, frozen=True, tag="claimed"):
    """What the model says is so, each with where that is to be seen."""

    claims: tuple[Claim, ...]


Control: TypeAlias = Final | EnterPlan | PlanReady | Todos | Compact | Claimed
