"""How much of its window a talk fills, in tokens, by what providers counted so far. Pure."""

from refold.journal.fold import View
from refold.journal.talk import told_size

A_PICTURE = 800  # tokens, roughly, whatever the provider
_MOST = 4.0  # characters of a token that we dare to count on


def tokens(view: View) -> int:
    """What the next request would be, as far as can be told before it is counted."""
    talk = view.talk
    characters = talk.size + told_size(talk.briefed)
    return int(characters / ratio(view)) + A_PICTURE * len(talk.pictures)


def ratio(view: View) -> float:
    """Characters of a token. Rather too few, for what is too long is refused."""
    return min(view.talk.ratio, _MOST)


def room(view: View, window: int, share: float) -> int:
    """Characters that the talk may have where `share` of the window is full."""
    told = told_size(view.talk.briefed)
    return max(int(window * share * ratio(view)) - told, int(window * 0.1 * ratio(view)))
