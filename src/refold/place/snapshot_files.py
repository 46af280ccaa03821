"""Reads files for a snapshot through descriptors, without following links, and stores them.

`store_many` is for many files: it reads and compresses them in parallel, and writes one pack.
Content that the user's repository (the lender) has is not stored again. Every file is read and
hashed, so the user's index need not be trusted. `index_lines` is for a few files that git would
otherwise read by path; `PathFilter` decides which of them can be stored. `snapshot_root_scan` finds
the files.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from refold.place.openat import FOLDER_FLAGS, open_beneath
from refold.place.snapshot_index import LINK_MODE, git_mode, to_entry
from refold.place.snapshot_objects import MAX_FILE_BYTES, ObjectLookup
from refold.place.snapshot_pack import BLOB_TYPE, PackWriter, object_name
from refold.place.snapshot_repository import SnapshotRepository

_MAX_THREADS: Final = 4
# the part that one thread keeps in memory
_BATCH_FILES, _BATCH_BYTES = 400, 8 * 1024 * 1024
_MAX_READ_TRIES = 5  # for a file that is being written
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_NO_OBJECT = "0" * 40
_MAX_PATHS_PER_CALL = 200  # the number of files passed to git in one call
# A disk's clock for directories may be this coarse, and some disks count whole seconds.
_CLOCK_STEP_NANOSECONDS = 50_000_000
_SECOND_NANOSECONDS = 1_000_000_000


class StoredFiles(Struct):
    """The result of storing files: index entries, missing files, and files that were left out."""

    entries: dict[str, bytes] = {}
    gone: list[str] = []
    left_out: set[str] = set()
    count: int = 0  # the number of contents that were stored, and their bytes
    size: int = 0


class StoreRequest(Struct, frozen=True):
    """Files to store. `paths` are relative to `root`.

    `base` is `root` or a directory above it; it is opened first, and no link below it is
    followed. `report` gets the number of files that were just read. `check` gets the number and
    the bytes of all new contents, and raises if they are too many.
    """

    base: str
    root: str
    paths: Sequence[str]
    report: Callable[[int], None]
    check: Callable[[int, int], None]


def store_many(
    request: StoreRequest, pack: PackWriter, lookup: ObjectLookup
) -> StoredFiles:
    """Read files, and add their contents to `pack` unless `lookup` finds them.

    Return the index entries of the files, and which files are missing or left out.
    """
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
        self._root_path = os.path.relpath(request.root, request.base)
        self._top, self._pack, self._lookup = top, pack, lookup
        self._result = StoredFiles()
        self._contents, self._size = dict[bytes, bytes](), 0

    def store(self, paths: Sequence[str]) -> StoredFiles:
        """Read the files at `paths` and store their contents. Return the result.

        A directory stays open for all files that follow each other in it.
        """
        opened_path, directory = "", -1  # -1 means that it could not be opened
        try:
            for path in paths:
                if is_git_name(path):
                    self._result.left_out.add(path)
                    continue
                parent, _, base_name = path.rpartition("/")
                if directory < 0 or parent != opened_path:
                    if directory >= 0:
                        os.close(directory)
                    opened_path, directory = parent, self._open(parent)
                if directory < 0:
                    self._result.gone.append(path)
                else:
                    self._read(path, base_name, directory)
        finally:
            if directory >= 0:
                os.close(directory)
        self._store_contents()
        return self._result

    def _open(self, parent: str) -> int:
        """Return a descriptor of a directory; -1 if it does not exist or a link is on its path."""
        try:
            return open_beneath(
                self._top, os.path.join(self._root_path, parent), FOLDER_FLAGS
            )
        except OSError:
            return -1

    def _read(self, path: str, base_name: str, directory: int) -> None:
        """Add one file to the result: with its content, as missing, or as left out."""
        try:
            content, status = read_file(base_name, directory)
        except FileNotFoundError:
            self._result.gone.append(path)
            return
        except (OSError, Unstorable):
            self._result.left_out.add(path)
            return
        name = object_name(BLOB_TYPE, content)
        self._result.entries[path] = to_entry(status, name)
        self._contents[name] = content
        self._size += len(content)
        if self._size > _BATCH_BYTES:
            self._store_contents()

    def _store_contents(self) -> None:
        """Write the collected contents to the pack, and then drop the contents from memory.

        Contents that the repository has already are not written.
        """
        for name in self._lookup.missing(self._contents):
            if name not in self._pack:
                content = self._contents[name]
                self._pack.add(BLOB_TYPE, name, content)
                self._result.count += 1
                self._result.size += len(content)
        self._contents, self._size = {}, 0


class Unstorable(Exception):
    """A file that snapshots leave out: too large, a device, or with a name that git refuses."""


def read_file(name: str, directory: int) -> tuple[bytes, os.stat_result]:
    """Return the content of a file, or the target of a link, and its status.

    `directory` is the open directory that contains it. Raises `FileNotFoundError`, also for a
    directory, another `OSError`, or `Unstorable`.
    """
    for _ in range(_MAX_READ_TRIES):
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            raise FileNotFoundError(name)
        if stat.S_ISLNK(status.st_mode):
            if is_refused_link(name):
                raise Unstorable
            return os.fsencode(os.readlink(name, dir_fd=directory)), status
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
            raise Unstorable
        number = os.open(name, _READ_FLAGS | os.O_CLOEXEC, dir_fd=directory)
        try:
            status = os.fstat(number)
            content = os.read(number, status.st_size + 1) if status.st_size else b""
        finally:
            os.close(number)
        if stat.S_ISREG(status.st_mode) and len(content) == status.st_size:
            return content, status
    raise Unstorable


PathFate: TypeAlias = Literal["kept", "gone", "left out"]


class PathFilter:
    """Decides whether a snapshot contains a path below `root`.

    Paths with a part `.git` are left out.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._plain = {"": True}  # results of `_is_plain`, by folder

    def __call__(self, path: str) -> tuple[PathFate, int]:
        """Return the decision about a path, and the size of a file that is kept, else 0."""
        above, _, name = path.rpartition("/")
        if is_git_name(path):
            return "left out", 0
        whole = os.path.join(self._root, path)
        try:
            status = os.lstat(whole)
        except OSError:
            return "gone", 0
        if stat.S_ISDIR(status.st_mode) or not self._is_plain(above):
            return "gone", 0
        if stat.S_ISLNK(status.st_mode):
            return ("left out" if is_refused_link(name) else "kept"), 0
        if not stat.S_ISREG(status.st_mode):
            return "left out", 0
        if status.st_size > MAX_FILE_BYTES or not os.access(whole, os.R_OK):
            return "left out", 0
        return "kept", status.st_size

    def _is_plain(self, folder: str) -> bool:
        """Whether `folder`, relative to the root, and all folders above it are no links."""
        if folder not in self._plain:
            is_link = os.path.islink(os.path.join(self._root, folder))
            above, _, _ = folder.rpartition("/")
            self._plain[folder] = not is_link and self._is_plain(above)
        return self._plain[folder]


