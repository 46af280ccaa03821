"""Computes the cost of a response in US dollars. An unknown cost is None, never zero.

Prices come from the settings or from `known_models`. `Usage` counts tokens in the same way for
every provider, so no function depends on a wire. A cost that the provider reports takes
precedence.
"""

import re
import time
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

from refold.provider.known_models import KnownModel, PriceTier, by_name, seller
from refold.provider.settings import Override
from refold.provider.spec import ProviderSpec
from refold.values.usage import Usage

_DAY_PATTERN = r"20\d\d-?(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12]\d|3[01])"
_PACKED_DAY_PATTERN = r"-(20\d\d)(0[1-9]|1[0-2])([0-3]\d)(?=:|$)"
# A date or a version at the end of a model's name, or before a ":variant" there. The name
# means the same model without it.
_VERSION_PATTERN = rf"(?:[-@]{_DAY_PATTERN}|[-@]latest|@default|-00\d|(?<=-preview)-\d\d-(?:20)?\d\d)(?=:|$)"


Overrides: TypeAlias = Mapping[str, Override]  # by "provider/model", or by a pattern of it
NO_OVERRIDES: Overrides = {}


class Rates(Struct, frozen=True):
    """The prices of a model at some time, as tiers by the number of input tokens."""

    steps: tuple[PriceTier, ...]

    @property
    def first(self) -> PriceTier:
        return self.steps[0]

    def cost(self, usage: Usage) -> float:
        """Return the price in dollars. The number of input tokens selects the tier of all prices."""
        tier = self.first
        for higher_tier in self.steps[1:]:
            if usage.input > higher_tier.over:
                tier = higher_tier
        cached = tier.input if tier.cached is None else tier.cached
        written = tier.input if tier.cache_write is None else tier.cache_write
        dollars = (
            usage.fresh * tier.input
            + usage.cached * cached
            + usage.cache_write * written
            + usage.output * tier.output
        )
        return dollars / 1_000_000


FREE_RATES = Rates((PriceTier(0, 0.0, 0.0),))


def rates(
    provider: str,
    model: str,
    overrides: Overrides = NO_OVERRIDES,
    *,
    is_local: bool = False,
    tiers: tuple[PriceTier, ...] = (),
    now: float | None = None,
) -> Rates | None:
    """Return a model's prices at `now`, in seconds since 1970, or None if unknown.

    `tiers` are prices that the provider reports. A model that runs locally costs nothing.
    Prices in `overrides` take precedence.
    """
    steps = FREE_RATES.steps if is_local or provider == "local" else tiers
    if not steps:
        steps = _list_tiers(provider, model, time.time() if now is None else now)
    user_setting = override(provider, model, overrides)
    if user_setting and user_setting.has_price:
        tier = _override_tier(user_setting, steps[0] if steps else None)
        steps = (tier,) if tier else ()
    return Rates(steps) if steps else None


def override(provider: str, model: str, overrides: Overrides) -> Override | None:
    """Return the user's setting for a model, or None if there is none.

    A setting for its exact name takes precedence, then the one with the longest matching
    pattern.
    """
    name = f"{provider}/{model}".lower()
    matches = [
        pattern
        for pattern in overrides
        if pattern.lower() == name or fnmatchcase(name, pattern.lower())
    ]
    if not matches:
        return None
    best = max(
        matches, key=lambda pattern: (pattern.lower() == name, len(pattern), pattern)
    )
    return overrides[best]


def vendor_name(provider: str) -> str:
    """Return the name that the list of known models uses for a provider."""
    return {"openai-chat": "openai"}.get(provider, provider)


@lru_cache(maxsize=256)  # each step needs it twice: for the estimate and for the cost
def find(provider: str, model: str) -> KnownModel | None:
    """Return the known model that a name means, or None if there is none.

    The name may spell its date differently, or have a date that the known name lacks.
    """
    name = model.lower().removeprefix("models/")
    own = vendor_name(provider)
    for vendor in (own, *seller(own).too):
        models = by_name(vendor)
        for spelling in _spellings(name):
            if spelling in models:
                return models[spelling]
    return None


def is_on_this_machine(spec: ProviderSpec, address: str, model: str) -> bool:
    """Whether a model runs on this machine, so that it costs nothing.

    True for a self-hosted kind of server at a loopback address, unless the model is one of
    Ollama's cloud models. Other kinds of servers at a loopback address may forward requests to
    a paid server.
    """
    if not spec.own or model.endswith(("-cloud", ":cloud")):
        return False
    from refold.values.web_address import host_of

    host = host_of(address)
    return host in ("localhost", "::1") or host.startswith("127.")


def _list_tiers(provider: str, model: str, now: float) -> tuple[PriceTier, ...]:
    """Return the prices of the model at `now`, or () if it is unknown."""
    known = find(provider, model)
    if known is None:
        return ()
    moment = time.gmtime(now)
    return known.steps(
        date=time.strftime("%Y-%m-%d", moment), clock=time.strftime("%H:%M", moment)
    )


def _override_tier(override: Override, before: PriceTier | None) -> PriceTier | None:
    """Return the prices after an override, or None if the price of input or output is unknown.

    `before` are the prices without the override.
    """
    input_price = _first_set(override.input, before.input if before else None)
    output_price = _first_set(override.output, before.output if before else None)
    if input_price is None or output_price is None:
        return None
    # A new price of input tokens also replaces the known prices of cached ones.
    cache_base = before if override.input is None else None
    cached, cache_write = override.cached, override.cache_write
    if cache_base is not None:
        cached = _first_set(cached, cache_base.cached)
        cache_write = _first_set(cache_write, cache_base.cache_write)
    return PriceTier(0, input_price, output_price, cached, cache_write)


def _first_set(price: float | None, before: float | None) -> float | None:
    """Return the price if it is set, otherwise the price `before`."""
    return before if price is None else price


def _spellings(name: str) -> Iterator[str]:
    """Yield the name, with its date spelled as 2026-01-31, and without a date or version."""
    yield name
    yield re.sub(_PACKED_DAY_PATTERN, r"-\1-\2-\3", name)
    yield re.sub(_VERSION_PATTERN, "", name)
