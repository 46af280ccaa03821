"""The cost of responses, compared with dollars computed by hand and by a peer."""

import json
from contextlib import aclosing
from datetime import UTC, date, datetime, timedelta
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.provider import known_models, prices
from refold.provider.catalog import connect, find
from refold.provider.port import Done
from refold.provider.prices import NO_OVERRIDES, Overrides, is_on_this_machine, rates
from refold.provider.settings import Override
from refold.testing.wire_server import Answer, wire_server
from refold.values.usage import Usage
from tests.provider.wires import message, request

MILLION = 1_000_000
USAGE = Usage(fresh=1000, cached=2000, cache_write=300, output=400, reasoning=50)


def price(
    provider: str,
    model: str,
    usage: Usage,
    overrides: Overrides = NO_OVERRIDES,
    *,
    here: bool = False,
) -> float | None:
    """What this usage of a model costs now. `here`: it runs on this machine."""
    model_rates = rates(provider, model, overrides, is_local=here)
    return None if model_rates is None else model_rates.cost(usage)


def test_each_kind_of_token_is_priced_once() -> None:
    """Reasoning is a part of the output, so it has no price of its own."""
    dollars = (1000 * 2.0 + 2000 * 0.1 + 300 * 2.5 + 400 * 10.0) / MILLION

    assert price("anthropic", "claude-sonnet-5-5", USAGE) == pytest.approx(dollars)


def test_unknown_price_is_none_and_not_zero() -> None:
    assert price("openai", "gpt-99", USAGE) is None
    assert price("my-own", "claude-sonnet-5-5", USAGE) is None
    assert price("openrouter", "openrouter/auto", USAGE) is None
    assert price("openai", "gpt-audio", USAGE) is None  # sound has prices of its own


