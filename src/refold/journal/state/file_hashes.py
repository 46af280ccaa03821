"""Which files the model has been shown or has changed, by content hash.

An edit is only good if the file is still what the model last saw. This is what
tools are told about that; it survives a restart because it is a fold.
"""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from refold.journal.events.kinds import Ended, Entry, ExternalEditsFound, Imported
from refold.values.display import Diff

HEARS = (Ended, ExternalEditsFound, Imported)
_MOST = 2_000  # files
_NOTHING: Mapping[str, str] = MappingProxyType({})


class FileHashes(Struct, frozen=True):
    """`files`: real path to sha256, the newest last; "" is a file that others changed."""

    files: Mapping[str, str] = _NOTHING


def apply(known: FileHashes, entry: Entry) -> FileHashes:
    match entry.event:
        case Ended(file_hashes=seen, shown=shown) if seen or shown:
            written = {d.path: d.after for d in shown if isinstance(d, Diff)}
            return _with(known, {**dict(seen), **written})
        case ExternalEditsFound(files):  # an edit is refused until they are read again
            stale = {path for path, _ in files}
            return FileHashes({p: "" if p in stale else h for p, h in known.files.items()})
        case Imported():  # what the model saw was on another disk
            return FileHashes()
        case _:
            return known


def _with(known: FileHashes, news: Mapping[str, str]) -> FileHashes:
    if not news:
        return known
    files = {**known.files}
    for path, content in news.items():
        files.pop(path, None)  # it comes last now
        files[path] = content
    # Each look makes a copy, so there is an end to it; what fell out is read again first.
    return FileHashes(dict(list(files.items())[-_MOST:]) if len(files) > _MOST else files)
