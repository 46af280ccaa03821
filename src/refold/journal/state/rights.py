"""The permission mode, the rules granted for this session, and its limits.

Only the user sets these, and rewinding does not change them. A model can only enter plan
mode, because that only removes rights.

Recording of requests is switched by an event (`TracingSwitched`), so that it applies wherever
the session is resumed. A subagent's journal has no such event: its requests are recorded if the
setting says so.
"""

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.kinds import (
    Ended,
    Entry,
    Granted,
    Imported,
    SessionResumed,
    SessionStarted,
    TeamsSwitched,
    TracingSwitched,
    TurnStarted,
)
from refold.journal.events.setting_events import BudgetSet, ModeChanged, StepLimitSet
from refold.values.control import EnterPlan
from refold.values.modes import Mode
from refold.values.usage import NO_RUN_LIMITS, Budget, RunLimits

EVENT_KINDS = (
    ModeChanged, Granted, Ended, SessionStarted, SessionResumed, BudgetSet, TurnStarted,
    Imported, StepLimitSet, TeamsSwitched, TracingSwitched,
)  # fmt: skip


class Rights(Struct, frozen=True):
    """The rights and limits that the user chose for this session."""

    mode: Mode | None = None  # None: as in the settings
    mode_before_plan: Mode | None = None  # None: as in the settings
    granted: tuple[str, ...] = ()  # rules granted for this session
    budget: Budget | None = None  # of a turn; None: as in the settings
    final_budget: bool = False  # the parent has no more budget to give
    share_left: float = 1.0  # the share of the parent's budget that is left
    steps: int = 0  # model responses in a turn; 0: as in the settings
    teams: bool | None = None  # may lead a team; None: as in the settings
    tracing: bool | None = None  # records model requests; None: as in the settings
    limits: RunLimits = NO_RUN_LIMITS  # from the command line of the current run


def after_planning(rights: Rights, default_mode: Mode) -> Mode:
    """Return the mode after a plan is approved: the mode before plan mode, or the current one
    if the session is not in plan mode.

    `default_mode` is the mode in the settings. If even that is plan mode, use "default".
    """
    mode = rights.mode or default_mode
    if mode != "plan":
        return mode
    before = rights.mode_before_plan or default_mode
    return "default" if before == "plan" else before


def is_switched(rights: Rights, to: TeamsSwitched | TracingSwitched) -> bool:
    """Whether the setting that `to` switches has the value of `to` already."""
    if isinstance(to, TeamsSwitched):
        return rights.teams is to.on
    return rights.tracing is to.on


def apply(rights: Rights, entry: Entry) -> Rights:
    """Return the rights after this entry. An event of another kind changes nothing."""
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
        # Grants end with the run in which they were given. So does bypass mode, to which the
        # end of plan mode would otherwise return.
        case SessionResumed(limits=limits):
            before = rights.mode_before_plan
            if before == "bypass":
                before = None
            return replace(rights, granted=(), mode_before_plan=before, limits=limits)
        case Imported():  # the user of this home has not granted any of them
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
    """Return the rights after a limit or a switch was changed, or a turn began."""
    match event:
        case BudgetSet(budget, last, left):
            return replace(rights, budget=budget, final_budget=last, share_left=left)
        case StepLimitSet(steps):
            return replace(rights, steps=steps)
        case TeamsSwitched(on):
            return replace(rights, teams=on)
        case TracingSwitched(on):
            return replace(rights, tracing=on)
        case TurnStarted():  # the parent may be able to give budget again
            return replace(rights, final_budget=False) if rights.final_budget else rights


def _with_mode(rights: Rights, mode: Mode) -> Rights:
    """Return the rights in this mode. Plan mode remembers the mode before it."""
    if mode != "plan":
        return replace(rights, mode=mode, mode_before_plan=None)
    if rights.mode == "plan":
        return rights
    return replace(rights, mode=mode, mode_before_plan=rights.mode)
