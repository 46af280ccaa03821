"""Computes what a turn may still spend, and reserves budget for model calls outside of the
conversation.

A call is allowed while any budget is left, and its estimated cost counts as used until the
call is settled. So a turn exceeds its budget by at most one call, however many calls run at
once. If the process died before it settled a reservation, the reservation stays counted.

A subagent's budget is a grant: a part of its parent's budget. A call must fit into the grant
completely, or a larger grant is requested first. So a tree of sessions exceeds its budget by no
more than one session would.

Reservations are events, so that a crash loses none. A budget is for one turn: a budget for
a whole session would end a long conversation in the middle.
"""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from refold.engine.call_cost import CHARS_PER_TOKEN, Charge
from refold.engine.context_usage import token_count
from refold.engine.world import BudgetGrant, Model, Record
from refold.errors import ProviderError
from refold.journal.events.kinds import Reserved, Settled
from refold.journal.events.setting_events import BudgetSet
from refold.journal.state.fold import BudgetUsed, View, budget_of, budget_used
from refold.provider.port import Request
from refold.values.usage import Budget, Estimate, Usage

Price: TypeAlias = Callable[[str, Usage], float | None]
DEFAULT_ANSWER_TOKENS = 8_192  # tokens of a response, if no limit is set
NOTHING_LEFT = "the budget of this turn is used up"
_Number = TypeVar("_Number", int, float)


def find_overrun(view: View, budget: Budget) -> str:
    """Return which limit of the budget is reached, as a sentence; "" if none is."""
    return _overrun(budget_used(view), budget)


def why_unenforceable(model: str, cost: float | None, budget: Budget) -> str:
    """Return why a limit in dollars cannot be enforced for this model; "" if it can.

    `cost` is the cost of a call, or None if the price is unknown. A limit in dollars then works
    only together with a limit in tokens.
    """
    if budget.dollars is None or budget.tokens is not None or cost is not None:
        return ""
    return (
        f"the price of {model} is not known, so a limit of ${budget.dollars:g} cannot be kept: "
        f"limit the tokens with --max-tokens or budget.tokens, or give the price of {model} "
        "under [prices] in the settings"
    )


def shortfall(usage: BudgetUsed, budget: Budget, need: Estimate) -> str:
    """Return which limit is reached, or too low for a call that costs `need`, as a sentence.

    Return "" if none is.
    """
    return (
        _overrun(usage, budget)
        or _dollar_shortfall(usage, budget, need)
        or _token_shortfall(usage, budget, need)
    )


def _dollar_shortfall(usage: BudgetUsed, budget: Budget, need: Estimate) -> str:
    """Return a sentence if fewer dollars are left than a call costs; otherwise ""."""
    limit, cost = budget.dollars, need.dollars
    if limit is None or cost is None:
        return ""
    if usage.dollars + cost > limit:
        # Two decimals alone would round 0.041 and 0.044 to the same number.
        digits = 2 if cost >= 1 else 4
        next_call = f"the next call may cost ${cost:.{digits}f}, which is more than is left"
        return f"${usage.dollars:.{digits}f} of ${limit:.{digits}f} are used; {next_call}"
    return ""


def _token_shortfall(usage: BudgetUsed, budget: Budget, need: Estimate) -> str:
    """Return a sentence if fewer tokens are left than a call takes; otherwise "".

    The limit in tokens applies only if a price is unknown.
    """
    is_priced = usage.priced and need.dollars is not None
    if budget.tokens is None or is_priced:
        return ""
    if usage.tokens + need.tokens > budget.tokens:
        next_call = f"the next call may take {need.tokens:,}, which is more than is left"
        return f"{usage.tokens:,} of {budget.tokens:,} tokens are used; {next_call}"
    return ""


def _overrun(usage: BudgetUsed, budget: Budget) -> str:
    """Return which limit of the budget is reached, as a sentence; "" if none is."""
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
    """What remains of the limit that will be reached first: its share, 0 to 1, and its
    amount.
    """

    share: float = 1.0
    words: str = ""


def remainder(view: View, budget: Budget) -> Remainder:
    """Return what is left of the limit that will be reached first."""
    usage = budget_used(view)
    # The limit in tokens applies only if a price is unknown.
    token_limit = None if usage.priced else budget.tokens
    limits = (
        (usage.dollars, budget.dollars, "${:,.2f} of ${:,.2f}"),
        (usage.tokens, token_limit, "{:,.0f} of {:,.0f} tokens"),
        (usage.calls, budget.calls, "{:,.0f} of {:,.0f} model calls"),
        (usage.seconds, budget.seconds, "{:,.0f} of {:,.0f} seconds"),
    )
    remainders = list[Remainder]()
    for used, limit, template in limits:
        if limit:  # neither None nor 0
            left = max(0.0, limit - used)
            share_left = max(0.0, 1 - used / limit)
            remainders.append(Remainder(share_left, template.format(left, limit)))
    return min(remainders, key=lambda remainder: remainder.share, default=Remainder())


def share_left(view: View, budget: Budget) -> float:
    """Return the share that is left, 0 to 1, of the limit that will be reached first."""
    return remainder(view, budget).share


