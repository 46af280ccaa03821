"""Lists the subagents of a session, one line each, from the view of their parent. Pure.

`session_tree` shows what each subagent has done, from its own journal.
"""

import re
from collections.abc import Iterator, Mapping

from refold.journal.events.child_events import ChildBorn, ChildEnded
from refold.journal.state.children import Child, Children
from refold.values.live import ChildMoved
from refold.views.escape import escape_to_one_line, visible
from refold.views.number_format import dollars, duration, spent_row, tokens
from refold.views.styled import Line, Style, line, plain_text
from refold.views.wrap import cells, cut, fold_lines, text_lines, wrap_words

_MAX_TITLE_CELLS = 60
_MIN_TEXT_CELLS = 8  # of the text after a subagent's state, even in a narrower row
_MIN_PART_CELLS = 4  # of the task and of the activity, even in a narrower row
_TITLE_END = ": "  # between the task and the activity
_WRITING_MARK = "… "  # begins an activity that is the end of the text being written
_MAX_REPORT_CHARS = 400  # the part of a report that is shown
_TEAMMATE_PATTERN = re.compile(r'<child name="[^"]*" teammate="([^"]*)"')
_TAGS_PATTERN = re.compile(r"\A<child [^>]*>|</child>\s*\Z")
_STATUS_STYLES: Mapping[str, Style] = {
    "done": "good", "partial": "warn", "failed": "bad", "runs": "accent",
    "works": "accent", "idle": "dim",
}  # fmt: skip


def child_start_line(event: ChildBorn, family: Children) -> Line | None:
    """Return a line about the start of a subagent.

    Return None if code started it, because code may start many.
    """
    if _is_by_code(event.child, family):
        return None
    return line(f"{_child_name(event)} begins: {_title(event)}", "dim")


def child_end_line(
    event: ChildEnded, family: Children, ended_at: float
) -> tuple[Line | None, str]:
    """Return a line about the end of a subagent, and its report.

    The line is None if code started the subagent. The report is "" then, and also for a
    background subagent, because its report arrives as a message.
    """
    child = family.child(event.child)
    if child is None or child.born.key:  # only code starts subagents with a key
        return None, ""
    outcome = "has failed" if event.status == "failed" else f"is {event.status}"
    why = f": {escape_to_one_line(event.reason)}" if event.reason else ""
    parts = [f"{_child_name(child.born)} {outcome}{why}", _title(child.born)]
    if event.spent.answers:
        parts.append(spent_row(event.spent))
    if child.at and ended_at > child.at:
        parts.append(duration(ended_at - child.at))
    text = " · ".join(part for part in parts if part)
    style = "warn" if event.status == "failed" else "dim"
    report = "" if child.born.background else event.text
    return line(text, style), report


def report_start(report: str) -> str:
    """Return the beginning of a subagent's report, on one line."""
    return " ".join(report[: 2 * _MAX_REPORT_CHARS].split())[:_MAX_REPORT_CHARS]


def report_rows(report: str, width: int, max_rows: int = 2) -> list[Line]:
    """Return the beginning of a subagent's report, wrapped to at most `max_rows` rows."""
    start = report_start(report)
    rows = wrap_words(visible(start), width) if start else []
    if len(rows) <= max_rows:
        return rows
    rest = " ".join(plain_text([row]).strip() for row in rows[max_rows - 1 :])
    return [*rows[: max_rows - 1], line(cut(rest, width))]


def reported_calls(family: Children) -> frozenset[str]:
    """Return the ids of calls whose result is not shown: the end of their subagent shows it.

    These are the calls of all subagents that were neither started by code nor have a branch.
    """
    born = (child.born for child in family.children)
    return frozenset(event.call_id for event in born if not (event.key or event.branch))


def live_rows(
    family: Children,
    recent: Mapping[str, ChildMoved],
    seconds: Mapping[str, float],
    width: int,
    max_rows: int,
) -> list[Line]:
    """Return a row for each running subagent: its task, its activity, its tokens and its time.

    `recent` has the newest progress by address, `seconds` the duration of each subagent by
    name. If there are more than `max_rows` subagents, the last row says how many are left out.
    The activity may be the text that the subagent is writing.
    """
    # Code starts the subagents with a key, and it may start many: they have no rows.
    running = [child for child in family.running if not child.born.key]
    shown = running
    if len(running) > max_rows:
        shown = running[: max(max_rows - 1, 0)]
    rows = [
        _live_row(child, recent, seconds.get(child.name, 0.0), width) for child in shown
    ]
    hidden_count = len(running) - len(shown)
    if hidden_count and max_rows > 0:
        rows.append(line(f"  … {hidden_count} more, see /tree", "dim"))
    return rows


