"""Writes many objects of a git repository into one pack, with its index.

For many new files, git would write a file for each, or sync each to the disk; a pack is synced
once. `snapshot_files` and `snapshot_root_scan` decide what a pack contains. See gitformat-pack(5).
"""

import os
import struct
import threading
import zlib
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha1
from pathlib import Path

from refold.safe_open import open_checked

BLOB_TYPE, TREE_TYPE = 3, 2
TYPE_NAMES: Mapping[int, str] = {BLOB_TYPE: "blob", TREE_TYPE: "tree"}
_COMPRESSION = 1
_HEADER_STRUCT = struct.Struct(">4sII")
_INDEX_HEADER = b"\xfftOc\0\0\0\x02"
_LARGE_OFFSET = 1 << 31  # from this value on, an offset takes eight bytes
_READ_BYTES = 1 << 20


def object_name(kind: int, content: bytes) -> bytes:
    """Return git's name for an object with this type and content, as 20 bytes."""
    hashing = sha1(b"%s %d\0" % (TYPE_NAMES[kind].encode(), len(content)))
    hashing.update(content)
    return hashing.digest()


class PackWriter:
    """A new pack in `directory`. `finish` makes it visible to git, `drop` deletes it."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._lock = directory, threading.Lock()
        # `snapshot_deletion` deletes old files of this name.
        self._path = directory / f"tmp_pack_{os.urandom(8).hex()}"
        self._file = open(  # noqa: SIM115 (closed by `finish` or `drop`)
            self._path, "x+b", opener=open_checked
        )
        self._file.write(bytes(_HEADER_STRUCT.size))
        self._offset = _HEADER_STRUCT.size
        self._objects = dict[bytes, tuple[int, int]]()  # checksum and offset

    def add(self, kind: int, name: bytes, content: bytes) -> None:
        """Add an object, unless the pack has it. Several threads may call this at a time."""
        data = _entry_header(kind, len(content)) + zlib.compress(content, _COMPRESSION)
        checksum = zlib.crc32(data)
        with self._lock:
            if name not in self._objects:
                self._objects[name] = checksum, self._offset
                self._file.write(data)
                self._offset += len(data)

    def __contains__(self, name: bytes) -> bool:
        return name in self._objects

    def finish(self) -> None:
        """Sync the pack and its index to the disk. The index makes it visible to git.

        An empty pack is deleted.
        """
        if not self._objects:
            self.drop()
            return
        with self._file as file:
            file.seek(0)
            file.write(_HEADER_STRUCT.pack(b"PACK", 2, len(self._objects)))
            file.seek(0)
            hashing = sha1()
            while block := file.read(_READ_BYTES):
                hashing.update(block)
            file.write(hashing.digest())
            file.flush()
            os.fsync(file.fileno())
        pack = self._directory / f"pack-{hashing.hexdigest()}.pack"
        self._path.rename(pack)
        new_index = self._directory / f"tmp_pack_{os.urandom(8).hex()}"
        with open(new_index, "xb", opener=open_checked) as file:
            file.write(self._index(hashing.digest()))
            file.flush()
            os.fsync(file.fileno())
        new_index.rename(pack.with_suffix(".idx"))

    def drop(self) -> None:
        """Close the file, and delete it unless `finish` has renamed it."""
        self._file.close()
        with suppress(OSError):
            self._path.unlink()

    def _index(self, pack_checksum: bytes) -> bytes:
        """Return the content of the pack's index file. See gitformat-pack(5).

        The file lists the sorted names, and then the checksum and the offset of each object. An
        offset that needs more than 31 bits is in a second table, and the first has its position
        there.
        """
        names = sorted(self._objects)
        counts = [0] * 256
        for name in names:
            counts[name[0]] += 1
        # for each first byte, how many names begin with it or a smaller one
        fan_out = (sum(counts[: first + 1]) for first in range(256))
        offsets, large_offsets = list[int](), list[int]()
        for name in names:
            _, offset = self._objects[name]
            if offset < _LARGE_OFFSET:
                offsets.append(offset)
            else:
                offsets.append(_LARGE_OFFSET | len(large_offsets))
                large_offsets.append(offset)
        data = b"".join((
            _INDEX_HEADER,
            struct.pack(">256I", *fan_out),
            *names,
            struct.pack(f">{len(names)}I", *(self._objects[name][0] for name in names)),
            struct.pack(f">{len(names)}I", *offsets),
            struct.pack(f">{len(large_offsets)}Q", *large_offsets),
            pack_checksum,
        ))  # fmt: skip
        return data + sha1(data).digest()


def _entry_header(kind: int, size: int) -> bytes:
    """Return the bytes that precede an object in a pack: its type and its size.

    The first byte has four bits of the size, each further byte seven.
    """
    header = bytearray()
    byte = (kind << 4) | (size & 15)
    rest = size >> 4
    while rest:
        header.append(byte | 128)  # this bit means that another byte follows
        byte = rest & 127
        rest >>= 7
    header.append(byte)
    return bytes(header)
