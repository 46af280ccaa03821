"""How API keys look, and whose a pasted key is. Pure."""

import re
from collections.abc import Mapping

KEY_MAKERS: Mapping[str, str] = {
    "sk-ant-": "anthropic", "sk-or-": "openrouter", "sk-proj-": "openai", "gsk_": "groq",
    "xai-": "xai", "AIza": "gemini",
}  # fmt: skip
_OTHER_PREFIXES = ("sk-",)
_KEY_PATTERN = r"(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{24,}"  # one word, as no name is


def maker_of(text: str) -> str:
    """The provider whose keys begin like this text; "" if that is not known."""
    key = text.strip()
    return next((maker for start, maker in KEY_MAKERS.items() if key.startswith(start)), "")


def looks_like_key(text: str) -> bool:
    """Whether the text begins as API keys do, or is one long word of letters and digits."""
    key = text.strip()
    known = bool(maker_of(key)) or key.startswith(_OTHER_PREFIXES)
    return known or re.fullmatch(_KEY_PATTERN, key) is not None
