"""Which blobs an event names: what must lie beside a journal for it to be whole."""

from collections.abc import Iterator

from refold.journal.events import (
    Ended,
    Event,
    Handed,
    Said,
    Settled,
    Traced,
    VariablesKept,
    VariablesRestored,
)

_KINDS = (Said, Ended, Traced, Settled, Handed, VariablesKept, VariablesRestored)
NAMING = frozenset(kind.__name__ for kind in _KINDS)


def blobs_of(event: Event) -> Iterator[str]:
    match event:
        case Said(pictures=pictures):
            yield from (image.blob for image in pictures)
        case Ended(whole=whole, pictures=pictures):
            yield from filter(None, (whole, *(image.blob for image in pictures)))
        case Settled(whole=whole) if whole:
            yield whole
        case Handed(blob=blob, listed=listed):
            yield from filter(None, (blob, listed))
        case VariablesKept() | VariablesRestored():
            yield from (event.blob, *event.parts)
        case Traced(_, request, answer):
            yield from filter(None, (request, answer))
        case _:
            return
