"""The calls that a turn remembers: the newest, however many there were."""

from refold.journal.events.kinds import (
    Ended,
    Entry,
    Event,
    ModelAnswered,
    Started,
    TurnStarted,
)
from refold.journal.state.fold import fold
from refold.journal.state.recent_calls import CallGroup
from refold.values.messages import Message, ToolCall
from tests.engine.house import raw


def step(n: int) -> tuple[Event, ...]:
    call = ToolCall(f"c{n}", "look", raw('{"n":1}'))
    answer = ModelAnswered(Message("assistant", (call,)))
    return answer, Started(call.id), Ended(call.id, "done", f"result {n}")


def results(answers: tuple[CallGroup, ...]) -> list[str]:
    return [did.result for answer in answers for did in answer.calls]


def test_turn_of_thousands_of_calls_remembers_only_the_newest_hundreds() -> None:
    events = [TurnStarted(1), *(event for n in range(2_000) for event in step(n))]

    view = fold(Entry(seq, event) for seq, event in enumerate(events, start=1))

    texts = results(tuple(view.recent_calls.newest_first))
    assert texts[:300] == [f"result {n}" for n in range(1_999, 1_699, -1)]
    assert len(texts) < 700
