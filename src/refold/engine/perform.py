"""Do one thing. Nothing comes back: what happened is in the journal.

Cancelling is safe at every await. What had an effect is recorded as it
unwinds, and what had none is simply decided again.
"""

from typing import assert_never

from refold.engine import asking, calls
from refold.engine.decide import (
    AskModel,
    Choice,
    Draw,
    EndTurn,
    Reject,
    RunCalls,
    SettleCalls,
    Shrink,
    TakeUp,
    Wait,
)
from refold.engine.saving import save_if_changed
from refold.engine.spending import draw, estimate
from refold.engine.summing import shrink
from refold.engine.world import Record, World
from refold.journal.events import Asked, Rejected, TakenUp, TurnEnded


async def perform(choice: Choice, world: World, record: Record) -> None:
    by = f"policy {choice.by}"
    match choice.action:
        case AskModel(notes, tools, because):
            aside = estimate(record.view, world.price)
            asked = Asked(notes, tools, because, aside.dollars, aside.tokens)
            await record(asked, by=by)
            await asking.ask(world, record)
        case RunCalls():
            await calls.run_ready(world, record)
        case SettleCalls(ids, reason):
            left = [c for c in record.view.talk.calls if c.call.id in ids]
            await record(*(calls.settled(c, reason, world, record) for c in left), by=by)
        case Reject(notes):
            await record(Rejected(notes), by=by)
        case Shrink() as action:
            await shrink(action, world, record, by)
        case Wait():
            await record.news(after=record.view.seq)
        case Draw():
            await draw(record.view, world, record)
        case TakeUp(words):
            await record(TakenUp(words), by=by)
        case EndTurn(outcome, reason):
            await save_if_changed(world, record)
            await record(TurnEnded(outcome, reason), kept=True, by=by)
        case _:
            assert_never(choice.action)