def _live_row(
    child: Child, recent: Mapping[str, ChildMoved], seconds: float, width: int
) -> Line:
    """Return the row of a running subagent: task, newest activity, tokens and time."""
    own = recent.get(child.name)
    prefix = f"{child.name}/"
    descendants = [progress for node, progress in recent.items() if node.startswith(prefix)]
    token_count = sum(progress.tokens for progress in descendants)
    if own:
        token_count += own.tokens
    head = f"  {_child_name(child.born)} "
    tail = f" {tokens(token_count)} tokens · {duration(seconds)}"
    activity = _activity_text(child, descendants[-1] if descendants else own)
    # The row ends before the last cell of the screen.
    middle_width = width - cells(head) - cells(tail) - 1
    # The task gets two fifths, or more if the activity is short.
    title_width = max(
        middle_width * 2 // 5,
        middle_width - cells(activity) - len(_TITLE_END),
        _MIN_PART_CELLS,
    )
    title = cut(_title(child.born), title_width) + _TITLE_END
    activity_width = max(middle_width - cells(title), _MIN_PART_CELLS)
    shown_activity = _cut_activity(activity, activity_width)
    padding = " " * max(middle_width - cells(title) - cells(shown_activity), 0)
    return (
        ("strong", head), ("dim", title), ("plain", shown_activity + padding), ("dim", tail),
    )  # fmt: skip


def _cut_activity(activity: str, width: int) -> str:
    """Return the activity cut to `width` cells. Text that is being written keeps its end."""
    if cells(activity) > width and activity.startswith(_WRITING_MARK):
        text_width = width - len(_WRITING_MARK)
        text = activity[-text_width:]
        while cells(text) > text_width:  # it has wide characters
            text = text[1:]
        return _WRITING_MARK + text
    return cut(activity, width)


def _activity_text(child: Child, newest: ChildMoved | None) -> str:
    """Return what a subagent does.

    `newest` is the newest progress of the subagent or of a subagent below it.
    """
    if child.stopped:
        return "stopping"
    if newest is None:
        return "begins"
    activity = escape_to_one_line(newest.label) if newest.label else "begins"
    if newest.node == child.name:
        return activity
    return f"{escape_to_one_line(newest.node.removeprefix(f'{child.name}/'))}: {activity}"


def _is_by_code(name: str, family: Children) -> bool:
    """Whether code started the subagent; True also if the subagent is unknown."""
    child = family.child(name)
    return child is None or bool(child.born.key)


def child_lines(
    family: Children, recent: Mapping[str, ChildMoved], width: int
) -> Iterator[Line]:
    """Yield the lines of all subagents.

    `recent` has the newest progress of running subagents, by address.
    """
    if not family.children:
        yield line("No subagents: the tool `task` starts one.")
    for child in family.children:
        yield from child_rows(child, recent, width)


def child_rows(
    child: Child, recent: Mapping[str, ChildMoved], width: int
) -> Iterator[Line]:
    """Yield the rows of a subagent, and of the running subagents below it."""
    yield _row(child, recent.get(child.name), width)
    if child.stopped and child.runs:
        yield line(f"    asked to end: {escape_to_one_line(child.stopped)}", "warn")
    for node, deeper in recent.items():
        if child.runs and node.startswith(f"{child.name}/"):
            yield _descendant_row(node, deeper, width)


def child_label(asker: str, family: Children) -> str:
    """Return the name above a subagent's question, with a note if it works in a worktree."""
    name = re.split(r"[/ ]", asker)[0]  # without subagents below it, and without its agent
    child = family.child(name)
    has_worktree = child is not None and child.born.branch
    return f"{asker}, in its own git worktree," if has_worktree else asker


def report_lines(sender: str, text: str, width: int) -> Iterator[Line]:
    """Yield the lines of a background subagent's report, without its tags for the model."""
    report = _TAGS_PATTERN.sub("", text).strip()
    # The first sentence only repeats the heading. It stays if it is the whole report.
    report = report.removeprefix(f"{sender} is done.").lstrip() or report
    teammate = _TEAMMATE_PATTERN.match(text)
    name = f"{teammate[1]} ({sender})" if teammate else sender
    yield line(f"{escape_to_one_line(name)} reports:", "strong")
    for row in fold_lines(text_lines(report, width - 2)):
        yield (("plain", "  "), *row)


