"""Reads the files of a snapshot through descriptors, following no link, and stores them.

`store_many` is for many files: they are read and compressed in parallel and written in one pack.
A content that a lender has, the repository of the user, is not stored again: every file is read
and hashed, so nothing that the user's index says is believed. `index_lines` is for a few files that
git was to read by path, and `PathFilter` says of those which git can store. `snapshot_scan`
finds the files.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from msgspec import Struct

from refold.place.openat import FOLDER_FLAGS, open_beneath
from refold.place.snapshot_index import LINK_MODE, git_mode, to_entry
from refold.place.snapshot_objects import MAX_FILE_BYTES, ObjectLookup
from refold.place.snapshot_pack import BLOB_TYPE, PackWriter, object_name
from refold.place.snapshot_repository import SnapshotRepository

_MAX_THREADS: Final = 4
_BATCH_FILES, _BATCH_BYTES = 400, 8 * 1024 * 1024  # that a thread has in memory
_MAX_READ_TRIES = 5  # of a file that is being written
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_NO_OBJECT = "0" * 40
_AT_ONCE = 200  # files passed to git in one call
# The kernel's clock of directories may be this coarse, or, on some disks, count whole seconds.
_CLOCK_STEP_NANOSECONDS = 50_000_000
_SECOND_NANOSECONDS = 1_000_000_000


class StoredFiles(Struct):
    """What became of the paths of a request: index entries, missing files, files left out."""

    entries: dict[str, bytes] = {}
    gone: list[str] = []
    left_out: set[str] = set()
    count: int = 0  # of contents that were stored, and their bytes
    size: int = 0


class StoreRequest(Struct, frozen=True):
    """`paths` are relative to `root`, which is `base` or in it.

    `report` gets the number of files as they are read; `check` gets the number and the bytes of
    new contents, and raises if they are too many.
    """

    base: str
    root: str
    paths: Sequence[str]
    report: Callable[[int], None]
    check: Callable[[int, int], None]


def store_many(
    request: StoreRequest, pack: PackWriter, lookup: ObjectLookup
) -> StoredFiles:
    """Add the contents that are not `lookup` to `pack`."""
    result = StoredFiles()
    top = os.open(request.base, FOLDER_FLAGS)
    paths = sorted(request.paths)
    parts = [
        paths[start : start + _BATCH_FILES] for start in range(0, len(paths), _BATCH_FILES)
    ]
    threads = ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1), "snapshot")
    try:
        batches = [
            threads.submit(_Batch(request, top, pack, lookup).store, part) for part in parts
        ]
        for part, batch in zip(parts, batches, strict=True):
            files = batch.result()
            result.entries |= files.entries
            result.gone += files.gone
            result.left_out |= files.left_out
            result.count += files.count
            result.size += files.size
            request.check(result.count, result.size)
            request.report(len(part))
    finally:
        threads.shutdown(cancel_futures=True)
        os.close(top)
    return result


class _Batch:
    """The files that one thread reads and stores."""

    def __init__(
        self, request: StoreRequest, top: int, pack: PackWriter, lookup: ObjectLookup
    ) -> None:
        self._way = os.path.relpath(request.root, request.base)
        self._top, self._pack, self._known = top, pack, lookup
        self._result = StoredFiles()
        self._contents, self._size = dict[bytes, bytes](), 0

    def store(self, paths: Sequence[str]) -> StoredFiles:
        above, directory = "", -1
        try:
            for path in paths:
                if is_git_name(path):
                    self._result.left_out.add(path)
                    continue
                parent, _, last = path.rpartition("/")
                if directory < 0 or parent != above:
                    if directory >= 0:
                        os.close(directory)
                    above, directory = parent, self._open(parent)
                if directory < 0:
                    self._result.gone.append(path)
                else:
                    self._read(path, last, directory)
        finally:
            if directory >= 0:
                os.close(directory)
        self._store_contents()
        return self._result

    def _open(self, parent: str) -> int:
        """A descriptor of the directory; -1 if it is gone, or a link is in the way."""
        try:
            return open_beneath(self._top, os.path.join(self._way, parent), FOLDER_FLAGS)
        except OSError:
            return -1

    def _read(self, path: str, last: str, directory: int) -> None:
        try:
            content, about = read_file(last, directory)
        except FileNotFoundError:
            self._result.gone.append(path)
            return
        except (OSError, Unstorable):
            self._result.left_out.add(path)
            return
        name = object_name(BLOB_TYPE, content)
        self._result.entries[path] = to_entry(about, name)
        self._contents[name] = content
        self._size += len(content)
        if self._size > _BATCH_BYTES:
            self._store_contents()

    def _store_contents(self) -> None:
        for name in self._known.missing(self._contents):
            if name not in self._pack:
                content = self._contents[name]
                self._pack.add(BLOB_TYPE, name, content)
                self._result.count += 1
                self._result.size += len(content)
        self._contents, self._size = {}, 0


class Unstorable(Exception):
    """A file that no snapshot contains: too large, a device, or of a name that git refuses."""


def read_file(name: str, directory: int) -> tuple[bytes, os.stat_result]:
    """The content of a file or a link in this directory, and its state before it was read.

    Raises `FileNotFoundError`, also for a directory, another `OSError`, or `Unstorable`.
    """
    for _ in range(_MAX_READ_TRIES):
        about = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISDIR(about.st_mode):
            raise FileNotFoundError(name)
        if stat.S_ISLNK(about.st_mode):
            if is_refused_link(name):
                raise Unstorable
            return os.fsencode(os.readlink(name, dir_fd=directory)), about
        if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_FILE_BYTES:
            raise Unstorable
        number = os.open(name, _READ_FLAGS | os.O_CLOEXEC, dir_fd=directory)
        try:
            about = os.fstat(number)
            content = os.read(number, about.st_size + 1) if about.st_size else b""
        finally:
            os.close(number)
        if stat.S_ISREG(about.st_mode) and len(content) == about.st_size:
            return content, about
    raise Unstorable


class PathFilter:
    """Decides whether a path is stored, deleted or left out, and returns its size."""

    def __init__(self, root: str) -> None:
        self._root, self._plain = root, {"": True}

    def __call__(self, path: str) -> tuple[str, int]:
        above, _, name = path.rpartition("/")
        if is_git_name(path):
            return "left out", 0
        whole = os.path.join(self._root, path)
        try:
            about = os.lstat(whole)
        except OSError:
            return "gone", 0
        if stat.S_ISDIR(about.st_mode) or not self._is_plain(above):
            return "gone", 0
        if stat.S_ISLNK(about.st_mode):
            return ("left out" if is_refused_link(name) else "kept"), 0
        if not stat.S_ISREG(about.st_mode):
            return "left out", 0
        if about.st_size > MAX_FILE_BYTES or not os.access(whole, os.R_OK):
            return "left out", 0
        return "kept", about.st_size

    def _is_plain(self, folder: str) -> bool:
        """Whether no part of the path is a link, behind which files would be elsewhere."""
        if folder not in self._plain:
            link = os.path.islink(os.path.join(self._root, folder))
            self._plain[folder] = not link and self._is_plain(folder.rpartition("/")[0])
        return self._plain[folder]


def is_git_name(path: str) -> bool:
    """Whether git would treat a part of the path as a repository."""
    return ".git" in path.lower() and any(
        part.lower() == ".git" for part in path.split("/")
    )


def is_refused_link(name: str) -> bool:
    """Whether git accepts no link of this name."""
    return name.lower().startswith(".gitmodules")


class ParentDirectories:
    """The current directories on the way to `paths`, which are relative to `root`. `root` is
    `base` or in it.
    """

    def __init__(self, base: str, root: str, paths: Sequence[str]) -> None:
        self._base, self._root, self._paths = base, root, paths
        self._began = time.time_ns()
        self._before = {
            directory: _directory_stamp(directory) for directory in self._directories()
        }

    def paths_to_reread(self) -> list[str]:
        """The paths whose directories have changed since, or may have just before."""
        moved = {
            directory
            for directory, stamp in self._before.items()
            if _is_too_recent(stamp, self._began) or _directory_stamp(directory) != stamp
        }
        return [p for p in self._paths if any(d in moved for d in self._above(p))]

    def _directories(self) -> set[str]:
        directories = set[str]()
        for path in self._paths:
            for parent in self._above(path):
                if parent in directories:
                    break
                directories.add(parent)
        return directories

    def _above(self, path: str) -> Iterator[str]:
        """The directories from the parent up to the base."""
        directory = os.path.dirname(os.path.join(self._root, path))
        while len(directory) > len(self._base):
            yield directory
            directory = os.path.dirname(directory)
        yield self._base


def index_lines(
    repository: SnapshotRepository, base: str, root: str, prefix: str, paths: Sequence[str]
) -> Iterable[bytes]:
    """The index lines of these paths, read without following any link."""
    way = os.path.relpath(root, base)
    top = os.open(base, FOLDER_FLAGS)
    try:
        for start in range(0, len(paths), _AT_ONCE):
            some = paths[start : start + _AT_ONCE]
            for path, (mode, name) in _store_files(repository, top, way, some).items():
                whole = os.fsencode(prefix + path)
                yield f"{mode} {name}\t".encode() + whole + b"\0"
    finally:
        os.close(top)


def _store_files(
    repository: SnapshotRepository, top: int, way: str, paths: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """Store the content of each file in git. Return its mode and the name of its content."""
    entries = dict[str, tuple[str, str]]()
    opened = dict[str, tuple[str, int]]()
    try:
        for path in paths:
            entries[path] = ("0", _NO_OBJECT)
            with suppress(OSError):  # deleted, or a link is in the way
                descriptor = open_beneath(
                    top, os.path.join(way, os.path.dirname(path)), FOLDER_FLAGS
                )
                try:
                    last = os.path.basename(path)
                    mode = os.stat(last, dir_fd=descriptor, follow_symlinks=False).st_mode
                    if stat.S_ISLNK(mode):
                        target = os.readlink(os.fsencode(last), dir_fd=descriptor)
                        entries[path] = (f"{LINK_MODE:o}", repository.store_content(target))
                    elif stat.S_ISREG(mode):
                        number = os.open(last, _READ_FLAGS, dir_fd=descriptor)
                        mode = os.fstat(number).st_mode
                        opened[path] = (f"{git_mode(mode):o}", number)
                finally:
                    os.close(descriptor)
        numbers = [number for _, number in opened.values()]
        names = repository.store_files(numbers) if numbers else ()
        for (path, (file_mode, _)), name in zip(opened.items(), names, strict=True):
            entries[path] = (file_mode, name)
    finally:
        for _, number in opened.values():
            os.close(number)
    return entries


def _directory_stamp(directory: str) -> tuple[int, int, int]:
    try:
        about = os.lstat(directory)
    except OSError:
        return (0, 0, 0)
    real = stat.S_ISDIR(about.st_mode)
    return (about.st_dev, about.st_ino, about.st_ctime_ns if real else 0)


def _is_too_recent(stamp: tuple[int, int, int], began: int) -> bool:
    """Whether a file could have changed again within the same tick of its clock."""
    when = stamp[2]
    coarse = when % _SECOND_NANOSECONDS == 0
    return began - when < (2 * _SECOND_NANOSECONDS if coarse else _CLOCK_STEP_NANOSECONDS)
