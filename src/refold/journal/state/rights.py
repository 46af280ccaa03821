"""How much may run unasked: the mode, and what a person allowed for this session.

A mode or a grant is the person's word; rewinding the talk does not take it back.
The one thing a model may change itself is to begin to plan, for that only takes
rights away.
"""

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.kinds import (
    BudgetSet,
    Ended,
    Entry,
    Granted,
    Imported,
    ModeChanged,
    SessionResumed,
    SessionStarted,
    StepLimitSet,
    TurnStarted,
)
from refold.values.control import EnterPlan
from refold.values.modes import Mode
from refold.values.usage import NOTHING, Budget, RunLimits

HEARS = (
    ModeChanged, Granted, Ended, SessionStarted, SessionResumed, BudgetSet, TurnStarted,
    Imported, StepLimitSet,
)  # fmt: skip


class Rights(Struct, frozen=True):
    """What a person said of this session."""

    mode: Mode | None = None  # None: nobody chose, so the settings hold
    mode_before_plan: Mode | None = (
        None  # the mode before the planning; None: as the settings say
    )
    granted: tuple[str, ...] = ()
    budget: Budget | None = None  # of a turn; None: as the settings say
    final_budget: bool = False  # is there no more to be had, if that is used up?
    share_left: float = 1.0  # the share that whoever gave it has left
    steps: int = 0  # answers of a turn; 0: as the settings say
    limits: RunLimits = NOTHING  # what the command line of who has the pen says besides


def after_planning(rights: Rights, settled: Mode) -> Mode:
    """The mode once a plan is approved. `settled` is that of the settings."""
    now = rights.mode or settled
    before = rights.mode_before_plan or settled
    if now != "plan":
        return now
    return "default" if before == "plan" else before


def apply(rights: Rights, entry: Entry) -> Rights:
    match entry.event:
        case Ended(control=None):
            pass  # as nearly all of them
        case ModeChanged(mode):
            return _in_mode(rights, mode)
        case BudgetSet() | StepLimitSet() | TurnStarted():
            return _bounded(rights, entry.event)
        case Ended(control=EnterPlan()):
            return _in_mode(rights, "plan")
        case SessionStarted(limits=given):
            return replace(rights, limits=given)
        case SessionResumed(limits=given):  # it was allowed for the session somebody saw
            before = (
                None if rights.mode_before_plan == "bypass" else rights.mode_before_plan
            )
            return replace(rights, granted=(), mode_before_plan=before, limits=given)
        case Imported():  # nobody here has said any of it
            return Rights()
        case Granted(rule) if rule not in rights.granted:
            return replace(rights, granted=(*rights.granted, rule))
        case _:
            pass
    return rights


def _bounded(rights: Rights, event: BudgetSet | StepLimitSet | TurnStarted) -> Rights:
    match event:
        case BudgetSet(budget, last, left):
            return replace(rights, budget=budget, final_budget=last, share_left=left)
        case StepLimitSet(steps):
            return replace(rights, steps=steps)
        case TurnStarted():  # there may be some again
            return replace(rights, final_budget=False) if rights.final_budget else rights


def _in_mode(rights: Rights, mode: Mode) -> Rights:
    if mode != "plan":
        return replace(rights, mode=mode, mode_before_plan=None)
    return (
        rights
        if rights.mode == "plan"
        else replace(rights, mode=mode, mode_before_plan=rights.mode)
    )
