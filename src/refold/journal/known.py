"""Which files the model has been shown or has changed, by content hash.

An edit is only good if the file is still what the model last saw. This is what
tools are told about that; it survives a restart because it is a fold.
"""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from refold.journal.events import Ended, Entry
from refold.values.shown import Diff

HEARS = (Ended,)
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Known(Struct, frozen=True):
    """`files`: real path to sha256."""

    files: Mapping[str, str] = _NOTHING


def apply(known: Known, entry: Entry) -> Known:
    event = entry.event
    if not isinstance(event, Ended) or not (event.seen or event.shown):
        return known
    written = {d.path: d.after for d in event.shown if isinstance(d, Diff)}
    return Known({**known.files, **dict(event.seen), **written})
