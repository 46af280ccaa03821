"""The panels beside the transcript, such as the todos and the plan. Pure.

A panel is a list of entries, one of which is selected. The selected entry may show more rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from refold.tui.messages import PanelName
from refold.tui.model import PANEL_COLUMNS, Model
from refold.tui.prose_rows import markdown_rows
from refold.values.display import Diff
from refold.values.path_names import relative_name
from refold.views.background_list import command_rows
from refold.views.children_list import child_rows
from refold.views.context import context_lines, context_usage
from refold.views.escape import escape_to_one_line
from refold.views.number_format import count_with_noun, spent_row
from refold.views.styled import Line, Style, line
from refold.views.task_list import count_line, task_lines, task_rows, with_names
from refold.views.todo_list import checklist
from refold.views.word_diff import diff_lines
from refold.views.wrap import cut, hard_wrap, truncate, wrap_rows, wrap_words
from refold.views.wrap_code import wrap_code

PANEL_TITLES: Mapping[PanelName, str] = {
    "todos": "Todos",
    "tasks": "Task board",
    "agents": "Subagents",
    "background": "Background commands",
    "changes": "Changed files",
    "cost": "Context and cost",
    "plan": "Plan",
}
PANEL_HINTS: Mapping[PanelName, str] = {
    "tasks": "The selected task shows its description",
    "agents": "Enter watches, and shows its question · x stops",
    "background": "Enter shows its output · x stops",
    "changes": "Enter shows the next file",
}
_EMPTY_NOTES: Mapping[PanelName, str] = {
    "todos": "No todos yet",
    "tasks": "There are no tasks on the board",
    "agents": "No subagents yet",
    "background": "No command was started in the background yet",
    "changes": "No file was changed yet",
    "plan": "No plan was made yet",
}
_COUNTS_CELLS = 14  # for the numbers of changed lines
_MIN_NAME_CELLS = 4  # for the name of a file, even in a narrower panel
_MIN_ENTRY_CELLS = 8  # for the row of an entry, even in a narrower panel
_SUBAGENT_NOTE = " by this agent; the transcript of a subagent shows what it changed"


class PanelEntry(Struct, frozen=True):
    """An entry of a panel.

    Keys act on its `id`: the name of a subagent or of a command, or the path of a file.
    """

    id: str
    rows: tuple[Line, ...]


def empty_note(model: Model) -> str:
    """Return a sentence if the open panel is empty, and therefore not shown; otherwise ""."""
    if not is_empty(model):
        return ""
    of_subagents = model.panel == "changes" and model.screen.view.children.children
    return f"{_EMPTY_NOTES[model.panel]}{_SUBAGENT_NOTE if of_subagents else ''}."


def is_empty(model: Model) -> bool:
    """Return whether a panel is open and has no entries.

    It lays out at most one entry, so it is fast.
    """
    if not model.panel:
        return False
    first_entry = next(_PANEL_ENTRIES[model.panel](model, PANEL_COLUMNS), None)
    return first_entry is None


def panel_entries(model: Model, width: int) -> Sequence[PanelEntry]:
    """Return the entries of the open panel; () if none is open."""
    if not model.panel:
        return ()
    return list(_PANEL_ENTRIES[model.panel](model, max(width, _MIN_ENTRY_CELLS)))


def diffs_by_file(model: Model) -> Mapping[str, Sequence[Diff]]:
    """Return the session's diffs by file. The files are in the order of their first change."""
    diffs = dict[str, list[Diff]]()
    for diff in model.diffs:
        diffs.setdefault(diff.path, []).append(diff)
    return diffs


def _todo_entries(model: Model, width: int) -> Iterator[PanelEntry]:
    """Yield an entry for each todo."""
    todos = model.screen.view.conversation.todos
    for index, row in enumerate(checklist(todos, width)):
        yield PanelEntry(str(index), (row,))


