"""The permission mode, the rules granted for this session, and its limits.

Only the user sets these, and rewinding does not change them. A model can only enter plan
mode, because that only takes rights away.

Recording of requests is switched by an event (`TracingSwitched`), so that it holds wherever
the session is resumed. Subagents follow the setting: their journals have no such event.
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
    TeamsSwitched,
    TracingSwitched,
    TurnStarted,
)
from refold.values.control import EnterPlan
from refold.values.modes import Mode
from refold.values.usage import NO_RUN_LIMITS, Budget, RunLimits

EVENT_KINDS = (
    ModeChanged, Granted, Ended, SessionStarted, SessionResumed, BudgetSet, TurnStarted,
    Imported, StepLimitSet, TeamsSwitched, TracingSwitched,
)  # fmt: skip


class Rights(Struct, frozen=True):
    """What the user chose for this session."""

    mode: Mode | None = None  # None: as in the settings
    mode_before_plan: Mode | None = None  # None: as in the settings
    granted: tuple[str, ...] = ()  # rules
    budget: Budget | None = None  # of a turn; None: as in the settings
    final_budget: bool = False  # the parent has no more budget to give
    share_left: float = 1.0  # the share of the parent's budget that is left
    steps: int = 0  # model responses in a turn; 0: as in the settings
    teams: bool | None = None  # may lead a team; None: as in the settings
    tracing: bool | None = None  # records model requests; None: as in the settings
    limits: RunLimits = NO_RUN_LIMITS  # from the command line of the current run


def after_planning(rights: Rights, settled: Mode) -> Mode:
    """The mode after a plan is approved. `settled` is the mode in the settings."""
    mode = rights.mode or settled
    before = rights.mode_before_plan or settled
    if mode != "plan":
        return mode
    return "default" if before == "plan" else before


def is_switched(rights: Rights, to: TeamsSwitched | TracingSwitched) -> bool:
    """Whether a session setting has this value already."""
    return (rights.teams if isinstance(to, TeamsSwitched) else rights.tracing) is to.on


def apply(rights: Rights, entry: Entry) -> Rights:
    match entry.event:
        case Ended(control=None):
            pass  # the most frequent case
        case ModeChanged(mode):
            return _with_mode(rights, mode)
        case (
            BudgetSet()
            | StepLimitSet()
            | TeamsSwitched()
            | TracingSwitched()
            | TurnStarted()
        ):
            return _with_limits(rights, entry.event)
        case Ended(control=EnterPlan()):
            return _with_mode(rights, "plan")
        case SessionStarted(limits=limits):
            return replace(rights, limits=limits)
        case SessionResumed(limits=limits):  # grants end with their run
            before = (
                None if rights.mode_before_plan == "bypass" else rights.mode_before_plan
            )
            return replace(rights, granted=(), mode_before_plan=before, limits=limits)
        case Imported():  # this user has not granted any of them
            return Rights()
        case Granted(rule) if rule not in rights.granted:
            return replace(rights, granted=(*rights.granted, rule))
        case _:
            pass
    return rights


def _with_limits(
    rights: Rights,
    event: BudgetSet | StepLimitSet | TeamsSwitched | TracingSwitched | TurnStarted,
) -> Rights:
    match event:
        case BudgetSet(budget, last, left):
            return replace(rights, budget=budget, final_budget=last, share_left=left)
        case StepLimitSet(steps):
            return replace(rights, steps=steps)
        case TeamsSwitched(on):
            return replace(rights, teams=on)
        case TracingSwitched(on):
            return replace(rights, tracing=on)
        case TurnStarted():  # the parent may have budget again
            return replace(rights, final_budget=False) if rights.final_budget else rights


def _with_mode(rights: Rights, mode: Mode) -> Rights:
    if mode != "plan":
        return replace(rights, mode=mode, mode_before_plan=None)
    return (
        rights
        if rights.mode == "plan"
        else replace(rights, mode=mode, mode_before_plan=rights.mode)
    )
