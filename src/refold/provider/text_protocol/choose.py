"""For which models it is known beforehand how they call tools, and what a person may choose.

The table need not be whole: a model that is missing in it shows the need itself
(`as_needed`). It spares those in it a refusal.
"""

from typing import Literal, TypeAlias

from refold.provider.port import Provider
from refold.provider.spec import Wire
from refold.provider.text_protocol.as_needed import AsNeeded
from refold.provider.text_protocol.protocol import TextProtocol

Tools: TypeAlias = Literal["native", "text", "auto"]

# Their templates in Ollama's library have no place for tools: it refuses them.
_OLLAMA = frozenset({
    "bakllava", "codegemma", "codellama", "codeqwen", "codestral", "codeup",
    "deepseek-coder", "deepseek-coder-v2", "deepseek-llm", "deepseek-v2",
    "dolphin-mistral", "dolphin-mixtral", "dolphin-phi", "everythinglm", "falcon",
    "falcon2", "gemma", "gemma2", "gemma3", "gemma3n", "llama2", "llama2-chinese",
    "llama2-uncensored", "llama3", "llava", "llava-llama3", "llava-phi3", "magicoder",
    "medllama2", "mistral-openorca", "moondream", "neural-chat", "nous-hermes",
    "nous-hermes2", "open-orca-platypus2", "openchat", "opencoder", "openhermes",
    "orca-mini", "orca2", "phi", "phi3", "phi3.5", "phi4", "phind-codellama", "qwen",
    "solar", "sqlcoder", "stable-beluga", "stable-code", "stablelm-zephyr", "stablelm2",
    "starcoder", "starcoder2", "starling-lm", "tinydolphin", "tinyllama", "vicuna",
    "wizard-math", "wizard-vicuna", "wizard-vicuna-uncensored", "wizardcoder",
    "wizardlm", "wizardlm2", "yi", "yi-coder", "zephyr",
})  # fmt: skip
_GEMINI = ("gemma-2", "gemma-3")  # Google serves them without function calling
# What these wires hear is never a call in words: their servers see to that.
_NEVER_IN_WORDS: frozenset[Wire] = frozenset({"anthropic", "openai-responses", "gemini"})


def needs_text(provider: str, model: str) -> bool:
    """Is it known that this provider takes no tools for this model?"""
    match provider:
        case "ollama":
            return model.removeprefix("library/").partition(":")[0].lower() in _OLLAMA
        case "gemini":
            return model.removeprefix("models/").startswith(_GEMINI)
        case _:
            return False


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
            return TextProtocol(provider)
        case "auto":
            return AsNeeded(provider, from_answers=wire not in _NEVER_IN_WORDS)
