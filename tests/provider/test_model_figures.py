"""The figures of a model: from the settings, its provider, or the built-in list."""

from pathlib import Path

import pytest

from refold.provider.catalog import find
from refold.provider.known_models import PriceTier
from refold.provider.model_figures import (
    ListedModel,
    ModelFigures,
    StoredModelList,
    store_list,
)
from refold.provider.prices import FREE_RATES, Override, Rates
from refold.provider.spec import PluginProvider
from refold.testing.providers import ScriptedProvider

OPENAI, OLLAMA, VLLM = find("openai"), find("ollama"), find("vllm")
MODEL = "gpt-6.1-sol"
OWN = {f"openai/{MODEL}": Override(input=1.0, output=2.0, window=111)}
TOLD = ListedModel(MODEL, 333, (PriceTier(0, 3.0, 4.0),))


def figures(
    directory: Path,
    own: dict[str, Override] | None = None,
    windows: dict[str, int] | None = None,
    **environ: str,
) -> ModelFigures:
    return ModelFigures(environ, own or {}, windows or {}, directory)


@pytest.mark.parametrize(
    ("own", "windows", "listed_models", "window"),
    [
        (OWN, {"openai": 222}, (TOLD,), 111),
        ({f"openai/{MODEL}": Override(input=1.0)}, {"openai": 222}, (TOLD,), 222),
        ({}, {"openai": 0, "gemini": 222}, (TOLD,), 333),
        ({}, {}, (ListedModel(MODEL), ListedModel("gpt-other", 444)), 1_050_000),
        ({}, {}, (), 1_050_000),
    ],
)
def test_window_comes_from_settings_then_the_provider_then_the_builtin_list(
    own: dict[str, Override],
    windows: dict[str, int],
    listed_models: tuple[ListedModel, ...],
    window: int,
    tmp_path: Path,
) -> None:
    store_list(tmp_path, "openai", StoredModelList(0.0, OPENAI.base_url, listed_models))

    assert figures(tmp_path, own, windows).window(OPENAI, MODEL) == window


def test_price_comes_from_settings_then_the_provider_then_the_builtin_list(
    tmp_path: Path,
) -> None:
    rates = figures(tmp_path).rates(OPENAI, MODEL)
    store_list(tmp_path, "openai", StoredModelList(0.0, OPENAI.base_url, (TOLD,)))

    result, own = (figures(tmp_path, set_).rates(OPENAI, MODEL) for set_ in ({}, OWN))

    assert rates
    assert rates.first.input == 2.0
    assert result == Rates(TOLD.steps)
    assert own
    assert (own.first.input, own.first.output) == (1.0, 2.0)


def test_figures_learned_from_another_address_are_ignored(tmp_path: Path) -> None:
    store_list(
        tmp_path, "vllm", StoredModelList(0.0, "http://here:1", (ListedModel("m", 333),))
    )

    assert figures(tmp_path, VLLM_BASE_URL="http://here:1").window(VLLM, "m") == 333
    assert figures(tmp_path, VLLM_BASE_URL="http://there:1").window(VLLM, "m") == 0


def test_learned_figures_apply_at_once_and_in_later_sessions(tmp_path: Path) -> None:
    first = figures(tmp_path)
    before = first.window(OLLAMA, "m")

    learn = first.learn(OLLAMA, (ListedModel("m", 333),), 9.0)

    assert (before, first.window(OLLAMA, "m")) == (0, 333)
    assert figures(tmp_path).window(OLLAMA, "m") == 333
    assert figures(tmp_path).get_list(OLLAMA) == learn == first.get_list(OLLAMA)


def test_model_on_this_machine_costs_nothing(tmp_path: Path) -> None:
    here, there = (
        figures(tmp_path, VLLM_BASE_URL=url).rates(VLLM, "m")
        for url in ("http://127.0.0.1:8000/v1", "http://example.com/v1")
    )

    assert (here, there) == (FREE_RATES, None)
    assert figures(tmp_path).rates_here("m") == FREE_RATES


def test_unknown_provider_has_only_figures_from_the_settings(tmp_path: Path) -> None:
    brought = PluginProvider("brought", lambda model, environ: ScriptedProvider())
    own = {"brought/*": Override(input=1.0, output=2.0)}
    result = figures(tmp_path, own, {"brought": 222})

    assert result.window(brought, "m") == 222
    assert result.rates(brought, "m") == Rates((PriceTier(0, 1.0, 2.0),))
    assert figures(tmp_path).window(brought, "m") == 0
    assert figures(tmp_path).rates(brought, "m") is None
