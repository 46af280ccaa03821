"""Finds the text to be replaced in a file, or explains why it is not there."""

import re
from collections.abc import Sequence

from msgspec import Struct

from refold.errors import ToolFailed
from refold.tools.text_files import piece
from refold.values.text import restored

_NUMBERS = r"(?m)^\d+\t"
_SHOWN = 30  # lines of the nearest text
_NAMED = 10  # line numbers in a sentence


def as_in_file(words: str, text: str) -> str:
    """What a model writes of `text`, with line ends and unseen letters as they stand there."""
    return restored(words.replace("\r\n", "\n"), text)


def places(text: str, old: str, new: str, name: str, *, all: bool) -> list[int]:
    """Where `old` begins in `text`. Raises `ToolFailed` where that is not clear."""
    if not old:
        raise ToolFailed(
            "old is empty: give the exact text that is to be replaced. "
            "To make a file, use write_file."
        )
    if old == new:
        raise ToolFailed("old and new are the same: there is nothing to do.")
    found = _all(text, old)
    if not found:
        raise ToolFailed(not_found("old", text, old, name))
    if len(found) > 1 and not all:
        raise ToolFailed(
            f"old occurs {len(found):,} times in {name}, at {at_lines(text, found)}. "
            "Add lines around it until it is only one place, or pass all=true."
        )
    return found


def result(text: str, found: list[int], name: str, changed: str) -> str:
    times = f"{len(found):,} places, " if len(found) > 1 else ""
    return f"Edited {name}: {times}{at_lines(text, found)} ({changed})."


def _all(text: str, old: str) -> list[int]:
    found = list[int]()
    at = text.find(old)
    while at >= 0:
        found.append(at)
        at = text.find(old, at + len(old))
    return found


def at_lines(text: str, found: list[int]) -> str:
    numbers = list[str]()
    line, counted = 1, 0
    for at in found[:_NAMED]:
        line += text.count("\n", counted, at)
        counted = at
        numbers.append(str(line))
    more = ", …" if len(found) > _NAMED else ""
    return f"line{'s' if len(found) > 1 else ''} {', '.join(numbers)}{more}"


def not_found(what: str, text: str, old: str, name: str) -> str:
    """That `old`, which is `what`, does not stand in `text`, and what stands near."""
    said = f"{what} was not found in {name}."
    bare = re.sub(_NUMBERS, "", old)
    if bare != old and bare in text:
        return (
            f"{said} It begins with the line numbers that read_file shows: leave them out."
        )

    near = nearest(text, old)
    if near is None:
        return f"{said} Nothing in the file is much like it: read the file again."
    last = near.first + len(near.lines) - 1
    why = " It differs only in white space." if near.only_white_space else ""
    shown = piece(text, near.first, min(len(near.lines), _SHOWN)).text
    where = f"line {last}" if last == near.first else f"lines {near.first}-{last}"
    return f"{said} The nearest text is at {where}.{why}\n{shown}"


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
