"""Keeps a turn open while subagents run whose results it needs.

While a question is open, the turn waits for the subagents instead of pausing, because they
would pause with it. A stopped turn ends after them.
"""

from refold.engine.decide import Wait
from refold.engine.policies.conversation import is_last_word
from refold.journal.state.fold import View


def hearing_children(view: View) -> Wait | None:
    """Stands in the way of an end that the model wants, and of no other but a stop."""
    turn, calls = view.turn, view.conversation.calls
    if not any(child.born.background for child in view.children.running):
        return None
    if turn.stopped is not None:
        return None if any(call.result is None for call in calls) else Wait()
    if turn.final is not None or turn.failed is not None:
        return None
    if calls:
        asked = all(call.result is not None or call.stage == "asked" for call in calls)
        return Wait() if asked else None
    return Wait() if not view.conversation.undelivered and is_last_word(view) else None
