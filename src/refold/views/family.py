"""The children of a session in a line each, as its own view knows them. Pure.

For whoever watches them work; what each of them did is told by `tree`, from its journal.
"""

from collections.abc import Iterator, Mapping

from refold.journal.below import ChildBorn, ChildEnded
from refold.journal.family import Child, Family
from refold.values.live import ChildMoved
from refold.views.cells import cut
from refold.views.counts import dollars, spent_row, tokens
from refold.views.escape import on_one_line
from refold.views.styled import Line, Style, line

_NAMED = 60  # cells of a task that has no title
_STATUS: Mapping[str, Style] = {
    "done": "good", "partial": "warn", "failed": "bad", "runs": "accent",
}  # fmt: skip


def told_of(event: ChildBorn | ChildEnded, family: Family) -> Line | None:
    """That it begins or has ended. Those that code starts are too many for a line each."""
    name = event.child
    child = family.child(name)
    if child is None or child.born.key:
        return None
    if isinstance(event, ChildBorn):
        return line(f"{_who(event)} begins: {_title(event)}", "dim")
    why = f": {on_one_line(event.reason)}" if event.reason else ""
    said = f"{on_one_line(name)} is {event.status}{why} · {spent_row(event.spent)}"
    return line(said, "warn" if event.status == "failed" else "dim")


def family_lines(
    family: Family, moved: Mapping[str, ChildMoved], room: int
) -> Iterator[Line]:
    """`moved`: how far those are that work right now, by their addresses below here."""
    if not family.children:
        yield line("It has no children: the tool `task` gives work to another agent.")
    for child in family.children:
        yield _row(child, moved.get(child.name), room)
        if child.stopped and child.runs:
            yield line(f"    it is to end: {on_one_line(child.stopped)}", "warn")
        for node, deeper in moved.items():
            if child.runs and node.startswith(f"{child.name}/"):
                yield _deeper(node, deeper, room)


def _row(child: Child, moved: ChildMoved | None, room: int) -> Line:
    status = child.status if not child.foreign else "of another session"
    style = _STATUS.get(status, "dim")
    head = f"{_who(child.born)} "
    spent = spent_row(child.end.spent) if child.end else _so_far(moved)
    doing = f" · {moved.label}" if moved and moved.label and child.runs else ""
    rest = f" · {_title(child.born)} · {spent}{doing}"
    left = room - len(head) - len(status) if room else len(rest)
    shown = cut(on_one_line(rest), max(left, 8))
    return (("strong", head), (style, status), ("dim", shown))


def _deeper(node: str, moved: ChildMoved, room: int) -> Line:
    title = on_one_line(moved.title) or on_one_line(moved.label)
    said = (
        f"    {on_one_line(node)} ({on_one_line(moved.agent)}) · {title} · {_so_far(moved)}"
    )
    return line(cut(said, room) if room else said, "dim")


def _so_far(moved: ChildMoved | None) -> str:
    if moved is None:
        return "nothing yet"
    cost = "price unknown" if moved.cost is None else dollars(moved.cost)
    return f"{tokens(moved.tokens)} tokens · {cost}"


def _who(born: ChildBorn) -> str:
    return f"{on_one_line(born.child)} ({on_one_line(born.agent)})"


def _title(born: ChildBorn) -> str:
    words = born.title or " ".join(born.task.split())
    return cut(on_one_line(words), _NAMED)
