"""Finds the names that the user probably meant: similar in spelling, or with the same
beginning. Pure.

A wrong suggestion is worse than none. A name that would do more harm than the typed one
must not be suggested: callers leave such names out.
"""

import re
from collections.abc import Iterable


def similar(word: str, names: Iterable[str], limit: int = 2) -> list[str]:
    """Return the names that are similar to `word`, at most `limit`, the most similar first."""
    from rapidfuzz.distance import OSA  # counts added, removed, changed, swapped letters

    typed = word.casefold()
    # The longer the word, the more of its letters may be wrong.
    if len(typed) < 6:
        max_slips = 1
    elif len(typed) < 10:
        max_slips = 2
    else:
        max_slips = 3
    matches = list[tuple[float, str]]()
    for name in dict.fromkeys(names):
        known = name.casefold()
        distance: float = OSA.distance(typed, known, score_cutoff=max_slips)
        if distance > max_slips:
            if not _is_word_prefix(typed, known):
                continue
            # A name with this beginning comes after similar names.
            distance = max_slips + 0.5
        if distance < len(typed):  # otherwise no letter would have to be the same
            matches.append((distance, name))
    return [name for _, name in sorted(matches)[:limit]]


def _is_word_prefix(typed: str, known: str) -> bool:
    """Whether `typed` is the beginning of a name, up to the end of one of its words."""
    rest = known[len(typed) :] if known.startswith(typed) else ""
    return len(typed) > 2 and bool(rest) and not rest[0].isalnum()


def normalize_distribution(name: str) -> str:
    """Return the name of a Python package as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()
