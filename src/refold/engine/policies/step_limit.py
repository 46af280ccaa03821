"""Limits the model responses of one turn: a warning, a last summary, the end.

The warning and the summary can each be switched off. `going_on` adds a note to a turn that the
user continues without a message.

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
    """Return a policy that ends a turn after `steps` responses (0: no limit).
    It warns the model `warn` responses before the end. If `summary`, one more response, without
    calls, sums up the turn. A limit that the user set for the session replaces `steps`.
    """

    def step_limit(view: View) -> EndTurn | Note | None:
        """Return the end of the turn at the limit, or a note shortly before it;
        otherwise None.
        """
        turn = view.turn
        allowed = view.rights.steps or steps
        if not allowed:
            return None
        left = allowed - turn.steps
        if left > 0:
            is_near = left <= warn < allowed
            is_due = is_near and "step_limit" not in turn.noted_by
            return Note(WRAP_UP.format(left=left)) if is_due else None
        # The model answered the request for a summary with a call, which counts as
        # empty because tools are off.
        has_refused_summary = turn.failed == EMPTY_RESPONSE
        if left == 0 and not has_refused_summary:
            if summary:
                return Note(SUMMARY_REQUEST, tools=False)
            if not _will_continue(view):
                return None  # the turn ends with this response anyway
        were = "response was" if allowed == 1 else "responses were"
        return EndTurn(
            "step_limit", f"{allowed} {were} allowed; continue the session for more"
        )

    return step_limit


def _will_continue(view: View) -> bool:
    """Whether the turn would continue after the newest response."""
    is_steered = any(m.said.when == "now" for m in view.conversation.undelivered)
    return is_steered or not is_last_word(view)


def going_on(view: View) -> Note | None:
    """Return a note that asks the model to continue, at the first step of a turn that began
    without a message of the user; otherwise None.
    """
    turn = view.turn
    return Note(GO_ON) if turn.why == "continue" and not turn.steps else None
