"""End a turn that does the same thing over and over.

"The same" is the same calls with the same arguments and the same results: a
build that is polled changes its output, a model that goes in circles does not.
"""

from refold.engine.decide import EndTurn, Note, Policy
from refold.journal.fold import View
from refold.values.messages import Message, ToolResult

NUDGE = (
    "<reminder>You have made the same call {times} times and got the same result. Calling "
    "it again will not help: use what you have, try something else, or give your "
    "answer.</reminder>"
)


def not_stuck(times: int = 3) -> Policy:
    """Say so after `times` alike in a row, and stop at the next."""

    def stuck(view: View) -> EndTurn | Note | None:
        if view.turn.steps < times or view.talk.calls:
            return None
        alike = _alike(view, times + 1)
        if alike > times:
            return EndTurn("stuck", f"{_name(view)} was called {alike} times alike")
        return Note(NUDGE.format(times=alike)) if alike == times else None

    return stuck


def _alike(view: View, enough: int) -> int:
    """How many of the newest answers, with what came of them, are the same."""
    found: list[tuple[object, ...]] = []
    results: Message | None = None
    at = len(view.talk.messages)
    while at > 0 and len(found) < min(enough, view.turn.steps):
        at -= 1
        message = view.talk.messages[at].message
        if message.role == "tool":
            results = message
        elif message.role == "assistant":
            if not message.calls or results is None:
                break
            found.append(_what(message, results))
            if found[-1] != found[0]:
                return len(found) - 1
            results = None
    return len(found)


def _what(asked: Message, came: Message) -> tuple[object, ...]:
    calls = tuple((call.name, bytes(call.arguments)) for call in asked.calls)
    return (calls, tuple(p.text for p in came.parts if isinstance(p, ToolResult)))


def _name(view: View) -> str:
    last = view.turn.last
    return last.message.calls[0].name if last and last.message.calls else "it"
