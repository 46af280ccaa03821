"""Scans the files of a folder: what changed since the last scan is stored as a git tree.

git finds changes by its index; which files can be stored is decided here. Files that are too
large or unreadable are left out and reported. A nested repository is scanned as a root of its
own, because git does not look into it. git reads by paths, so files whose directories may have
changed during the scan are read again through descriptors, following no link.

git trusts the time of a file only if it is older than the index. So the index gets the time at
which the scan began, minus the possible delay of file clocks: a file that was changed in the
meantime is compared by content at the next scan.
"""

import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from refold.errors import ToolFailed
from refold.place.ignore_rules import IgnoreRules, git_folder, repository_around
from refold.place.openat import FOLDER_FLAGS, open_beneath
from refold.place.port import Trees
from refold.place.snapshot_repository import (
    EMPTY_TREE,
    OUT_OF_TIME,
    GitFailed,
    GitProcess,
    SnapshotRepository,
    pieces,
)
from refold.safe_open import open_checked
from refold.values.printable_names import escape_name

MAX_FILE_BYTES = 32 * 1024 * 1024  # of one file
_MOST_FILES = 200_000  # new or changed, in one scan
_MOST_BYTES = 2 * 1024**3
_MOST_NESTED = 8  # nested repositories that are scanned
_LONGEST_LOOK = 60.0  # seconds to find what changed
_CLOCK_LAG_SECONDS = 2.0  # by which the time of a file may be behind the clock
_MAX_SCAN_TRIES = 20  # files change during a scan
_PACK_FROM_FILES = 200  # from here on, files are stored in one pack
_BAD_PATH = r"(?s)Unable to process path (.*)"
_HALF_WRITTEN = 3600  # seconds after which a pack is no longer being written
_UNUSED_INDEX_SECONDS = 14 * 24 * 3600  # after which the index of a session is deleted
# The kernel's clock of directories may be this coarse, or, on some disks, count whole seconds.
_CLOCK_STEP_NANOSECONDS = 50_000_000
_SECOND_NANOSECONDS = 1_000_000_000
_AT_ONCE = 200  # files passed to git in one call
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_NO_OBJECT = "0" * 40


class TooLarge(ToolFailed):
    """The folder is too large for checkpoints. Scanning again will not help."""


class Scan:
    """Remembers what it saw: a scan of unchanged files costs one call of git."""

    def __init__(
        self, repository: SnapshotRepository, ignored: IgnoreRules, session: str
    ) -> None:
        self._repository, self._ignored = repository, ignored
        self._session = f"sessions/{session or 'unnamed'}"
        self._trees = dict[str, str]()
        self._tracked = dict[str, tuple[int, int]]()  # the user's index, when last read
        self._left_out = dict[str, set[str]]()

    def scan(self, roots: Sequence[str]) -> tuple[Trees, tuple[str, ...]]:
        """The trees of `roots` and of repositories inside, and what is left out."""
        self._repository.make()
        with self._repository.lock(f"{self._session}/lock") as lock:
            entries, left_out = list[tuple[str, str]](), set[str]()
            waiting, nested = [(root, root) for root in roots], 0
            for root, base in waiting:  # grows on the way
                others = [other for other in roots if other != root]
                tree, inside = self._scan_root(root, base, others, lock)
                entries.append((root, tree))
                left_out |= {os.path.join(root, other) for other in self._left_out[root]}
                for other in inside:
                    nested += 1
                    if nested <= _MOST_NESTED:
                        waiting.append((other, base))
                    else:
                        left_out.add(f"{other}/")
            return tuple(entries), tuple(sorted(left_out))

    def _scan_root(
        self, root: str, base: str, others: Sequence[str], lock: int
    ) -> tuple[str, list[str]]:
        """`root` is `base` or is in it; commands cannot replace `base`."""
        scan = _RootScan(
            self._repository, self._ignored, (root, base), others, self._session, lock
        )
        scan.prepare()
        skipped = set[str]()
        for _ in range(_MAX_SCAN_TRIES):
            began = time.time() - _CLOCK_LAG_SECONDS
            changed, inside = scan.changes()
            tracked = self._tracked_despite_ignore(scan)
            before = self._left_out.get(root, set())
            try:
                different, left_out = scan.add_to_index(
                    (changed | tracked) - skipped, before
                )
            except GitFailed as error:
                bad = re.search(_BAD_PATH, error.output)
                if bad is None:
                    raise
                skipped.add(bad[1].removeprefix(scan.prefix))
                continue
            # Files that were left out are not in the index: every scan finds them again.
            self._left_out[root] = left_out | skipped
            if different or root not in self._trees:
                self._trees[root] = scan.tree()
            scan.set_time(began, different)
            return self._trees[root], inside
        raise ToolFailed(
            f"The files of {escape_name(root)} change too fast for a snapshot."
        )

    def _tracked_despite_ignore(self, scan: "_RootScan") -> set[str]:
        """Files that the user's repository tracks although it would ignore them."""
        place = Path(git_folder(scan.top)) / "index" if scan.top else None
        about = _time_and_size(place) if place else None
        if place is None or about is None or self._tracked.get(scan.root) == about:
            return set()
        self._tracked[scan.root] = about
        return scan.ignored_files(place)


