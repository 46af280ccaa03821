"""The todos of a session as a small list. Pure."""

from collections.abc import Mapping, Sequence

from refold.values.todos import Progress, Todo
from refold.views.cells import cut
from refold.views.escape import on_one_line
from refold.views.styled import Line, Style

_SIGNS: Mapping[Progress, tuple[str, Style]] = {
    "pending": ("[ ]", "plain"),
    "in_progress": ("[>]", "accent"),
    "done": ("[x]", "dim"),
    "cancelled": ("[-]", "dim"),
}


def checklist(items: Sequence[Todo], room: int) -> list[Line]:
    """One line each, in their order."""
    return [_row(item, room) for item in items]


def _row(item: Todo, room: int) -> Line:
    sign, style = _SIGNS[item.status]
    return ((style, f"{sign} {cut(on_one_line(item.subject), room - len(sign) - 1)}"),)
