"""The result of a turn, as one document for scripts. Pure."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import cast

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from refold.journal.state.changed_files import merged
from refold.journal.state.fold import View
from refold.values.json_check import value_in
from refold.values.modes import Outcome
from refold.values.path_names import near
from refold.views.notices import failed_hooks, warnings
from refold.views.stream_json.documents import Change, Denial, Kind, Result, WaitingPlan

# How a script learns it without reading: the exit code of each outcome.
EXIT_CODES: Mapping[str, int] = {
    "answered": 0, "final": 0, "plan_ready": 0, "failed": 1, "step_limit": 2, "stuck": 2,
    "denied": 4, "budget": 6, "interrupted": 130, "cancelled": 130,
}  # fmt: skip


_ANSWERED = ("answered", "final")
_DENIED = EXIT_CODES["denied"]


def exit_code(view: View) -> int:
    """Of the newest turn. An answer for which every call was denied is no success."""
    outcome, _ = came_to(view)
    all_denied = view.turn.denials and not view.turn.allowed
    return _DENIED if all_denied and outcome in _ANSWERED else EXIT_CODES[outcome]


def came_to(view: View) -> tuple[str, str]:
    """Outcome and reason of the newest turn, or of a stop before it could begin."""
    turn = view.turn
    if turn.stopped and not turn.seq:
        return turn.stopped.outcome, turn.stopped.reason
    return turn.outcome, turn.reason


def result(view: View, session_id: str, seconds: float) -> Result:
    """The result of the newest turn: see docs/headless.md for each field."""
    turn = view.turn
    outcome, reason = came_to(view)
    return Result(
        outcome=cast("Outcome", outcome),
        reason=reason,
        text=turn.answer,
        session_id=session_id,
        model=turn.model or view.conversation.system_prompt.model,
        steps=turn.steps,
        duration_seconds=round(max(seconds, 0.0), 3),
        usage=turn.spent.usage,
        cost=turn.spent.cost,  # None is not zero
        denials=[
            Denial(d.call.id, d.call.name, d.call.plain_arguments, d.reason)
            for d in turn.denials
        ],
        files=[
            Change(near(path, view.session.directory), cast("Kind", kind))
            for path, kind in turn.changed.items()
        ],
        warnings=[*failed_hooks(view), *warnings(view)],
        structured=_structured(view, outcome),
        plan=_plan(view, outcome),
    )


def with_earlier(newest: Result, earlier: Sequence[Result]) -> Result:
    """`newest` with the steps, usage, denials and files of earlier turns of the same run."""
    if not earlier:
        return newest
    every = (*earlier, newest)
    costs = [each.cost for each in every]
    files: Mapping[str, str] = {}
    for each in every:
        files = merged(files, [(change.path, change.kind) for change in each.files])
    return replace(
        newest,
        steps=sum(each.steps for each in every),
        usage=reduce(add, (each.usage for each in every)),
        cost=None if None in costs else sum(filter(None, costs)),
        denials=[denial for each in every for denial in each.denials],
        files=[Change(path, cast("Kind", kind)) for path, kind in files.items()],
    )


def _structured(view: View, outcome: str) -> object:
    """The answer as data, where it was asked for in a shape and has it."""
    if bytes(view.conversation.system_prompt.schema) == b"null":
        return UNSET
    if outcome not in _ANSWERED:
        return None
    try:
        return value_in(view.turn.answer)
    except ValueError:
        return None


def _plan(view: View, outcome: str) -> WaitingPlan | UnsetType:
    """The plan that waits to be approved, where the turn ended with one."""
    found = view.plans.waiting
    if outcome != "plan_ready" or found is None:
        return UNSET
    return WaitingPlan(found.title, found.text, found.seq)