class _RootScan:
    """A scan of one root. Paths are relative to it unless they are absolute."""

    def __init__(
        self, repository: SnapshotRepository, ignored: IgnoreRules, place: tuple[str, str],
        others: Sequence[str], session: str, lock: int,
    ) -> None:  # fmt: skip
        (self.root, self._base), self._held = place, lock
        root = self.root
        self._repository, self._ignored, self._others = repository, ignored, others
        self._folder = repository.directory / session
        self._set_paths("" if (around := repository_around(root)) == "/" else around)

    def prepare(self) -> None:
        """Write the ignore rules and an index to start with."""
        rules = self._ignored.rules(self.top, self.root, self._others)
        self._put_rules(rules)
        if self.top not in ("", self.root) and self._is_ignored_as_a_whole():
            # A repository of a whole home does not tell what is ignored here.
            self._set_paths("")
            self._put_rules(self._ignored.rules("", self.root, self._others))
        with suppress(OSError):
            self._index.with_suffix(".index.lock").unlink()  # of a git that was killed
        if not self._index.exists():
            self._seed()

    def changes(self) -> tuple[set[str], list[str]]:
        """The paths that differ from the index, and the nested repositories."""
        # Both wait for the disk, so they run in parallel.
        new = self._start_git("ls-files", "-z", "--others", "--exclude-standard")
        old = self._start_git("diff-files", "-z", "--name-only", "--relative")
        try:
            paths = set(pieces(new.read(seconds=_LONGEST_LOOK)))
        except GitFailed as error:
            old.drop()
            raise (
                TooLarge(str(error)) if error.output == OUT_OF_TIME else error
            ) from error
        paths.update(pieces(old.read()))
        inside = {path for path in paths if path.endswith("/")}
        return paths - inside, sorted(os.path.join(self.root, path[:-1]) for path in inside)

    def ignored_files(self, index: Path) -> set[str]:
        try:
            output = self._match_patterns(
                "ls-files", "-z", "--cached", "--ignored", "--exclude-standard", index=index
            )
        except GitFailed:  # split, sparse, or being written
            return set()
        return set(pieces(output))

    def add_to_index(
        self, paths: Iterable[str], left_before: set[str]
    ) -> tuple[bool, set[str]]:
        """Add files to the index. Return whether it changed, and which files cannot be stored."""
        stored, gone, left_out, size = list[str](), list[str](), set[str](), 0
        fits = _PathFilter(self.root)
        for path in sorted(paths):
            problem, bytes_ = fits(path)
            if problem == "kept":
                stored.append(path)
                size += bytes_
            elif problem == "left out":
                left_out.add(path)
            if problem == "gone" or (problem == "left out" and path not in left_before):
                gone.append(path)
        if len(stored) > _MOST_FILES or size > _MOST_BYTES:
            raise TooLarge(
                f"{escape_name(self.root)} is too large for checkpoints: {len(stored):,} files of "
                f"{size / 1e9:.1f} GB would have to be stored. Ignore what can be generated "
                "(.gitignore), or work in a smaller directory."
            )
        if gone:
            lines = (
                b"0 %s\t%s\0" % (b"0" * 40, os.fsencode(self.prefix + p)) for p in gone
            )
            self._run_git("update-index", "-z", "--index-info", input_bytes=b"".join(lines))
        if stored:
            parents = ParentDirectories(self._base, self.root, stored)
            many = (
                ("-c", "core.bigFileThreshold=1") if len(stored) > _PACK_FROM_FILES else ()
            )
            names = b"".join(os.fsencode(path) + b"\0" for path in stored)
            self._run_git(
                *many, "update-index", "-z", "--add", "--replace", "--remove", "--stdin",
                input_bytes=names,
            )  # fmt: skip
            self._read_again(parents.doubtful())
        return bool(stored or gone), left_out

    def _read_again(self, paths: Sequence[str]) -> None:
        """Add the real content to the index, whatever file git was led to by a link."""
        if not paths:
            return
        lines = lines_of(self._repository, self._base, self.root, self.prefix, paths)
        self._run_git("update-index", "-z", "--index-info", input_bytes=b"".join(lines))

    def tree(self) -> str:
        if not self.prefix:
            return self._run_git("write-tree").decode().strip()
        try:
            return self._run_git("write-tree", f"--prefix={self.prefix}").decode().strip()
        except GitFailed as error:
            if "not found" in error.output:  # there is no file in it
                return EMPTY_TREE
            raise

    def set_time(self, began: float, different: bool) -> None:
        """Set the time at which the index was valid, and make it the start of the next session."""
        with suppress(OSError):
            os.utime(self._index, (began, began))
            if different or not self._seeded.exists():
                _copy(self._index, self._seeded)

    def _set_paths(self, top: str) -> None:
        self.top, self._tree = top, top or self.root
        away = os.path.relpath(self.root, self._tree)
        self.prefix = "" if away == "." else away + "/"
        name = sha256(os.fsencode(f"{self.root}\0{self._tree}")).hexdigest()[:16]
        self._index = self._folder / f"{name}.index"
        self._exclude = self._folder / f"{name}.exclude"
        self._seeded = self._repository.directory / f"{name}.index"

    def _put_rules(self, rules: bytes) -> None:
        try:
            if not self._exclude.exists() or self._exclude.read_bytes() != rules:
                with open(self._exclude, "wb", opener=open_checked) as writing:
                    writing.write(rules)
        except OSError as error:
            raise ToolFailed(
                f"No snapshot of the files could be taken: {error.strerror}."
            ) from error

    def _is_ignored_as_a_whole(self) -> bool:
        try:
            self._match_patterns("check-ignore", "-q", "--no-index", self.root)
        except GitFailed:
            return False
        return True

    def _seed(self) -> None:
        _delete_old_indexes(self._folder.parent, self._folder)
        _delete_partial_packs(self._repository.directory / "objects" / "pack")
        with suppress(OSError):
            _copy(self._seeded, self._index)

    def _match_patterns(self, *arguments: str, index: Path | None = None) -> bytes:
        """The output of a git command that matches patterns, which can take very long."""
        return self._start_git(*arguments, index=index).read(seconds=_LONGEST_LOOK)

    def _run_git(
        self, *arguments: str, input_bytes: bytes = b"", index: Path | None = None
    ) -> bytes:
        return self._start_git(*arguments, index=index).read(input_bytes)

    def _start_git(self, *arguments: str, index: Path | None = None) -> GitProcess:
        return self._repository.start(
            "-c", f"core.excludesFile={self._exclude}", *arguments,
            folder=self.root, tree=self._tree, index=index or self._index, descriptor=self._held,
        )  # fmt: skip


