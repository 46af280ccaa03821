"""What a compaction preserves: taken from the journal, not from a model. Pure.

The user's own messages, the todos, the plan and the changed files are repeated in full as
far as they fit, each with the number of its event, so that the original can be found. The
running background commands are named.
"""

from collections.abc import Iterable, Iterator, Sequence

from refold.journal.state.conversation import UserText
from refold.journal.state.fold import View
from refold.values.printable_names import shorten

PRESERVED_START = "<reminder>The conversation before this was compacted."
_HOW = (
    " What follows is taken from the journal, word for word. Numbers in [ ] are events: "
    "history_search finds anything that was said or done before, and shows an event whole."
)
_SAID = {True: "The person said:", False: "You were told:"}
_LEAST = 200  # characters of words that are cut
_TODOS, _PLAN, _FILES = 0.25, 0.25, 0.15  # of the room, at most
_SUBJECT = 300  # characters of a todo
_MOST_FILES = 40


def preserved_text(view: View, kept: int, room: int, why: str = "") -> str:
    """The preserved text of a conversation that stays from the message with seq `kept` on;
    0: none stays.

    `room` is in characters. `why` says what became of the rest, if there is no summary.
    """
    rest = [
        *_todos(view, int(room * _TODOS)),
        *_plan(view, int(room * _PLAN)),
        *_files(view, int(room * _FILES)),
        *_running(view),
    ]
    left = max(_LEAST, room - sum(len(part) for part in rest))
    told = [w for w in view.conversation.user_messages if not kept or w.delivered < kept]
    parts = [PRESERVED_START + _HOW, *([why] if why else []), *_said(told, left), *rest]
    return "\n\n".join(parts).replace("</reminder>", "<\\/reminder>") + "</reminder>"


def _said(words: Sequence[UserText], room: int) -> Iterator[str]:
    """First and newest words whole; where there is no room, those between are cut."""
    if not words:
        return
    sizes = _shares([len(w.text) + 12 for w in words], room)
    lines = [_cut(w, size) for w, size in zip(words, sizes, strict=True) if size]
    if gone := [w.seq for w, size in zip(words, sizes, strict=True) if not size]:
        lines.insert(
            1, f"[… {len(gone)} more, events {gone[0]} to {gone[-1]}: history_search …]"
        )
    yield f"{_SAID[words[0].person]}\n" + "\n".join(lines)


def _shares(sizes: Sequence[int], room: int) -> list[int]:
    """The room for each entry. The first and the newest come first.

    Entries without room are merged into one line, after the first.
    """
    given = [0] * len(sizes)
    for n, at in enumerate((0, *range(len(sizes) - 1, 0, -1))):
        half = room // 2 if n == 0 and len(sizes) > 1 else room
        if n > 1 and half < min(sizes[at], _LEAST):
            break
        given[at] = min(sizes[at], max(half, _LEAST))
        room = max(0, room - given[at])
    return given


def _cut(words: UserText, size: int) -> str:
    if len(words.text) + 12 <= size:
        return f"[{words.seq}] {words.text}"
    half = max(40, (size - 60) // 2)
    left = len(words.text) - 2 * half
    if left <= 0:
        return f"[{words.seq}] {words.text}"
    note = f" [… {left:,} characters more: history_search with event {words.seq} …] "
    return f"[{words.seq}] {words.text[:half]}{note}{words.text[-half:]}"


def _todos(view: View, room: int) -> Iterator[str]:
    """If there is no room for all, open todos are kept first."""
    todos = view.conversation.todos
    by_need = sorted(range(len(todos)), key=lambda n: not todos[n].open)
    lines = [f"- [{todo.status}] {_short(todo.subject)}" for todo in todos]
    stay = set(_fitting([(n, len(lines[n])) for n in by_need], max(room, _LEAST)))
    told = [line for n, line in enumerate(lines) if n in stay]
    if left := len(lines) - len(told):
        told.append(f"- … and {left} more: history_search with todo_write")
    if told:
        yield "Todos:\n" + "\n".join(told)


def _fitting(sizes: Iterable[tuple[int, int]], room: int) -> Iterator[int]:
    for at, size in sizes:
        room -= size + 1
        if room < 0:
            return
        yield at


def _short(subject: str) -> str:
    return shorten(" ".join(subject.split()), _SUBJECT)


def _plan(view: View, room: int) -> Iterator[str]:
    """The plan that is carried out or waits; one that was rejected is history."""
    plan = view.plans.made[-1] if view.plans.made else None
    if plan is None or plan.state not in ("approved", "shown"):
        return
    text = plan.text
    if len(text) > max(room, _LEAST):
        note = f"\n[… the rest: history_search with event {plan.seq} …]"
        text = text[: max(room, _LEAST)] + note
    yield f"The plan ({plan.state}) [{plan.seq}]:\n{text}"


def _running(view: View) -> Iterator[str]:
    """The commands in the background, which are few: the model may have to stop them."""
    lines = [
        f"- {each.name}: {_short(each.started.command)}" for each in view.background.running
    ]
    if lines:
        yield "Commands that run in the background:\n" + "\n".join(lines)


def _files(view: View, room: int) -> Iterator[str]:
    """The newest ones, as far as there is room."""
    lines = [f"- {kind} {path}" for path, kind in view.changed_files.files.items()]
    sizes = ((n, len(lines[n])) for n in range(len(lines) - 1, -1, -1))
    told = [lines[n] for n in _fitting(sizes, max(room, _LEAST))][:_MOST_FILES][::-1]
    if left := len(lines) - len(told):
        told.insert(0, f"- … and {left} before these")
    if lines:
        yield "Files changed in this session:\n" + "\n".join(told)
