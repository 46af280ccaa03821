"""How much may run unasked: the mode, and what a person allowed for this session.

A mode or a grant is the person's word; rewinding the talk does not take it back.
The one thing a model may change itself is to begin to plan, for that only takes
rights away.
"""

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events import (
    BudgetSet,
    Ended,
    Entry,
    Granted,
    Imported,
    ModeChanged,
    SessionResumed,
    SessionStarted,
    StepsSet,
    TurnStarted,
)
from refold.values.budget import Budget
from refold.values.control import EnterPlan
from refold.values.given import NOTHING, Given
from refold.values.rights import Mode

HEARS = (
    ModeChanged, Granted, Ended, SessionStarted, SessionResumed, BudgetSet, TurnStarted,
    Imported, StepsSet,
)  # fmt: skip


class Rights(Struct, frozen=True):
    """What a person said of this session."""

    mode: Mode | None = None  # None: nobody chose, so the settings hold
    before: Mode | None = None  # the mode before the planning; None: as the settings say
    granted: tuple[str, ...] = ()
    budget: Budget | None = None  # of a turn; None: as the settings say
    last: bool = False  # is there no more to be had, if that is used up?
    left: float = 1.0  # the share that whoever gave it has left
    steps: int = 0  # answers of a turn; 0: as the settings say
    given: Given = NOTHING  # what the command line of who has the pen says besides


def after_planning(rights: Rights, settled: Mode) -> Mode:
    """The mode once a plan is approved. `settled` is that of the settings."""
    now = rights.mode or settled
    before = rights.before or settled
    if now != "plan":
        return now
    return "default" if before == "plan" else before


def apply(rights: Rights, entry: Entry) -> Rights:
    match entry.event:
        case Ended(control=None):
            pass  # as nearly all of them
        case ModeChanged(mode):
            return _in_mode(rights, mode)
        case BudgetSet() | StepsSet() | TurnStarted():
            return _bounded(rights, entry.event)
        case Ended(control=EnterPlan()):
            return _in_mode(rights, "plan")
        case SessionStarted(given=given):
            return replace(rights, given=given)
        case SessionResumed(given=given):  # it was allowed for the session somebody saw
            before = None if rights.before == "bypass" else rights.before
            return replace(rights, granted=(), before=before, given=given)
        case Imported():  # nobody here has said any of it
            return Rights()
        case Granted(rule) if rule not in rights.granted:
            return replace(rights, granted=(*rights.granted, rule))
        case _:
            pass
    return rights


def _bounded(rights: Rights, event: BudgetSet | StepsSet | TurnStarted) -> Rights:
    match event:
        case BudgetSet(budget, last, left):
            return replace(rights, budget=budget, last=last, left=left)
        case StepsSet(steps):
            return replace(rights, steps=steps)
        case TurnStarted():  # there may be some again
            return replace(rights, last=False) if rights.last else rights


def _in_mode(rights: Rights, mode: Mode) -> Rights:
    if mode != "plan":
        return replace(rights, mode=mode, before=None)
    return (
        rights if rights.mode == "plan" else replace(rights, mode=mode, before=rights.mode)
    )