@pytest.mark.parametrize(
    ("provider", "dated", "family"),
    [
        ("anthropic", "claude-sonnet-5-5-20260101", "claude-sonnet-5-5"),
        ("anthropic", "claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("anthropic", "Claude-Opus-5-5-latest", "claude-opus-5-5"),
        ("openai", "gpt-6.1-sol-2026-09-30", "gpt-6.1-sol"),
        ("openai", "gpt-5.2-20251211", "gpt-5.2"),
        ("openai-chat", "gpt-6.1-sol", "gpt-6.1-sol"),
        ("gemini", "models/gemini-3.8-flash-001", "gemini-3.8-flash"),
        (
            "openrouter",
            "anthropic/claude-sonnet-4.5-20250929",
            "anthropic/claude-sonnet-4.5",
        ),
        ("azure", "gpt-6.1-sol", "gpt-6.1-sol"),
    ],
)
def test_dated_model_name_costs_what_its_family_costs(
    provider: str, dated: str, family: str
) -> None:
    assert rates(provider, dated) == rates(provider, family) is not None


@pytest.mark.parametrize(
    ("provider", "longer"),
    [
        ("openai", "gpt-4o-miniature"),
        ("openai", "gpt-4o-mini-2"),
        ("openai", "gpt-6.1-sol-pro"),
        ("openai", "gpt-6.1"),
        ("anthropic", "claude-sonnet-5-6"),
        ("anthropic", "claude-sonnet-5-50"),
        ("anthropic", "claude-sonnet"),
        ("mistral", "mistral-large-2612"),
        ("openrouter", "anthropic/claude-sonnet-4.5:nitro"),
    ],
)
def test_similar_model_name_is_not_priced_as_a_known_model(
    provider: str, longer: str
) -> None:
    assert rates(provider, longer) is None


def test_dated_model_with_a_different_price_keeps_that_price() -> None:
    mini, old, new = (
        rates("openai", f"gpt-4o{rest}") for rest in ("-mini", "-2024-05-13", "")
    )

    assert mini is not None
    assert old is not None
    assert new is not None
    assert (mini.first.input, new.first.input, old.first.input) == (0.15, 2.5, 5.0)
    assert rates("openai", "gpt-4o-20240513") == old


def test_above_a_price_tier_all_tokens_of_the_request_cost_the_higher_price() -> None:
    usage = Usage(fresh=2000, cached=270_000, output=1)
    above = Usage(fresh=2001, cached=270_000, output=1)

    assert price("openai", "gpt-6.1-sol", usage) == pytest.approx(
        (2000 * 2 + 270_000 * 0.1 + 10) / MILLION
    )
    assert price("openai", "gpt-6.1-sol", above) == pytest.approx(
        (2001 * 4 + 270_000 * 0.2 + 15) / MILLION
    )


def test_cached_token_of_unknown_price_costs_as_much_as_a_fresh_token() -> None:
    own = {"x/y": Override(input=3.0, output=5.0)}

    assert price("x", "y", Usage(cached=MILLION, cache_write=MILLION), own) == 6.0


@pytest.mark.parametrize(
    ("moment", "dollars"),
    [
        (datetime(2026, 12, 31, 23, 59, tzinfo=UTC), 0.75),
        (datetime(2027, 1, 1, 0, 0, tzinfo=UTC), 1.5),
    ],
)
def test_price_applies_from_its_start_date(moment: datetime, dollars: float) -> None:
    model_rates = rates("gemini", "gemini-3.8-flash", now=moment.timestamp())

    assert model_rates is not None
    assert model_rates.first.input == dollars


@pytest.mark.parametrize(
    ("clock", "dollars"),
    [((0, 59), 0.15), ((1, 0), 0.3), ((4, 0), 0.15), ((9, 59), 0.3), ((10, 0), 0.15)],
)
def test_time_of_day_price_applies_in_its_hours(
    clock: tuple[int, int], dollars: float
) -> None:
    moment = datetime(2026, 12, 1, *clock, tzinfo=UTC)

    model_rates = rates("deepseek", "deepseek-flash", now=moment.timestamp())

    assert model_rates is not None
    assert model_rates.first.input == dollars


def test_time_of_day_price_may_cross_midnight() -> None:
    day, night = known_models.PriceTier(0, 2.0, 2.0), known_models.PriceTier(0, 1.0, 1.0)
    model = known_models.KnownModel(
        ("m",),
        (
            known_models.PriceTerm((day,)),
            known_models.PriceTerm((night,), daily=("22:30", "06:00")),
        ),
    )

    steps = [
        model.steps("2026-01-01", time) for time in ("22:29", "22:30", "05:59", "06:00")
    ]

    assert steps == [(day,), (night,), (night,), (day,)]


def test_price_from_the_settings_takes_precedence_over_the_list() -> None:
    own = {
        "openai/gpt-6.1-sol": Override(input=1.0, output=2.0, cached=0.5),
        "openai/*": Override(input=7.0, output=7.0),
        "*": Override(window=5),
    }
    one = Usage(fresh=MILLION, cached=MILLION, output=MILLION)

    assert price("openai", "gpt-6.1-sol", one, own) == 3.5
    assert price("openai", "gpt-anything", one, own) == 21.0
    assert price("anthropic", "claude-sonnet-5-5", one, own) == pytest.approx(12.1)
    assert prices.override("xai", "grok", own) == Override(window=5)
    assert price("xai", "grok", one, own) is None


@pytest.mark.parametrize(
    ("own", "step"),
    [
        (
            Override(input=3.0),
            known_models.PriceTier(0, 3.0, 10.0),
        ),  # the cache's go with it
        (Override(input=3.0, cached=1.0), known_models.PriceTier(0, 3.0, 10.0, 1.0)),
        (Override(output=3.0), known_models.PriceTier(0, 2.0, 3.0, 0.1, 2.5)),
        (Override(cached=0.0), known_models.PriceTier(0, 2.0, 10.0, 0.0, 2.5)),
        (Override(cache_write=9.0), known_models.PriceTier(0, 2.0, 10.0, 0.1, 9.0)),
    ],
)
def test_price_missing_from_the_settings_comes_from_the_list(
    own: Override, step: known_models.PriceTier
) -> None:
    model_rates = rates("openai", "gpt-6.1-sol", {"openai/gpt-6.1-sol": own})

    assert model_rates == prices.Rates((step,))


def test_incomplete_price_of_an_unknown_model_is_none() -> None:
    assert rates("x", "y", {"x/y": Override(input=3.0)}) is None
    assert rates("x", "y", {"x/y": Override(output=3.0)}) is None


def test_price_from_the_provider_takes_precedence_over_the_list() -> None:
    tiers = (known_models.PriceTier(0, 1.0, 1.0),)

    assert rates("openai", "gpt-6.1-sol", tiers=tiers) == prices.Rates(tiers)
    assert rates("openai", "gpt-6.1-sol", {"*": Override(output=2.0)}, tiers=tiers) == (
        prices.Rates((known_models.PriceTier(0, 1.0, 2.0),))
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"input": -1, "output": 1}',
        '{"input": 1, "output": 2000000}',
        '{"inputs": 1, "output": 1}',
        '{"window": -1}',
    ],
)
def test_invalid_price_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Override)


