"""Where in a text something stands that is almost what was looked for."""

from collections.abc import Sequence

from msgspec import Struct

_GOOD_ENOUGH = 55.0  # per cent; below this a hint misleads
_ANCHORS = 5  # lines most like the longest line wanted
_COMPARED = 20_000  # characters of each side


class Near(Struct, frozen=True):
    """`first` is a line number, from 1."""

    first: int
    lines: tuple[str, ...]
    only_white_space: bool


def nearest(text: str, wanted: str) -> Near | None:
    """The lines most like `wanted`, if any are much like it.

    Lines like the longest line wanted are looked up first, so that the time
    grows with the text and not with the text times what is wanted.
    """
    from rapidfuzz import fuzz, process

    have, want = text.split("\n"), wanted.strip("\n").split("\n")
    longest = max(range(len(want)), key=lambda at: len(want[at].strip()))
    anchors = process.extract(
        want[longest].strip(),
        [line.strip()[:_COMPARED] for line in have],
        scorer=fuzz.ratio,
        limit=_ANCHORS,
    )
    best, score = -1, _GOOD_ENOUGH
    for _, _, at in anchors:
        start = max(0, at - longest)
        window = "\n".join(have[start : start + len(want)])[:_COMPARED]
        likeness = fuzz.ratio(window, "\n".join(want)[:_COMPARED])
        if likeness > score:
            best, score = start, likeness
    if best < 0:
        return None
    found = tuple(have[best : best + len(want)])
    return Near(best + 1, found, _squeezed(found) == _squeezed(want))


def _squeezed(lines: Sequence[str]) -> str:
    return "".join("".join(lines).split())
