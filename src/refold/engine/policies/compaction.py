"""Compacts a conversation that fills its context window: first prunes, then summarizes.

A compaction removes much at a time, because the provider then reads the whole prompt uncached.
It happens at once if the user or the model requested it, if a provider refused a request as too
long, or if a provider refused a request that has grown and gave no known reason. If a
conversation cannot fit the window at all, the turn ends before a request is sent.
"""

from refold.engine.context_usage import available_chars, chars_per_token, token_count
from refold.engine.decide import ASKED_FOR, CompactConversation, EndTurn, Policy
from refold.engine.prune import (
    CompactionShares,
    characters_freed,
    max_prunable_chars,
    prunable_results,
    window_of,
)
from refold.journal.state.fold import View

_MIN_GROWTH_SHARE = 0.05  # of the window: growth before the next compaction
# Of the window: from this share on, the next compaction comes sooner.
_NEARLY_FULL_SHARE = 0.95
# Of the space for the conversation: growth before a compaction that comes sooner.
_MIN_ADDED_SHARE = 0.25


def compact_when_full(shares: CompactionShares) -> Policy:
    """Return a policy that compacts a conversation when it is requested or needed."""

    def compaction(view: View) -> CompactConversation | None:
        """Return the compaction that is requested or needed; None if there is none."""
        conversation = view.conversation
        if conversation.calls or not conversation.messages:
            return None
        if conversation.compaction is not None:
            kind, focus = conversation.compaction.kind, conversation.compaction.focus
            return CompactConversation(kind, ASKED_FOR, focus, wanted=True)
        turn = view.turn
        if turn.too_long and turn.open_request is None and not turn.compacted:
            reason = f"the request was refused: {turn.too_long}"
            return CompactConversation("full", reason, wanted=True)
        if conversation.size == conversation.compacted_size:
            return None  # nothing was added since the last compaction
        return _compact_if_full(view, shares)

    return compaction


def _compact_if_full(view: View, shares: CompactionShares) -> CompactConversation | None:
    """Return the compaction that the share of the window in use requires; None if none."""
    window = window_of(view, shares)
    used_share = token_count(view) / window
    if used_share < min(shares.prune, shares.compact):
        return None
    reason = f"{used_share:.0%} of the window were full"
    if shares.prune < 1 and used_share >= shares.prune:  # 1 switches pruning off
        min_freed = shares.frees * window * chars_per_token(view)
        # The conversation may be long, so it is not scanned at each step.
        if (
            max_prunable_chars(view) >= min_freed
            and characters_freed(view, prunable_results(view, shares.results)) >= min_freed
        ):
            return CompactConversation("prune", reason)
    is_full = shares.compact < 1 and used_share >= shares.compact  # 1 switches it off
    if is_full and _has_grown(view, window, shares, used_share):
        return CompactConversation("full", reason)
    return None


def _has_grown(
    view: View, window: int, shares: CompactionShares, used_share: float
) -> bool:
    """Whether the conversation has grown enough since the last compaction to be compacted
    again.
    """
    added = view.conversation.size - view.conversation.compacted_size
    if added >= _MIN_GROWTH_SHARE * window * chars_per_token(view):
        return True
    if used_share < _NEARLY_FULL_SHARE:
        return False
    return added >= _MIN_ADDED_SHARE * available_chars(view, window, shares.compact)


MAX_CHARS_PER_TOKEN = 6  # of nearly any text
MIN_IMAGE_TOKENS = 60  # for the smallest image


def in_window(compaction: Policy) -> Policy:
    """Return a policy that ends a turn if its next request exceeds the window.

    It does so only if the policy `compaction` proposes nothing.
    """

    def window(view: View) -> EndTurn | None:
        """Return the end of a turn that exceeds the window, unless a compaction is due."""
        end = _end_if_too_long(view)
        return end if end is not None and compaction(view) is None else None

    return window


def _end_if_too_long(view: View) -> EndTurn | None:
    """Return the end of a turn whose next request cannot fit the window."""
    conversation = view.conversation
    prompt = conversation.system_prompt
    if not prompt.window or conversation.calls or not conversation.messages:
        return None
    if conversation.undelivered and not view.turn.steps:
        # Otherwise the queued message would start a turn that ends the same way.
        return None
    if conversation.messages[-1].message.role == "assistant":
        return None  # no request follows
    chars = conversation.size + conversation.prompt_size
    image_tokens = MIN_IMAGE_TOKENS * len(conversation.images)
    tokens = chars // MAX_CHARS_PER_TOKEN + image_tokens
    if tokens <= prompt.window:
        return None
    return EndTurn(
        "failed",
        f"the conversation is at least {tokens:,} tokens and {prompt.model} takes "
        f"{prompt.window:,}: nothing was sent; choose a model with a larger window "
        "(/model, -m), or start a new session",
    )
