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
    chars = conversation.size + conversation.prompt_size
    image_tokens = IMAGE_TOKENS * len(conversation.images)
    return int(chars / chars_per_token(view)) + image_tokens


def chars_per_token(view: View) -> float:
    """Estimate the characters per token in this conversation.

    The estimate is rather low, so that requests do not become too long: a provider would refuse
    them.
    """
    return min(view.conversation.chars_per_token, _MAX_CHARS_PER_TOKEN)


def available_chars(view: View, window: int, share: float) -> int:
    """Return the maximum length of a conversation, in characters.

    A longer conversation would fill, with the prompt, more than `share` of the window. `window`
    is the size of the window in tokens. The result is never below a minimum, even if the system
    prompt and tools fill the window.
    """
    window_chars = window * chars_per_token(view)
    prompt_chars = view.conversation.prompt_size
    chars_below_share = window_chars * share - prompt_chars
    # If the prompt fills most of `share`, the conversation may take a share of what is free.
    free_chars = window_chars - prompt_chars
    narrow_chars = min(window_chars * _NARROW_SHARE, free_chars * share)
    min_chars = window_chars * _MIN_SHARE
    return int(max(chars_below_share, narrow_chars, min_chars))
