"""For agents that act by code: the first response without code does not end a task.

The second one is the answer (`conversation`).
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
    """Remind the model once in a turn."""
    turn, last = view.turn, view.turn.last_answer
    over = turn.stopped or turn.failed is not None or turn.final is not None
    if over or view.conversation.calls or last is None or turn.rejected:
        return None
    wanted = is_last_word(view) and last.stop != "refused" and not last.partial
    return Reject((NO_CODE,)) if wanted and not last.message.calls else None
