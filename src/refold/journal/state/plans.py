"""The plans of a session, and the user's decision about each.

A rewind does not change them.
"""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.kinds import Ended, Entry, Imported, PlanAnswered, TurnStarted
from refold.values.control import PlanReady

EVENT_KINDS = (Ended, PlanAnswered, TurnStarted, Imported)


class Plan(Struct, frozen=True):
    """A plan, identified by the `seq` of the `Ended` that made it."""

    seq: int
    title: str
    text: str
    at: float = 0.0
    state: Literal["shown", "approved", "rejected", "left"] = "shown"


class Plans(Struct, frozen=True):
    made: tuple[Plan, ...] = ()

    @property
    def waiting(self) -> Plan | None:
        """Return the newest plan if the user has not decided on it; otherwise None."""
        newest = self.made[-1] if self.made else None
        return newest if newest and newest.state == "shown" else None


def apply(plans: Plans, entry: Entry) -> Plans:
    """Return the plans after this entry. An event of another kind changes nothing."""
    match entry.event:
        case Ended(control=None):
            return plans  # the most frequent case comes first
        case Ended(control=PlanReady(title, text)):
            return Plans((*plans.made, Plan(entry.seq, title, text, entry.at)))
        case PlanAnswered() as answer:
            made = [
                _with_answer(plan, answer) if plan.seq == answer.plan else plan
                for plan in plans.made
            ]
            return Plans(tuple(made))
        # The user sent something other than a decision.
        case TurnStarted() | Imported() if plans.waiting:
            left = replace(plans.waiting, state="left")
            return Plans((*plans.made[:-1], left))
        case _:
            return plans


def _with_answer(plan: Plan, answer: PlanAnswered) -> Plan:
    state = "approved" if answer.approved else "rejected"
    return replace(plan, state=state, text=answer.text or plan.text)
