"""Makes copies of git's index in which files that a command cannot see are skipped.

To git, a file that the sandbox hides looks changed or deleted, so a diff would print its
committed content. In the copy, the entries of hidden files have the mark `skip-worktree`: git
then assumes that the file is as committed, and does not read it. A command sees the copy in
place of the index (`sandbox_rules`); the index itself is not changed. See gitformat-index(5).

Other ways do not suffice. With `assume-unchanged`, `git grep` prints the committed content, and
a repository can override the attribute `-diff`. git cannot write to the copy. That does no
harm: where a file is hidden, commands of mode `sandbox` cannot write to `.git` at all.
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
_EXTENSION_STRUCT = struct.Struct(">4sI")  # the name of an extension, and its length
_SIGNATURE, _VERSIONS = b"DIRC", (2, 3, 4)
_STAT_BYTES = 40  # the part of an entry before its object name
# one bit in the flags, and one in the extended flags after them
_HAS_EXTENDED_FLAGS, _SKIP_WORKTREE = 0x4000, 0x4000
_MAX_STORED_LENGTH = 0xFFF  # the flags store a name's length up to this value
# These extensions remain valid, because they store neither positions nor times.
_EXTENSIONS_TO_KEEP = (b"TREE", b"REUC", b"sdir")
_SPLIT_INDEX = b"link"  # the extension of an index whose entries are in another file
_MAX_INDEX_BYTES = 256 * 1024 * 1024
# Git refuses this content and reports a corrupt index.
_UNREADABLE_INDEX = (
    b"refold cannot hide files in an index of this kind, so it hides the index.\n"
)


class HiddenIndexes:
    """Makes the copies of indexes for one session.

    A copy is made again only if its index has changed.
    """

    def __init__(self) -> None:
        # By index and hidden names: the state of the index, and the path of its copy.
        self._copies: dict[tuple[str, frozenset[bytes]], tuple[tuple[int, ...], str]] = {}

    def copies(
        self, hidden: Iterable[str], roots: Sequence[str], private: str
    ) -> Iterator[tuple[str, str]]:
        """Yield each index that contains a path in `hidden`, with the path of its copy.

        `roots` are the workspace directories. The copies are written to the directory
        `private`.
        """
        for index, paths in _indexes(hidden, roots).items():
            names = frozenset(paths)
            try:
                status = os.stat(index)
            except OSError:
                continue  # nothing was added yet
            state = (status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
            copied_state, copy = self._copies.get((index, names), (None, ""))
            if copied_state != state:
                copy = _copy(index, names, private)
                self._copies[index, names] = (state, copy)
            if copy:  # "" if the index contains none of the names
                yield index, copy


def first_tracked_path(hidden: Iterable[str], roots: Sequence[str]) -> str:
    """Return a path in `hidden` that is a tracked file or a directory with tracked files.

    Return "" if there is none. If an index cannot be read, return the path of the index. Only
    repositories in `roots` are searched.
    """
    for index, paths in _indexes(hidden, roots).items():
        try:
            data = _read_index(index)
            # All names at once first, because usually none of them is tracked.
            if mark_hidden_entries(data, paths.keys()) is None:
                continue
            for name in sorted(paths):
                if mark_hidden_entries(data, {name}) is not None:
                    return paths[name]
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            return index
    return ""


def _copy(index: str, names: Set[bytes], private: str) -> str:
    """Write a copy of the index in which `names` are skipped. Return its path.

    Return "" if the index contains none of `names`. If it cannot be read, an invalid index is
    written.
    """
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
    """Return the bytes of an index. Raises `ValueError` if it is too large, or `OSError`."""
    data, size = read_regular(index, _MAX_INDEX_BYTES, follow=False)
    if size > _MAX_INDEX_BYTES:
        raise ValueError("too large")
    return data


def _indexes(
    hidden: Iterable[str], roots: Sequence[str]
) -> Mapping[str, Mapping[bytes, str]]:
    """Return the index of each repository that contains a path in `hidden`.

    Each index is mapped to the hidden paths in its repository, by their names relative to the
    repository.
    """
    indexes = dict[str, dict[bytes, str]]()
    for path in hidden:
        top = _checkout_around(path, roots)
        if not top:
            continue
        git = os.path.join(top, ".git")
        # In a linked worktree, `.git` is a file with the path of the directory.
        directory = gitdir_target(git) if os.path.isfile(git) else os.path.realpath(git)
        if not directory:
            continue
        index = os.path.realpath(os.path.join(directory, "index"))
        if any(below(index, root) for root in roots):
            name = os.fsencode(os.path.relpath(path, top))
            indexes.setdefault(index, {})[name] = path
    return indexes


def _checkout_around(path: str, roots: Sequence[str]) -> str:
    """Return the nearest directory with a `.git` above `path` in `roots`; "" if none has one."""
    inner, directory = path, os.path.dirname(path)
    # "/" is its own parent directory.
    while directory != inner and any(below(directory, root) for root in roots):
        if os.path.lexists(os.path.join(directory, ".git")):
            return directory
        inner, directory = directory, os.path.dirname(directory)
    return ""


def mark_hidden_entries(data: bytes, names: Set[bytes]) -> bytes | None:
    """Return the index `data` with skip marks for the files `names` and all files below them.

    Return None if the index has no such entry. Raises `ValueError` if the format of the index
    is unknown or damaged.
    """
    version, count = _read_header(data)
    # Version 4 stores a part of each name, and a split index has entries in another file.
    has_whole_names = version < 4 and _SPLIT_INDEX not in data
    if has_whole_names and not any(name in data for name in names):
        return None  # the usual case, checked first because reading each entry is slow
    # An index ends with its own hash. A repository uses one of the two kinds of hashes.
    hashing = sha256 if sha256(data[:-32]).digest() == data[-32:] else sha1
    size = hashing().digest_size
    pieces = list[bytes]()
    entries_end = _HEADER_STRUCT.size  # the end of the last entry
    copied_end = entries_end  # the end of what is already in `pieces`
    try:
        for entry in _entries(data, version, count, size):
            entries_end = entry.end
            is_hidden = any(
                entry.name == hidden or entry.name.startswith(hidden + b"/")
                for hidden in names
            )
            if is_hidden:
                pieces += (
                    data[copied_end : entry.start],
                    _entry_marked_to_skip(data, entry, version),
                )
                copied_end = entry.end
        extensions = tuple(_extensions(data, entries_end, size))
    except (struct.error, IndexError) as error:
        raise ValueError("it is cut off") from error
    if not pieces:
        return None
    # Version 2 has no extended flags, in which the mark is.
    header = _HEADER_STRUCT.pack(_SIGNATURE, max(3, version), count)
    new_data = b"".join((header, *pieces, data[copied_end:entries_end], *extensions))
    return new_data + hashing(new_data).digest()


def read_entries(data: bytes) -> "list[IndexEntry]":
    """Return the entries of an index that uses SHA-1. Raises `ValueError`."""
    version, count = _read_header(data)
    try:
        return list(_entries(data, version, count, sha1().digest_size))
    except (struct.error, IndexError) as error:
        raise ValueError("it is cut off") from error


def _read_header(data: bytes) -> tuple[int, int]:
    """Return an index's version and its number of entries. Raises `ValueError`."""
    if len(data) < _HEADER_STRUCT.size + sha1().digest_size:
        raise ValueError("too short")
    signature, version, count = _HEADER_STRUCT.unpack_from(data)
    if signature != _SIGNATURE or version not in _VERSIONS:
        raise ValueError("not a known version")
    return version, count


