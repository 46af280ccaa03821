"""The files that the model has read or written, with the hash of their content.

Tools refuse to edit a file that has changed since the model last saw it.
"""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from refold.journal.events.kinds import Ended, Entry, ExternalEditsFound, Imported
from refold.values.display import Diff

EVENT_KINDS = (Ended, ExternalEditsFound, Imported)
_MAX_FILES = 2_000
_NO_FILES: Mapping[str, str] = MappingProxyType({})


class FileHashes(Struct, frozen=True):
    """The files that the model knows. `files` maps real paths to hashes, the newest last.

    The hash is a sha256, or "" if another program has changed the file. `unread` are files
    that the model has changed since it last read them.
    """

    files: Mapping[str, str] = _NO_FILES
    unread: frozenset[str] = frozenset()


def apply(hashes: FileHashes, entry: Entry) -> FileHashes:
    """Return the known files after this entry. An event of another kind changes nothing."""
    match entry.event:
        case Ended(file_hashes=seen, shown=shown) if seen or shown:
            seen_hashes = dict(seen)
            written_hashes = {d.path: d.after for d in shown if isinstance(d, Diff)}
            # A file that an edit has written is unread until a later call reads it.
            unread = (hashes.unread - seen_hashes.keys()) | written_hashes.keys()
            return _merge_hashes(hashes, {**seen_hashes, **written_hashes}, unread)
        case ExternalEditsFound(files):
            edited = {path for path, _ in files}
            # Without a hash, edits are refused until the file is read again.
            known = {p: "" if p in edited else hash_ for p, hash_ in hashes.files.items()}
            return FileHashes(known, hashes.unread)
        case Imported():  # the files are on another machine
            return FileHashes()
        case _:
            return hashes


def _merge_hashes(
    hashes: FileHashes, new_hashes: Mapping[str, str], unread: frozenset[str]
) -> FileHashes:
    """Return `hashes` with `new_hashes` added as the newest. The oldest hashes are dropped."""
    if not new_hashes:
        return hashes
    files = {**hashes.files}
    for path, hash_ in new_hashes.items():
        files.pop(path, None)  # so that it becomes the newest
        files[path] = hash_
    # Each event copies the mapping, so its size is limited. A dropped file must be read
    # again.
    if len(files) > _MAX_FILES:
        files = dict(list(files.items())[-_MAX_FILES:])
        unread &= files.keys()
    return FileHashes(files, unread)
