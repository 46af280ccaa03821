"""Maps reasoning efforts to the words that each wire sends for them.

Which model accepts which word changes every month. So each effort has a list of words, the best
one first; a wire sends the first word that the model has not refused, or none.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from refold.values.modes import Effort

# All words of all wires, in the order in which a refused one is replaced.
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
# Budgets in tokens, for models without efforts. With an output limit of 32,000 tokens, they
# leave room for an answer.
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
# Budgets in tokens, for the second generation. Its largest model accepts more than the
# others.
GEMINI_BUDGETS: Budgets = MappingProxyType(
    {"off": 0, "low": 2_048, "medium": 8_192, "high": 16_384, "max": 24_576}
)
GEMINI_PRO_BUDGETS: Budgets = MappingProxyType(
    {**GEMINI_BUDGETS, "off": 128, "max": 32_768}  # this model cannot think less
)

# https://docs.ollama.com/capabilities/thinking: some models only switch thinking on and
# off, others have levels.
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
    """Return the best word for the effort that is not in `without`, or "" if there is none."""
    return next((word for word in levels.get(effort, ()) if word not in without), "")
