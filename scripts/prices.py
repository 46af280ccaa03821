"""Write `src/refold/provider/known_models.json` from genai-prices, a maintained list.

Run it when models or prices change: `uv run --with genai-prices@latest scripts/prices.py`.
It keeps what a text model costs by tokens: special offers for batches or haste, and
models that are charged by anything else, are left out and so have no known price.
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
# Charged beside tokens, for what we do not ask for: searches, sound, a longer-lived cache.
BESIDE = frozenset(
    {
        "cache_audio_read_mtok",
        "cache_image_read_mtok",
        "cache_write_1h_mtok",
        "input_audio_mtok",
        "storage_searches_kcount",
        "web_searches_kcount",
    }
)
OURS = {"google": "gemini", "x-ai": "xai"}  # our name of a provider, where it is another
# Begins of names that the list has for a seller, and that another address of it serves.
ELSEWHERE = {"gemini": ("claude-",)}
NAMED_FOR_ALL = ("anthropic", "openai", "google", "mistral", "deepseek", "x-ai")
FAMILIES = (
    "claude-", "gpt-", "o1", "o3", "o4", "gemini-", "mistral-", "codestral", "devstral",
    "deepseek-", "grok-",
)  # fmt: skip


def render_table(today: date) -> str:
    """The whole file, one model a line, as it is known today."""
    sellers = {OURS.get(p.id, p.id): _seller(p, today) for p in data.providers}
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
    # A name without a window is only worth a line where a shorter one would answer for it.
    return {
        name: window
        for name, window in known.items()
        if window or any(name.startswith(other) and known[other] for other in known)
    }


def _seller(seller: Provider, today: date) -> dict[str, object]:
    too = [OURS.get(id_, id_) for id_ in seller.fallback_model_providers or ()]
    models = [*_models(seller, today)]
    return {"too": too, "models": models} if too else {"models": models}


def _models(seller: Provider, today: date) -> Iterator[dict[str, object]]:
    elsewhere = ELSEWHERE.get(OURS.get(seller.id, seller.id), ())
    for model in sorted(seller.models, key=lambda model: model.id):
        if model.id.startswith(elsewhere):
            continue
        names, terms = _names(seller, model), [*_terms(model, today)]
        if names and terms:
            window = {"window": model.context_window} if model.context_window else {}
            yield {"names": names, **window, "terms": terms}


def _names(seller: Provider, model: ModelInfo) -> list[str]:
    """What it is called in full: names that the list itself takes for this model."""
    fromkeys = dict.fromkeys(name.lower() for name in (model.id, *_literals(model.match)))
    whole = (name for name in fromkeys if name[-1:].isalnum())
    return [name for name in whole if seller.find_model(name) is model]


def _literals(clause: object) -> Iterator[str]:
    """The names in a rule for names. Those in patterns are dated ones, which we see."""
    for name, value in vars(clause).items():
        if name in ("or_", "and_"):
            for inner in value:
                yield from _literals(inner)
        elif name != "regex":
            yield value


def _terms(model: ModelInfo, today: date) -> Iterator[dict[str, object]]:
    """Prices, and when they hold. The last that does is the one to take."""
    prices = model.prices
    if isinstance(prices, ModelPrice):
        prices = [ConditionalPrice(prices=prices)]
    if model.id.endswith(":free"):  # they stand there without any price
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


def _first_valid(given: list[ConditionalPrice], today: date) -> int:
    """Where to begin: what stands before will never hold again."""
    for at in range(len(given) - 1, 0, -1):
        match given[at].constraint:
            case None:
                return at
            case StartDateConstraint(start) if start <= today:
                return at
            case _:
                pass
    return 0


def _depends_on_tokens(prices: ModelPrice) -> bool:
    keys = {name for name, value in vars(prices).items() if value is not None}
    return {"input_mtok", "output_mtok"} <= keys and keys <= BESIDE | set(KEYS)


def _steps(prices: ModelPrice) -> Iterator[list[object]]:
    """From how many tokens of input on, exclusive, which prices hold for all of them."""
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
