"""Write `src/refold/provider/known_models.json` from genai-prices, a maintained list.

Run it when models or prices change: `uv run --with genai-prices@latest scripts/prices.py`.
It keeps prices for tokens of text models. It leaves out special offers, as for batches or quick
answers, and models that cost anything else, which so have no known price.
"""

import json
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path

from genai_prices import data
from genai_prices.types import (
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    Provider,
    StartDateConstraint,
    TieredPrices,
    TimeOfDateConstraint,
)

TARGET = Path(__file__).parents[1] / "src/refold/provider/known_models.json"
KEYS = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")
# Prices beside those of tokens, for what refold never requests: searches, sound, a longer-lived
# cache.
UNUSED_KEYS = frozenset(
    {
        "cache_audio_read_mtok",
        "cache_image_read_mtok",
        "cache_write_1h_mtok",
        "input_audio_mtok",
        "storage_searches_kcount",
        "web_searches_kcount",
    }
)
OWN_NAMES = {"google": "gemini", "x-ai": "xai"}  # refold's names of providers that differ
# By seller: models with these prefixes are in its list, but have another address.
ELSEWHERE = {"gemini": ("claude-",)}
NAMED_FOR_ALL = ("anthropic", "openai", "google", "mistral", "deepseek", "x-ai")
FAMILIES = (
    "claude-", "gpt-", "o1", "o3", "o4", "gemini-", "mistral-", "codestral", "devstral",
    "deepseek-", "grok-",
)  # fmt: skip


def render_table(today: date) -> str:
    """Return the whole file, one model a line, as it is known today."""
    sellers = {OWN_NAMES.get(p.id, p.id): _seller(p, today) for p in data.providers}
    table: dict[str, object] = {
        "as_of": today.isoformat(),
        "source": f"genai-prices {version('genai-prices')}",
        "windows": dict(sorted(_windows().items())),
        "sellers": {name: row for name, row in sorted(sellers.items()) if row["models"]},
    }
    return _render(table) + "\n"


def _render(value: object) -> str:
    match value:
        case {"names": _}:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        case dict():
            rows = (f"{json.dumps(name)}:{_render(inner)}" for name, inner in value.items())
            return "{\n" + ",\n".join(rows) + "\n}"
        case list():
            return "[\n" + ",\n".join(map(_render, value)) + "\n]"
        case _:
            return json.dumps(value)


def _windows() -> dict[str, int]:
    known = {
        model.id: model.context_window or 0
        for provider in data.providers
        if provider.id in NAMED_FOR_ALL
        for model in provider.models
        if model.id.startswith(FAMILIES)
    }
    # A name without a window gets a line only if a shorter name with a window matches it, too.
    return {
        name: window
        for name, window in known.items()
        if window or any(name.startswith(other) and known[other] for other in known)
    }


def _seller(seller: Provider, today: date) -> dict[str, object]:
    too = [OWN_NAMES.get(id_, id_) for id_ in seller.fallback_model_providers or ()]
    models = [*_models(seller, today)]
    return {"too": too, "models": models} if too else {"models": models}


def _models(seller: Provider, today: date) -> Iterator[dict[str, object]]:
    elsewhere = ELSEWHERE.get(OWN_NAMES.get(seller.id, seller.id), ())
    for model in sorted(seller.models, key=lambda model: model.id):
        if model.id.startswith(elsewhere):
            continue
        names, terms = _names(seller, model), [*_terms(model, today)]
        if names and terms:
            window = {"window": model.context_window} if model.context_window else {}
            yield {"names": names, **window, "terms": terms}


def _names(seller: Provider, model: ModelInfo) -> list[str]:
    """Return the full names of a model: those by which the list itself finds this model."""
    fromkeys = dict.fromkeys(name.lower() for name in (model.id, *_literals(model.match)))
    whole = (name for name in fromkeys if name[-1:].isalnum())
    return [name for name in whole if seller.find_model(name) is model]


def _literals(clause: object) -> Iterator[str]:
    """Yield the names in a rule that matches names, without those in regular expressions.

    Regular expressions are for names with a date.
    """
    for name, value in vars(clause).items():
        if name in ("or_", "and_"):
            for inner in value:
                yield from _literals(inner)
        elif name != "regex":
            yield value


def _terms(model: ModelInfo, today: date) -> Iterator[dict[str, object]]:
    """Yield the prices with the time in which they hold. The last one that holds applies."""
    prices = model.prices
    if isinstance(prices, ModelPrice):
        prices = [ConditionalPrice(prices=prices)]
    if model.id.endswith(":free"):  # the list has no price for free models
        yield {"steps": [[0, 0, 0]]}
    if not all(_depends_on_tokens(value.prices) for value in prices):
        return
    for item in prices[_first_valid(prices, today) :]:
        term: dict[str, object] = {}
        match item.constraint:
            case StartDateConstraint(start) if start > today:
                term["since"] = start.isoformat()
            case TimeOfDateConstraint(start, end):
                term["daily"] = [f"{at:%H:%M}" for at in (start, end)]
            case _:
                pass
        term["steps"] = [*_steps(item.prices)]
        yield term


def _first_valid(prices: list[ConditionalPrice], today: date) -> int:
    """Return the index of the first price that can still hold; earlier ones never will."""
    for at in range(len(prices) - 1, 0, -1):
        match prices[at].constraint:
            case None:
                return at
            case StartDateConstraint(start) if start <= today:
                return at
            case _:
                pass
    return 0


def _depends_on_tokens(prices: ModelPrice) -> bool:
    keys = {name for name, value in vars(prices).items() if value is not None}
    return {"input_mtok", "output_mtok"} <= keys and keys <= UNUSED_KEYS | set(KEYS)


def _steps(prices: ModelPrice) -> Iterator[list[object]]:
    """Yield the steps of a price: a number of input tokens, and the prices above it.

    The prices then hold for all tokens.
    """
    values = [getattr(prices, key) for key in KEYS]
    starts = {t.start for p in values if isinstance(p, TieredPrices) for t in p.tiers}
    for over in sorted({0, *starts}):
        row = [_price(price, over if over in starts else -1) for price in values]
        while row[-1] is None:
            row.pop()
        yield [over, *row]


def _price(price: Decimal | TieredPrices | None, over: int) -> float | int | None:
    if isinstance(price, TieredPrices):
        prices = [tier.price for tier in price.tiers if tier.start <= over]
        price = prices[-1] if prices else price.base
    if price is None:
        return None
    return int(price) if price == int(price) else float(price)


def main() -> None:
    TARGET.write_text(render_table(date.today()), encoding="utf-8")


if __name__ == "__main__":
    main()
