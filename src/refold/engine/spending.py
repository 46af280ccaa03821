"""What a turn may still use up; and models asked beside the talk, whose money is set aside.

A call is allowed while something is left, and what it may come to counts as used until
it is settled. So however many run at once, a turn spends at most one call more than
its budget. What nobody settled, because a process died, stays counted.
"""

from collections.abc import Callable
from contextlib import aclosing
from typing import TypeAlias

from msgspec.structs import replace

from refold.engine.measure import tokens
from refold.engine.world import Aide, Record, World
from refold.errors import ProviderError
from refold.journal.events import BudgetSet, Reserved, Settled
from refold.journal.fold import View
from refold.journal.used import budget_of, used
from refold.provider.port import Came, Done, Request, Sent, TextDelta
from refold.values.budget import Budget, Estimate
from refold.values.usage import Usage

Price: TypeAlias = Callable[[str, Usage], float | None]
ANSWER = 8_192  # tokens of an answer, where no limit is set


def used_up(view: View, budget: Budget) -> str:
    """Which part of the budget is used up, in words; "" where there is still some."""
    now = used(view)
    if budget.dollars is not None and now.dollars >= budget.dollars:
        return f"${now.dollars:.2f} of ${budget.dollars:.2f} are used"
    if budget.tokens is not None and not now.priced and now.tokens >= budget.tokens:
        return f"{now.tokens:,} of {budget.tokens:,} tokens are used, at an unknown price"
    if budget.calls is not None and now.calls >= budget.calls:
        return f"{now.calls} of {budget.calls} model calls are used"
    if budget.seconds is not None and now.seconds >= budget.seconds:
        return f"{now.seconds:.0f} of {budget.seconds:.0f} seconds are used"
    return ""


def left(view: View, budget: Budget) -> float:
    """The smallest share of any part of the budget that is left, 0 to 1."""
    now = used(view)
    shares = [
        1 - have / most
        for have, most in (
            (now.dollars, budget.dollars),
            (now.tokens, None if now.priced else budget.tokens),
            (now.calls, budget.calls),
            (now.seconds, budget.seconds),
        )
        if most
    ]
    return max(0.0, min(shares, default=1.0))


async def draw(view: View, world: World, record: Record) -> bool:
    """More from whoever lent this session its budget. False: there is no more to be had.

    Says so in the journal either way, so that nobody asks for ever.
    """
    need = estimate(view, world.price)
    more = await world.purse.draw(need) if world.purse is not None else None
    have = budget_of(view, world.budget)
    await record(BudgetSet(have if more is None else more, last=more is None), by="parent")
    return more is not None


def estimate(view: View, price: Price) -> Estimate:
    """What the next step may come to. What the last answer had from a cache will be there."""
    briefed = view.talk.briefed
    size, last = tokens(view), view.account.last
    cached = min(size, last.input) if last.cached else 0
    usage = Usage(fresh=size - cached, cached=cached, output=briefed.output or ANSWER)
    return Estimate(price(briefed.model, usage), usage.uncached)


async def ask_beside(
    request: Request, purpose: str, aide: Aide, budget: Budget, record: Record
) -> str:
    """Ask a model something that is no part of the talk, and return its words.

    Raises `ProviderError`, also where nothing is left to pay for it. What it used is
    recorded; cut off half-way, what was set aside stays counted.
    """
    size = sum(len(s.message.text) for s in request.messages) + len(request.system)
    usage = Usage(fresh=size // 3, output=request.max_output or ANSWER)
    dollars = aide.price(aide.model, usage)
    at = 0

    def set_aside(view: View) -> tuple[Reserved, ...]:
        nonlocal at
        at = view.seq + 1
        if view.turn.seq and used_up(view, budget_of(view, budget)):
            return ()
        return (Reserved(purpose, aide.model, dollars, usage.uncached),)

    if not await record.weigh(set_aside, by="agent"):
        raise ProviderError("the budget of this turn is used up")
    if aide.trace is not None:
        request = replace(request, trace=True)
    try:
        try:
            text, done = await _heard(request, aide)
        finally:
            if aide.trace is not None:
                await record(*await aide.trace.told(record))
    except ProviderError as error:
        await record(Settled(at, model=aide.model, failed=str(error)))
        raise
    model = done.by or aide.model
    told = done.cost is not None
    cost = done.cost if told else aide.price(model, done.usage)
    refused = f"the model refused{f': {done.why}' if done.why else ''}"
    failed = refused if done.stop == "refused" else ""
    await record(Settled(at, done.usage, model, cost, failed))
    if failed:
        raise ProviderError(failed)
    return text


async def _heard(request: Request, aide: Aide) -> tuple[str, Done]:
    pieces: list[str] = []
    done: Done | None = None
    async with aclosing(aide.provider.stream(request)) as deltas:
        async for delta in deltas:
            match delta:
                case TextDelta(text):
                    pieces.append(text)
                case Done():
                    done = delta
                case Sent() | Came() if aide.trace is not None:
                    aide.trace.take(delta)
                case _:
                    pass
    if done is None:
        raise ProviderError("the answer broke off")
    return "".join(pieces), done
