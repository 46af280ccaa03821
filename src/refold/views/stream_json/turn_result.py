"""Returns the result of a turn as one document for scripts. Pure."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import cast

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from refold.journal.state.changed_files import merge_changes
from refold.journal.state.fold import View
from refold.values.json_check import value_in
from refold.values.modes import Outcome
from refold.values.path_names import relative_name
from refold.views.notices import hook_failures, warnings
from refold.views.stream_json.documents import Change, Denial, Kind, Result, WaitingPlan

# The exit code for each outcome, so that a script need not parse the result.
EXIT_CODES: Mapping[str, int] = {
    "answered": 0, "final": 0, "plan_ready": 0, "failed": 1, "step_limit": 2, "stuck": 2,
    "denied": 4, "budget": 6, "interrupted": 130, "cancelled": 130,
}  # fmt: skip


_ANSWERED_OUTCOMES = ("answered", "final")
_DENIED_CODE = EXIT_CODES["denied"]


def exit_code(view: View) -> int:
    """Return the exit code for the newest turn.

    If calls were denied and none was allowed, the code reports the denial, even if the turn
    has an answer.
    """
    outcome, _ = turn_outcome(view)
    all_denied = view.turn.denials and not view.turn.allowed
    if all_denied and outcome in _ANSWERED_OUTCOMES:
        return _DENIED_CODE
    return EXIT_CODES[outcome]


def turn_outcome(view: View) -> tuple[str, str]:
    """Return the outcome and the reason of the newest turn.

    If a turn was stopped before it began, return the outcome and the reason of the stop.
    """
    turn = view.turn
    if turn.stopped and not turn.seq:
        return turn.stopped.outcome, turn.stopped.reason
    return turn.outcome, turn.reason


def result(view: View, session_id: str, seconds: float) -> Result:
    """Return the result of the newest turn. `seconds` is its duration.

    docs/reference/headless.md explains each field.
    """
    turn = view.turn
    outcome, reason = turn_outcome(view)
    return Result(
        outcome=cast("Outcome", outcome),
        reason=reason,
        text=turn.answer,
        session_id=session_id,
        model=turn.model or view.conversation.system_prompt.model,
        steps=turn.steps,
        duration_seconds=round(max(seconds, 0.0), 3),
        usage=turn.spent.usage,
        cost=turn.spent.cost,  # None means unknown
        denials=[
            Denial(d.call.id, d.call.name, d.call.plain_arguments, d.reason)
            for d in turn.denials
        ],
        files=[
            Change(relative_name(path, view.session.directory), cast("Kind", kind))
            for path, kind in turn.changed.items()
        ],
        warnings=[*hook_failures(view), *warnings(view)],
        structured=_answer_value(view, outcome),
        plan=_plan(view, outcome),
    )


def add_earlier_turns(newest: Result, earlier: Sequence[Result]) -> Result:
    """Return `newest` with the steps, usage, cost, denials and files of all turns of its run.

    `earlier` are the results of the earlier turns.
    """
    if not earlier:
        return newest
    results = (*earlier, newest)
    costs = [turn.cost for turn in results]
    files: Mapping[str, str] = {}
    for turn in results:
        files = merge_changes(files, [(change.path, change.kind) for change in turn.files])
    return replace(
        newest,
        steps=sum(turn.steps for turn in results),
        usage=reduce(add, (turn.usage for turn in results)),
        cost=None if None in costs else sum(filter(None, costs)),  # None means unknown
        denials=[denial for turn in results for denial in turn.denials],
        files=[Change(path, cast("Kind", kind)) for path, kind in files.items()],
    )


def _answer_value(view: View, outcome: str) -> object:
    """Return the answer as JSON data; None if the turn has no valid answer.

    Return UNSET if the session has no schema for the answer.
    """
    if bytes(view.conversation.system_prompt.schema) == b"null":
        return UNSET
    if outcome not in _ANSWERED_OUTCOMES:
        return None
    try:
        return value_in(view.turn.answer)
    except ValueError:
        return None


def _plan(view: View, outcome: str) -> WaitingPlan | UnsetType:
    """Return the plan that waits for approval if the turn ended with it; otherwise UNSET."""
    plan = view.plans.waiting
    if outcome != "plan_ready" or plan is None:
        return UNSET
    return WaitingPlan(plan.title, plan.text, plan.seq)
