"""Compacts a conversation that fills its context window: first prunes, then summarizes.

It works in batches, because after each the provider reads the whole prompt uncached. A
compaction that the user or the model requested happens at once, and so does one after a
provider refused a request as too long, or refused one that has grown without a reason that is
recognized. If a conversation cannot fit the window at all, the
turn ends before a request is sent.
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

_MIN_GROWTH_SHARE = 0.05  # of the window, before the next compaction
_NEARLY_FULL_SHARE = 0.95  # of the window: from there, the next comes sooner
_MIN_ADDED_SHARE = 0.25  # of the conversation's room, if it is nearly full


def compact_when_full(shares: CompactionShares) -> Policy:
    def compaction(view: View) -> CompactConversation | None:
        conversation = view.conversation
        if conversation.calls or not conversation.messages:
            return None
        if conversation.compaction is not None:
            kind, focus = conversation.compaction.kind, conversation.compaction.focus
            return CompactConversation(kind, ASKED_FOR, focus, wanted=True)
        if (
            view.turn.too_long
            and view.turn.open_request is None
            and not view.turn.compacted
        ):
            return CompactConversation(
                "full", f"the request was refused: {view.turn.too_long}", wanted=True
            )
        if conversation.size == conversation.compacted_size:
            return None
        return _compact_if_full(view, shares)

    return compaction


def _compact_if_full(view: View, shares: CompactionShares) -> CompactConversation | None:
    window = window_of(view, shares)
    full = token_count(view) / window
    if full < min(shares.prune, shares.compact):
        return None
    reason = f"{full:.0%} of the window were full"
    if full >= shares.prune < 1:
        least = shares.frees * window * chars_per_token(view)
        # The conversation is not scanned at each step, because it may be long.
        if (
            max_prunable_chars(view) >= least
            and characters_freed(view, prunable_results(view, shares.results)) >= least
        ):
            return CompactConversation("prune", reason)
    if full >= shares.compact < 1 and _has_grown(view, window, shares, full):
        return CompactConversation("full", reason)
    return None


def _has_grown(view: View, window: int, shares: CompactionShares, full: float) -> bool:
    """Whether the conversation has grown enough since the last compaction for another."""
    added = view.conversation.size - view.conversation.compacted_size
    min_added = _MIN_ADDED_SHARE * available_chars(view, window, shares.compact)
    return added >= _MIN_GROWTH_SHARE * window * chars_per_token(view) or (
        full >= _NEARLY_FULL_SHARE and added >= min_added
    )


MAX_CHARS_PER_TOKEN = 6  # for nearly any text
MIN_IMAGE_TOKENS = 60  # of the smallest image


def in_window(compaction: Policy) -> Policy:
    """End a turn that exceeds the window, but only after `compaction` has tried."""

    def window(view: View) -> EndTurn | None:
        end = _end_if_too_long(view)
        return end if end is not None and compaction(view) is None else None

    return window


def _end_if_too_long(view: View) -> EndTurn | None:
    conversation = view.conversation
    briefed = conversation.system_prompt
    if not briefed.window or conversation.calls or not conversation.messages:
        return None
    if conversation.undelivered and not view.turn.steps:
        return None  # else an ended turn would start again for the queued message
    tokens = (
        conversation.size + conversation.prompt_size
    ) // MAX_CHARS_PER_TOKEN + MIN_IMAGE_TOKENS * len(conversation.images)
    if tokens <= briefed.window or conversation.messages[-1].message.role == "assistant":
        return None
    return EndTurn(
        "failed",
        f"the conversation is at least {tokens:,} tokens and {briefed.model} takes "
        f"{briefed.window:,}: nothing was sent; choose a model with a larger window "
        "(/model, -m), or start a new session",
    )