def test_nan_and_infinite_prices_are_refused() -> None:
    for odd in (float("nan"), float("inf")):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"input": odd, "output": 1.0}, Override)


def test_local_model_costs_nothing() -> None:
    assert price("local", "qwen2.5-coder-1.5b", USAGE) == 0.0
    assert price("ollama", "qwen3:8b", USAGE, here=True) == 0.0
    assert price("ollama", "qwen3:8b", USAGE) is None
    watts = {"ollama/*": Override(input=0.0, output=1.0)}
    assert price("ollama", "qwen3:8b", Usage(output=MILLION), watts, here=True) == 1.0


@pytest.mark.parametrize(
    ("name", "address", "model", "here"),
    [
        ("ollama", "http://127.0.0.1:11434", "qwen3:8b", True),
        ("vllm", "http://localhost:8000/v1", "m", True),
        ("llama-cpp", "http://[::1]:8080/v1", "m", True),
        ("lmstudio", "http://127.1.2.3:1234/v1", "m", True),
        ("ollama", "http://big.example:11434", "qwen3:8b", False),
        ("ollama", "http://127.0.0.1:11434", "gpt-oss:120b-cloud", False),
        ("openai", "http://127.0.0.1:4000/v1", "gpt-6.1-sol", False),  # may pass it on
    ],
)
def test_server_is_recognized_as_local_by_provider_address_and_model(
    name: str, address: str, model: str, here: bool
) -> None:
    assert is_on_this_machine(find(name), address, model) is here


