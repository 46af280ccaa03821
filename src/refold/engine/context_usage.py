"""Computes how much of the context window a conversation uses, from the providers' token
counts. Pure.
"""

from refold.journal.state.conversation import IMAGE_TOKENS
from refold.journal.state.fold import View

_MAX_CHARS_PER_TOKEN = 4.0  # a cautious estimate
# Share of the window for the conversation, if the system prompt and tools fill the rest.
_NARROW_SHARE = 0.1
_MIN_SHARE = 0.05


def token_count(view: View) -> int:
    """Estimate the size of the next request, in tokens."""
    conversation = view.conversation
    return int(
        (conversation.size + conversation.prompt_size) / chars_per_token(view)
    ) + IMAGE_TOKENS * len(conversation.images)


def chars_per_token(view: View) -> float:
    """Estimate the characters per token in this conversation.

    The estimate is rather low, so that requests do not become too long: a provider would refuse
    them.
    """
    return min(view.conversation.chars_per_token, _MAX_CHARS_PER_TOKEN)


def available_chars(view: View, window: int, share: float) -> int:
    """Return the maximum characters of a conversation that, with the prompt, fills `share`
    of the window.

    The result is never below a minimum, even if the system prompt and tools fill the window.
    """
    window_chars = window * chars_per_token(view)
    prompt_chars = view.conversation.prompt_size
    narrow_chars = min(window_chars * _NARROW_SHARE, (window_chars - prompt_chars) * share)
    return int(
        max(window_chars * share - prompt_chars, narrow_chars, window_chars * _MIN_SHARE)
    )
