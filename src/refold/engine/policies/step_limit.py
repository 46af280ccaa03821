"""Limits the model responses of one turn: a warning, a last summary, the end.

The warning and the summary can each be switched off. `going_on` lets the user type
"continue" without a message.

`/iterations` sets the limit by an event (`StepLimitSet`), from the running turn on. A field
in memory would be lost in a crash, and unknown to a replay.
"""

from refold.engine.answer_draft import EMPTY_RESPONSE
from refold.engine.decide import EndTurn, Note, Policy
from refold.engine.policies.conversation import is_last_word
from refold.journal.state.fold import View

WRAP_UP = (
    "<reminder>{left} more answers are allowed in this turn. Finish what you can and "
    "leave the rest in a state that is easy to continue from.</reminder>"
)
SUMMARY_REQUEST = (
    "<reminder>The step limit of this turn is reached. Call no tool now. Say what was "
    "done, what was not, and what should come next.</reminder>"
)
GO_ON = "<reminder>Continue where you stopped.</reminder>"


def at_most(steps: int, warn: int = 3, *, summary: bool = True) -> Policy:
    """End a turn after `steps` responses, 0 for no limit; warn the model `warn` before.

    With `summary`, one more response, without calls, sums up the turn. A limit that the
    user set for the session replaces `steps`.
    """

    def step_limit(view: View) -> EndTurn | Note | None:
        turn = view.turn
        allowed = view.rights.steps or steps
        if not allowed:
            return None
        left = allowed - turn.steps
        # A call where tools are off counts as an empty answer.
        silent = left == 0 and turn.failed == EMPTY_RESPONSE
        if left < 0 or silent or (left == 0 and not summary and _will_continue(view)):
            were = "response was" if allowed == 1 else "responses were"
            return EndTurn(
                "step_limit", f"{allowed} {were} allowed; continue the session for more"
            )
        if left == 0:
            return Note(SUMMARY_REQUEST, tools=False) if summary else None
        if left <= warn < allowed and "step_limit" not in turn.noted_by:
            return Note(WRAP_UP.format(left=left))
        return None

    return step_limit


def _will_continue(view: View) -> bool:
    """Whether the turn would continue after the newest answer."""
    steered = any(words.said.when == "now" for words in view.conversation.undelivered)
    return steered or not is_last_word(view)


def going_on(view: View) -> Note | None:
    """Tell the model to continue: a continued turn begins without a message of the user."""
    turn = view.turn
    return Note(GO_ON) if turn.why == "continue" and not turn.steps else None
