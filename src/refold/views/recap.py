"""The last few words of a session, for somebody who comes back to it."""

from collections.abc import Iterator

from refold.journal.fold import View
from refold.values.messages import Message, Text
from refold.views.cells import cut
from refold.views.escape import visible
from refold.views.styled import Line

_EXCHANGES = 3
_ROWS = 4  # of one answer


def recap(view: View, room: int) -> list[Line]:
    """The last exchanges, shortened: what was asked, and the last answer to it."""
    exchanges: list[tuple[str, str]] = []
    said_by_them = {each.text for each in view.talk.said}
    answer = ""
    for at in range(len(view.talk.messages) - 1, -1, -1):
        message = view.talk.messages[at].message
        if message.role == "assistant":
            answer = answer or message.text
        elif message.role == "user" and (words := _words(message, said_by_them)):
            exchanges.append((words, answer))
            answer = ""
        if len(exchanges) == _EXCHANGES:
            break
    return [
        row for words, said in reversed(exchanges) for row in _exchange(words, said, room)
    ]


def _exchange(words: str, answer: str, room: int) -> Iterator[Line]:
    yield (("person", f"› {cut(' '.join(visible(words).split()), room - 2)}"),)
    rows = [row for row in visible(answer).split("\n") if row.strip()]
    left = len(rows) - _ROWS
    if left > 0:
        yield (("dim", f"  … {left} lines …"),)
    for row in rows[-_ROWS:]:
        yield (("dim", f"  {cut(row, room - 2)}"),)


def _words(message: Message, known: set[str]) -> str:
    """What a person said; reminders to the model and summaries are none of it."""
    parts = (part.text for part in message.parts if isinstance(part, Text))
    return " ".join(text for text in parts if text in known)
