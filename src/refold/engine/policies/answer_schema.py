"""Validates the final answer against a JSON Schema before the turn ends.

An answer that does not match is returned to the model with the problem. Providers are asked to
enforce the schema, but what they enforce differs by model, tool set and part of JSON Schema,
and several accept the schema and ignore it. A script needs one guarantee: if a turn ends as
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


def require_schema(schema: Raw, max_corrections: int = 3) -> Policy:
    """Return a policy that asks again if the final answer does not match `schema`.

    It asks up to `max_corrections` times. Raises `ValueError` for a bad schema.
    """
    validator = Schema(schema)

    def shape(view: View) -> EndTurn | Reject | None:
        """Return a rejection if the final answer does not match; otherwise None.

        After too many rejections, return the end of the turn.
        """
        turn = view.turn
        if turn.stopped or turn.failed is not None or not _is_final_answer(view):
            return None
        problem = validator.problem(turn.answer)
        if not problem:
            return None
        if turn.rejected >= max_corrections:
            reason = (
                f"the answer did not match the schema after {max_corrections} corrections"
            )
            return EndTurn("failed", f"{reason}: {problem}")
        return Reject((SCHEMA_MISMATCH.format(problem=problem),))

    return shape


def _is_final_answer(view: View) -> bool:
    """Whether the newest response is one that would end the turn."""
    last = view.turn.last_answer
    if view.conversation.calls or last is None:
        return False
    if view.turn.final is not None:
        return True
    return is_last_word(view) and last.stop != "refused" and not last.message.calls
