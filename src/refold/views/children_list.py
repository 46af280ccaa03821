"""The subagents of a session, a line each, as its own view knows them. Pure.

For watching them run; `session_tree` shows what each did, from its journal.
"""

import re
from collections.abc import Iterator, Mapping

from refold.journal.events.child_events import ChildBorn, ChildEnded
from refold.journal.state.children import Child, Children
from refold.values.live import ChildMoved
from refold.views.escape import on_one_line, visible
from refold.views.number_format import dollars, duration, spent_row, tokens
from refold.views.styled import Line, Style, bare, line
from refold.views.wrap import cells, cut, folded, text_lines, wrap_words

_NAMED = 60  # cells of a task that has no title
_REPORT = 400  # characters of a report that are looked at
_REPORT_ROWS = 2
_TEAMMATE = re.compile(r'<child name="[^"]*" teammate="([^"]*)"')
_TAGS = re.compile(r"\A<child [^>]*>|</child>\s*\Z")
_STATUS: Mapping[str, Style] = {
    "done": "good", "partial": "warn", "failed": "bad", "runs": "accent",
    "works": "accent", "idle": "dim",
}  # fmt: skip


def child_begins(event: ChildBorn, family: Children) -> Line | None:
    """None for subagents started by code: they are too many for a line each."""
    if _by_code(event.child, family):
        return None
    return line(f"{_who(event)} begins: {_title(event)}", "dim")


def child_ended(event: ChildEnded, family: Children, at: float) -> tuple[Line | None, str]:
    """That it has ended, at that time, and the beginning of its report.

    The report of a subagent in the background is not repeated: it comes as a message.
    """
    child = family.child(event.child)
    if child is None or child.born.key:
        return None, ""
    came = "has failed" if event.status == "failed" else f"is {event.status}"
    why = f": {on_one_line(event.reason)}" if event.reason else ""
    used = spent_row(event.spent) if event.spent.answers else ""
    took = duration(at - child.at) if child.at and at > child.at else ""
    parts = (f"{_who(child.born)} {came}{why}", _title(child.born), used, took)
    said = " · ".join(part for part in parts if part)
    report = "" if child.born.background else " ".join(event.text.split())[:_REPORT]
    return line(said, "warn" if event.status == "failed" else "dim"), report


def report_rows(report: str, room: int) -> list[Line]:
    """The beginning of a subagent's report, in at most two rows."""
    rows = wrap_words(visible(report), room) if report else []
    if len(rows) <= _REPORT_ROWS:
        return rows
    rest = " ".join(bare([row]).strip() for row in rows[_REPORT_ROWS - 1 :])
    return [*rows[: _REPORT_ROWS - 1], line(cut(rest, room))]


def live_rows(
    family: Children,
    moved: Mapping[str, ChildMoved],
    seconds: Mapping[str, float],
    room: int,
    most: int,
) -> list[Line]:
    """A row for each running subagent: its task, what it does now, tokens and time.

    `seconds`: for how long each has run. At most `most` rows; the last one counts the rest.
    What `moved` says of one may be what it writes.
    """
    running = [child for child in family.running if not child.born.key]
    fit = running if len(running) <= most else running[: max(most - 1, 0)]
    rows = [_live_row(each, moved, seconds.get(each.name, 0.0), room) for each in fit]
    if (left := len(running) - len(fit)) and most > 0:
        rows.append(line(f"  … {left} more, see /tree", "dim"))
    return rows


