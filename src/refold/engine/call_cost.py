"""Computes the charge of a model call from the provider's token count or, failing that, from
our own estimate.

A provider may report nothing, or something impossible: no tokens for a long response, or
billions for a short one. Neither makes a call free, and neither uses up a budget. Only this
module decides which counts are plausible; an estimate is marked in the usage.

Responses with implausible counts are not refused: many small servers send them with every
response. A tokenizer of our own would be slow and differ from what is billed.

The cost is recorded with the response (`ModelAnswered.cost`) and never computed again. Prices
change, and two machines may have different price lists; what was spent does not change. The cost
is the one that the provider reports, or else is computed from the present price. None means
unknown: a sum with an unknown part is shown as the known part.
"""

from collections.abc import Callable
from math import ceil, isfinite

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.state.conversation import IMAGE_TOKENS
from refold.provider.port import Done
from refold.values.usage import Usage

CHARS_PER_TOKEN = 3  # a low number, so that an estimate is never too cheap
# Characters per token, averaged over a whole response, up to which a count is plausible.
_MAX_CHARS_PER_TOKEN = 32
_MIN_CHARS_PER_TOKEN = 0.25  # in a rare script, one character may be four tokens
_UNCOUNTED_SENT_CHARS = 40_000  # characters that a provider may leave out of its count
_UNCOUNTED_RECEIVED_CHARS = 400
_MAX_INPUT_TOKENS = 10_000_000  # more than any model reads at once
# Of a response: tokens that the provider counts, but does not show.
_MAX_HIDDEN_TOKENS = 1_000_000
_MAX_LIMIT_EXCESS = 4  # times the requested limit of output: some providers exceed it
_MAX_AGENT_TOKENS = 1_000_000_000  # of all requests of an external agent program
_MAX_COST_DOLLARS = 1e6  # for one response


class MeasuredCall(Struct, frozen=True):
    """The size of a model call: characters in both directions, images, and the output
    limit.
    """

    sent_chars: int = 0
    received_chars: int = 0  # characters of text, thinking and arguments of calls
    images: int = 0
    limit: int = 0  # maximum tokens that were requested for the response; 0: no limit


class Charge(Struct, frozen=True):
    model: str
    usage: Usage
    cost: float | None


def charge(
    done: Done, call: MeasuredCall, model: str, price: Callable[[str, Usage], float | None]
) -> Charge:
    """Return the charge for a response. `model` is its model, unless `done` names another
    one.
    """
    model_name = done.by or model
    usage = plausible_usage(done.usage, call, by_agent=done.by_agent)
    cost = done.cost
    is_plausible = cost is not None and isfinite(cost) and 0 <= cost <= _MAX_COST_DOLLARS
    # A call is not free because its provider reported nothing.
    is_missing = cost == 0 and usage.estimated
    if not is_plausible or is_missing:
        cost = price(model_name, usage)
    return Charge(model_name, usage, cost)


def add_charges(first: Charge, second: Charge) -> Charge:
    """Return the charge for both calls; its model is that of the second."""
    cost: float | None = None  # unknown if one of both is
    if first.cost is not None and second.cost is not None:
        cost = first.cost + second.cost
    return Charge(second.model, first.usage + second.usage, cost)


def plausible_usage(usage: Usage, call: MeasuredCall, *, by_agent: bool = False) -> Usage:
    """Return the reported usage, with estimates in place of counts that are implausible for
    this call.

    A usage with estimates is marked as estimated. `by_agent`: another agent's program
    responded, which counts many requests as one.
    """
    if usage.estimated:  # only refold sets this, never a provider
        return usage
    is_input_plausible = _is_plausible_input(usage.input, call, by_agent)
    is_output_plausible = _is_plausible_output(usage.output, call, by_agent)
    if is_input_plausible and is_output_plausible:
        return usage
    if not is_input_plausible:
        tokens = ceil(call.sent_chars / CHARS_PER_TOKEN) + IMAGE_TOKENS * call.images
        usage = replace(usage, fresh=tokens, cached=0, cache_write=0)
    if not is_output_plausible:
        output = ceil(call.received_chars / CHARS_PER_TOKEN)
        usage = replace(usage, output=output, reasoning=0)
    return replace(usage, estimated=True)


def _is_plausible_input(tokens: int, call: MeasuredCall, by_agent: bool) -> bool:
    """Whether the number of input tokens is possible for the text that was sent."""
    if not tokens:
        return not call.sent_chars
    limit = _MAX_AGENT_TOKENS if by_agent else _MAX_INPUT_TOKENS
    return (
        tokens <= limit
        and call.sent_chars <= tokens * _MAX_CHARS_PER_TOKEN + _UNCOUNTED_SENT_CHARS
    )


def _is_plausible_output(tokens: int, call: MeasuredCall, by_agent: bool) -> bool:
    """Whether the number of output tokens is possible for the text that was received."""
    if not tokens:
        return not call.received_chars
    if by_agent:
        limit = _MAX_AGENT_TOKENS
    elif call.limit:
        limit = _MAX_LIMIT_EXCESS * call.limit
    else:
        limit = _MAX_HIDDEN_TOKENS
    limit += int(call.received_chars / _MIN_CHARS_PER_TOKEN)
    return (
        tokens <= limit
        and call.received_chars <= tokens * _MAX_CHARS_PER_TOKEN + _UNCOUNTED_RECEIVED_CHARS
    )
