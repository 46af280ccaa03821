"""The width of text in terminal cells, and how it is cut and wrapped.

Graphemes (letters with marks, composed emoji) are never split; `wcwidth` measures them, by the
rules that most terminals follow. Control characters must have been escaped before (`escape`).
"""

import re
from collections.abc import Iterator

_PADDING = re.compile(r" {41,}|\t{11,}|(?:[ \t]*\n){7,}")
# Each takes one cell and joins with no other of them: most text needs no table, and the
# tables of `wcwidth` take longer to load than a prompt may take to appear.
_NARROW = "\x00-\u02ff\u2010-\u2027\u2030-\u205e\u2190-\u2319\u2500-\u25fc\u2800-\u28ff"
_ALL_NARROW = re.compile(f"[{_NARROW}]*")
_WIDEST = 2  # no letter takes more; what a font cannot join is taken for several


def cells(text: str) -> int:
    if _narrow(text):
        return len(text)
    return sum(wide for _, wide in letters(text))


def letters(text: str) -> Iterator[tuple[str, int]]:
    """The graphemes of the text, each with its width in cells."""
    if _narrow(text):
        yield from ((letter, 1) for letter in text)
        return
    from wcwidth import iter_graphemes

    for joined in iter_graphemes(text):
        wide = _width(joined)
        if wide <= _WIDEST:
            yield joined, wide
        else:
            yield from ((letter, _width(letter)) for letter in joined)


def cut(text: str, room: int) -> str:
    """`text` on at most `room` cells; "…" stands for the rest."""
    if len(text) <= room and cells(text) <= room:
        return text
    return _start(text, room - 1) + "…" if room > 0 else ""


def wrapped(text: str, room: int) -> Iterator[str]:
    """The lines of `text`, none wider than `room`. No character is lost or added."""
    room = max(room, 2)
    for line in text.split("\n"):
        yield from _pieces(line, room)


def untabbed(text: str) -> str:
    return text.expandtabs(4) if "\t" in text else text


def unpadded(text: str) -> str:
    """Replace long runs of blanks and empty lines by their number, so that nothing hides behind them."""
    return _PADDING.sub(lambda found: _counted(found[0]), text)


def _narrow(text: str) -> bool:
    return text.isascii() or _ALL_NARROW.fullmatch(text) is not None


def _start(text: str, room: int) -> str:
    """The longest start of the text that fits `room`."""
    if _narrow(text):
        return text[:room]
    kept = list[str]()
    for letter, wide in letters(text):
        room -= wide
        if room < 0:
            break
        kept.append(letter)
    return "".join(kept)


def _pieces(line: str, room: int) -> Iterator[str]:
    if cells(line) <= room:
        yield line
        return
    if _narrow(line):
        yield from (line[at : at + room] for at in range(0, len(line), room))
        return
    row, used = list[str](), 0
    for letter, wide in letters(line):
        if used + wide > room:
            yield "".join(row)
            row, used = [], 0
        row.append(letter)
        used += wide
    yield "".join(row)


def _counted(run: str) -> str:
    lines = run.count("\n")
    if lines:
        return f"\n… {lines - 1} empty lines …\n"
    return f" … {len(run)} {'tabs' if run[0] == chr(9) else 'spaces'} … "


def _width(letter: str) -> int:
    from wcwidth import wcswidth, wcwidth

    wide = wcwidth(letter) if len(letter) == 1 else wcswidth(letter)
    return 1 if wide < 0 else wide  # a control character, which is written out before
