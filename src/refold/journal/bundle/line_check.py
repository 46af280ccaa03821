"""Along the lines of a journal, as strictly as what is carried elsewhere has to be.

`codec` says whether a line follows on the last; here it must also be text, have its own
number and a time that a calendar has. Whoever writes a file stops before the first line
that is not so, and whoever reads one refuses it. JSON has numbers of any length: whoever
adds up tokens, writes a row of a table or draws a bar meets them much later.
"""

from collections.abc import Iterable, Iterator
from typing import cast

from msgspec import Struct

from refold.errors import Corrupt
from refold.journal.events import codec
from refold.journal.events.codec import Head, Line

LONGEST_LINE = 64_000_000  # bytes; the longest a session has, and none that fills a memory
_LAST_MOMENT = 253_402_300_800.0  # the year 10,000, after which no calendar goes
_MOST = 2**53  # other programs that read JSON know no greater numbers


class Good(Struct, frozen=True):
    """A line, what its envelope says, and where the chain then is."""

    line: bytes
    says: Line
    head: Head


def follow(found: Iterable[bytes], head: Head = Head()) -> Iterator[Good]:  # noqa: B008 - frozen
    """The lines one by one. Raises `Corrupt` at the first that is not good."""
    for line in found:
        good = _good(line, head)
        head = good.head
        yield good


def countable(value: object) -> bool:
    """No number in it, however deep, is too large."""
    match value:
        case int() | float():
            return abs(value) < _MOST  # what is no number at all is not below it either
        case tuple():
            return all(map(countable, cast("tuple[object, ...]", value)))
        case Struct():
            return all(countable(getattr(value, f)) for f in value.__struct_fields__)
        case _:
            return True


def _good(line: bytes, head: Head) -> Good:
    number = head.seq + 1
    if len(line) > LONGEST_LINE:
        raise Corrupt(number, f"it is longer than {LONGEST_LINE:,} bytes")
    try:
        [(says, after)] = codec.follow([line], head)
        line.decode()
    except UnicodeDecodeError as error:
        raise Corrupt(number, "it is no text in UTF-8") from error
    except RecursionError as error:
        raise Corrupt(number, "what is in it is nested too deep") from error
    numbers = (says.epoch, says.turn, says.cause)
    if says.seq != number or not all(0 <= each < _MOST for each in numbers):
        raise Corrupt(number, f"it says that it is event {says.seq}")
    if not 0 <= says.at < _LAST_MOMENT:
        raise Corrupt(number, f"its time, {says.at}, is in no calendar")
    return Good(line, says, after)
