"""Reasoning efforts in the words of each wire. Tables only.

Which model accepts which word changes by the month. So each effort has a list of words,
best first: a wire uses the first one that the model has not refused, and none if it
refused all.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from refold.values.modes import Effort

# Every word of any wire, in the order in which a refused one is replaced.
Level: TypeAlias = Literal["max", "xhigh", "high", "medium", "none", "minimal", "low"]
Levels: TypeAlias = Mapping[Effort, tuple[Level, ...]]
Budgets: TypeAlias = Mapping[Effort, int]

# https://platform.claude.com/docs/en/build-with-claude/effort
ANTHROPIC_LEVELS: Levels = MappingProxyType(
    {
        "low": ("low",),
        "medium": ("medium",),
        "high": ("high",),
        "max": ("max", "xhigh", "high"),
    }
)
# Tokens, for models that know no effort. They leave room for an answer in 32,000.
ANTHROPIC_BUDGETS: Budgets = MappingProxyType(
    {"low": 2_048, "medium": 8_192, "high": 16_384, "max": 24_576}
)

# https://platform.openai.com/docs/guides/reasoning, both of its APIs
OPENAI_LEVELS: Levels = MappingProxyType(
    {
        "off": ("none", "minimal", "low"),
        "low": ("low",),
        "medium": ("medium",),
        "high": ("high",),
        "max": ("max", "xhigh", "high"),
    }
)

# https://ai.google.dev/gemini-api/docs/thinking; in capitals there
GEMINI_LEVELS: Levels = MappingProxyType(
    {
        "off": ("minimal", "low"),
        "low": ("low",),
        "medium": ("medium",),
        "high": ("high",),
        "max": ("xhigh", "high"),
    }
)
# Tokens, for the second generation. Its largest model takes more than the others.
GEMINI_BUDGETS: Budgets = MappingProxyType(
    {"off": 0, "low": 2_048, "medium": 8_192, "high": 16_384, "max": 24_576}
)
GEMINI_PRO_BUDGETS: Budgets = MappingProxyType(
    {**GEMINI_BUDGETS, "off": 128, "max": 32_768}  # it cannot think less
)

# https://docs.ollama.com/capabilities/thinking: models that only think or do not,
# and those that know levels.
OLLAMA_SWITCH: Mapping[Effort, bool] = MappingProxyType(
    {"off": False, "low": False, "medium": True, "high": True, "max": True}
)
OLLAMA_LEVELS: Levels = MappingProxyType(
    {
        "off": ("low",),
        "low": ("low",),
        "medium": ("medium",),
        "high": ("high",),
        "max": ("max", "high"),
    }
)


def level(levels: Levels, effort: Effort, without: Collection[str]) -> str:
    """The word to request; "" for none."""
    effort_word = levels.get(effort, ())
    return next((word for word in effort_word if word not in without), "")
