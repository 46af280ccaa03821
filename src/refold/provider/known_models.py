"""Reads the list of known models, with their context windows and prices.

`scripts/prices.py` writes that list, `known_models.json`. The file is read on first use, and
only the requested seller is decoded. `prices` computes costs.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

# Short names. `model_aliases` knows their meanings, and is only loaded if one is used.
MODEL_ALIASES = ("sonnet", "opus", "haiku", "gpt", "mini", "flash", "flash-lite")


class PriceTier(Struct, frozen=True, array_like=True):
    """Prices in US dollars per million tokens, for requests with more than `over` input tokens.

    They apply to all tokens of the request, not only to those above `over`.
    """

    over: int
    input: float
    output: float
    cached: float | None = None  # None: unknown, so the price of `input` is used
    cache_write: float | None = None


class PriceTerm(Struct, frozen=True):
    """Prices and the period in which they apply. Dates and times are UTC."""

    steps: tuple[PriceTier, ...]
    since: str = ""  # a date
    daily: tuple[str, str] | None = None  # the hours: from, until (exclusive)


class KnownModel(Struct, frozen=True):
    """A model in the list. `names` has all its names, the usual one first."""

    names: tuple[str, ...]
    terms: tuple[PriceTerm, ...]  # the last term that applies counts
    window: int = 0

    def steps(self, date: str, clock: str) -> tuple[PriceTier, ...]:
        """Return the price tiers at a date like 2026-11-22 and a time like 13:59."""
        for term in reversed(self.terms):
            if term.since <= date and (not term.daily or _is_within(term.daily, clock)):
                return term.steps
        return self.terms[0].steps


class Vendor(Struct, frozen=True):
    models: tuple[KnownModel, ...]
    too: tuple[str, ...] = ()  # other vendors whose models it sells at their prices


class PriceTable(Struct, frozen=True):
    as_of: str  # the day when the list was written
    source: str
    windows: Mapping[str, int]
    sellers: Mapping[str, Raw]


@cache
def table() -> PriceTable:
    file = Path(__file__).with_name("known_models.json")
    return msgspec.json.decode(file.read_bytes(), type=PriceTable)


@cache
def seller(name: str) -> Vendor:
    """Return what the list has about a seller's models; it is empty for an unknown seller."""
    content = table().sellers.get(name)
    return msgspec.json.decode(content, type=Vendor) if content else Vendor(())


@cache
def by_name(name: str) -> Mapping[str, KnownModel]:
    """Return the models of a seller by each of their names."""
    models = seller(name).models
    return {model_name: model for model in models for model_name in model.names}


def window(model: str) -> int:
    """Return the context window of a model in tokens, or 0 if unknown.

    The longest known name with which `model` begins counts, because longer names are versions.
    """
    windows = table().windows
    for end in range(len(model), 0, -1):
        if (tokens := windows.get(model[:end])) is not None:
            return tokens
    return 0


def _is_within(daily: tuple[str, str], clock: str) -> bool:
    """Whether the time `clock` is within (start, end), all as HH:MM. The end is excluded."""
    start, end = daily
    if end < start:  # the hours cross midnight
        return clock >= start or clock < end
    return start <= clock < end
