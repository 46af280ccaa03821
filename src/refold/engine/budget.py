"""What a turn may still spend, and reservations for model calls outside the conversation.

A call is allowed while something is left, and its estimated cost counts as used until it is
settled. So however many calls run at once, a turn exceeds its budget by at most one call. A
reservation that was never settled, because the process died, stays counted.

A subagent's budget is a grant: there a call has to fit completely, or more is requested
first. So a tree of sessions exceeds its budget by no more than one session would.

Reservations are events, so that a crash loses none. A budget is for one turn: one for a
whole session would end a conversation of a week in the middle.
"""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from refold.engine.call_cost import CHARS_PER_TOKEN, Charge
from refold.engine.context_usage import token_count
from refold.engine.world import BudgetGrant, Model, Record
from refold.errors import ProviderError
from refold.journal.events.kinds import BudgetSet, Reserved, Settled
from refold.journal.state.fold import BudgetUsed, View, budget_of, budget_used
from refold.provider.port import Request
from refold.values.usage import Budget, Estimate, Usage

Price: TypeAlias = Callable[[str, Usage], float | None]
DEFAULT_ANSWER_TOKENS = 8_192  # of an answer, if no limit is set
NOTHING_LEFT = "the budget of this turn is used up"
_Number = TypeVar("_Number", int, float)


def find_overrun(view: View, budget: Budget) -> str:
    """Return the part of the budget that is used up; "" if none is."""
    return _overrun(budget_used(view), budget)


def why_unenforceable(model: str, cost: float | None, budget: Budget) -> str:
    """Say why a limit in dollars cannot be enforced for this model; "" if it can.

    `cost` of any call is None if the price is not known. A limit in tokens holds then.
    """
    if budget.dollars is None or budget.tokens is not None or cost is not None:
        return ""
    return (
        f"the price of {model} is not known, so a limit of ${budget.dollars:g} cannot be kept: "
        f"limit the tokens with --max-tokens or budget.tokens, or give the price of {model} "
        "under [prices] in the settings"
    )


def shortfall(usage: BudgetUsed, budget: Budget, need: Estimate) -> str:
    """Return the part of the budget that is too small for another call; "" if none is."""
    if over := _overrun(usage, budget):
        return over
    dollars, tokens = need.dollars, need.tokens
    if (
        budget.dollars is not None
        and dollars is not None
        and usage.dollars + dollars > budget.dollars
    ):
        # Cents alone would round 0.041 and 0.044 to the same.
        digits = 2 if dollars >= 1 else 4
        next_one = (
            f"the next call may cost ${dollars:.{digits}f}, which is more than is left"
        )
        return f"${usage.dollars:.{digits}f} of ${budget.dollars:.{digits}f} are used; {next_one}"
    by_tokens = budget.tokens is not None and not (usage.priced and dollars is not None)
    if by_tokens and usage.tokens + tokens > (budget.tokens or 0):
        next_one = f"the next call may take {tokens:,}, which is more than is left"
        return f"{usage.tokens:,} of {budget.tokens:,} tokens are used; {next_one}"
    return ""


def _overrun(usage: BudgetUsed, budget: Budget) -> str:
    if budget.dollars is not None and usage.dollars >= budget.dollars:
        return f"${usage.dollars:.2f} of ${budget.dollars:.2f} are used"
    if budget.tokens is not None and not usage.priced and usage.tokens >= budget.tokens:
        return f"{usage.tokens:,} of {budget.tokens:,} tokens are used, at an unknown price"
    if budget.calls is not None and usage.calls >= budget.calls:
        return f"{usage.calls} of {budget.calls} model calls are used"
    if budget.seconds is not None and usage.seconds >= budget.seconds:
        return f"{usage.seconds:.0f} of {budget.seconds:.0f} seconds are used"
    return ""


class Remainder(Struct, frozen=True):
    """The part of a budget with the smallest remaining share: that share, 0 to 1, and the
    amount.
    """

    share: float = 1.0
    words: str = ""


def remainder(view: View, budget: Budget) -> Remainder:
    """What is left, in the unit of the limit that will end the turn."""
    usage = budget_used(view)
    limits = (
        (usage.dollars, budget.dollars, "${:,.2f} of ${:,.2f}"),
        (
            usage.tokens,
            None if usage.priced else budget.tokens,
            "{:,.0f} of {:,.0f} tokens",
        ),
        (usage.calls, budget.calls, "{:,.0f} of {:,.0f} model calls"),
        (usage.seconds, budget.seconds, "{:,.0f} of {:,.0f} seconds"),
    )
    remainders = [
        Remainder(max(0.0, 1 - have / limit), words.format(max(0.0, limit - have), limit))
        for have, limit, words in limits
        if limit
    ]
    return min(remainders, key=lambda part: part.share, default=Remainder())


def share_left(view: View, budget: Budget) -> float:
    """The smallest share of any part of the budget that is left, 0 to 1."""
    return remainder(view, budget).share


