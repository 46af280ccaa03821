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
_SOURCE_NOTE = (
    " What follows is taken from the journal, word for word. Numbers in [ ] are events: "
    "history_search finds earlier messages and calls, and shows a whole event."
)
_SPEAKER_LINES = {True: "The person said:", False: "You were told:"}
_MIN_CHARS = 200  # of a text that is cut
_TODOS_SHARE, _PLAN_SHARE, _FILES_SHARE = 0.25, 0.25, 0.15  # of the room, at most
_MAX_TODO_CHARS = 300  # of a todo
_MAX_FILES = 40


def make_preserved_text(
    view: View, first_seq: int, max_chars: int, reason: str = ""
) -> str:
    """The preserved text, if the messages from seq `first_seq` on stay; 0: none stays.

    `max_chars` is in characters. `reason` says what became of the rest, if there is no summary.
    """
    sections = [
        *_todos(view, int(max_chars * _TODOS_SHARE)),
        *_plan(view, int(max_chars * _PLAN_SHARE)),
        *_changed_files(view, int(max_chars * _FILES_SHARE)),
        *_background_commands(view),
    ]
    left = max(_MIN_CHARS, max_chars - sum(len(part) for part in sections))
    messages = [
        w
        for w in view.conversation.user_messages
        if not first_seq or w.delivered < first_seq
    ]
    parts = [
        PRESERVED_START + _SOURCE_NOTE,
        *([reason] if reason else []),
        *_user_messages(messages, left),
        *sections,
    ]
    return "\n\n".join(parts).replace("</reminder>", "<\\/reminder>") + "</reminder>"


def _user_messages(words: Sequence[UserText], max_chars: int) -> Iterator[str]:
    """The first and newest messages as they are; if there is no room, those between are cut."""
    if not words:
        return
    sizes = _divide_chars([len(w.text) + 12 for w in words], max_chars)
    lines = [
        _shorten_message(w, size) for w, size in zip(words, sizes, strict=True) if size
    ]
    if gone := [w.seq for w, size in zip(words, sizes, strict=True) if not size]:
        lines.insert(
            1, f"[… {len(gone)} more, events {gone[0]} to {gone[-1]}: history_search …]"
        )
    yield f"{_SPEAKER_LINES[words[0].person]}\n" + "\n".join(lines)


def _divide_chars(sizes: Sequence[int], max_chars: int) -> list[int]:
    """The room for each entry. The first and the newest come first.

    Entries without room are merged into one line, after the first.
    """
    shares = [0] * len(sizes)
    for n, index in enumerate((0, *range(len(sizes) - 1, 0, -1))):
        half = max_chars // 2 if n == 0 and len(sizes) > 1 else max_chars
        if n > 1 and half < min(sizes[index], _MIN_CHARS):
            break
        shares[index] = min(sizes[index], max(half, _MIN_CHARS))
        max_chars = max(0, max_chars - shares[index])
    return shares


def _shorten_message(words: UserText, size: int) -> str:
    if len(words.text) + 12 <= size:
        return f"[{words.seq}] {words.text}"
    half = max(40, (size - 60) // 2)
    left = len(words.text) - 2 * half
    if left <= 0:
        return f"[{words.seq}] {words.text}"
    note = f" [… {left:,} characters more: history_search with event {words.seq} …] "
    return f"[{words.seq}] {words.text[:half]}{note}{words.text[-half:]}"


def _todos(view: View, max_chars: int) -> Iterator[str]:
    """The todos; if there is no room for all, the open ones come first."""
    todos = view.conversation.todos
    by_need = sorted(range(len(todos)), key=lambda n: not todos[n].open)
    lines = [f"- [{todo.status}] {_shorten(todo.subject)}" for todo in todos]
    stay = set(
        _take_fitting([(n, len(lines[n])) for n in by_need], max(max_chars, _MIN_CHARS))
    )
    shown = [line for n, line in enumerate(lines) if n in stay]
    if left := len(lines) - len(shown):
        shown.append(f"- … and {left} more: history_search with todo_write")
    if shown:
        yield "Todos:\n" + "\n".join(shown)


def _take_fitting(sizes: Iterable[tuple[int, int]], max_chars: int) -> Iterator[int]:
    for index, size in sizes:
        max_chars -= size + 1
        if max_chars < 0:
            return
        yield index


def _shorten(subject: str) -> str:
    return shorten(" ".join(subject.split()), _MAX_TODO_CHARS)


def _plan(view: View, max_chars: int) -> Iterator[str]:
    """The plan that is carried out or waits; one that was rejected is history."""
    plan = view.plans.made[-1] if view.plans.made else None
    if plan is None or plan.state not in ("approved", "shown"):
        return
    text = plan.text
    if len(text) > max(max_chars, _MIN_CHARS):
        note = f"\n[… the rest: history_search with event {plan.seq} …]"
        text = text[: max(max_chars, _MIN_CHARS)] + note
    yield f"The plan ({plan.state}) [{plan.seq}]:\n{text}"


def _background_commands(view: View) -> Iterator[str]:
    """The commands in the background, all of them: the model may have to stop them."""
    lines = [
        f"- {command.name}: {_shorten(command.started.command)}"
        for command in view.background.running
    ]
    if lines:
        yield "Commands that run in the background:\n" + "\n".join(lines)


def _changed_files(view: View, max_chars: int) -> Iterator[str]:
    """The newest changed files, as far as there is room."""
    lines = [f"- {kind} {path}" for path, kind in view.changed_files.files.items()]
    sizes = ((n, len(lines[n])) for n in range(len(lines) - 1, -1, -1))
    shown = [lines[n] for n in _take_fitting(sizes, max(max_chars, _MIN_CHARS))][
        :_MAX_FILES
    ][::-1]
    if left := len(lines) - len(shown):
        shown.insert(0, f"- … and {left} before these")
    if lines:
        yield "Files changed in this session:\n" + "\n".join(shown)
