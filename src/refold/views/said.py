"""What was said in a session, words and answers only, each with its number. Pure.

The number is that of the event: going back goes to before it. What was done between is
one line; `transcript` tells it all.
"""

from collections.abc import Collection, Iterator, Sequence

from refold.journal.events import Entry
from refold.views.escape import visible
from refold.views.flow import fitted
from refold.views.screen.blocks import Block, Called, Heard, Words
from refold.views.screen.screen import screen_of
from refold.views.styled import Line, Piece, Style

_PEOPLE = ("person", "parent")


def said(
    entries: Sequence[Entry], gone: Collection[int] = (), last: int = 0, room: int = 0
) -> Iterator[Line]:
    """`last`: only so many times that somebody spoke, from the end; 0: all.

    `gone` are the numbers of words that the talk went back to before. Lines are broken for
    a screen that is `room` wide; 0: they are not.
    """
    blocks = screen_of(entries).blocks
    heard = [at for at, each in enumerate(blocks) if _spoke(each)]
    first = heard[-last] if 0 < last <= len(heard) else 0
    wide = max((len(str(blocks[at].seq)) for at in heard), default=0)
    calls, taken_back = 0, False
    for block in blocks[first:] if heard else ():
        if isinstance(block, Called):
            calls += 1
            continue
        if not (_spoke(block) or isinstance(block, Words)):
            continue
        if calls:
            many = "1 call" if calls == 1 else f"{calls} calls"
            yield (("dim", f"{'':{wide}}  ({many})"),)
            calls = 0
        if isinstance(block, Heard):
            taken_back = block.seq in gone
        yield from _block(block, wide, room, taken_back=taken_back)


def _spoke(block: Block) -> bool:
    return isinstance(block, Heard) and block.sender in _PEOPLE


def _block(block: Block, wide: int, room: int, *, taken_back: bool) -> Iterator[Line]:
    match block:
        case Heard(seq=seq, words=words, typed=typed, pictures=pictures):
            text = visible(typed or words) or f"({len(pictures)} pictures)"
            style: Style = "dim" if taken_back else "person"
            yield from _rows(("accent", f"{seq:>{wide}}  "), (style, text), room)
            if taken_back:
                yield (("dim", f"{'':{wide}}  (taken back)"),)
        case Words(text=text):
            style = "dim" if taken_back else "plain"
            yield from _rows(("plain", f"{'':{wide}}  "), (style, visible(text)), room)
        case _:
            return


def _rows(head: Piece, text: Piece, room: int) -> Iterator[Line]:
    style, words = text
    indent = len(head[1])
    for at, row in enumerate(words.strip("\n").rstrip().split("\n")):
        first = head if at == 0 else ("plain", " " * indent)
        line: Line = (first, (style, row))
        yield fitted(line, max(room, indent + 10), indent) if room else line
