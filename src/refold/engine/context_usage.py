"""How much of the context window a conversation uses, by the providers' token counts. Pure."""

from refold.journal.state.conversation import IMAGE_TOKENS
from refold.journal.state.fold import View

_MAX_CHARS_PER_TOKEN = 4.0  # a cautious estimate
# Of the window, for the conversation, if the system prompt and tools fill the rest.
_NARROW_SHARE = 0.1
_MIN_SHARE = 0.05


def token_count(view: View) -> int:
    """The estimated size of the next request, in tokens."""
    conversation = view.conversation
    return int(
        (conversation.size + conversation.prompt_size) / chars_per_token(view)
    ) + IMAGE_TOKENS * len(conversation.images)


def chars_per_token(view: View) -> float:
    """Characters per token, estimated low because a request that is too long is refused."""
    return min(view.conversation.chars_per_token, _MAX_CHARS_PER_TOKEN)


def available_chars(view: View, window: int, share: float) -> int:
    """Characters that the conversation may have if `share` of the window is full.

    It has a minimum, even if the system prompt and tools fill the window.
    """
    whole, prompt = window * chars_per_token(view), view.conversation.prompt_size
    narrow = min(whole * _NARROW_SHARE, (whole - prompt) * share)
    return int(max(whole * share - prompt, narrow, whole * _MIN_SHARE))
