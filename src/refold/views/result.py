"""What a turn came to, as one document for scripts. Pure."""

from collections.abc import Mapping

import msgspec

from refold.journal.fold import View
from refold.values.below import near
from refold.values.messages import ToolCall
from refold.values.schema import value_in
from refold.views.closing import warnings

# How a script learns it without reading: the exit code of each outcome.
EXIT_CODES: Mapping[str, int] = {
    "answered": 0, "final": 0, "plan_ready": 0, "failed": 1, "step_limit": 2, "stuck": 2,
    "denied": 4, "budget": 6, "interrupted": 130, "cancelled": 130,
}  # fmt: skip


def came_to(view: View) -> tuple[str, str]:
    """Outcome and reason of the newest turn, or of a stop before it could begin."""
    turn = view.turn
    if turn.stopped and not turn.seq:
        return turn.stopped.outcome, turn.stopped.reason
    return turn.outcome, turn.reason


def result(view: View, session_id: str, seconds: float) -> dict[str, object]:
    """The `result` document: see docs/headless.md for each field."""
    turn = view.turn
    outcome, reason = came_to(view)
    return {
        "type": "result",
        "outcome": outcome,
        "reason": reason,
        "text": turn.answer,
        "session_id": session_id,
        "model": turn.model or view.talk.briefed.model,
        "steps": turn.steps,
        "duration_seconds": round(max(seconds, 0.0), 3),
        "usage": msgspec.to_builtins(turn.spent.usage),
        "cost": turn.spent.cost,  # None is not zero
        **_structured(view, outcome),
        **_plan(view, outcome),
        "denials": [
            {"call_id": d.call.id, "tool": d.call.name, "arguments": arguments(d.call),
             "reason": d.reason}
            for d in turn.denials
        ],
        "files": [
            {"path": near(path, view.about.directory), "kind": kind}
            for path, kind in turn.changed.items()
        ],
        "warnings": list(warnings(view)),
    }  # fmt: skip


def _structured(view: View, outcome: str) -> dict[str, object]:
    """The answer as data, where it was asked for in a shape and has it."""
    if bytes(view.talk.briefed.schema) == b"null":
        return {}
    if outcome not in ("answered", "final"):
        return {"structured": None}
    try:
        return {"structured": value_in(view.turn.answer)}
    except ValueError:
        return {"structured": None}


def _plan(view: View, outcome: str) -> dict[str, object]:
    """The plan that waits to be approved, where the turn ended with one."""
    found = view.plans.waiting
    if outcome != "plan_ready" or found is None:
        return {}
    return {"plan": {"title": found.title, "text": found.text, "id": found.seq}}


def arguments(call: ToolCall) -> object:
    """A call's arguments as data; as text where they are no JSON."""
    try:
        return msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError):
        return bytes(call.arguments).decode(errors="replace")
