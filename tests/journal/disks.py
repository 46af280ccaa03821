"""Simulates disks that fill up, fail or lose power, and the death of their program."""

import errno
import os
from collections.abc import Collection
from pathlib import Path

from refold.journal.store.disk import Disk


class Careless(Disk):
    """Reports every sync as done at once, for tests of the content of files."""

    def sync(self, file: int) -> None:
        return

    def sync_directory(self, path: Path) -> None:
        return


class Mortal(Disk):
    """A disk whose program can die: all its open files are closed, as by kill -9."""

    def __init__(self) -> None:
        self._open = set[int]()

    def open(self, path: Path, *, new: bool = False) -> int:
        file = super().open(path, new=new)
        self._open.add(file)
        return file

    def close(self, file: int) -> None:
        self._open.discard(file)
        super().close(file)

    def die(self) -> None:
        for file in list(self._open):
            self.close(file)


class Failing(Mortal):
    """Fails at `times` calls, the first of which is its call number `at`.

    A write that fails leaves half of its data. A sync that fails drops the data that is not on
    the disk, and reports that once, as Linux does.
    """

    def __init__(self, at: int, code: int = errno.EIO, times: int = 1) -> None:
        super().__init__()
        self.at, self.code, self.times = at, code, times
        self.calls = 0
        self._safe = dict[int, bytes]()

    def open(self, path: Path, *, new: bool = False) -> int:
        self._call()
        return super().open(path, new=new)

    def mkdir(self, path: Path) -> None:
        self._call()
        super().mkdir(path)

    def write(self, file: int, data: bytes, offset: int) -> None:
        try:
            self._call()
        except OSError:
            super().write(file, data[: len(data) // 2], offset)
            raise
        super().write(file, data, offset)

    def truncate(self, file: int, size: int) -> None:
        self._call()
        super().truncate(file, size)

    def sync(self, file: int) -> None:
        number, content = os.fstat(file).st_ino, _content(file)
        try:
            self._call()
        except OSError:
            safe = self._safe.get(number, b"")
            super().write(file, safe.ljust(len(content), b"\0"), 0)
            raise
        self._safe[number] = content

    def sync_directory(self, path: Path) -> None:
        self._call()

    def rename(self, old: Path, new: Path) -> None:
        self._call()
        super().rename(old, new)

    def _call(self) -> None:
        self.calls += 1
        if self.at <= self.calls < self.at + self.times:
            raise OSError(self.code, os.strerror(self.code))


class Unpowered(Mortal):
    """A disk whose power can be cut, which leaves the synced data under the synced names."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self._contents = dict[int, bytes]()
        self._names = dict[Path, dict[str, int]]()
        self.syncs = 0

    def sync(self, file: int) -> None:
        self.syncs += 1
        self._contents[os.fstat(file).st_ino] = _content(file)

    def sync_directory(self, path: Path) -> None:
        self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}

    def cut_power(self, tail: float = 0.0) -> None:
        """Die, and leave the synced data, and a part of the data that was not synced.

        `tail` is the share of the appended and not synced data that is left.
        """
        self.die()
        self._leave(self._root, tail)

    def lose_blocks(self, path: Path, size: int, lost: Collection[int], end: int) -> None:
        """Die, and leave the synced bytes of a file, and at most `end` bytes after them.

        In these later bytes, the blocks of `size` bytes whose numbers are in `lost` are zeros.
        """
        self.die()
        data, now = self._contents.get(path.stat().st_ino, b""), path.read_bytes()
        left = bytearray(now[: len(data) + end])
        for number in lost:
            start, after = number * size, (number + 1) * size
            for position in range(max(start, len(data)), min(after, len(left))):
                left[position] = 0
        self._contents[path.stat().st_ino] = bytes(left)
        path.write_bytes(left)

    def _leave(self, directory: Path, tail: float) -> None:
        safe = self._names.setdefault(directory, {})
        for entry in list(os.scandir(directory)):
            path, survives = Path(entry.path), tail > 0 or entry.name in safe
            if entry.is_dir():
                self._leave(path, tail)
                if not survives:
                    path.rmdir()
            elif survives:
                data, now = self._contents.get(entry.inode(), b""), path.read_bytes()
                if now.startswith(data):
                    data += now[len(data) :][: int(tail * (len(now) - len(data)))]
                elif tail > 0.5:  # cut off and written again: the complete old or new file
                    data = now
                self._contents[entry.inode()] = data
                path.write_bytes(data)
            else:
                self._contents.pop(entry.inode(), None)
                path.unlink()
            if survives:
                safe[entry.name] = entry.inode()


def _content(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size, 0)
