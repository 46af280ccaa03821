"""Asks an agent that acts by code once more, if its response contains no code.

The second response without code is the answer (`conversation`).
"""

from refold.engine.decide import Reject
from refold.engine.policies.conversation import is_last_word
from refold.journal.state.fold import View

NO_CODE = (
    "<reminder>There was no code in your answer, so nothing was done. Write Python in a "
    "```python block to continue, or FINAL(answer) in one to end the task. Words alone, once "
    "more, are taken as your answer.</reminder>"
)


def code_or_final(view: View) -> Reject | None:
    """Reject the first response of a turn that has no code, and ask the model for code."""
    turn, last = view.turn, view.turn.last_answer
    if turn.stopped or turn.failed is not None or turn.final is not None:
        return None  # the turn ends
    if view.conversation.calls or last is None or turn.rejected:
        return None
    is_complete = is_last_word(view) and last.stop != "refused" and not last.partial
    has_code = bool(last.message.calls)
    return Reject((NO_CODE,)) if is_complete and not has_code else None
