"""Reads the list of known models: their context windows and prices.

`scripts/prices.py` writes `known_models.json`. It is read on first use, and of its
sellers only the one that is asked for. `prices` computes costs.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

# Short names; `model_aliases`, which is loaded for one of them, has what each means.
MODEL_ALIASES = ("sonnet", "opus", "haiku", "gpt", "mini", "flash", "flash-lite")


class PriceTier(Struct, frozen=True, array_like=True):
    """US dollars per million tokens for a request that reads more than `over` tokens. They
    apply to all of its tokens, not only to those above.
    """

    over: int
    input: float
    output: float
    cached: float | None = None  # None: unknown, so the price of `input` counts
    cache_write: float | None = None


class PriceTerm(Struct, frozen=True):
    """Prices, and the time in which they apply. Dates and times are UTC."""

    steps: tuple[PriceTier, ...]
    since: str = ""  # a date
    daily: tuple[str, str] | None = None  # the hours: from, until (exclusive)


class KnownModel(Struct, frozen=True):
    """A model. The first of its names is what the list calls it."""

    names: tuple[str, ...]
    terms: tuple[PriceTerm, ...]  # the last one that applies counts
    window: int = 0

    def steps(self, date: str, clock: str) -> tuple[PriceTier, ...]:
        """The prices on a date (2026-11-22) at a time (13:59)."""
        for term in reversed(self.terms):
            if term.since <= date and (not term.daily or _is_within(term.daily, clock)):
                return term.steps
        return self.terms[0].steps


class Vendor(Struct, frozen=True):
    models: tuple[KnownModel, ...]
    too: tuple[str, ...] = ()  # other vendors whose models it sells at their prices


class PriceTable(Struct, frozen=True):
    as_of: str  # the day it was written
    source: str
    windows: Mapping[str, int]
    sellers: Mapping[str, Raw]


@cache
def table() -> PriceTable:
    file = Path(__file__).with_name("known_models.json")
    return msgspec.json.decode(file.read_bytes(), type=PriceTable)


@cache
def seller(name: str) -> Vendor:
    """The models of a seller; empty if the list does not have it."""
    content = table().sellers.get(name)
    return msgspec.json.decode(content, type=Vendor) if content else Vendor(())


@cache
def by_name(name: str) -> Mapping[str, KnownModel]:
    """A seller's models by each of their names."""
    return {called: model for model in seller(name).models for called in model.names}


def window(model: str) -> int:
    """A model's context window in tokens; 0 if unknown.

    A name that begins like a known one is a version of it.
    """
    windows = table().windows
    for end in range(len(model), 0, -1):
        if (tokens := windows.get(model[:end])) is not None:
            return tokens
    return 0


def _is_within(daily: tuple[str, str], clock: str) -> bool:
    start, end = daily
    if end < start:  # over midnight
        return clock >= start or clock < end
    return start <= clock < end
