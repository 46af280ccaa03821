"""Builds the index of a snapshot in memory, so that many of its files change at once.

`git update-index` would read and store each file by its path. Here the contents are stored
already, and an entry is made of a content's name and the status of the file that was read. See
gitformat-index(5). `git_index` reads the index of a user's repository.
"""

import os
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha1
from pathlib import Path
from typing import Final

from refold.place.git_index import read_entries
from refold.place.snapshot_pack import TREE_TYPE, object_name

LINK_MODE, FILE_MODE, PROGRAM_MODE = 0o120000, 0o100644, 0o100755
_HEADER_STRUCT = struct.Struct(">4sII")
_STATE_STRUCT = struct.Struct(">10I20s")
# The parts of an entry in which `_STATE_STRUCT` packs the mode and the object name.
_MODE_PART, NAME_PART = slice(24, 28), slice(40, 60)
_MAX_NAME_BYTES: Final = 0xFFF  # the longest name that the flags can count
_WORD_MASK = 0xFFFFFFFF  # git stores 32 bits of each number
_SECOND_NANOSECONDS = 1_000_000_000


def to_entry(status: os.stat_result, name: bytes) -> bytes:
    """Return the index entry of a file from its status and the `name` of its content."""
    return _STATE_STRUCT.pack(
        status.st_ctime_ns // _SECOND_NANOSECONDS & _WORD_MASK,
        status.st_ctime_ns % _SECOND_NANOSECONDS,
        status.st_mtime_ns // _SECOND_NANOSECONDS & _WORD_MASK,
        status.st_mtime_ns % _SECOND_NANOSECONDS,
        status.st_dev & _WORD_MASK,
        status.st_ino & _WORD_MASK,
        git_mode(status.st_mode),
        status.st_uid & _WORD_MASK,
        status.st_gid & _WORD_MASK,
        status.st_size & _WORD_MASK,
        name,
    )


def git_mode(mode: int) -> int:
    """Return the mode that git stores for a file with the mode `mode`."""
    if stat.S_ISLNK(mode):
        return LINK_MODE
    return PROGRAM_MODE if mode & stat.S_IXUSR else FILE_MODE


def parse_index(data: bytes) -> dict[bytes, bytes]:
    """Return the entries of an index by path. Raises `ValueError`."""
    entries = read_entries(data)
    return {entry.name: data[entry.start : entry.flags_offset] for entry in entries}


def format_index(entries: Mapping[bytes, bytes]) -> bytes:
    """Return the bytes of an index. `entries` has the status and hash of each path."""
    pieces = [_HEADER_STRUCT.pack(b"DIRC", 2, len(entries))]
    for path in sorted(entries):
        flags = min(len(path), _MAX_NAME_BYTES).to_bytes(2, "big")
        # One to eight zero bytes, so that the length of an entry is a multiple of eight.
        padding = bytes(8 - (_STATE_STRUCT.size + len(flags) + len(path)) % 8)
        pieces += entries[path], flags, path, padding
    data = b"".join(pieces)
    return data + sha1(data).digest()


def to_trees(entries: Mapping[bytes, bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the git tree of each directory: its name and its content.

    A directory comes after the directories in it.
    """
    directories = dict[bytes, dict[bytes, bytes]]()
    for path, entry in entries.items():
        directory, _, last = path.rpartition(b"/")
        mode = int.from_bytes(entry[_MODE_PART], "big")
        item = b"%o %s\0%s" % (mode, last, entry[NAME_PART])
        directories.setdefault(directory, {})[last] = item
    for directory in sorted(_with_parents(directories), key=_depth, reverse=True):
        items = directories.get(directory, {})
        content = b"".join(items[key] for key in sorted(items))
        name = object_name(TREE_TYPE, content)
        yield name, content
        if directory:
            above, _, last = directory.rpartition(b"/")
            item = b"40000 %s\0%s" % (last, name)
            # git sorts a directory as if its name ended with a slash.
            directories.setdefault(above, {})[last + b"/"] = item


def _with_parents(directories: Iterable[bytes]) -> set[bytes]:
    """Return the directories and all above them, up to the top, which is b""."""
    every = {b""}
    for path in directories:
        directory = path
        while directory not in every:
            every.add(directory)
            directory = directory.rpartition(b"/")[0]
    return every


def _depth(directory: bytes) -> int:
    return directory.count(b"/") + 1 if directory else 0


def time_and_size(index: Path) -> tuple[int, int] | None:
    """Return what changes when git writes an index; None if the file does not exist."""
    try:
        status = index.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def replace_by_hard_link(source: Path, target: Path) -> None:
    """Replace `target` by a hard link to `source`, an index; git never changes one in place."""
    temporary = target.with_name(f"{target.name}.{os.urandom(4).hex()}")
    os.link(source, temporary)
    temporary.replace(target)
