"""What ends a turn before its answer, or keeps it open after one.

A stop by the user, subagents that still run, and a response that the output limit cut off or
its provider paused. The end by an answer is in `conversation`, that by a limit in `step_limit`
and `budget`.
"""

from refold.engine.decide import EndTurn, Note, Policy, SettleCalls, Wait
from refold.engine.policies.conversation import is_last_word
from refold.journal.state.fold import View

CUT_SHORT = (
    "<reminder>The person stopped your last turn before it was done. "
    "Do not continue it unless they ask.</reminder>"
)
TEXT_CUT = (
    "<reminder>The output limit cut your answer off. Continue exactly where it stopped, "
    "repeating nothing.</reminder>"
)
CALL_CUT = (
    "<reminder>The output limit cut your answer off before its tool calls were complete, so "
    "none was run. Call again, in smaller pieces.</reminder>"
)
CODE_CUT = (
    "<reminder>The output limit cut your answer off, so none of its code was run. Write "
    "it again, in smaller pieces.</reminder>"
)
RESPONSE_PAUSED = (
    "<reminder>The provider paused your answer while it called tools for you. Continue where "
    "it stopped, repeating nothing.</reminder>"
)


def stopping(view: View) -> SettleCalls | EndTurn | None:
    stop = view.turn.stopped
    if stop is None:
        return None
    left = tuple(c.call.id for c in view.conversation.calls if c.result is None)
    return SettleCalls(left, stop.reason) if left else EndTurn(stop.outcome, stop.reason)


def after_a_stop(view: View) -> Note | None:
    """Tell the model, once, that its last turn was not finished."""
    turn = view.turn
    stopped = turn.outcome in ("interrupted", "cancelled")
    return Note(CUT_SHORT) if stopped and not turn.steps and turn.why == "message" else None


def wait_for_children(view: View) -> Wait | None:
    """Keep the turn open while subagents run whose results it needs.

    An end by an answer and a stop are delayed, other ends are not. While a question is
    open, the turn waits for the subagents instead of pausing, because they would pause with
    it. A stopped turn ends after them.
    """
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


def continue_cut_response(times: int = 3, *, code: bool = False) -> Policy:
    """Ask for the rest of a response, up to `times` in a row. With `code`, calls are text.

    The pieces stay separate messages in requests, so that prompt caches stay valid;
    `journal.state.turn` joins them for the result of the turn. A call that was cut off is
    dropped by the draft of the response.
    """

    def continuation(view: View) -> EndTurn | Note | None:
        turn = view.turn
        if not turn.cut_in_a_row or turn.last_answer is None:
            return None
        if turn.cut_in_a_row > times:
            cause = "provider paused the response"
            if not turn.last_answer.paused:
                cause = "output limit cut the response off"
            reason = f"the {cause} {turn.cut_in_a_row} times in a row"
            return EndTurn("failed", f"{reason}; continue the session to try again")
        if turn.last_answer.paused:
            return Note(RESPONSE_PAUSED)
        if code:
            return Note(CODE_CUT)
        return Note(TEXT_CUT if turn.last_answer.message.text else CALL_CUT)

    return continuation
