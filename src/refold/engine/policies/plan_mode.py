"""Informs the model about plan mode, and ends the turn when a plan is ready.

The model gets the full instructions once, then one line every few turns, and a note when plan
mode is over. The permission rules, and not this module, restrict plan mode to read-only calls.
"""

from refold.engine.decide import EndTurn, Note, Policy
from refold.journal.state.fold import View
from refold.values.modes import Mode

PLAN_INSTRUCTIONS = (
    "<reminder>Plan mode is on: look at whatever you need, but change nothing; calls that would "
    "change something are refused. Work out a plan. When it is ready, call "
    "exit_plan_mode with the whole of it, in Markdown: the person approves it, "
    "changes it or sends it back. Ask with ask_user where only they can decide.</reminder>"
)
STILL_PLANNING = (
    "<reminder>Plan mode is still on: look, change nothing, and call exit_plan_mode with the "
    "whole plan when it is ready.</reminder>"
)
PLAN_MODE_OVER = "<reminder>Plan mode is over: you may change things again.</reminder>"
REMINDER_TURNS = 4  # between two reminders
_PLAN_READY = "the plan waits to be approved"


def in_plan_mode(mode: Mode) -> Policy:
    """Return the policy that informs the model about plan mode.

    `mode` is the mode of a session in which the user has not chosen one.
    """

    def planning(view: View) -> Note | None:
        """Return instructions for plan mode, a reminder, or a note about its end; otherwise
        None.
        """
        if (view.rights.mode or mode) != "plan":
            return Note(PLAN_MODE_OVER) if view.reminders.left_plan_mode else None
        turns = view.reminders.turns_since_plan_mode
        if turns < 0:  # the model does not have the instructions yet
            return Note(PLAN_INSTRUCTIONS)
        is_turn_of_reminder = turns > 0 and turns % REMINDER_TURNS == 0
        if is_turn_of_reminder and "planning" not in view.turn.noted_by:
            return Note(STILL_PLANNING)
        return None

    return planning


def plan_ready(view: View) -> EndTurn | None:
    return EndTurn("plan_ready", _PLAN_READY) if view.turn.planned else None
