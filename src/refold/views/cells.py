"""How wide text is on a screen of fixed cells, and how it is cut and wrapped.

Wide letters (Chinese, most emoji) take two cells, marks on a letter none.
Nothing here knows colours: what is measured is text that was made visible
before (`escape`), so a character is never an order.
"""

import re
from collections.abc import Iterator
from unicodedata import combining, east_asian_width

_PADDING = re.compile(r" {41,}|\t{11,}|(?:[ \t]*\n){7,}")


def cells(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(_width(letter) for letter in text)


def cut(text: str, room: int) -> str:
    """`text` on at most `room` cells; "…" stands for what is missing."""
    if cells(text) <= room:
        return text
    kept = list[str]()
    left = room - 1
    for letter in text:
        left -= _width(letter)
        if left < 0:
            break
        kept.append(letter)
    return "".join(kept) + "…" if room > 0 else ""


def wrapped(text: str, room: int) -> Iterator[str]:
    """The lines of `text`, none wider than `room`. No character is lost or added."""
    room = max(room, 2)
    for line in text.split("\n"):
        yield from _pieces(line, room)


def untabbed(text: str) -> str:
    return text.expandtabs(4) if "\t" in text else text


def unpadded(text: str) -> str:
    """Long runs of blanks and of empty lines counted, so that nothing hides behind."""
    return _PADDING.sub(lambda found: _counted(found[0]), text)


def _pieces(line: str, room: int) -> Iterator[str]:
    if cells(line) <= room:
        yield line
        return
    start = used = 0
    for at, letter in enumerate(line):
        wide = _width(letter)
        if used + wide > room:
            yield line[start:at]
            start, used = at, 0
        used += wide
    yield line[start:]


def _counted(run: str) -> str:
    lines = run.count("\n")
    if lines:
        return f"\n… {lines - 1} empty lines …\n"
    return f" … {len(run)} {'tabs' if run[0] == chr(9) else 'spaces'} … "


def _width(letter: str) -> int:
    if letter < "\u0300":
        return 1
    if combining(letter) or letter in "\u200c\u200d\ufe0e\ufe0f":
        return 0
    return 2 if east_asian_width(letter) in "WF" else 1
