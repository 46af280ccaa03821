"""Which blobs an event names: what must lie beside a journal for it to be whole."""

from collections.abc import Iterator

from refold.journal.events import Ended, Event, Said, Settled, Traced, VariablesKept

NAMING = frozenset(kind.__name__ for kind in (Said, Ended, Traced, Settled, VariablesKept))


def blobs_of(event: Event) -> Iterator[str]:
    match event:
        case Said(pictures=pictures):
            yield from (image.blob for image in pictures)
        case Ended(whole=whole, pictures=pictures):
            yield from filter(None, (whole, *(image.blob for image in pictures)))
        case Settled(whole=whole) if whole:
            yield whole
        case VariablesKept(blob=blob):
            yield blob
        case Traced(_, request, answer):
            yield from filter(None, (request, answer))
        case _:
            return
