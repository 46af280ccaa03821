"""Shows the todos and the plans of a session. Pure."""

import time
from collections.abc import Mapping, Sequence

from refold.journal.state.plans import Plan
from refold.values.control import Progress, Todo
from refold.views.escape import escape_to_one_line
from refold.views.styled import Line, Style, line
from refold.views.wrap import cut

_STATUS_SIGNS: Mapping[Progress, tuple[str, Style]] = {
    "pending": ("[ ]", "plain"),
    "in_progress": ("[>]", "accent"),
    "done": ("[x]", "dim"),
    "cancelled": ("[-]", "dim"),
}
_PLAN_HEAD_CELLS = 29  # the time and the state of a plan
_MIN_TITLE_CELLS = 10  # even on a narrower screen
_PLAN_STATES = {"shown": "waits", "approved": "approved", "rejected": "rejected"}


def checklist(items: Sequence[Todo], width: int) -> list[Line]:
    """Return a line for each todo, in order."""
    return [_row(item, width) for item in items]


def _row(item: Todo, width: int) -> Line:
    """Return the line of a todo, cut to `width` cells."""
    sign, style = _STATUS_SIGNS[item.status]
    return (
        (style, f"{sign} {cut(escape_to_one_line(item.subject), width - len(sign) - 1)}"),
    )


def plan_lines(plans: Sequence[Plan], width: int) -> list[Line]:
    """Return a line for each plan, oldest first: its time, its state and its title."""
    if not plans:
        return [line("No plan was made in this session.")]
    title_width = max(width - _PLAN_HEAD_CELLS, _MIN_TITLE_CELLS)
    return [
        (
            ("dim", f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(plan.at))}  "),
            ("plain", f"{_PLAN_STATES[plan.state]:9} "),
            ("strong", cut(escape_to_one_line(plan.title), title_width)),
        )
        for plan in plans
    ]