async def request_more(
    need: Estimate,
    budget: Budget,
    grant: BudgetGrant | None,
    record: Record,
    *,
    record_refusal: bool = False,
) -> bool:
    """Request a larger grant. Returns False if no more is granted.

    With `record_refusal`, a refusal is recorded, so that it is not requested again.
    """
    usage = budget_used(record.view)
    larger_budget = await grant.request_more(need, usage) if grant is not None else None
    if larger_budget is not None and shortfall(usage, larger_budget, need):
        larger_budget = None

    def make_events(view: View) -> tuple[BudgetSet, ...]:
        have, share = (
            budget_of(view, budget),
            grant.share_left if grant is not None else 0.0,
        )
        if larger_budget is None:
            last = record_refusal and shortfall(budget_used(view), have, need)
            return (BudgetSet(have, final=True, share_left=share),) if last else ()
        wider = _larger_budget(have, larger_budget)
        known = wider == have and not view.rights.final_budget
        return () if known else (BudgetSet(wider, share_left=share),)

    await record.append_if(make_events, author="parent")
    return larger_budget is not None


def _larger_budget(have: Budget, extra: Budget) -> Budget:
    """The larger of two grants: two concurrent requests may be answered in either order."""
    return Budget(
        _larger_limit(have.dollars, extra.dollars),
        _larger_limit(have.tokens, extra.tokens),
        _larger_limit(have.calls, extra.calls),
        _larger_limit(have.seconds, extra.seconds),
    )


def _larger_limit(have: _Number | None, extra: _Number | None) -> _Number | None:
    return None if have is None or extra is None else max(have, extra)


def estimate_next_step(view: View, price: Price) -> Estimate:
    """The estimated cost of the next step.

    The part that was cached last time counts as cached.
    """
    briefed = view.conversation.system_prompt
    size, last = token_count(view), view.account.last_usage
    cached = min(size, last.input) if last.cached else 0
    usage = Usage(
        fresh=size - cached,
        cached=cached,
        output=briefed.max_output or DEFAULT_ANSWER_TOKENS,
    )
    return Estimate(price(briefed.model, usage), usage.uncached)


async def reserve(
    make_reservation: Callable[[View], Reserved | None],
    budget: Budget,
    record: Record,
    grant: BudgetGrant | None = None,
) -> int:
    """Reserve the cost of a model call, and return the seq of that event; 0 if the call
    is not wanted.

    Raises `ProviderError` if nothing is left to pay for it, and no more is granted.
    """
    need: Estimate | None = None
    seq = 0

    def make_events(view: View) -> tuple[Reserved, ...]:
        nonlocal need, seq
        need, seq = None, view.seq + 1
        reservation = make_reservation(view)
        if reservation is None:
            return ()
        asks = Estimate(reservation.dollars, reservation.tokens)
        own = budget_of(view, budget)
        if reason := why_unenforceable(reservation.model, reservation.dollars, own):
            raise ProviderError(reason)
        exceeds_grant = grant is not None and bool(shortfall(budget_used(view), own, asks))
        if view.turn.seq and (exceeds_grant or find_overrun(view, own)):
            need = asks
            return ()
        return (reservation,)

    while not await record.append_if(make_events, author="agent"):
        if need is None:
            return 0
        if not await request_more(need, budget, grant, record):
            raise ProviderError(NOTHING_LEFT)
    return seq


async def ask_outside_conversation(
    request: Request,
    purpose: str,
    aide: Model,
    budget: Budget,
    record: Record,
    grant: BudgetGrant | None = None,
) -> str:
    """Call a model outside of the conversation, and return its text.

    Raises `ProviderError`, also if nothing is left to pay for it. The usage is recorded; if
    the call is cancelled, its reservation stays counted.
    """
    from refold.engine.collect import Collector, request_size  # few sessions need it

    usage = Usage(
        fresh=request_size(request) // CHARS_PER_TOKEN,
        output=request.max_output or DEFAULT_ANSWER_TOKENS,
    )
    reservation = Reserved(purpose, aide.name, aide.price(aide.name, usage), usage.uncached)
    seq = await reserve(lambda _: reservation, budget, record, grant)
    trace = aide.trace is not None
    request = replace(request, trace=trace, temperature=aide.temperature)
    collector = Collector(aide)
    try:
        try:
            response = await collector.collect(request)
        finally:
            if aide.trace is not None:
                await record(*await aide.trace.drain(record))
    except ProviderError as error:
        await record(to_settled(seq, aide.name, collector.paid, str(error)))
        raise
    end, paid = response.done, response.paid
    refused = f"the model refused{f': {end.why}' if end.why else ''}"
    failed = refused if end.stop == "refused" else ""
    await record(Settled(seq, paid.usage, paid.model, paid.cost, failed))
    if failed:
        raise ProviderError(failed)
    return response.text


def to_settled(seq: int, model: str, charge: Charge | None, failed: str) -> Settled:
    """The end of a call without a result; `charge` is for its dropped responses."""
    if charge is None:
        return Settled(seq, model=model, failed=failed)
    return Settled(seq, charge.usage, charge.model, charge.cost, failed)