def _task_entries(model: Model, width: int) -> Iterator[PanelEntry]:
    """Yield the tasks, open ones first, and at the end the number of tasks by status."""
    board = model.board
    if board is None or board.problem:
        text = "The board is being read." if board is None else board.problem
        style: Style = "dim" if board is None else "bad"
        yield PanelEntry("", tuple(wrap_words(escape_to_one_line(text), width, style)))
        return
    if not board.tasks:
        return
    ordered = sorted(board.tasks, key=lambda task: not task.open)
    tasks = with_names(ordered, model.screen.view)
    rows = task_rows(tasks, width)
    for index, (task, row) in enumerate(zip(tasks, rows, strict=True)):
        is_selected = index == model.panel_row and model.focus == "panel"
        lines = task_lines(task, width) if is_selected else [row]
        entry_rows = [part for task_line in lines for part in hard_wrap(task_line, width)]
        yield PanelEntry(str(task.id), tuple(entry_rows))
    yield PanelEntry("", (truncate(line(count_line(tasks), "dim"), width),))


def _background_entries(model: Model, width: int) -> Iterator[PanelEntry]:
    """Yield the background commands, newest first."""
    commands = model.screen.view.background.commands
    for command in reversed(commands):
        rows = command_rows(command, model.now, model.printed.get(command.name, ""))
        yield PanelEntry(command.name, tuple(truncate(row, width) for row in rows))


def _agent_entries(model: Model, width: int) -> Iterator[PanelEntry]:
    """Yield an entry for each subagent, with its questions and those of subagents below it."""
    children = model.screen.view.children
    moved = {child_moved.node: child_moved for child_moved in model.screen.moved}
    for child in children.children:
        rows = [truncate(row, width) for row in child_rows(child, moved, width)]
        for request in children.asks:
            # the subagent asks, or a subagent below it
            if f"{request.child}/".startswith(f"{child.name}/"):
                text = f"  asks: {escape_to_one_line(model.transcript.label(request.call))}"
                rows.append(line(cut(escape_to_one_line(text), width), "warn"))
        yield PanelEntry(child.name, tuple(rows))


def _change_entries(model: Model, width: int) -> Iterator[PanelEntry]:
    """Yield an entry for each changed file. The entry of the selected file has its diff."""
    files = diffs_by_file(model)
    for index, (path, diffs) in enumerate(files.items()):
        counts = [diff.counts for diff in diffs]
        added_count = sum(added for added, _ in counts)
        removed_count = sum(removed for _, removed in counts)
        name = escape_to_one_line(relative_name(path, model.transcript.directory))
        name_width = max(width - _COUNTS_CELLS, _MIN_NAME_CELLS)
        head: Line = (
            ("strong", cut(name, name_width)),
            ("added", f" +{added_count}"), ("gone", f" -{removed_count}"),
        )  # fmt: skip
        rows = [truncate(head, width)]
        if index == model.panel_row and model.focus == "panel":
            for diff in diffs:
                for row in diff_lines(diff.text, diff.path):
                    rows += wrap_code(row, width)
        yield PanelEntry(path, tuple(rows))


def _cost_entries(model: Model, width: int) -> Iterator[PanelEntry]:
    """Yield entries about the context and the usage. Their id is "": no key acts on them."""
    view = model.screen.view
    account, turn = view.account, view.turn
    usage = context_lines(context_usage(view, model.screen.window))
    yield PanelEntry("", tuple(part for row in usage for part in wrap_rows(row, width)))
    for about, spent in (
        ("this turn" if turn.seq else "last turn", turn.spent),
        ("this session", account.spent),
        ("subagents", account.children_spent),
    ):
        if spent.answers:
            yield PanelEntry("", tuple(wrap_words(f"{about}: {spent_row(spent)}", width)))
    for name, spent in account.by_model:
        text = f"{escape_to_one_line(name)}: {count_with_noun(spent.answers, 'response')}"
        yield PanelEntry("", tuple(wrap_words(text, width, "dim")))


def _plan_entries(model: Model, width: int) -> Iterator[PanelEntry]:
    """Yield the rows of the newest plan. Their id is "": no key acts on them."""
    plans = model.screen.view.plans.made
    text = plans[-1].text if plans else ""
    for row in markdown_rows(text, width, links=model.transcript.links):
        yield PanelEntry("", (truncate(row, width),))


_PANEL_ENTRIES: Mapping[PanelName, Callable[[Model, int], Iterator[PanelEntry]]] = {
    "todos": _todo_entries,
    "tasks": _task_entries,
    "agents": _agent_entries,
    "background": _background_entries,
    "changes": _change_entries,
    "cost": _cost_entries,
    "plan": _plan_entries,
}
