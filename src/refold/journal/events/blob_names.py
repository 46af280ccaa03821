"""Which blobs an event names: what must lie beside a journal for it to be whole."""

from collections.abc import Iterator

from refold.journal.events.kinds import (
    Ended,
    Event,
    RequestLogged,
    Said,
    Settled,
    VariableInjected,
    VariablesRestored,
    VariablesSaved,
)

_KINDS = (
    Said,
    Ended,
    RequestLogged,
    Settled,
    VariableInjected,
    VariablesSaved,
    VariablesRestored,
)
NAMING = frozenset(kind.__name__ for kind in _KINDS)


def blobs_of(event: Event) -> Iterator[str]:
    match event:
        case Said(images=pictures):
            yield from (image.blob for image in pictures)
        case Ended(full_blob=whole, images=pictures):
            yield from filter(None, (whole, *(image.blob for image in pictures)))
        case Settled(full_blob=whole) if whole:
            yield whole
        case VariableInjected(blob=blob, files_blob=listed):
            yield from filter(None, (blob, listed))
        case VariablesSaved() | VariablesRestored():
            yield from (event.blob, *event.parts)
        case RequestLogged(_, request, answer):
            yield from filter(None, (request, answer))
        case _:
            return
