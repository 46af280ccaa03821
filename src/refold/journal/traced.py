"""Model calls as they went over the wire, put together again from the traces of them."""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from refold.journal.events import Entry, Traced


class WireCall(Struct, frozen=True):
    """`seq` is where the journal tells of it; `to` as in "POST https://…"."""

    seq: int
    to: str
    request: bytes
    answer: bytes


def wire_calls(
    entries: Iterable[Entry], blob: Callable[[str], bytes]
) -> Iterator[WireCall]:
    """In their order. A request begins as the one before did, so all are needed."""
    before: dict[str, bytes] = {}  # by where it went
    for entry in entries:
        match entry.event:
            case Traced(to, request, answer, same):
                before[to] = before.get(to, b"")[:same] + blob(request)
                yield WireCall(entry.seq, to, before[to], blob(answer) if answer else b"")
            case _:
                continue
