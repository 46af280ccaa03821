"""Asks the model to continue a response that the output limit cut off, or its provider paused.

The pieces stay separate messages in requests, so that prompt caches stay valid;
`journal.state.turn` joins them for the result of the turn. A call that was cut off is
dropped by the draft of the response.
"""

from refold.engine.decide import EndTurn, Note, Policy
from refold.journal.state.fold import View

WORDS_CUT = (
    "<reminder>The output limit cut your answer off. Go on exactly where it stopped, "
    "repeating nothing.</reminder>"
)
CALL_CUT = (
    "<reminder>The output limit cut your answer off before its tool calls were whole, so "
    "none was run. Call again, in smaller pieces.</reminder>"
)

CODE_CUT = (
    "<reminder>The output limit cut your answer off, so none of its code was run. Write "
    "it again, in smaller pieces.</reminder>"
)

PAUSED = (
    "<reminder>The provider paused your answer while it called tools for you. Go on where "
    "it stopped, repeating nothing.</reminder>"
)


def joined_up(times: int = 3, *, code: bool = False) -> Policy:
    """Ask for more, up to `times` in a row. With `code`, calls are part of the text."""

    def continuation(view: View) -> EndTurn | Note | None:
        turn = view.turn
        if not turn.cut_in_a_row or turn.last_answer is None:
            return None
        if turn.cut_in_a_row > times:
            what = "provider paused the response"
            if not turn.last_answer.paused:
                what = "output limit cut the response off"
            reason = f"the {what} {turn.cut_in_a_row} times in a row"
            return EndTurn("failed", f"{reason}; continue the session to try again")
        if turn.last_answer.paused:
            return Note(PAUSED)
        if code:
            return Note(CODE_CUT)
        return Note(WORDS_CUT if turn.last_answer.message.text else CALL_CUT)

    return continuation
