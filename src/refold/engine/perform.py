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
    decide,
)
from refold.engine.saving import save_if_changed
from refold.engine.spending import draw, estimate
from refold.engine.world import Record, World
from refold.journal.events import Asked, Rejected, TakenUp, TurnEnded
from refold.journal.fold import View


async def perform(choice: Choice, world: World, record: Record) -> None:
    by = f"policy {choice.by}"
    match choice.action:
        case AskModel():
            await _ask(choice, choice.action, world, record)
        case RunCalls():
            await calls.run_ready(world, record)
        case SettleCalls(ids, reason):
            left = [c for c in record.view.talk.calls if c.call.id in ids]
            await record(*(calls.settled(c, reason, world, record) for c in left), by=by)
        case Reject(notes):
            await record(Rejected(notes), by=by)
        case Shrink() as action:
            from refold.engine.summing import shrink  # most sessions end before

            await shrink(action, world, record, by)
        case Wait():
            await record.news(after=record.view.seq)
        case Draw():
            need = estimate(record.view, world.mind.price)
            await draw(need, world.budget, world.lineage.purse, record, told=True)
        case TakeUp(words):
            await record(TakenUp(words), by=by)
        case EndTurn(outcome, reason):
            await save_if_changed(world, record)
            await record(TurnEnded(outcome, reason), kept=True, by=by)
        case _:
            assert_never(choice.action)


def what_is_asked(action: AskModel, view: View, world: World) -> Asked:
    """How a step begins, with what is set aside for it."""
    need = estimate(view, world.mind.price)
    return Asked(action.notes, action.tools, action.because, need.dollars, need.tokens)


async def _ask(choice: Choice, action: AskModel, world: World, record: Record) -> None:
    """Ask the model, unless by now there is something else to do.

    Whoever works beside may have spent meanwhile what this was to cost.
    """
    seen = record.view
    asked = what_is_asked(action, seen, world)

    def news(view: View) -> tuple[Asked, ...]:
        same = view is seen or decide(view, world.policies) == choice
        return (asked,) if same else ()

    if await record.weigh(news, by=f"policy {choice.by}"):
        await asking.ask(world, record)
