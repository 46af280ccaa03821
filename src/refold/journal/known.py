"""Which files the model has been shown or has changed, by content hash.

An edit is only good if the file is still what the model last saw. This is what
tools are told about that; it survives a restart because it is a fold.
"""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from refold.journal.events import Ended, Entry, FilesFound, Imported
from refold.values.shown import Diff

HEARS = (Ended, FilesFound, Imported)
_MOST = 2_000  # files
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Known(Struct, frozen=True):
    """`files`: real path to sha256, the newest last; "" is a file that others changed."""

    files: Mapping[str, str] = _NOTHING


def apply(known: Known, entry: Entry) -> Known:
    match entry.event:
        case Ended(seen=seen, shown=shown) if seen or shown:
            written = {d.path: d.after for d in shown if isinstance(d, Diff)}
            return _with(known, {**dict(seen), **written})
        case FilesFound(files):  # an edit is refused until they are read again
            stale = {path for path, _ in files}
            return Known({p: "" if p in stale else h for p, h in known.files.items()})
        case Imported():  # what the model saw was on another disk
            return Known()
        case _:
            return known


def _with(known: Known, news: Mapping[str, str]) -> Known:
    if not news:
        return known
    files = {**known.files}
    for path, content in news.items():
        files.pop(path, None)  # it comes last now
        files[path] = content
    # Each look makes a copy, so there is an end to it; what fell out is read again first.
    return Known(dict(list(files.items())[-_MOST:]) if len(files) > _MOST else files)
