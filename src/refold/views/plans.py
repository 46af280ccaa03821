"""A plan as a person reads it, and the list of those of a session. Pure."""

import time
from collections.abc import Sequence

from refold.journal.plans import Plan
from refold.views.cells import cut
from refold.views.escape import on_one_line, visible
from refold.views.prose import Prose
from refold.views.styled import Line, Piece, line

_STATES = {"shown": "waits", "approved": "approved", "rejected": "rejected"}


def plan_pieces(text: str, room: int, *, marks: bool) -> list[Piece]:
    """The words of a plan, as answers are printed; `room` 0: as they are."""
    prose = Prose(room, marks=marks)
    return [*prose.add(visible(text)), *prose.end()]


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