def running_summary(
    family: Children, recent: Mapping[str, ChildMoved], since: int, *, doing: bool = True
) -> str:
    """Return a summary of the running subagents, or "" if none runs.

    Its usage includes subagents that have ended, if they were started after the event `since`.
    With `doing`, the summary also has the newest progress of any subagent.
    """
    running = family.running
    if not running:
        return ""
    token_count, known_dollars, has_unpriced = 0, 0.0, False
    for child in family.children:
        if child.seq <= since and not child.runs:
            continue
        child_tokens, cost = _usage(child, recent.get(child.name))
        token_count += child_tokens
        known_dollars += cost or 0.0
        has_unpriced = has_unpriced or cost is None
    is_one = len(running) == 1
    parts = [_child_name(running[0].born) if is_one else f"{len(running)} subagents"]
    if token_count:
        parts.append(f"{tokens(token_count)} tokens")
    if known_dollars:
        parts.append(f"{'at least ' if has_unpriced else ''}{dollars(known_dollars)}")
    if doing:
        parts.append(_newest_activity(family, recent, is_one=is_one))
    return " · ".join(part for part in parts if part)


def _newest_activity(
    family: Children, recent: Mapping[str, ChildMoved], *, is_one: bool
) -> str:
    """Return the newest progress of any subagent.

    It begins with the name of the subagent, unless it is the only one (`is_one`).
    """
    newest = list(recent.values())[-1] if recent else None
    if newest is None:
        return "begins"
    activity = escape_to_one_line(newest.label)
    if is_one and "/" not in newest.node:
        return activity
    child = family.child(newest.node)
    name = f"{escape_to_one_line(newest.node)} ({escape_to_one_line(newest.agent)})"
    return f"{_child_name(child.born) if child else name}: {activity}"


def _usage(child: Child, progress: ChildMoved | None) -> tuple[int, float | None]:
    """Return the tokens and the cost of a subagent. The cost is None if a price is unknown."""
    if child.end is not None:
        spent = child.end.spent
        return spent.usage.input + spent.usage.output, spent.cost
    return (progress.tokens, progress.cost) if progress else (0, 0.0)


def _row(child: Child, progress: ChildMoved | None, width: int) -> Line:
    """Return a subagent's row: name, state, title, usage, and what it does while it runs.

    If `width` is 0, the row has no limit.
    """
    status = _state(child)
    style = _STATUS_STYLES.get(status, "dim")
    head = f"{_child_name(child.born)} "
    spent = spent_row(child.end.spent) if child.end else _usage_so_far(progress)
    label = progress.label if progress is not None and child.runs else ""
    activity = f" · {label}" if label else ""
    text = f" · {_title(child.born)} · {spent}{activity}"
    text_width = width - len(head) - len(status) if width else len(text)
    shown = cut(escape_to_one_line(text), max(text_width, _MIN_TEXT_CELLS))
    return (("strong", head), (style, status), ("dim", shown))


def _state(child: Child) -> str:
    """Return the state of a subagent, such as "done". A running teammate "works" or is "idle"."""
    if child.foreign:
        return "of another session"
    return _team_state(child) if child.born.teammate and child.runs else child.status


def _descendant_row(node: str, progress: ChildMoved, width: int) -> Line:
    """Return the row of a node below a subagent. With `width` 0, it is not cut."""
    address, agent = escape_to_one_line(node), escape_to_one_line(progress.agent)
    title = escape_to_one_line(progress.title) or escape_to_one_line(progress.label)
    text = f"    {address} ({agent}) · {title} · {_usage_so_far(progress)}"
    return line(cut(text, width) if width else text, "dim")


def _usage_so_far(progress: ChildMoved | None) -> str:
    """Return the usage of a subagent that runs. `progress` is None before its first report."""
    if progress is None or (not progress.steps and not progress.tokens):
        return "nothing yet"
    cost = "price unknown" if progress.cost is None else dollars(progress.cost)
    return f"{tokens(progress.tokens)} tokens · {cost}"


def _child_name(born: ChildBorn) -> str:
    name, agent = escape_to_one_line(born.child), escape_to_one_line(born.agent)
    return f"{born.teammate} ({name}, {agent})" if born.teammate else f"{name} ({agent})"


def _title(born: ChildBorn) -> str:
    words = born.title or " ".join(born.task.split())
    return cut(escape_to_one_line(words), _MAX_TITLE_CELLS)


def team_rows(family: Children, width: int) -> list[Line]:
    """Return a row for each teammate: its name, its activity, and its role."""
    rows = list[Line]()
    for child in family.children:
        born = child.born
        if born.teammate:
            text = f"{born.teammate}  {born.child}  {_team_state(child)}  {_title(born)}"
            rows.append(line(cut(text, width)))
    return rows


def _team_state(child: Child) -> str:
    """Return whether a teammate works, is idle or has ended."""
    if child.end is not None:
        return f"ended, {child.end.status}"
    return "idle" if child.idle else "works"
