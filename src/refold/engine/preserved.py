"""Makes the text that a compaction preserves, from the journal and without a model. Pure.

The user's own messages, the todos, the plan and the changed files are repeated in full if
they fit. Each has the number of its event, so that the original can be found. The running
background commands are listed, too.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from refold.journal.state.conversation import UserText
from refold.journal.state.fold import View
from refold.values.printable_names import shorten

PRESERVED_START = "<reminder>The conversation before this was compacted."
_SOURCE_NOTE = (
    " What follows is taken from the journal, word for word. Numbers in [ ] are events: "
    "history_search finds earlier messages and calls, and shows a whole event."
)
_MIN_CHARS = 200  # no text is cut to less
_TODOS_SHARE, _PLAN_SHARE, _FILES_SHARE = 0.25, 0.25, 0.15  # maximum shares of the space
_SEQ_CHARS = 12  # of an event number in brackets, before a message
_NOTE_CHARS = 60  # of the note in a shortened message
_MIN_HALF_CHARS = 40  # of the beginning and of the end that stay of a shortened message
_MAX_TODO_CHARS = 300  # of one todo
_MAX_FILES = 40


def make_preserved_text(
    view: View, first_seq: int, max_chars: int, reason: str = ""
) -> str:
    """Return the preserved text, at most about `max_chars` long.

    The messages from event `first_seq` on stay in the conversation; if it is 0, no message
    stays. `reason` says why the removed messages have no summary; it is "" if they have one.
    """
    sections = [
        *_todos(view, int(max_chars * _TODOS_SHARE)),
        *_plan(view, int(max_chars * _PLAN_SHARE)),
        *_changed_files(view, int(max_chars * _FILES_SHARE)),
        *_background_commands(view),
    ]
    remaining = max(_MIN_CHARS, max_chars - sum(len(part) for part in sections))
    messages = [
        message
        for message in view.conversation.user_messages
        if not first_seq or message.delivered < first_seq
    ]
    parts = [
        PRESERVED_START + _SOURCE_NOTE,
        *([reason] if reason else []),
        *_user_messages(messages, remaining),
        *sections,
    ]
    # The texts come from users and tools, and must not end the reminder.
    text = "\n\n".join(parts).replace("</reminder>", "<\\/reminder>")
    return f"{text}</reminder>"  # `PRESERVED_START` has opened it


def _user_messages(messages: Sequence[UserText], max_chars: int) -> Iterator[str]:
    """Yield a section with the user's messages, at most about `max_chars` long.

    If space is short, the first and the newest messages stay unchanged, and the messages
    between them are cut or omitted.
    """
    if not messages:
        return
    sizes = _divide_chars(
        [len(message.text) + _SEQ_CHARS for message in messages], max_chars
    )
    lines, omitted = list[str](), list[int]()
    for message, size in zip(messages, sizes, strict=True):
        if size:
            lines.append(_shorten_message(message, size))
        else:
            omitted.append(message.seq)
    if omitted:  # they stood after the first message
        events = f"events {omitted[0]} to {omitted[-1]}"
        lines.insert(1, f"[… {len(omitted)} more, {events}: history_search …]")
    # The heading names the sender of the first message: the user, or a subagent's parent.
    heading = "The person said:" if messages[0].person else "You were told:"
    yield f"{heading}\n" + "\n".join(lines)


def _divide_chars(sizes: Sequence[int], max_chars: int) -> list[int]:
    """Return the number of characters for each entry; 0 for an entry that is omitted.

    The first entry gets at most half of `max_chars`, and the newest ones get the rest. The
    first and the newest entry always get some space, even if there is too little.
    """
    shares = [0] * len(sizes)
    newest = len(sizes) - 1
    chars_left = max_chars
    newest_first = range(newest, 0, -1)  # without the first entry, which has the index 0
    for index in (0, *newest_first):
        is_first_of_several = index == 0 and newest > 0
        available = chars_left // 2 if is_first_of_several else chars_left
        min_chars = min(sizes[index], _MIN_CHARS)
        if available < min_chars and index not in (0, newest):
            break
        shares[index] = min(sizes[index], max(available, _MIN_CHARS))
        chars_left = max(0, chars_left - shares[index])
    return shares


def _shorten_message(message: UserText, size: int) -> str:
    """Return the text with its number, shortened in the middle to about `size` characters."""
    seq, text = message.seq, message.text
    half = max(_MIN_HALF_CHARS, (size - _NOTE_CHARS) // 2)
    omitted = len(text) - 2 * half
    if len(text) + _SEQ_CHARS <= size or omitted <= 0:
        return f"[{seq}] {text}"
    note = f" [… {omitted:,} characters more: history_search with event {seq} …] "
    return f"[{seq}] {text[:half]}{note}{text[-half:]}"


def _todos(view: View, max_chars: int) -> Iterator[str]:
    """Yield a section with the todos. If not all fit in `max_chars`, open todos are
    preferred.
    """
    todos = view.conversation.todos
    open_first = sorted(range(len(todos)), key=lambda n: not todos[n].open)
    lines = [f"- [{todo.status}] {_shorten(todo.subject)}" for todo in todos]
    sizes = [(n, len(lines[n])) for n in open_first]
    fitting = set(_take_fitting(sizes, max(max_chars, _MIN_CHARS)))
    shown = [line for n, line in enumerate(lines) if n in fitting]
    if omitted := len(lines) - len(shown):
        shown.append(f"- … and {omitted} more: history_search with todo_write")
    if shown:
        yield "Todos:\n" + "\n".join(shown)


def _take_fitting(sizes: Iterable[tuple[int, int]], max_chars: int) -> Iterator[int]:
    """Yield the indexes of the (index, size) pairs in `sizes`, in their order, as long as the
    lines of these sizes fit in `max_chars`.
    """
    chars_left = max_chars
    for index, size in sizes:
        chars_left -= size + len("\n")
        if chars_left < 0:
            return
        yield index


def _shorten(subject: str) -> str:
    return shorten(" ".join(subject.split()), _MAX_TODO_CHARS)


def _plan(view: View, max_chars: int) -> Iterator[str]:
    """Yield a section with the newest plan, unless it was rejected."""
    plan = view.plans.made[-1] if view.plans.made else None
    if plan is None or plan.state not in ("approved", "shown"):
        return
    text = plan.text
    limit = max(max_chars, _MIN_CHARS)
    if len(text) > limit:
        note = f"\n[… the rest: history_search with event {plan.seq} …]"
        text = text[:limit] + note
    yield f"The plan ({plan.state}) [{plan.seq}]:\n{text}"


def _background_commands(view: View) -> Iterator[str]:
    """Yield a section with all running background commands.

    None is left out, because the model may have to stop it.
    """
    lines = [
        f"- {command.name}: {_shorten(command.started.command)}"
        for command in view.background.running
    ]
    if lines:
        yield "Commands that run in the background:\n" + "\n".join(lines)


def _changed_files(view: View, max_chars: int) -> Iterator[str]:
    """Yield a section with the newest changed files, as many as fit in `max_chars`."""
    lines = [f"- {kind} {path}" for path, kind in view.changed_files.files.items()]
    newest_first = ((n, len(lines[n])) for n in reversed(range(len(lines))))
    fitting = islice(_take_fitting(newest_first, max(max_chars, _MIN_CHARS)), _MAX_FILES)
    shown = [lines[n] for n in sorted(fitting)]
    if omitted := len(lines) - len(shown):
        shown.insert(0, f"- … and {omitted} before these")
    if lines:
        yield "Files changed in this session:\n" + "\n".join(shown)
