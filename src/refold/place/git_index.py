"""A copy of git's index in which some files are left out of every comparison.

A file that is hidden from a command looks changed or removed to git, which would print the
committed content as what was there before. In the copy these entries have the mark
`skip-worktree`: git then takes them as they are committed, and does not look at the file. The copy
is shown to the command in the place of the index (`sandbox_rules`), which itself is not changed.
See gitformat-index(5).

With `assume-unchanged`, `git grep` prints the committed content, and a repository can
overrule an attribute `-diff`. A copy cannot be written back: where a file is hidden,
commands of mode `sandbox` cannot write `.git` at all.
"""

import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from hashlib import sha1, sha256
from typing import NamedTuple

from refold.place.guarded_paths import gitdir_target
from refold.safe_open import read_regular
from refold.values.path_names import below

_HEADER_STRUCT = struct.Struct(">4sII")
_SIGNATURE, _VERSIONS = b"DIRC", (2, 3, 4)
_STAT_BYTES = 40  # of an entry, before the name of its object
_EXTENDED, _SKIP_WORKTREE = 0x4000, 0x4000  # in the flags, and in those that follow them
_NAME_BYTES = 0xFFF  # the length of a name, or, if it is longer, this
# Extensions that know no positions and no times.
_VALID_NEVERTHELESS = (b"TREE", b"REUC", b"sdir")
_SPLIT_INDEX = b"link"  # the extension of an index whose entries are in another file
_MAX_INDEX_BYTES = 256 * 1024 * 1024
# Git refuses to read this, and says that the index is corrupt.
_UNREADABLE_INDEX = (
    b"refold cannot hide files in an index of this kind, so it hides the index.\n"
)


