"""The names that were probably meant: the same, similar in spelling, or a prefix. Pure.

A suggestion that is not close is worse than none. A name that would do more harm than the
typed one is never suggested: callers leave such names out.
"""

import re
from collections.abc import Iterable


def similar(word: str, names: Iterable[str], limit: int = 2) -> list[str]:
    """At most `limit` of `names`, the nearest first; none if none is near."""
    from rapidfuzz.distance import OSA  # counts added, removed, changed, swapped letters

    typed = word.casefold()
    slips = 1 if len(typed) < 6 else 2 if len(typed) < 10 else 3
    matches = list[tuple[float, str]]()
    for name in dict.fromkeys(names):
        known = name.casefold()
        distance: float = OSA.distance(typed, known, score_cutoff=slips)
        if distance > slips and _is_word_prefix(typed, known):
            distance = slips + 0.5
        if distance <= slips + 0.5 and (distance < len(typed)):
            matches.append((distance, name))
    return [name for _, name in sorted(matches)[:limit]]


def _is_word_prefix(typed: str, known: str) -> bool:
    """Whether `typed` is the beginning of a name, up to the end of one of its words."""
    rest = known[len(typed) :] if known.startswith(typed) else ""
    return len(typed) > 2 and bool(rest) and not rest[0].isalnum()


def normalize_distribution(name: str) -> str:
    """Return the name of a Python package as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()