class _PathFilter:
    """Decides whether a path is stored, deleted or left out, and returns its size."""

    def __init__(self, root: str) -> None:
        self._root, self._plain = root, {"": True}

    def __call__(self, path: str) -> tuple[str, int]:
        above, _, name = path.rpartition("/")
        if any(part.lower() == ".git" for part in path.split("/")):
            return "left out", 0  # git would treat it as a repository
        whole = os.path.join(self._root, path)
        try:
            about = os.lstat(whole)
        except OSError:
            return "gone", 0
        if stat.S_ISDIR(about.st_mode) or not self._is_plain(above):
            return "gone", 0
        if stat.S_ISLNK(about.st_mode):
            # git accepts no links of these names.
            return ("left out" if name.lower().startswith(".gitmodules") else "kept"), 0
        if not stat.S_ISREG(about.st_mode):
            return "left out", 0
        if about.st_size > MAX_FILE_BYTES or not os.access(whole, os.R_OK):
            return "left out", 0
        return "kept", about.st_size

    def _is_plain(self, folder: str) -> bool:
        """Whether no part of the path is a link: files behind a link are elsewhere."""
        if folder not in self._plain:
            link = os.path.islink(os.path.join(self._root, folder))
            self._plain[folder] = not link and self._is_plain(folder.rpartition("/")[0])
        return self._plain[folder]


