"""The order of policies decides between proposals of one rank: each pair that matters."""

from collections.abc import Sequence

import pytest
from msgspec import Raw
from msgspec.structs import replace

from refold.app.policies import policies
from refold.config.settings import Settings
from refold.engine.decide import EndTurn, Policy, decide
from refold.journal.events.kinds import ModelAnswered, Stopped
from refold.journal.state.conversation import Conversation, OpenCall
from refold.journal.state.fold import View
from refold.journal.state.turn import Turn
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text, ToolCall
from refold.values.usage import Spent

LIMITS = Settings().limits
ORDER = policies(
    replace(Settings(), budget=replace(Settings().budget, calls=9)),
    Raw(b'{"type": "object"}'),
    acts_by_code=True,
)
CALL = OpenCall(ToolCall("call-0", "weather", Raw(b"{}")), "called")
WORDS = Message("assistant", (Text("It rains."),))
LAST_WORD = Turn(1, steps=1, last_answer=ModelAnswered(WORDS), answer="It rains.")
CORRECTED = LIMITS.corrections  # as often as an answer is sent back
OVER = LIMITS.turn_steps(watched=False) + 1  # steps, the summary counted in


def make_view(turn: Turn, *calls: OpenCall) -> View:
    log = (
        Log([StoredMessage(2, WORDS)])
        if turn.last_answer
        else Log([StoredMessage(2, Message("user", ()))])
    )
    return View(3, Conversation(log, calls), turn=turn)


def swap_policies(one: str, other: str) -> Sequence[Policy]:
    names, result = [policy.__name__ for policy in ORDER], list(ORDER)
    first, second = names.index(one), names.index(other)
    result[first], result[second] = result[second], result[first]
    return result


@pytest.mark.parametrize(
    ("first", "second", "seen"),
    [
        ("stopping", "converse", make_view(Turn(1, stopped=Stopped("stop")), CALL)),
        (
            "stopping",
            "plan_ready",
            make_view(Turn(1, stopped=Stopped("stop"), planned=True)),
        ),
        ("stopping", "final", make_view(Turn(1, stopped=Stopped("stop"), final="done"))),
        ("stopping", "step_limit", make_view(Turn(1, stopped=Stopped("stop"), steps=OVER))),
        ("code_or_final", "shape", make_view(LAST_WORD)),
        ("shape", "final", make_view(replace(LAST_WORD, final="7", rejected=CORRECTED))),
        (
            "shape",
            "step_limit",
            make_view(replace(LAST_WORD, rejected=CORRECTED, steps=OVER)),
        ),
        ("shape", "converse", make_view(replace(LAST_WORD, rejected=CORRECTED))),
        ("plan_ready", "final", make_view(Turn(1, planned=True, final="done"))),
        ("plan_ready", "step_limit", make_view(Turn(1, planned=True, steps=OVER))),
        ("final", "step_limit", make_view(Turn(1, final="done", steps=OVER))),
        (
            "refused_responses",
            "step_limit",
            make_view(Turn(1, refused_in_a_row=LIMITS.refused_responses, steps=OVER)),
        ),
        ("step_limit", "converse", make_view(replace(LAST_WORD, steps=OVER, rejected=1))),
        (
            "converse",
            "budget",
            make_view(replace(LAST_WORD, rejected=1, spent=Spent(answers=9))),
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_first_policy_of_each_pair_decides_and_the_swapped_order_decides_otherwise(
    first: str, second: str, seen: View
) -> None:
    # An answer that was sent back once fits now, but for the pairs about the schema.
    schema = "shape" in (first, second)
    now, then = (
        decide(seen, [p for p in order if schema or p.__name__ != "shape"])
        for order in (ORDER, swap_policies(first, second))
    )

    assert now is not None
    assert then is not None
    assert (now.by, then.by) == (first, second)
    assert now.action != then.action


@pytest.mark.parametrize(
    ("own", "setting", "watched", "last"),
    [
        (0, 0, False, 50),
        (0, 0, True, None),
        (20, 0, True, 20),  # an agent's own limit
        (20, 30, True, 20),
        (0, 30, True, 30),
        (80, 0, False, 50),
    ],
)
def test_step_limit_is_50_unless_a_user_is_attending_or_a_limit_is_set(
    own: int, setting: int, watched: bool, last: int | None
) -> None:
    settings = replace(Settings(), limits=replace(LIMITS, steps=setting))
    (limit,) = [
        policy
        for policy in policies(settings, None, own, watched=watched)
        if policy.__name__ == "step_limit"
    ]

    ends = (
        steps for steps in range(1, 200) if isinstance(limit(steps_done(steps)), EndTurn)
    )
    assert next(ends, None) == (last and last + 1)  # a response sums up at the limit


def steps_done(steps: int) -> View:
    return make_view(Turn(1, steps=steps))
