"""The result of a turn, as a program gets it."""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Struct

from refold.client.questions import Question, denial_question
from refold.journal.state.fold import View
from refold.values.usage import Usage
from refold.views.stream_json.turn_result import result


class Result(Struct, frozen=True):
    """The result of a turn.

    `outcome` is one of answered, final, plan_ready, interrupted, cancelled, step_limit,
    budget, stuck, denied, failed. `step_limit` and `budget` are pauses: `Session.continue_`
    continues; after `plan_ready` the plan waits for `Session.approve_plan` or
    `reject_plan`. `files` maps each changed path to "created", "changed" or "deleted";
    `cost` is None if a price is unknown. `data` is the answer as data, if the agent has a
    schema and the answer matches it. `warnings` are facts of the journal, whatever the
    answer claims: the last command failed, or a file was not written.
    """

    outcome: str
    reason: str
    text: str
    session_id: str
    usage: Usage
    cost: float | None
    denials: tuple[Question, ...]
    files: Mapping[str, str]
    data: Any = None
    warnings: tuple[str, ...] = ()


def result_of(view: View, id_: str) -> Result:
    """Return the result of the last turn of the session `id_`."""
    turn = view.turn
    document = result(view, id_, seconds=0.0)
    return Result(
        outcome=document.outcome,
        reason=document.reason,
        text=turn.answer,
        session_id=id_,
        usage=turn.spent.usage,
        cost=turn.spent.cost,
        denials=tuple(
            denial_question(denial.call, denial.reason) for denial in turn.denials
        ),
        files={change.path: change.kind for change in document.files},
        data=None if document.structured is UNSET else document.structured,
        warnings=tuple(document.warnings),
    )
