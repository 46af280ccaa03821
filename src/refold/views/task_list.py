"""Shows the tasks of a project's board: one line each, or one task in full. Pure.

`todo_list` shows the todos of a session.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from refold.journal.state.fold import View
from refold.values.control import BoardTask, Progress
from refold.views.escape import escape_to_one_line
from refold.views.styled import Line, Style, line
from refold.views.wrap import text_lines, truncate

_STATUS_SIGNS: Mapping[Progress, tuple[str, Style]] = {
    "pending": ("[ ]", "plain"),
    "in_progress": ("[>]", "accent"),
    "done": ("[x]", "dim"),
    "cancelled": ("[-]", "dim"),
}


def with_names(tasks: Iterable[BoardTask], view: View) -> list[BoardTask]:
    """Return the tasks with short names for the owners that belong to this session."""
    session_id = view.session.id
    names = {session_id: "this session"}
    for child in view.children.children:
        names[f"{session_id}/{child.name}"] = child.born.teammate or child.name
    return [replace(task, owner=names.get(task.owner, task.owner)) for task in tasks]


def task_rows(tasks: Sequence[BoardTask], width: int) -> list[Line]:
    """Return a line for each task, in order, cut to `width` cells; with 0, lines are not cut."""
    column_width = len(f"#{max((task.id for task in tasks), default=0)}")
    return [_row(task, column_width, width) for task in tasks]


def task_lines(task: BoardTask, width: int) -> list[Line]:
    """Return a task in full, with its description and its metadata."""
    return [
        _row(task, column_width=1, width=0),
        *(text_lines(task.description, width) if task.description else ()),
        *(line(escape_to_one_line(f"{key}: {_value(value)}"), "dim") for key, value in task.metadata.items()),
    ]  # fmt: skip


def count_line(tasks: Sequence[BoardTask]) -> str:
    """Return the numbers of tasks by status, such as "3 open (1 in progress), 4 done"."""
    states = [task.status for task in tasks]
    running_count = states.count("in_progress")
    open_name = f"open ({running_count} in progress)" if running_count else "open"
    counts: Sequence[tuple[str, int]] = (
        (open_name, sum(task.open for task in tasks)),
        ("done", states.count("done")),
        ("cancelled", states.count("cancelled")),
    )
    return ", ".join(f"{count} {name}" for name, count in counts if count)


def _row(task: BoardTask, column_width: int, width: int) -> Line:
    """Return the line of a task: its status, its number in a column, its subject and facts.

    With `width` 0, the line is not cut.
    """
    sign, style = _STATUS_SIGNS[task.status]
    facts = "; ".join(_facts(task))
    number = f"#{task.id}".rjust(column_width)
    row: Line = ((style, f"{sign} {number}  {escape_to_one_line(task.subject)}"),)
    if facts:
        row = (*row, ("dim", f"  ({facts})"))
    return truncate(row, width) if width else row


def _facts(task: BoardTask) -> Iterator[str]:
    """Yield facts about a task: its owner, and the tasks for which it waits or that it blocks."""
    if task.owner:
        yield escape_to_one_line(task.owner)
    if task.waits_for:
        yield f"waits for {', '.join(f'#{number}' for number in task.waits_for)}"
    if task.blocks and task.open:
        yield f"blocks {', '.join(f'#{number}' for number in task.blocks)}"


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
