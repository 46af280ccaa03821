"""Which files the model has been shown, and what was changed, by content hash.

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
    """`files`: real path to sha256. `changed`: path to the kind of its change."""

    files: Mapping[str, str] = _NOTHING
    changed: Mapping[str, str] = _NOTHING


def apply(known: Known, entry: Entry) -> Known:
    event = entry.event
    if not isinstance(event, Ended) or not (event.seen or event.shown):
        return known
    diffs = [shown for shown in event.shown if isinstance(shown, Diff)]
    changed = known.changed
    if diffs:
        changed = {**changed}
        for diff in diffs:
            changed[diff.path] = _kind(changed.get(diff.path), diff.kind)
    files = {**known.files, **dict(event.seen), **{d.path: d.after for d in diffs}}
    return Known(files, changed)


def _kind(before: str | None, now: str) -> str:
    """A file created and then changed was, all in all, created."""
    return "created" if before == "created" and now == "changed" else now
