"""What a model call is charged: the provider's count, or our own estimate of the text.

A provider may report nothing, or something impossible: no tokens for a long response, or
billions for a short one. Neither makes a call free, and neither uses up a budget. Only this
module decides which counts are plausible; an estimate is marked in the usage.
"""

from collections.abc import Callable
from math import isfinite

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.state.conversation import IMAGE_TOKENS
from refold.provider.port import Done
from refold.values.usage import Usage

A_TOKEN = 3  # characters, rather too few: what is estimated is never too cheap
_LONGEST = 32  # characters of a token, on average over a whole answer, that we believe
_SHORTEST = 0.25  # of a rare script, a character may be four tokens
_UNSEEN_SENT = 40_000  # characters that a provider may leave out of its count
_UNSEEN_HEARD = 400
_MOST_READ = 10_000_000  # tokens: more than any model reads at once
_MOST_THOUGHT = 1_000_000  # tokens of an answer that we are not shown
_MOST_BY_AGENT = 1_000_000_000  # tokens of all requests of an agent's own program
_DEAREST = 1e6  # US dollars for one answer


class MeasuredCall(Struct, frozen=True):
    """A model call as we see it: characters both ways, images, and the output limit."""

    sent: int = 0
    heard: int = 0  # of words, thinking and the arguments of calls
    images: int = 0
    limit: int = 0  # tokens of the answer that were asked for at most; 0: no limit


class Charge(Struct, frozen=True):
    model: str
    usage: Usage
    cost: float | None


def charge(
    done: Done, call: MeasuredCall, model: str, price: Callable[[str, Usage], float | None]
) -> Charge:
    """What an answer of `model` is charged, unless `done` names another one."""
    by = done.by or model
    usage = plausible_usage(done.usage, call, by_agent=done.by_agent)
    cost = done.cost
    if cost is None or not isfinite(cost) or not 0 <= cost <= _DEAREST:
        cost = None
    if cost is None or (usage.estimated and not cost):
        cost = price(by, usage)
    return Charge(by, usage, cost)


def sum_of(one: Charge, other: Charge) -> Charge:
    """The charge for both calls; the model is that of the second."""
    known = one.cost is not None and other.cost is not None
    cost = (one.cost or 0.0) + (other.cost or 0.0) if known else None
    return Charge(other.model, one.usage + other.usage, cost)


def plausible_usage(told: Usage, call: MeasuredCall, *, by_agent: bool = False) -> Usage:
    """The reported usage `told`, as far as it is plausible for this call; the rest is
    estimated, and marked.
    """
    if told.estimated:  # by us, before: nothing that a provider says sets this
        return told
    read = _can_be_read(told.input, call, by_agent)
    written = _can_be_written(told.output, call, by_agent)
    if read and written:
        return told
    if not read:
        tokens = -(-call.sent // A_TOKEN) + IMAGE_TOKENS * call.images
        told = replace(told, fresh=tokens, cached=0, cache_write=0)
    if not written:
        told = replace(told, output=-(-call.heard // A_TOKEN), reasoning=0)
    return replace(told, estimated=True)


def _can_be_read(tokens: int, call: MeasuredCall, by_agent: bool) -> bool:
    if not tokens:
        return not call.sent
    most = _MOST_BY_AGENT if by_agent else _MOST_READ
    return tokens <= most and call.sent <= tokens * _LONGEST + _UNSEEN_SENT


def _can_be_written(tokens: int, call: MeasuredCall, by_agent: bool) -> bool:
    if not tokens:
        return not call.heard
    most = _MOST_BY_AGENT if by_agent else 4 * call.limit or _MOST_THOUGHT
    most += int(call.heard / _SHORTEST)
    return tokens <= most and call.heard <= tokens * _LONGEST + _UNSEEN_HEARD