class IndexEntry(NamedTuple):
    """An entry of an index: the offsets of its start, end and flags, and its file name."""

    start: int
    end: int
    flags_offset: int
    name: bytes


def _entries(data: bytes, version: int, count: int, size: int) -> Iterator[IndexEntry]:
    """Yield the entries of an index. See gitformat-index(5).

    `count` is their number, `size` the number of bytes of a hash.
    """
    start = _HEADER_STRUCT.size
    name = b""
    for _ in range(count):
        flags_offset = start + _STAT_BYTES + size
        (flags,) = struct.unpack_from(">H", data, flags_offset)
        has_extended_flags = version > 2 and flags & _HAS_EXTENDED_FLAGS
        name_offset = flags_offset + (4 if has_extended_flags else 2)
        if version == 4:
            # The name is stored as a difference to the name of the entry before.
            removed_bytes, name_offset = _read_varint(data, name_offset)
            name_end = data.index(b"\0", name_offset)
            name = name[: len(name) - removed_bytes] + data[name_offset:name_end]
            end = name_end + 1
        else:
            length = flags & _MAX_STORED_LENGTH
            if length < _MAX_STORED_LENGTH:
                name_end = name_offset + length
            else:  # the name is too long for its length to be stored
                name_end = data.index(b"\0", name_offset)
            name = data[name_offset:name_end]
            # One to eight zero bytes follow, so that the length is a multiple of eight.
            end = name_end + 8 - (name_end - start) % 8
        yield IndexEntry(start, end, flags_offset, name)
        start = end


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Read a number of variable length. Return it, and the offset after it."""
    byte = data[offset]
    value = byte & 127
    while byte & 128:  # another byte follows
        offset += 1
        byte = data[offset]
        # Git adds 1, so that there is only one way to store a number.
        value = ((value + 1) << 7) | (byte & 127)
    return value, offset + 1


def _entry_marked_to_skip(data: bytes, entry: IndexEntry, version: int) -> bytes:
    """Return the bytes of an entry, with the mark that makes git skip the file on the disk."""
    (flags,) = struct.unpack_from(">H", data, entry.flags_offset)
    name_offset = entry.flags_offset + 2
    extended_flags = 0
    if version > 2 and flags & _HAS_EXTENDED_FLAGS:
        (extended_flags,) = struct.unpack_from(">H", data, name_offset)
        name_offset += 2
    new_flags = struct.pack(
        ">HH", flags | _HAS_EXTENDED_FLAGS, extended_flags | _SKIP_WORKTREE
    )
    marked = data[entry.start : entry.flags_offset] + new_flags
    if version == 4:  # has no padding
        return marked + data[name_offset : entry.end]
    marked += entry.name
    return marked + bytes(8 - len(marked) % 8)  # padded as in `_entries`


def _extensions(data: bytes, offset: int, size: int) -> Iterator[bytes]:
    """Yield the extensions of an index that are still valid if entries are marked.

    The extensions begin at `offset`, and a hash of `size` bytes follows them. Raises
    `ValueError` for an unknown extension that readers must understand.
    """
    while offset < len(data) - size:
        name, length = _EXTENSION_STRUCT.unpack_from(data, offset)
        end = offset + _EXTENSION_STRUCT.size + length
        if name in _EXTENSIONS_TO_KEEP:
            yield data[offset:end]
        elif not name[:1].isupper():  # a capital letter means that it is optional
            raise ValueError("it has a part that must be understood")
        offset = end
