"""The cost of a response in US dollars, or None if it is unknown: never a guessed zero.

Prices come from the settings or `known_models`. `Usage` counts tokens alike for every
provider, so nothing here depends on a wire. A cost that the provider reports takes
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
# What may follow a model's name and leave it the same model, before a ":variant".
_VERSION_PATTERN = rf"(?:[-@]{_DAY_PATTERN}|[-@]latest|@default|-00\d|(?<=-preview)-\d\d-(?:20)?\d\d)(?=:|$)"


Overrides: TypeAlias = Mapping[str, Override]  # by "provider/model", or a pattern of it
NO_OVERRIDES: Overrides = {}


class Rates(Struct, frozen=True):
    """The prices of a model at some time. The first step starts at the first token."""

    steps: tuple[PriceTier, ...]

    @property
    def first(self) -> PriceTier:
        return self.steps[0]

    def cost(self, usage: Usage) -> float:
        tier = self.first
        for step in self.steps[1:]:
            if usage.input > step.over:
                tier = step
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
    """A model's prices at `now`, in seconds since 1970; None: unknown.

    `tiers` are the prices that the provider reports.
    """
    steps = FREE_RATES.steps if is_local or provider == "local" else tiers
    steps = steps or _list_tiers(provider, model, time.time() if now is None else now)
    own = override(provider, model, overrides)
    if own and own.has_price:
        changed = _override_tier(own, steps[0] if steps else None)
        steps = (changed,) if changed else ()
    return Rates(steps) if steps else None


def override(provider: str, model: str, overrides: Overrides) -> Override | None:
    """The setting for a model: by its name, or else by the longest matching pattern."""
    name = f"{provider}/{model}".lower()
    fitting = [
        (pattern.lower() == name, len(pattern), pattern)
        for pattern in overrides
        if pattern.lower() == name or fnmatchcase(name, pattern.lower())
    ]
    return overrides[max(fitting)[2]] if fitting else None


def vendor_name(provider: str) -> str:
    """The name of a provider in the list of known models."""
    return {"openai-chat": "openai"}.get(provider, provider)


@lru_cache(maxsize=256)  # each step needs it twice: for the estimate and for the cost
def find(provider: str, model: str) -> KnownModel | None:
    """The model of the list that this name means; its date may differ."""
    name = model.lower().removeprefix("models/")
    own = vendor_name(provider)
    for vendor in (own, *seller(own).too):
        models = by_name(vendor)
        for spelling in _spellings(name):
            if spelling in models:
                return models[spelling]
    return None


def is_on_this_machine(spec: ProviderSpec, address: str, model: str) -> bool:
    """Return True if the model runs on this machine, so that it costs nothing.

    True for a self-hosted server at a loopback address. Any other server there may be a
    proxy of a paid one, and Ollama passes its cloud models on.
    """
    if not spec.own or model.endswith(("-cloud", ":cloud")):
        return False
    from refold.values.web_address import host_of

    host = host_of(address)
    return host in ("localhost", "::1") or host.startswith("127.")


def _list_tiers(provider: str, model: str, now: float) -> tuple[PriceTier, ...]:
    known = find(provider, model)
    if known is None:
        return ()
    moment = time.gmtime(now)
    date, clock = time.strftime("%Y-%m-%d", moment), time.strftime("%H:%M", moment)
    return known.steps(date, clock)


def _override_tier(override: Override, before: PriceTier | None) -> PriceTier | None:
    """The prices after an override; None if input or output has none."""
    read = _first_set(override.input, before and before.input)
    output = _first_set(override.output, before and before.output)
    if read is None or output is None:
        return None
    base = before if override.input is None else None
    cached = _first_set(override.cached, base and base.cached)
    return PriceTier(
        0, read, output, cached, _first_set(override.cache_write, base and base.cache_write)
    )


def _first_set(price: float | None, before: float | None) -> float | None:
    return before if price is None else price


def _spellings(name: str) -> Iterator[str]:
    yield name
    yield re.sub(_PACKED_DAY_PATTERN, r"-\1-\2-\3", name)
    yield re.sub(_VERSION_PATTERN, "", name)