def is_git_name(path: str) -> bool:
    """Whether a part of the path is `.git` in upper or lower case."""
    return ".git" in path.lower() and any(
        part.lower() == ".git" for part in path.split("/")
    )


def is_refused_link(name: str) -> bool:
    """Whether git refuses to store a link with this name."""
    return name.lower().startswith(".gitmodules")


class ParentDirectories:
    """Records the states of all directories that contain `paths`, up to `base`.

    `paths` are relative to `root`, which is `base` or below it.
    """

    def __init__(self, base: str, root: str, paths: Sequence[str]) -> None:
        self._base, self._root, self._paths = base, root, paths
        self._began = time.time_ns()
        self._before = {
            directory: _directory_stamp(directory) for directory in self._directories()
        }

    def paths_to_reread(self) -> list[str]:
        """Return the paths below directories that have changed since their state was recorded.

        A directory that changed just before counts, too, because its state may not show another
        change.
        """
        changed = {
            directory
            for directory, stamp in self._before.items()
            if _is_too_recent(stamp, self._began) or _directory_stamp(directory) != stamp
        }
        return [path for path in self._paths if not changed.isdisjoint(self._above(path))]

    def _directories(self) -> set[str]:
        """Return all directories above the paths."""
        directories = set[str]()
        for path in self._paths:
            for parent in self._above(path):
                if parent in directories:
                    break  # the directories above it were added with it
                directories.add(parent)
        return directories

    def _above(self, path: str) -> Iterator[str]:
        """Yield the directories that contain `path`, from the nearest one up to the base."""
        directory = os.path.dirname(os.path.join(self._root, path))
        while len(directory) > len(self._base):
            yield directory
            directory = os.path.dirname(directory)
        yield self._base


