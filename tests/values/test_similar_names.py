"""Only names that are really close are suggested."""

import pytest

from refold.values.similar_names import similar

NAMES = ("model", "openai", "openai-chat", "claude-code", "coro", "tools", "tree", "doctor")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("modle", ["model"]), ("MODEL", ["model"]), ("doctr", ["doctor"]),
        ("claude", ["claude-code"]), ("open-ai", ["openai"]), ("toosl", ["tools"]), ("foo", []),
        ("hooks", []), ("trace", []), ("x", []), ("", []),
    ],
)  # fmt: skip
def test_only_similar_names_are_suggested(typed: str, expected: list[str]) -> None:
    assert similar(typed, NAMES) == expected


def test_suggestions_are_limited_in_number_and_the_nearest_comes_first() -> None:
    assert similar("tool", ["tools", "spool", "tool-"]) == ["tool-", "tools"]
