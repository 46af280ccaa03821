"""Recognizes API keys by their form, and the provider of a pasted key. Pure."""

import re
from collections.abc import Mapping

KEY_MAKERS: Mapping[str, str] = {
    "sk-ant-": "anthropic", "sk-or-": "openrouter", "sk-proj-": "openai", "gsk_": "groq",
    "xai-": "xai", "AIza": "gemini",
}  # fmt: skip
_OTHER_PREFIXES = ("sk-",)
# A long word with digits and letters. No name of a provider or model looks like that.
_KEY_PATTERN = r"(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{24,}"


def maker_of(text: str) -> str:
    """Return the provider whose API keys begin as `text` does; "" if there is none."""
    key = text.strip()
    return next((maker for start, maker in KEY_MAKERS.items() if key.startswith(start)), "")


def looks_like_key(text: str) -> bool:
    """Whether the text begins as API keys do, or is one long word of letters and digits."""
    key = text.strip()
    known = bool(maker_of(key)) or key.startswith(_OTHER_PREFIXES)
    return known or re.fullmatch(_KEY_PATTERN, key) is not None