def index_lines(
    repository: SnapshotRepository, base: str, root: str, prefix: str, paths: Sequence[str]
) -> Iterable[bytes]:
    """Store the files at `paths`, and yield lines for the input of `git update-index`.

    `paths` are relative to `root`, which is `base` or below it. `prefix` precedes them in the
    index. No link is followed; a missing file gets a line that removes its entry.
    """
    root_path = os.path.relpath(root, base)
    top = os.open(base, FOLDER_FLAGS)
    try:
        for start in range(0, len(paths), _MAX_PATHS_PER_CALL):
            batch = paths[start : start + _MAX_PATHS_PER_CALL]
            entries = _store_files(repository, top, root_path, batch)
            for path, (mode, name) in entries.items():
                path_in_index = os.fsencode(prefix + path)
                yield f"{mode} {name}\t".encode() + path_in_index + b"\0"
    finally:
        os.close(top)


def _store_files(
    repository: SnapshotRepository, top: int, root_path: str, paths: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """Store the contents of files. Return each file's mode and the name of its content.

    `top` is the open base directory, and `root_path` leads from there to the root. A missing
    file has the mode "0". Regular files are only opened first: git stores all of them in one
    call.
    """
    entries = dict[str, tuple[str, str]]()
    opened = dict[str, tuple[str, int]]()  # the mode and descriptor of each regular file
    try:
        for path in paths:
            entries[path] = ("0", _NO_OBJECT)
            parent, base_name = os.path.split(path)
            with suppress(OSError):  # deleted, or a link is on the path
                parent_fd = open_beneath(top, os.path.join(root_path, parent), FOLDER_FLAGS)
                try:
                    status = os.stat(base_name, dir_fd=parent_fd, follow_symlinks=False)
                    if stat.S_ISLNK(status.st_mode):
                        target = os.readlink(os.fsencode(base_name), dir_fd=parent_fd)
                        entries[path] = (f"{LINK_MODE:o}", repository.store_content(target))
                    elif stat.S_ISREG(status.st_mode):
                        file_fd = os.open(base_name, _READ_FLAGS, dir_fd=parent_fd)
                        mode = git_mode(os.fstat(file_fd).st_mode)
                        opened[path] = (f"{mode:o}", file_fd)
                finally:
                    os.close(parent_fd)
        file_fds = [file_fd for _, file_fd in opened.values()]
        names = repository.store_files(file_fds) if file_fds else ()
        for (path, (file_mode, _)), name in zip(opened.items(), names, strict=True):
            entries[path] = (file_mode, name)
    finally:
        for _, file_fd in opened.values():
            os.close(file_fd)
    return entries


def _directory_stamp(directory: str) -> tuple[int, int, int]:
    """Return values that change with a directory's entries; zeros if it does not exist."""
    try:
        status = os.lstat(directory)
    except OSError:
        return (0, 0, 0)
    # a change in the target does not change the time of a link
    changed_ns = status.st_ctime_ns if stat.S_ISDIR(status.st_mode) else 0
    return (status.st_dev, status.st_ino, changed_ns)


def _is_too_recent(stamp: tuple[int, int, int], began: int) -> bool:
    """Whether a directory changed so soon before `began` that its time may hide a change."""
    _, _, changed_ns = stamp
    step = _CLOCK_STEP_NANOSECONDS
    if changed_ns % _SECOND_NANOSECONDS == 0:  # some file systems store whole seconds
        step = 2 * _SECOND_NANOSECONDS
    return began - changed_ns < step
