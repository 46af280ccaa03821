"""Plan mode as the model hears of it; and a plan that is ready ends the turn.

That nothing but looking happens while it plans is the rules' business, at the seam.
"""

from refold.engine.decide import EndTurn, Note, Policy
from refold.journal.fold import View
from refold.values.rights import Mode

PLANNING = (
    "<reminder>Plan mode is on: look at whatever you need, but change nothing; calls that would "
    "change something are refused. Work out a plan. When it is ready, call "
    "exit_plan_mode with the whole of it, in Markdown: the person approves it, "
    "changes it or sends it back. Ask with ask_user where only they can decide.</reminder>"
)
_READY = "the plan waits to be approved"


def in_plan_mode(mode: Mode) -> Policy:
    """`mode` is that of the settings, for sessions without one of their own."""

    def planning(view: View) -> Note | None:
        on = (view.rights.mode or mode) == "plan"
        return Note(PLANNING) if on and "planning" not in view.turn.noted else None

    return planning


def plan_ready(view: View) -> EndTurn | None:
    return EndTurn("plan_ready", _READY) if view.turn.planned else None
