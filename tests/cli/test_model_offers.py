"""Which models are offered: those that are likely to answer, and no whole catalogues."""

from pathlib import Path

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.config.paths import paths
from refold.config.settings import Roles, Settings
from refold.provider.catalog import find
from refold.provider.model_figures import (
    ListedModel,
    StoredModelList,
    directory_in,
    store_list,
)


def list_offers(home: Path, tmp_path: Path, **environ: str) -> tuple[str, ...]:
    data = {"HOME": str(home), "REFOLD_HOME": str(home / "refold"), **environ}
    settings = Settings(models=Roles(small="anthropic/claude-haiku-5-5"))
    return App(
        settings, paths(data), data, LaunchOptions(directory=tmp_path)
    ).models.names()


def test_model_completion_offers_roles_and_providers_with_a_key(
    home: Path, tmp_path: Path
) -> None:
    names = list_offers(home, tmp_path, GROQ_API_KEY="gsk-not-a-real-key-000000000000")

    assert names == ("anthropic/claude-haiku-5-5", "groq/openai/gpt-oss-120b")


def test_model_completion_offers_the_stored_model_list_of_a_local_server(
    home: Path, tmp_path: Path
) -> None:
    state = paths({"HOME": str(home), "REFOLD_HOME": str(home / "refold")}).state
    model_list = StoredModelList(
        0.0, find("ollama").base_url, (ListedModel("llama4"), ListedModel("qwen4"))
    )
    store_list(directory_in(state), "ollama", model_list)

    assert list_offers(home, tmp_path)[1:] == ("ollama/llama4", "ollama/qwen4")
