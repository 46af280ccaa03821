"""Validates the final answer against a JSON Schema before the turn ends.

Providers are asked to enforce the schema, but not every one can. An answer that does not
match is returned to the model with the problem.

Providers promise different things for each model, tool set and part of JSON Schema, and
several accept the field and ignore it. A script needs one promise: if a turn ends as
`answered`, the answer matches.
"""

from msgspec import Raw

from refold.engine.decide import EndTurn, Policy, Reject
from refold.engine.policies.conversation import is_last_word
from refold.journal.state.fold import View
from refold.values.json_check import Schema

SCHEMA_MISMATCH = (
    "<reminder>Your answer does not fit: {problem}. Answer again with one JSON value that "
    "matches the schema you were given, and with nothing else.</reminder>"
)


def require_schema(schema: Raw, times: int = 3) -> Policy:
    """Ask for a valid answer up to `times` times. Raises `ValueError` for a bad schema."""
    known = Schema(schema)

    def shape(view: View) -> EndTurn | Reject | None:
        turn = view.turn
        if turn.stopped or turn.failed is not None or not _is_final_answer(view):
            return None
        problem = known.problem(turn.answer)
        if not problem:
            return None
        if turn.rejected >= times:
            reason = f"the answer did not match the schema after {times} corrections"
            return EndTurn("failed", f"{reason}: {problem}")
        return Reject((SCHEMA_MISMATCH.format(problem=problem),))

    return shape


def _is_final_answer(view: View) -> bool:
    """Whether there is an answer that would end the turn."""
    last = view.turn.last_answer
    if view.conversation.calls or last is None:
        return False
    if view.turn.final is not None:
        return True
    return is_last_word(view) and last.stop != "refused" and not last.message.calls
