"""A talk that fills its window is told shorter: old results first, then a summary.

In batches, for each time a provider has to read all of it anew. What a person or the
model asked for is done at once; and so is what a provider refused to read.
"""

from refold.engine.decide import Policy, Shrink
from refold.engine.measure import ratio, tokens
from refold.engine.shrinking import Shares, freed, prunable, window_of
from refold.journal.fold import View

_GROWN = 0.05  # of the window, before it is tried again
_BRIM = 0.95  # so full, it is tried however little was added


def compacting(shares: Shares) -> Policy:
    def compaction(view: View) -> Shrink | None:
        talk = view.talk
        if talk.calls or not talk.messages:
            return None
        if talk.wanted is not None:
            return Shrink(talk.wanted.kind, "it was asked for", talk.wanted.focus)
        if talk.size == talk.shrunk:
            return None
        if view.turn.too_long and view.turn.asking is None and not view.turn.shrunk:
            return Shrink("full", f"it was refused as too long: {view.turn.too_long}")
        return _because_full(view, shares)

    return compaction


def _because_full(view: View, shares: Shares) -> Shrink | None:
    window = window_of(view, shares)
    full = tokens(view) / window
    if full < min(shares.prune, shares.compact):
        return None
    reason = f"{full:.0%} of the window were full"
    if full >= shares.prune < 1:
        lines = prunable(view, shares.results)
        if freed(view, lines) >= shares.frees * window * ratio(view):
            return Shrink("prune", reason)
    grown = (view.talk.size - view.talk.shrunk) / ratio(view) / window
    if full >= shares.compact < 1 and (grown >= _GROWN or full >= _BRIM):
        return Shrink("full", reason)
    return None
