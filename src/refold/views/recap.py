"""The last few words of a session, for somebody who comes back to it.

Only the end of the talk is looked at: who resumes a long one does not wait for it.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from refold.journal.fold import View
from refold.journal.talk import Words
from refold.values.messages import Spoken
from refold.views.cells import cut
from refold.views.escape import visible
from refold.views.styled import Line

_EXCHANGES = 3
_ROWS = 4  # of one answer
_BACK = 200  # messages that are looked through for the words of an answer


def recap(view: View, room: int, sign: str = "›") -> list[Line]:
    """The last exchanges, shortened: what was asked, and the last answer to it.

    `sign` stands before what was asked, as it did at the prompt.
    """
    messages, end = view.talk.messages, len(view.talk.messages)
    exchanges = list[tuple[str, str]]()
    for told in _newest(view.talk.said):
        at = bisect_left(messages, told[0].heard, key=lambda spoken: spoken.seq)
        if at == len(messages) or messages[at].seq != told[0].heard:
            break  # told shorter since: neither words nor answer stand there any more
        words = " ".join(each.text for each in told)
        exchanges.append((words, _answer(messages[max(at + 1, end - _BACK) : end])))
        end = at
        if len(exchanges) == _EXCHANGES:
            break
    return [
        row
        for words, said in reversed(exchanges)
        for row in _exchange(f"{sign} {words}", said, room)
    ]


def _newest(said: Sequence[Words]) -> Iterator[list[Words]]:
    """What was said, from the last; together what the model was told together."""
    at = len(said)
    while at:
        heard, together = said[at - 1].heard, list[Words]()
        while at and said[at - 1].heard == heard:
            at -= 1
            together.insert(0, said[at])
        yield together


def _answer(spoken: Sequence[Spoken]) -> str:
    """The last words in these messages."""
    said = (e.message.text for e in reversed(spoken) if e.message.role == "assistant")
    return next((text for text in said if text), "")


def _exchange(words: str, answer: str, room: int) -> Iterator[Line]:
    yield (("person", cut(" ".join(visible(words).split()), room)),)
    rows = [row for row in visible(answer).split("\n") if row.strip()]
    left = len(rows) - _ROWS
    if left > 0:
        yield (("dim", f"  … {left} lines …"),)
    for row in rows[-_ROWS:]:
        yield (("dim", f"  {cut(row, room - 2)}"),)
