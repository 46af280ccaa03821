"""Short names of models mean the newest of a family, at a provider with a key."""

from pathlib import Path

import pytest

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.app.models import Models
from refold.config.paths import paths
from refold.config.settings import Provider, Settings
from refold.errors import BadInput
from refold.provider import catalog
from refold.provider.command.backends import full_name
from refold.provider.model_aliases import newest_model
from tests.provider.list_server import list_server

KEY = "not-a-real-key-000000000000"


def models(home: Path, *keys: str, settings: Settings | None = None) -> Models:
    data = {
        "HOME": str(home),
        "REFOLD_HOME": str(home / "refold"),
        **dict.fromkeys(keys, KEY),
    }
    options = LaunchOptions(directory=home)
    return App(settings or Settings(), paths(data), data, options).models


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
def test_short_name_selects_the_newest_model_of_a_provider_with_a_key(
    home: Path, name: str, keys: tuple[str, ...], meant: str
) -> None:
    assert models(home, *keys).full_name(name) == meant


def test_newest_model_may_be_one_that_only_the_provider_lists() -> None:
    texts = ("claude-opus-9-1", "claude-opus-10", "claude-sonnet-11")

    assert newest_model("opus", "anthropic", texts) == "claude-opus-10"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("claude", "anthropic/claude-sonnet-5-5"),
        ("claude-api/opus", "anthropic/claude-opus-5-5"),
        ("claude_code/opus", "claude-code/opus"),
        ("codex", "codex-cli"),
        ("ollama-api/codellama", "ollama/codellama"),
        ("gemini/x", "gemini/x"),
    ],
)
def test_alias_of_a_backend_is_accepted_everywhere(
    home: Path, name: str, meant: str
) -> None:
    assert models(home).full_name(name) == meant
    assert full_name(name.partition("/")[0]) == meant.partition("/")[0]


def test_own_provider_takes_precedence_over_an_alias_of_a_builtin_one(home: Path) -> None:
    own = {"claude": Provider(wire="openai-chat", base_url="http://127.0.0.1:1/v1")}

    assert (
        models(home, settings=Settings(providers=own)).full_name("claude/x") == "claude/x"
    )


@pytest.mark.parametrize("name", ["ollama", "ollama-api"])
def test_server_named_without_a_model_uses_the_first_model_it_lists(
    home: Path, name: str
) -> None:
    data = {"/api/tags": {"models": [{"name": "nomic-embed"}, {"name": "codellama"}]}}
    with list_server(data) as server:
        own = {"ollama": Provider(base_url=server.url)}
        here = models(home, settings=Settings(providers=own))

        assert [here.full_name(name), here.full_name(name)] == ["ollama/codellama"] * 2
        assert server.asked == ["GET /api/tags"]


def test_server_that_lists_no_model_is_named_with_its_address(home: Path) -> None:
    with list_server({}) as server:
        own = {"vllm": Provider(base_url=server.url)}
        with pytest.raises(BadInput, match=f"vLLM at {server.url} lists none: start it"):
            models(home, settings=Settings(providers=own)).full_name("vllm")


def test_missing_key_error_suggests_the_command_line_of_the_same_vendor() -> None:
    with pytest.raises(BadInput, match="such as gemini-cli, its command line"):
        catalog.connect(catalog.GEMINI_SPEC, {})


def test_all_model_families_of_a_provider_with_a_key_are_offered(home: Path) -> None:
    assert models(home, "ANTHROPIC_API_KEY").names() == (
        "anthropic/claude-sonnet-5-5",
        "anthropic/claude-opus-5-5",
        "anthropic/claude-haiku-5-5",
    )
