"""The page on providers says what the code does."""

import re
import tomllib
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from refold.config.settings import Settings
from refold.provider import efforts, gemini, images, ollama, spec
from refold.provider.spec import Quirks
from tests.documents import read_pages

PAGE = read_pages("guides/providers", "reference/providers")
EFFORTS = ("low", "medium", "high", "max")


def rows(heading: str) -> dict[str, list[str]]:
    """Return the first table under a heading: what stands in each row, by its first cell."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first: rest for first, *rest in cells[2:]}


def words(levels: Mapping[str, Sequence[str]]) -> list[str]:
    return [", ".join(f"`{word}`" for word in levels[effort]) for effort in EFFORTS]


def tokens(budgets: Mapping[str, int]) -> list[str]:
    return [f"{budgets[effort]:,}" for effort in EFFORTS]


def test_every_effort_level_is_documented_as_it_is_sent() -> None:
    assert rows("Effort") == {
        "Anthropic": words(efforts.ANTHROPIC_LEVELS),
        "Anthropic up to 4.5, tokens": tokens(efforts.ANTHROPIC_BUDGETS),
        "OpenAI, and servers like it": words(efforts.OPENAI_LEVELS),
        "Gemini": words(efforts.GEMINI_LEVELS),
        "Gemini 2.5, tokens": tokens(efforts.GEMINI_BUDGETS),
        "Gemini 2.5 Pro, tokens": tokens(efforts.GEMINI_PRO_BUDGETS),
        "Ollama": ["on" if efforts.OLLAMA_SWITCH[effort] else "off" for effort in EFFORTS],
        "Ollama, models with levels": words(efforts.OLLAMA_LEVELS),
    }


def test_every_quirk_is_documented_with_its_default() -> None:
    data = {
        name.strip("`"): cells[0] for name, cells in rows("A server of your own").items()
    }

    plain = msgspec.structs.asdict(Quirks())
    assert data == {
        name: f"`{msgspec.json.encode(v).decode()}`" for name, v in plain.items()
    }


def test_every_image_type_is_documented() -> None:
    data = {
        wire.strip("`"): set(cells[0].split(", "))
        for wire, cells in rows("What each is sent").items()
    }

    def kinds(known: frozenset[str]) -> set[str]:
        return {kind.removeprefix("image/") for kind in known}

    assert data == {
        "anthropic": kinds(images.IMAGE_TYPES),
        "openai-responses": kinds(images.IMAGE_TYPES),
        "openai-chat": kinds(images.IMAGE_TYPES),
        "gemini": kinds(gemini.IMAGE_TYPES),
        "ollama": kinds(ollama.IMAGE_TYPES),
    }


@pytest.mark.parametrize("example", re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL))
def test_examples_of_the_page_are_valid_settings(example: str) -> None:
    data = tomllib.loads(example)
    if "project" in data:  # of another package, not of our settings
        assert list(data["project"]["entry-points"]) == [spec.PROVIDER_GROUP]
        return
    settings = msgspec.convert(data, Settings)

    for provider in settings.providers.values():
        msgspec.convert(provider.quirks, Quirks)
    assert settings.providers