def anthropic(usage: object) -> list[dict[str, Any]]:
    return [
        {"type": "message_start", "message": {"model": "m", "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "Yes."},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ]


def chat(usage: object) -> list[dict[str, Any]]:
    data = {"delta": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}
    return [{"choices": [{"index": 0, **data}]}, {"choices": [], "usage": usage}]


def gemini(usage: object) -> list[dict[str, Any]]:
    data = {"content": {"parts": [{"text": "Yes."}]}, "finishReason": "STOP"}
    return [{"candidates": [data], "usageMetadata": usage}]


def responses(usage: object) -> list[dict[str, Any]]:
    data = {"type": "message", "content": [{"type": "output_text", "text": "Yes."}]}
    done = {"status": "completed", "model": "m", "output": [data], "usage": usage}
    return [
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Yes."},
        {"type": "response.completed", "response": done},
    ]


ANTHROPIC_USED = {
    "input_tokens": 1000,
    "cache_read_input_tokens": 20_000,
    "cache_creation_input_tokens": 3000,
    "output_tokens": 500,
}
CHAT_USED = {
    "prompt_tokens": 21_000,
    "prompt_tokens_details": {"cached_tokens": 20_000},
    "completion_tokens": 500,
    "completion_tokens_details": {"reasoning_tokens": 300},
}
RESPONSES_USED = {
    "input_tokens": 21_000,
    "input_tokens_details": {"cached_tokens": 20_000},
    "output_tokens": 500,
    "output_tokens_details": {"reasoning_tokens": 300},
}
GEMINI_USED = {
    "promptTokenCount": 21_000,
    "cachedContentTokenCount": 20_000,
    "candidatesTokenCount": 200,
    "thoughtsTokenCount": 300,
}


@pytest.mark.parametrize(
    ("name", "model", "events", "dollars"),
    [
        # Its "input" leaves the cached ones out: 1,000 fresh beside 23,000.
        ("anthropic", "claude-sonnet-5-5", anthropic(ANTHROPIC_USED),
            (1000 * 2 + 20_000 * 0.1 + 3000 * 2.5 + 500 * 10) / MILLION),
        # The others' input has them: 21,000 are 1,000 fresh and 20,000 cached.
        ("openai-chat", "gpt-6.1-sol", chat(CHAT_USED),
            (1000 * 2 + 20_000 * 0.1 + 500 * 10) / MILLION),
        ("openai", "gpt-6.1-sol", responses(RESPONSES_USED),
            (1000 * 2 + 20_000 * 0.1 + 500 * 10) / MILLION),
        # Its output excludes reasoning: 200 and 300.
        ("gemini", "gemini-2.5-pro", gemini(GEMINI_USED),
            (1000 * 1.25 + 20_000 * 0.125 + 500 * 10) / MILLION),
    ],
    ids=["anthropic", "openai-chat", "openai", "gemini"],
)  # fmt: skip
def test_token_counts_are_converted_to_dollars(
    name: str, model: str, events: list[dict[str, Any]], dollars: float
) -> None:
    spec = find(name)
    text = "".join(
        f"event: {e.get('type', 'x')}\ndata: {json.dumps(e)}\n\n" for e in events
    )
    answer = Answer(text.encode(), headers={"content-type": "text/event-stream"})

    async def ask() -> list[Done]:
        async with wire_server(answer) as server:
            there = {spec.url_env: server.url, spec.key_env: "k"}
            async with aclosing(connect(spec, there)) as provider:
                deltas = provider.stream(request(message("user", "Hm?"), model=model))
                return [d async for d in deltas if isinstance(d, Done)]

    (done,) = anyio.run(ask)

    assert price(name, model, done.usage) == pytest.approx(dollars, abs=1e-12)


COUNTS = st.integers(0, 600_000)
USAGES = st.builds(Usage, fresh=COUNTS, cached=COUNTS, cache_write=COUNTS, output=COUNTS)
AS_OF = datetime.fromisoformat(f"{known_models.table().as_of}T00:00+00:00")


def names() -> list[tuple[str, str]]:
    return [
        (seller, name)
        for seller in known_models.table().sellers
        for model in known_models.seller(seller).models
        for name in model.names
    ]


def peer_rates(seller: str, name: str) -> Any:
    """Return the model that genai-prices means by a name, and who sells it; None for none."""
    pytest.importorskip("genai_prices", reason="genai-prices is not installed")
    from genai_prices import data

    theirs = {"gemini": "google", "xai": "x-ai"}.get(seller, seller)
    provider = next(p for p in data.providers if p.id == theirs)
    model = provider.find_model(name, all_providers=data.providers)
    return model and (model, provider)


def peer_price(seller: str, name: str, usage: Usage, now: datetime) -> float | None:
    result = peer_rates(seller, name)
    if result is None:
        return None
    from genai_prices import Usage as TheirUsage

    model, provider = result
    counted = TheirUsage(
        input_tokens=usage.input,
        cache_read_tokens=usage.cached,
        cache_write_tokens=usage.cache_write,
        output_tokens=usage.output,
    )
    return float(
        model.calc_price(counted, provider, genai_request_timestamp=now).total_price
    )


def our_price(seller: str, name: str, usage: Usage, now: datetime) -> float | None:
    model_rates = rates(seller, name, now=now.timestamp())
    return None if model_rates is None else model_rates.cost(usage)


def fresh_list() -> None:
    """The list that is compared must be of the same release as the peer."""
    peer = pytest.importorskip("genai_prices", reason="genai-prices is not installed")
    if known_models.table().source != f"genai-prices {peer.__version__}":
        pytest.skip("optional: another release than the one our list is from")


@pytest.mark.peer
def test_committed_price_list_equals_the_output_of_the_script() -> None:
    fresh_list()
    from scripts.prices import TARGET, render_table

    assert TARGET.read_text(encoding="utf-8") == render_table(
        date.fromisoformat(known_models.table().as_of)
    )


@pytest.mark.peer
@given(st.data())
def test_any_usage_of_any_model_costs_the_same_as_in_genai_prices(
    data: st.DataObject,
) -> None:
    fresh_list()
    seller, name = data.draw(st.sampled_from(names()))
    usage = data.draw(USAGES)
    now = AS_OF + timedelta(minutes=data.draw(st.integers(0, 60 * 24 * 120)))

    ours, theirs = our_price(seller, name, usage, now), peer_price(seller, name, usage, now)

    assert ours == pytest.approx(theirs, abs=1e-9, rel=1e-12)


@pytest.mark.peer
def test_every_name_of_the_list_costs_the_same_as_in_genai_prices() -> None:
    fresh_list()
    usages = (
        Usage(1, 2, 3, 4),
        Usage(150_000, 40_000, 20_000, 9),
        Usage(400_000, output=1),
    )

    other = [
        (seller, name, usage)
        for seller, name in names()
        for usage in usages
        if our_price(seller, name, usage, AS_OF)
        != pytest.approx(peer_price(seller, name, usage, AS_OF), abs=1e-9, rel=1e-12)
    ]

    assert other == []


@pytest.mark.peer
def test_dated_name_is_never_priced_as_a_different_model_than_in_genai_prices() -> None:
    fresh_list()

    other = [
        (seller, dated)
        for seller, name in names()
        for dated in (f"{name}-20270131", f"{name}-2027-01-31", f"{name}-latest")
        if (theirs := peer_price(seller, dated, USAGE, AS_OF)) is not None
        if (ours := our_price(seller, dated, USAGE, AS_OF)) is not None
        if ours != pytest.approx(theirs, abs=1e-9, rel=1e-12)
    ]

    assert other == []