class HiddenIndexes:
    """The copies of one session. An index is read again only if it has changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, frozenset[bytes]], tuple[tuple[int, ...], str]] = {}

    def copies(
        self, hidden: Iterable[str], roots: Sequence[str], private: str
    ) -> Iterator[tuple[str, str]]:
        """Each index that has one of these paths, and its copy, a file in `private`."""
        for index, names in _indexes(hidden, roots).items():
            try:
                about = os.stat(index)
            except OSError:
                continue  # nothing was added yet
            state = (about.st_dev, about.st_ino, about.st_size, about.st_ctime_ns)
            known = self._known.get((index, names))
            if known is None or known[0] != state:
                known = (state, _copy(index, names, private))
                self._known[index, names] = known
            if known[1]:
                yield index, known[1]


def first_tracked_path(hidden: Iterable[str], roots: Sequence[str]) -> str:
    """The first of these paths, or one below it, that a git index has; "" for none."""
    for index, names in _indexes(hidden, roots).items():
        try:
            if mark_hidden_entries(_read_index(index), names) is not None:
                return os.path.join(os.path.dirname(index), os.fsdecode(min(names)))
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            return index
    return ""


def _copy(index: str, names: Set[bytes], private: str) -> str:
    try:
        data = mark_hidden_entries(_read_index(index), names)
    except (OSError, ValueError):
        data = _UNREADABLE_INDEX
    if data is None:
        return ""
    copy = os.path.join(private, f"index-{sha256(data).hexdigest()}")
    with suppress(FileExistsError), open(copy, "xb") as file:
        file.write(data)
    return copy


def _read_index(index: str) -> bytes:
    data, size = read_regular(index, _MAX_INDEX_BYTES, follow=False)
    if size > _MAX_INDEX_BYTES:
        raise ValueError("too large")
    return data


def _indexes(hidden: Iterable[str], roots: Sequence[str]) -> Mapping[str, frozenset[bytes]]:
    """The index of each repository that these paths are in, with their names in it."""
    indexes = dict[str, frozenset[bytes]]()
    for path in hidden:
        top, before = os.path.dirname(path), path
        while top != before and any(below(top, root) for root in roots):
            git = os.path.join(top, ".git")
            if os.path.lexists(git):
                directory = (
                    gitdir_target(git) if os.path.isfile(git) else os.path.realpath(git)
                )
                index = os.path.realpath(os.path.join(directory, "index"))
                if directory and any(below(index, root) for root in roots):
                    name = os.fsencode(os.path.relpath(path, top))
                    indexes[index] = indexes.get(index, frozenset()) | {name}
                break
            top, before = os.path.dirname(top), top
    return indexes


def mark_hidden_entries(data: bytes, names: Set[bytes]) -> bytes | None:
    """The index with these files, and all below them, marked; None if it has none of them.

    Raises `ValueError` for an index that is not understood.
    """
    version, count = _read_header(data)
    if version < 4 and _SPLIT_INDEX not in data and not any(name in data for name in names):
        return None  # the usual case: reading each entry would be slow
    hashing = sha256 if sha256(data[:-32]).digest() == data[-32:] else sha1
    size = hashing().digest_size
    pieces, offset, last = list[bytes](), _HEADER_STRUCT.size, _HEADER_STRUCT.size
    try:
        for entry in _entries(data, version, count, size):
            last = entry.end
            if any(
                entry.name == hidden or entry.name.startswith(hidden + b"/")
                for hidden in names
            ):
                pieces += (
                    data[offset : entry.start],
                    _entry_marked_to_skip(data, entry, version),
                )
                offset = last
        extensions = tuple(_extensions(data, last, size))
    except (struct.error, IndexError) as error:
        raise ValueError("it is cut off") from error
    if not pieces:
        return None
    body = b"".join((*pieces, data[offset:last], *extensions))
    body = _HEADER_STRUCT.pack(_SIGNATURE, max(3, version), count) + body
    return body + hashing(body).digest()


def read_entries(data: bytes) -> "list[IndexEntry]":
    """The entries of an index whose objects have names of 20 bytes. Raises `ValueError`."""
    version, count = _read_header(data)
    try:
        return list(_entries(data, version, count, sha1().digest_size))
    except (struct.error, IndexError) as error:
        raise ValueError("it is cut off") from error


def _read_header(data: bytes) -> tuple[int, int]:
    """The version of an index, and the number of its entries."""
    if len(data) < _HEADER_STRUCT.size + 20:
        raise ValueError("too short")
    signature, version, count = _HEADER_STRUCT.unpack_from(data)
    if signature != _SIGNATURE or version not in _VERSIONS:
        raise ValueError("not a known version")
    return version, count


class IndexEntry(NamedTuple):
    """The offsets of an entry and of its flags, and the name of its file."""

    start: int
    end: int
    flags: int
    name: bytes


def _entries(data: bytes, version: int, count: int, size: int) -> Iterator[IndexEntry]:
    offset, name = _HEADER_STRUCT.size, b""
    for _ in range(count):
        flags = offset + _STAT_BYTES + size
        (bits,) = struct.unpack_from(">H", data, flags)
        first = flags + (4 if bits & _EXTENDED and version > 2 else 2)
        if version == 4:
            cut, first = _read_varint(data, first)
            end = data.index(b"\0", first)
            name = name[: len(name) - cut] + data[first:end]
            yield IndexEntry(offset, end + 1, flags, name)
            offset = end + 1
        else:
            length = bits & _NAME_BYTES
            end = first + length if length < _NAME_BYTES else data.index(b"\0", first)
            name = data[first:end]
            end = offset + ((end - offset + 8) & ~7)  # with one zero at least
            yield IndexEntry(offset, end, flags, name)
            offset = end


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    byte = data[offset]
    value = byte & 127
    while byte & 128:
        offset += 1
        byte = data[offset]
        value = ((value + 1) << 7) | (byte & 127)
    return value, offset + 1


def _entry_marked_to_skip(data: bytes, entry: IndexEntry, version: int) -> bytes:
    (bits,) = struct.unpack_from(">H", data, entry.flags)
    extended_bits, name_offset = 0, entry.flags + 2
    if bits & _EXTENDED and version > 2:
        (extended_bits,) = struct.unpack_from(">H", data, name_offset)
        name_offset += 2
    words = struct.pack(">HH", bits | _EXTENDED, extended_bits | _SKIP_WORKTREE)
    if version == 4:
        return data[entry.start : entry.flags] + words + data[name_offset : entry.end]
    marked = data[entry.start : entry.flags] + words + entry.name
    return marked + bytes(8 - len(marked) % 8)


def _extensions(data: bytes, offset: int, size: int) -> Iterator[bytes]:
    while offset < len(data) - size:
        kind = data[offset : offset + 4]
        (length,) = struct.unpack_from(">I", data, offset + 4)
        whole = data[offset : offset + 8 + length]
        if kind in _VALID_NEVERTHELESS:
            yield whole
        elif not kind[:1].isupper():
            raise ValueError("it has a part that must be understood")
        offset += 8 + length
