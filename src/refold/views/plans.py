"""The list of the plans of a session. Pure."""

import time
from collections.abc import Sequence

from refold.journal.plans import Plan
from refold.views.cells import cut
from refold.views.escape import on_one_line
from refold.views.styled import Line, line

_STATES = {"shown": "waits", "approved": "approved", "rejected": "rejected"}


def listed(plans: Sequence[Plan], room: int) -> list[Line]:
    """One line a plan, the oldest first: when, what came of it, its title."""
    return [
        (
            ("dim", f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(plan.at))}  "),
            ("plain", f"{_STATES[plan.state]:9} "),
            ("strong", cut(on_one_line(plan.title), max(room - 29, 10))),
        )
        for plan in plans
    ] or [line("No plan was made in this session.")]
