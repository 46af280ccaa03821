"""The plans of a session, and what the person said of each.

A plan that was made stays listed; rewinding the talk does not take it back.
"""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.kinds import Ended, Entry, Imported, PlanAnswered, TurnStarted
from refold.values.control import PlanReady

HEARS = (Ended, PlanAnswered, TurnStarted, Imported)


class Plan(Struct, frozen=True):
    """`seq` is of the end of the call that made it; that is how it is named."""

    seq: int
    title: str
    text: str
    at: float = 0.0
    state: Literal["shown", "approved", "rejected", "left"] = "shown"


class Plans(Struct, frozen=True):
    made: tuple[Plan, ...] = ()

    @property
    def waiting(self) -> Plan | None:
        """The newest one, if nobody has judged it."""
        newest = self.made[-1] if self.made else None
        return newest if newest and newest.state == "shown" else None


def apply(plans: Plans, entry: Entry) -> Plans:
    match entry.event:
        case Ended(control=None):
            return plans  # as nearly all of them
        case Ended(control=PlanReady(title, text)):
            return Plans((*plans.made, Plan(entry.seq, title, text, entry.at)))
        case PlanAnswered() as said:
            return Plans(
                tuple(_judged(p, said) if p.seq == said.plan else p for p in plans.made)
            )
        case TurnStarted() | Imported() if plans.waiting:  # something else was said instead
            left = replace(plans.waiting, state="left")
            return Plans((*plans.made[:-1], left))
        case _:
            return plans


def _judged(plan: Plan, said: PlanAnswered) -> Plan:
    state = "approved" if said.approved else "rejected"
    return replace(plan, state=state, text=said.text or plan.text)
