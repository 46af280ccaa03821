"""Blocks of a screen as lines: those that look alike wherever lines are printed. Pure."""

from refold.journal.events.kinds import Ended
from refold.values.control import PlanReady
from refold.views.call_summary import result
from refold.views.escape import on_one_line
from refold.views.number_format import outcome_line, turn_line
from refold.views.screen.blocks import Called, TurnOver
from refold.views.styled import Line, line


def result_rows(block: Called, room: int, directory: str, hint: str = "") -> list[Line]:
    """What a call came to; nothing while it is open. `hint`: how all of it can be seen."""
    match block.stage:
        case "called" | "asked" | "running":
            return []
        case outcome:
            end = Ended(block.call.id, outcome, block.text, block.shown)
            # Why the rules refused it; what a person was asked is no reason.
            denied = "" if block.answered else block.reason
            return result(end, room, directory, denied, hint)


def is_plan(block: Called) -> bool:
    """Is it shown whole at once, as a plan to be judged?"""
    return isinstance(block.control, PlanReady)


def turn_rows(block: TurnOver) -> list[Line]:
    """How the turn ended, what should be known of it, and what it used."""
    rows = list[Line]()
    if how := outcome_line(block.outcome, block.reason):
        rows.append(how)
    rows += [line(warning, "warn") for warning in block.warnings]
    if block.model and block.asked not in ("", block.model):
        rows.append(line(f"answered by {on_one_line(block.model)}", "dim"))
    rows.append(turn_line(block.spent, block.last, block.window, block.seconds))
    if block.unheard:
        rows.append(line(block.unheard, "dim"))
    return rows
