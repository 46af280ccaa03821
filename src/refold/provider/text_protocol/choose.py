"""How the models of a provider call tools: as a person chose, or as each needs.

Hardly any are known here beforehand. Ollama says of each model whether it takes
tools, and its wire refuses them then without asking; elsewhere a model shows the
need itself (`as_needed`).
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from refold.provider.port import Provider
from refold.provider.spec import Wire
from refold.provider.text_protocol.as_needed import AsNeeded

Tools: TypeAlias = Literal["native", "text", "auto"]

_GEMINI = ("gemma-2", "gemma-3")  # Google serves them without function calling
# What these wires hear is never a call in words: their servers see to that.
_NEVER_IN_WORDS: frozenset[Wire] = frozenset({"anthropic", "openai-responses", "gemini"})


def chosen(model: str, tools: Tools, in_text: Iterable[str]) -> Tools:
    """What a person chose for `model`, where `tools` is for all of its provider's.

    `in_text`: patterns of the names of those that call in text. They may leave out
    the folder of a name, as in `google/gemma-2-9b-it`; capitals do not matter.
    """
    name = model.lower()
    names = {name, name.rpartition("/")[2]}
    patterns = [pattern.lower() for pattern in in_text]
    fit = any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
    return "text" if fit else tools


def needs_text(provider: str, model: str) -> bool:
    """Is it known that this provider takes no tools for this model?"""
    return provider == "gemini" and model.removeprefix("models/").startswith(_GEMINI)


def calling(
    provider: Provider, name: str, wire: Wire, model: str, tools: Tools = "auto"
) -> Provider:
    """`provider`, so that `model` calls tools in the way chosen, or in one that works.

    Put it inside of what asks again (`retry`): some servers say "broken" where they
    mean that they know no tools.
    """
    if tools == "auto" and needs_text(name, model):
        tools = "text"
    match tools:
        case "native":
            return provider
        case "text":
            from refold.provider.text_protocol.protocol import TextProtocol

            return TextProtocol(provider)
        case "auto":
            return AsNeeded(provider, from_answers=wire not in _NEVER_IN_WORDS)