def _live_row(
    child: Child, moved: Mapping[str, ChildMoved], seconds: float, room: int
) -> Line:
    name = child.name
    deeper = [each for node, each in moved.items() if node.startswith(f"{name}/")]
    own = moved.get(name)
    used = sum(each.tokens for each in (*deeper, *((own,) if own else ())))
    head, tail = f"  {_who(child.born)} ", f" {tokens(used)} tokens · {duration(seconds)}"
    newest = deeper[-1] if deeper else own
    doing = on_one_line(newest.label) if newest and newest.label else "begins"
    if child.stopped:
        doing = "stopping"
    elif deeper:
        doing = f"{on_one_line(deeper[-1].node.removeprefix(name + '/'))}: {doing}"
    left = room - cells(head) - cells(tail) - 1
    title_room = max(left * 2 // 5, left - cells(doing) - 2, 4)
    title = cut(_title(child.born), title_room)
    room_left = max(left - cells(title) - 2, 4)
    if cells(doing) > room_left and doing.startswith("… "):  # the newest words are its end
        doing = f"… {doing[2 - room_left :]}"
    doing = cut(doing, room_left)
    pad = " " * max(left - cells(title) - 2 - cells(doing), 0)
    return (
        ("strong", head), ("dim", f"{title}: "), ("plain", doing + pad), ("dim", tail),
    )  # fmt: skip


def _by_code(name: str, family: Children) -> bool:
    child = family.child(name)
    return child is None or bool(child.born.key)


def child_lines(
    family: Children, moved: Mapping[str, ChildMoved], room: int
) -> Iterator[Line]:
    """`moved`: the progress of running subagents, by their addresses."""
    if not family.children:
        yield line("No subagents: the tool `task` starts one.")
    for child in family.children:
        yield from child_rows(child, moved, room)


def child_rows(child: Child, moved: Mapping[str, ChildMoved], room: int) -> Iterator[Line]:
    """One subagent, and those below it that run."""
    yield _row(child, moved.get(child.name), room)
    if child.stopped and child.runs:
        yield line(f"    asked to end: {on_one_line(child.stopped)}", "warn")
    for node, deeper in moved.items():
        if child.runs and node.startswith(f"{child.name}/"):
            yield _deeper(node, deeper, room)


def child_label(who: str, family: Children) -> str:
    """A subagent as it is named above its question, with a note if it has its own worktree."""
    child = family.child(re.split(r"[/ ]", who)[0])
    apart = child is not None and child.born.branch
    return f"{who}, in its own git worktree," if apart else who


def report_lines(sender: str, words: str, room: int) -> Iterator[Line]:
    """The report of a background subagent, without the tags that are for the model."""
    inner = _TAGS.sub("", words).strip()
    plain = inner.removeprefix(f"{sender} is done.").lstrip() or inner
    teammate = _TEAMMATE.match(words)
    who = f"{teammate[1]} ({sender})" if teammate else sender
    yield line(f"{on_one_line(who)} reports:", "strong")
    for row in folded(text_lines(plain, room - 2)):
        yield (("plain", "  "), *row)


def running_summary(
    family: Children, moved: Mapping[str, ChildMoved], since: int, *, doing: bool = True
) -> str:
    """The running subagents, and the usage of those started after `since`.

    "" if none runs. `moved` has the newest last. `doing`: and what the newest does.
    """
    running = family.running
    if not running:
        return ""
    ours = [child for child in family.children if child.seq > since or child.runs]
    used, dollars_, unpriced = 0, 0.0, False
    for child in ours:
        count, cost = _used(child, moved.get(child.name))
        used += count
        dollars_ += cost or 0.0
        unpriced = unpriced or cost is None
    money = f"{'at least ' if unpriced else ''}{dollars(dollars_)}" if dollars_ else ""
    first, *others = running
    who = f"{len(running)} subagents" if others else _who(first.born)
    newest = list(moved.values())[-1] if moved else None
    does = on_one_line(newest.label) if newest else "begins"
    if newest and (others or "/" in newest.node):
        child = family.child(newest.node)
        node = f"{on_one_line(newest.node)} ({on_one_line(newest.agent)})"
        does = f"{_who(child.born) if child else node}: {does}"
    spent = f"{tokens(used)} tokens" if used else ""
    return " · ".join(part for part in (who, spent, money, does if doing else "") if part)


def _used(child: Child, moved: ChildMoved | None) -> tuple[int, float | None]:
    """Tokens and money; None: some price is unknown."""
    if child.end is not None:
        spent = child.end.spent
        return spent.usage.input + spent.usage.output, spent.cost
    return (moved.tokens, moved.cost) if moved else (0, 0.0)


def _row(child: Child, moved: ChildMoved | None, room: int) -> Line:
    status = _state(child)
    style = _STATUS.get(status, "dim")
    head = f"{_who(child.born)} "
    spent = spent_row(child.end.spent) if child.end else _so_far(moved)
    doing = f" · {moved.label}" if moved and moved.label and child.runs else ""
    rest = f" · {_title(child.born)} · {spent}{doing}"
    left = room - len(head) - len(status) if room else len(rest)
    shown = cut(on_one_line(rest), max(left, 8))
    return (("strong", head), (style, status), ("dim", shown))


def _state(child: Child) -> str:
    """A teammate that runs works or waits."""
    if child.foreign:
        return "of another session"
    return _team_state(child) if child.born.teammate and child.runs else child.status


def _deeper(node: str, moved: ChildMoved, room: int) -> Line:
    title = on_one_line(moved.title) or on_one_line(moved.label)
    said = (
        f"    {on_one_line(node)} ({on_one_line(moved.agent)}) · {title} · {_so_far(moved)}"
    )
    return line(cut(said, room) if room else said, "dim")


def _so_far(moved: ChildMoved | None) -> str:
    if moved is None or (not moved.steps and not moved.tokens):
        return "nothing yet"
    cost = "price unknown" if moved.cost is None else dollars(moved.cost)
    return f"{tokens(moved.tokens)} tokens · {cost}"


def _who(born: ChildBorn) -> str:
    name, agent = on_one_line(born.child), on_one_line(born.agent)
    return f"{born.teammate} ({name}, {agent})" if born.teammate else f"{name} ({agent})"


def _title(born: ChildBorn) -> str:
    words = born.title or " ".join(born.task.split())
    return cut(on_one_line(words), _NAMED)


def team_rows(family: Children, room: int) -> list[Line]:
    """A row for each teammate: its name, what it does now, and its role."""
    return [
        line(
            cut(
                f"{born.teammate}  {born.child}  {_team_state(child)}  {_title(born)}", room
            )
        )
        for child in family.children
        if (born := child.born).teammate
    ]


def _team_state(child: Child) -> str:
    if child.end is not None:
        return f"ended, {child.end.status}"
    return "idle" if child.idle else "works"
