"""A talk that fills its window is told shorter: old results first, then a summary.

In batches, for each time a provider has to read all of it anew. What a person or the
model asked for is done at once; and so is what a provider refused to read.
"""

from refold.engine.decide import ASKED_FOR, Policy, Shrink
from refold.engine.measure import ratio, room, tokens
from refold.engine.shrinking import Shares, freed, prunable, pruned_at_most, window_of
from refold.journal.fold import View

_GROWN = 0.05  # of the window, before it is tried again
_BRIM = 0.95  # so full, it is tried again sooner
_ADDED = 0.25  # of the room that there is for the talk, then


def compacting(shares: Shares) -> Policy:
    def compaction(view: View) -> Shrink | None:
        talk = view.talk
        if talk.calls or not talk.messages:
            return None
        if talk.wanted is not None:
            kind, focus = talk.wanted.kind, talk.wanted.focus
            return Shrink(kind, ASKED_FOR, focus, wanted=True)
        if view.turn.too_long and view.turn.asking is None and not view.turn.shrunk:
            return Shrink(
                "full", f"it was refused as too long: {view.turn.too_long}", wanted=True
            )
        if talk.size == talk.shrunk:
            return None
        return _because_full(view, shares)

    return compaction


def _because_full(view: View, shares: Shares) -> Shrink | None:
    window = window_of(view, shares)
    full = tokens(view) / window
    if full < min(shares.prune, shares.compact):
        return None
    reason = f"{full:.0%} of the window were full"
    if full >= shares.prune < 1:
        least = shares.frees * window * ratio(view)
        # The talk is not looked through at each step, for it may be long.
        if (
            pruned_at_most(view) >= least
            and freed(view, prunable(view, shares.results)) >= least
        ):
            return Shrink("prune", reason)
    if full >= shares.compact < 1 and _has_grown(view, window, shares, full):
        return Shrink("full", reason)
    return None


def _has_grown(view: View, window: int, shares: Shares, full: float) -> bool:
    """Is there enough that is new, since the last time, to be worth another?"""
    added = view.talk.size - view.talk.shrunk
    little = _ADDED * room(view, window, shares.compact)
    return added >= _GROWN * window * ratio(view) or (full >= _BRIM and added >= little)
