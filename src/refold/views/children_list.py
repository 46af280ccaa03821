"""Lists the subagents of a session, one line each, from the view of their parent. Pure.

It shows them while they run. `session_tree` shows what each has done, from its own journal.
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
    used = spent_row(event.spent) if event.spent.answers else ""
    duration_text = (
        duration(ended_at - child.at) if child.at and ended_at > child.at else ""
    )
    parts = (
        f"{_child_name(child.born)} {outcome}{why}",
        _title(child.born),
        used,
        duration_text,
    )
    text = " · ".join(part for part in parts if part)
    report = "" if child.born.background else event.text
    return line(text, "warn" if event.status == "failed" else "dim"), report


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
    running = [child for child in family.running if not child.born.key]
    fit = running if len(running) <= max_rows else running[: max(max_rows - 1, 0)]
    rows = [_live_row(child, recent, seconds.get(child.name, 0.0), width) for child in fit]
    hidden_count = len(running) - len(fit)
    if hidden_count and max_rows > 0:
        rows.append(line(f"  … {hidden_count} more, see /tree", "dim"))
    return rows


def _live_row(
    child: Child, recent: Mapping[str, ChildMoved], seconds: float, width: int
) -> Line:
    """Return the row of a running subagent: task, newest activity, tokens and time."""
    name = child.name
    deeper = [progress for node, progress in recent.items() if node.startswith(f"{name}/")]
    own = recent.get(name)
    used = sum(progress.tokens for progress in deeper) + (own.tokens if own else 0)
    head = f"  {_child_name(child.born)} "
    tail = f" {tokens(used)} tokens · {duration(seconds)}"
    newest = deeper[-1] if deeper else own
    doing = escape_to_one_line(newest.label) if newest and newest.label else "begins"
    if child.stopped:
        doing = "stopping"
    elif deeper:
        doing = f"{escape_to_one_line(deeper[-1].node.removeprefix(name + '/'))}: {doing}"
    left = width - cells(head) - cells(tail) - 1
    # The task gets two fifths, or more if the activity is short.
    title_width = max(left * 2 // 5, left - cells(doing) - 2, 4)
    title = cut(_title(child.born), title_width)
    width_left = max(left - cells(title) - 2, 4)
    is_text = doing.startswith("… ")  # text that it is writing; the newest is at the end
    if cells(doing) > width_left and is_text:
        doing = f"… {doing[2 - width_left :]}"
    doing = cut(doing, width_left)
    pad = " " * max(left - cells(title) - 2 - cells(doing), 0)
    return (
        ("strong", head), ("dim", f"{title}: "), ("plain", doing + pad), ("dim", tail),
    )  # fmt: skip


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
    """Return the name that is shown above a subagent's question. It says if it has a worktree."""
    name = re.split(r"[/ ]", asker)[0]  # without subagents below it, and without its agent
    child = family.child(name)
    has_worktree = child is not None and child.born.branch
    return f"{asker}, in its own git worktree," if has_worktree else asker


def report_lines(sender: str, text: str, width: int) -> Iterator[Line]:
    """Yield the lines of a background subagent's report, without its tags for the model."""
    inner = _TAGS_PATTERN.sub("", text).strip()
    plain = inner.removeprefix(f"{sender} is done.").lstrip() or inner
    teammate = _TEAMMATE_PATTERN.match(text)
    name = f"{teammate[1]} ({sender})" if teammate else sender
    yield line(f"{escape_to_one_line(name)} reports:", "strong")
    for row in fold_lines(text_lines(plain, width - 2)):
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
    counted = [child for child in family.children if child.seq > since or child.runs]
    used, dollars_, unpriced = 0, 0.0, False
    for child in counted:
        count, cost = _usage(child, recent.get(child.name))
        used += count
        dollars_ += cost or 0.0
        unpriced = unpriced or cost is None
    money = f"{'at least ' if unpriced else ''}{dollars(dollars_)}" if dollars_ else ""
    first, *others = running
    label = f"{len(running)} subagents" if others else _child_name(first.born)
    newest = list(recent.values())[-1] if recent else None
    activity_text = escape_to_one_line(newest.label) if newest else "begins"
    if newest and (others or "/" in newest.node):
        child = family.child(newest.node)
        node = f"{escape_to_one_line(newest.node)} ({escape_to_one_line(newest.agent)})"
        activity_text = f"{_child_name(child.born) if child else node}: {activity_text}"
    spent = f"{tokens(used)} tokens" if used else ""
    return " · ".join(
        part for part in (label, spent, money, activity_text if doing else "") if part
    )


def _usage(child: Child, recent: ChildMoved | None) -> tuple[int, float | None]:
    """Return the tokens and the cost of a subagent. The cost is None if a price is unknown."""
    if child.end is not None:
        spent = child.end.spent
        return spent.usage.input + spent.usage.output, spent.cost
    return (recent.tokens, recent.cost) if recent else (0, 0.0)


def _row(child: Child, recent: ChildMoved | None, width: int) -> Line:
    """Return a subagent's row: name, state, title, usage, and what it does while it runs.

    If `width` is 0, the row has no limit.
    """
    status = _state(child)
    style = _STATUS_STYLES.get(status, "dim")
    head = f"{_child_name(child.born)} "
    spent = spent_row(child.end.spent) if child.end else _usage_so_far(recent)
    doing = f" · {recent.label}" if recent and recent.label and child.runs else ""
    text = f" · {_title(child.born)} · {spent}{doing}"
    left = width - len(head) - len(status) if width else len(text)
    shown = cut(escape_to_one_line(text), max(left, 8))
    return (("strong", head), (style, status), ("dim", shown))


def _state(child: Child) -> str:
    """Return the state of a subagent, such as "done". A running teammate "works" or is "idle"."""
    if child.foreign:
        return "of another session"
    return _team_state(child) if child.born.teammate and child.runs else child.status


def _descendant_row(node: str, recent: ChildMoved, width: int) -> Line:
    title = escape_to_one_line(recent.title) or escape_to_one_line(recent.label)
    text = f"    {escape_to_one_line(node)} ({escape_to_one_line(recent.agent)}) · {title} · {_usage_so_far(recent)}"
    return line(cut(text, width) if width else text, "dim")


def _usage_so_far(recent: ChildMoved | None) -> str:
    """Return the usage of a subagent that runs. `recent` is None before its first report."""
    if recent is None or (not recent.steps and not recent.tokens):
        return "nothing yet"
    cost = "price unknown" if recent.cost is None else dollars(recent.cost)
    return f"{tokens(recent.tokens)} tokens · {cost}"


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
    if child.end is not None:
        return f"ended, {child.end.status}"
    return "idle" if child.idle else "works"
