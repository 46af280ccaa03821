"""Policies that end a turn without an answer, or keep it open after one.

The causes are a stop by the user, subagents that still run, and a response that the output
limit cut off or its provider paused. `conversation` ends a turn by an answer; `step_limit`
and `budget` end it by a limit.
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
    """Return the action that a stop requires; None without a stop.

    The open calls are settled first, and then the turn ends.
    """
    stop = view.turn.stopped
    if stop is None:
        return None
    open_calls = tuple(c.call.id for c in view.conversation.calls if c.result is None)
    if open_calls:
        return SettleCalls(open_calls, stop.reason)
    return EndTurn(stop.outcome, stop.reason)


def after_a_stop(view: View) -> Note | None:
    """Return a note, once after a stop, that the last turn was not finished."""
    turn = view.turn
    was_stopped = turn.outcome in ("interrupted", "cancelled")  # of the last turn
    is_first_step = not turn.steps and turn.why == "message"
    return Note(CUT_SHORT) if was_stopped and is_first_step else None


def wait_for_children(view: View) -> Wait | None:
    """Return `Wait` while subagents run whose results the turn needs; otherwise None.

    After an answer or a stop, the turn ends only when the subagents have ended; other causes
    end it at once. While a question is open, the turn waits for the subagents instead of
    pausing, because they would pause with it.
    """
    turn, calls = view.turn, view.conversation.calls
    if not any(child.born.background for child in view.children.running):
        return None
    if turn.stopped is not None:
        # The open calls end first.
        has_open_call = any(call.result is None for call in calls)
        return None if has_open_call else Wait()
    if turn.final is not None or turn.failed is not None:
        return None
    if calls:
        # A call that can run is run first.
        can_run = any(call.result is None and call.stage != "asked" for call in calls)
        return None if can_run else Wait()
    if view.conversation.undelivered:
        return None  # the messages are delivered first
    return Wait() if is_last_word(view) else None


def continue_cut_response(times: int = 3, *, code: bool = False) -> Policy:
    """Return a policy that asks for the rest of a response, up to `times` in a row.

    If `code`, the model calls tools by code in its text.

    The pieces are separate messages in requests, so that prompt caches stay valid;
    `journal.state.turn` joins them for the result of the turn. The draft of the response
    drops a call that was cut off.
    """

    def continuation(view: View) -> EndTurn | Note | None:
        """Return a note that asks for the rest of a cut response or, after too many, the end
        of the turn; otherwise None.
        """
        turn = view.turn
        if not turn.cut_in_a_row or turn.last_answer is None:
            return None
        if turn.cut_in_a_row > times:
            if turn.last_answer.paused:
                cause = "provider paused the response"
            else:
                cause = "output limit cut the response off"
            reason = f"the {cause} {turn.cut_in_a_row} times in a row"
            return EndTurn("failed", f"{reason}; continue the session to try again")
        if turn.last_answer.paused:
            return Note(RESPONSE_PAUSED)
        if code:
            return Note(CODE_CUT)
        return Note(TEXT_CUT if turn.last_answer.message.text else CALL_CUT)

    return continuation