async def request_more(
    need: Estimate,
    budget: Budget,
    grant: BudgetGrant | None,
    record: Record,
    *,
    record_refusal: bool = False,
) -> bool:
    """Request a grant that suffices for another call. Return False if it is refused.

    A grant is the part of the parent's budget that a subagent may use. If `record_refusal`,
    a refusal is recorded, so that the request is not repeated.
    """
    usage = budget_used(record.view)
    larger_budget = await grant.request_more(need, usage) if grant is not None else None
    if larger_budget is not None and shortfall(usage, larger_budget, need):
        larger_budget = None  # it does not suffice, which counts as a refusal

    def make_events(view: View) -> tuple[BudgetSet, ...]:
        """Return the event for the larger budget; () if the budget stays.

        After a refusal, return an event that makes the budget final, but only if
        `record_refusal`.
        """
        current = budget_of(view, budget)
        share = grant.share_left if grant is not None else 0.0
        if larger_budget is None:
            if record_refusal and shortfall(budget_used(view), current, need):
                return (BudgetSet(current, final=True, share_left=share),)
            return ()
        new = _larger_budget(current, larger_budget)
        if new == current and not view.rights.final_budget:
            return ()
        return (BudgetSet(new, share_left=share),)

    await record.append_if(make_events, author="parent")
    return larger_budget is not None


def _larger_budget(first: Budget, second: Budget) -> Budget:
    """Return a budget with the larger limit of each kind.

    Concurrent requests are answered in any order, so either budget may be the newer one.
    """
    return Budget(
        dollars=_larger_limit(first.dollars, second.dollars),
        tokens=_larger_limit(first.tokens, second.tokens),
        calls=_larger_limit(first.calls, second.calls),
        seconds=_larger_limit(first.seconds, second.seconds),
    )


def _larger_limit(first: _Number | None, second: _Number | None) -> _Number | None:
    """Return the larger limit. None stands for no limit, which is larger than any other."""
    if first is None or second is None:
        return None
    return max(first, second)


def estimate_next_step(view: View, price: Price) -> Estimate:
    """Estimate the cost of the next model call of the conversation.

    The part of the prompt that was cached in the last call is assumed to be cached again.
    """
    prompt = view.conversation.system_prompt
    size = token_count(view)
    last = view.account.last_usage
    cached = min(size, last.input) if last.cached else 0
    usage = Usage(
        fresh=size - cached,
        cached=cached,
        output=prompt.max_output or DEFAULT_ANSWER_TOKENS,
    )
    return Estimate(dollars=price(prompt.model, usage), tokens=usage.uncached)


async def reserve(
    make_reservation: Callable[[View], Reserved | None],
    budget: Budget,
    record: Record,
    grant: BudgetGrant | None = None,
) -> int:
    """Reserve the cost of a model call, and return the number of the event that records it.

    Returns 0 if `make_reservation` returns None. Raises `ProviderError` if the budget does not
    suffice and no larger grant is given.
    """
    need: Estimate | None = None
    seq = 0

    def make_events(view: View) -> tuple[Reserved, ...]:
        """Return the reservation, and set `seq` to its event number.

        If the budget is too small, return () and set `need` to what is needed.
        """
        nonlocal need, seq
        need = None
        seq = view.seq + 1
        reservation = make_reservation(view)
        if reservation is None:
            return ()
        estimate = Estimate(reservation.dollars, reservation.tokens)
        own = budget_of(view, budget)
        if reason := why_unenforceable(reservation.model, reservation.dollars, own):
            raise ProviderError(reason)
        if grant is None:
            problem = find_overrun(view, own)
        else:
            problem = shortfall(budget_used(view), own, estimate)
        if problem and view.turn.seq:  # between turns, no budget applies
            need = estimate
            return ()
        return (reservation,)

    while not await record.append_if(make_events, author="agent"):
        if need is None:  # there is nothing to reserve
            return 0
        if not await request_more(need, budget, grant, record):
            raise ProviderError(NOTHING_LEFT)
    return seq


async def ask_outside_conversation(
    request: Request,
    purpose: str,
    model: Model,
    budget: Budget,
    record: Record,
    grant: BudgetGrant | None = None,
) -> str:
    """Call a model outside of the conversation, and return its text.

    Raises `ProviderError`, also if the budget is used up. The usage is recorded; if the
    call is cancelled, its reservation stays counted.
    """
    # Imported late: few sessions need it.
    from refold.engine.collect import Collector, request_size

    usage = Usage(
        fresh=request_size(request) // CHARS_PER_TOKEN,
        output=request.max_output or DEFAULT_ANSWER_TOKENS,
    )
    dollars = model.price(model.name, usage)
    reservation = Reserved(purpose, model.name, dollars, tokens=usage.uncached)
    seq = await reserve(lambda _: reservation, budget, record, grant)
    trace = model.trace is not None
    request = replace(request, trace=trace, temperature=model.temperature)
    collector = Collector(model)
    try:
        try:
            response = await collector.collect(request)
        finally:
            if model.trace is not None:
                await record(*await model.trace.drain(record))
    except ProviderError as error:
        await record(to_settled(seq, model.name, collector.paid, str(error)))
        raise
    end, paid = response.done, response.paid
    failed = ""
    if end.stop == "refused":
        failed = f"the model refused: {end.why}" if end.why else "the model refused"
    await record(to_settled(seq, model.name, paid, failed))
    if failed:
        raise ProviderError(failed)
    return response.text


def to_settled(seq: int, model: str, charge: Charge | None, failed: str) -> Settled:
    """Return the event that settles a model call. `failed` is why it has no result, or "".

    `charge` is the charge for all responses, also dropped ones; None if there were none.
    """
    if charge is None:
        return Settled(seq, model=model, failed=failed)
    return Settled(seq, charge.usage, charge.model, charge.cost, failed)