def _time_and_size(place: Path) -> tuple[int, int] | None:
    try:
        about = place.stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size


def _copy(source: Path, target: Path) -> None:
    """Copy a file with its modification time, completely or not at all."""
    beside = target.with_name(f"{target.name}.{os.urandom(4).hex()}")
    with source.open("rb") as reading, open(beside, "xb", opener=open_checked) as writing:
        # Of the opened file: its name may refer to another by now.
        about = os.fstat(reading.fileno())
        shutil.copyfileobj(reading, writing)
        writing.flush()
        os.utime(writing.fileno(), ns=(about.st_mtime_ns, about.st_mtime_ns))
    beside.replace(target)


def _delete_old_indexes(folder: Path, ours: Path) -> None:
    """Delete the indexes of sessions that were not used for long. Snapshots stay."""
    limit = time.time() - _UNUSED_INDEX_SECONDS
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry != ours and entry.stat().st_mtime < limit:
                shutil.rmtree(entry, ignore_errors=True)


def _delete_partial_packs(folder: Path) -> None:
    """Delete what a full disk or a kill left half written: git itself never does."""
    limit = time.time() - _HALF_WRITTEN
    with suppress(OSError):
        for pack in folder.glob("tmp_pack_*"):
            if pack.stat().st_mtime < limit:
                pack.unlink()


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

    def doubtful(self) -> list[str]:
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
        """From the parent directory up to the base."""
        directory = os.path.dirname(os.path.join(self._root, path))
        while len(directory) > len(self._base):
            yield directory
            directory = os.path.dirname(directory)
        yield self._base


def lines_of(
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
                        entries[path] = ("120000", repository.store_content(target))
                    elif stat.S_ISREG(mode):
                        number = os.open(last, _READ_FLAGS, dir_fd=descriptor)
                        mode = os.fstat(number).st_mode
                        opened[path] = ("100755" if mode & 0o100 else "100644", number)
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
    """Whether it could have changed again within the same tick of its clock."""
    when = stamp[2]
    coarse = when % _SECOND_NANOSECONDS == 0
    return began - when < (2 * _SECOND_NANOSECONDS if coarse else _CLOCK_STEP_NANOSECONDS)
