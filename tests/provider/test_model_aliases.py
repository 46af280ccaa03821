"""Short names of models mean the newest of a family, at a provider with a key."""

from pathlib import Path

import pytest

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.app.models import Models
from refold.config.paths import paths
from refold.config.settings import Settings
from refold.errors import BadInput
from refold.provider.model_aliases import newest

KEY = "not-a-real-key-000000000000"


def models(home: Path, *keys: str) -> Models:
    given = {
        "HOME": str(home),
        "REFOLD_HOME": str(home / "refold"),
        **dict.fromkeys(keys, KEY),
    }
    options = LaunchOptions(directory=home)
    return App(Settings(), paths(given), given, options).models


@pytest.mark.parametrize(
    ("name", "keys", "meant"),
    [
        ("opus", ("ANTHROPIC_API_KEY",), "anthropic/claude-opus-5-5"),
        ("Sonnet", ("ANTHROPIC_API_KEY",), "anthropic/claude-sonnet-5-5"),
        ("gpt", ("OPENAI_API_KEY",), "openai/gpt-6.1-sol"),
        ("flash", ("GEMINI_API_KEY",), "gemini/gemini-3.8-flash"),
        ("haiku", ("OPENROUTER_API_KEY",), "openrouter/anthropic/claude-haiku-5.5"),
        ("haiku", (), "anthropic/claude-haiku-5-5"),
        (
            "openrouter/haiku",
            ("ANTHROPIC_API_KEY",),
            "openrouter/anthropic/claude-haiku-5.5",
        ),
        ("ollama/opus", ("ANTHROPIC_API_KEY",), "ollama/opus"),
    ],
)
def test_a_short_name_means_the_newest_model_of_a_provider_with_a_key(
    home: Path, name: str, keys: tuple[str, ...], meant: str
) -> None:
    assert models(home, *keys).full(name) == meant


def test_a_model_that_only_the_provider_lists_may_be_the_newest() -> None:
    listed = ("claude-opus-9-1", "claude-opus-10", "claude-sonnet-11")

    assert newest("opus", "anthropic", listed) == "claude-opus-10"


def test_claude_alone_is_refused_with_the_names_that_it_may_mean(home: Path) -> None:
    with pytest.raises(
        BadInput, match="'claude' is not a model: use sonnet, opus or haiku"
    ):
        models(home).full("claude")


def test_all_families_of_a_provider_with_a_key_are_offered(home: Path) -> None:
    assert models(home, "ANTHROPIC_API_KEY").names() == (
        "anthropic/claude-sonnet-5-5",
        "anthropic/claude-opus-5-5",
        "anthropic/claude-haiku-5-5",
    )
