"""What a model call is charged: the provider's count, or our own estimate of the text.

A provider may report nothing, or something impossible: no tokens for a long response, or
billions for a short one. Neither makes a call free, and neither uses up a budget. Only this
module decides which counts are plausible; an estimate is marked in the usage.

Such responses are not refused: many small servers send them all day. A tokenizer of our own
would be slow and differ from what is billed.
"""

from collections.abc import Callable
from math import isfinite

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.state.conversation import IMAGE_TOKENS
from refold.provider.port import Done
from refold.values.usage import Usage

CHARS_PER_TOKEN = 3  # characters, rather too few: what is estimated is never too cheap
# Characters of a token, on average over a whole answer, that we believe.
_MAX_CHARS_PER_TOKEN = 32
_MIN_CHARS_PER_TOKEN = 0.25  # of a rare script, a character may be four tokens
_UNCOUNTED_SENT_CHARS = 40_000  # that a provider may leave out of its count
_UNCOUNTED_RECEIVED_CHARS = 400
_MAX_INPUT_TOKENS = 10_000_000  # more than any model reads at once
_MAX_HIDDEN_TOKENS = 1_000_000  # of an answer, that refold is not shown
_MAX_AGENT_TOKENS = 1_000_000_000  # of all requests of an agent's own program
_MAX_COST_DOLLARS = 1e6  # US dollars for one answer


class MeasuredCall(Struct, frozen=True):
    """A model call as we see it: characters both ways, images, and the output limit."""

    sent_chars: int = 0
    received_chars: int = 0  # of words, thinking and the arguments of calls
    images: int = 0
    limit: int = 0  # tokens of the answer that were asked for at most; 0: no limit


class Charge(Struct, frozen=True):
    model: str
    usage: Usage
    cost: float | None


def charge(
    done: Done, call: MeasuredCall, model: str, price: Callable[[str, Usage], float | None]
) -> Charge:
    """The charge for a response of `model`, unless `done` names another model."""
    by = done.by or model
    usage = plausible_usage(done.usage, call, by_agent=done.by_agent)
    cost = done.cost
    if cost is None or not isfinite(cost) or not 0 <= cost <= _MAX_COST_DOLLARS:
        cost = None
    if cost is None or (usage.estimated and not cost):
        cost = price(by, usage)
    return Charge(by, usage, cost)


def add_charges(first: Charge, second: Charge) -> Charge:
    """The charge for both calls; the model is that of the second."""
    known = first.cost is not None and second.cost is not None
    cost = (first.cost or 0.0) + (second.cost or 0.0) if known else None
    return Charge(second.model, first.usage + second.usage, cost)


def plausible_usage(usage: Usage, call: MeasuredCall, *, by_agent: bool = False) -> Usage:
    """The reported usage as far as it is plausible for this call; the rest is estimated,
    and marked.
    """
    if usage.estimated:  # only refold sets this, never a provider
        return usage
    read = _is_plausible_input(usage.input, call, by_agent)
    written = _is_plausible_output(usage.output, call, by_agent)
    if read and written:
        return usage
    if not read:
        tokens = -(-call.sent_chars // CHARS_PER_TOKEN) + IMAGE_TOKENS * call.images
        usage = replace(usage, fresh=tokens, cached=0, cache_write=0)
    if not written:
        usage = replace(
            usage, output=-(-call.received_chars // CHARS_PER_TOKEN), reasoning=0
        )
    return replace(usage, estimated=True)


def _is_plausible_input(tokens: int, call: MeasuredCall, by_agent: bool) -> bool:
    if not tokens:
        return not call.sent_chars
    limit = _MAX_AGENT_TOKENS if by_agent else _MAX_INPUT_TOKENS
    return (
        tokens <= limit
        and call.sent_chars <= tokens * _MAX_CHARS_PER_TOKEN + _UNCOUNTED_SENT_CHARS
    )


def _is_plausible_output(tokens: int, call: MeasuredCall, by_agent: bool) -> bool:
    if not tokens:
        return not call.received_chars
    limit = _MAX_AGENT_TOKENS if by_agent else 4 * call.limit or _MAX_HIDDEN_TOKENS
    limit += int(call.received_chars / _MIN_CHARS_PER_TOKEN)
    return (
        tokens <= limit
        and call.received_chars <= tokens * _MAX_CHARS_PER_TOKEN + _UNCOUNTED_RECEIVED_CHARS
    )
