"""Scans the files of a folder, and stores what has changed since the last scan as a git tree.

git finds the changes with its index, and this module decides which files can be stored. Files
that are too large or unreadable are left out and reported, and contents that the user's
repository lends (`snapshot_lender`) are not stored. git reads files by path, so files whose
directories may have changed meanwhile are read again through descriptors, without following
links. `snapshot_scan` decides which folders are scanned.

git trusts the time of a file only if it is older than the index. So the index gets the time
when the scan began, minus the possible delay of file clocks: the next scan compares a file that
was changed meanwhile by its content.
"""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from refold.errors import ToolFailed
from refold.place.ignore_rules import IgnoreRules, repository_around
from refold.place.snapshot_deletion import delete_old_indexes, delete_partial_packs
from refold.place.snapshot_files import (
    ParentDirectories,
    PathFilter,
    StoreRequest,
    index_lines,
    store_many,
)
from refold.place.snapshot_index import (
    NAME_PART,
    format_index,
    parse_index,
    replace_by_hard_link,
    to_trees,
)
from refold.place.snapshot_lender import (
    LEND_FROM_FILES,
    Lender,
    has_only_files,
    read_lender,
    stamp_of,
    user_objects,
    write_lender,
)
from refold.place.snapshot_pack import BLOB_TYPE, TREE_TYPE, PackWriter
from refold.place.snapshot_repository import (
    EMPTY_TREE,
    OUT_OF_TIME,
    GitFailed,
    GitProcess,
    ScanProgress,
    SnapshotRepository,
    TooLarge,
    split_at_nul,
)
from refold.safe_open import create_file, open_checked
from refold.values.printable_names import escape_name

_MAX_CHANGED_FILES = 200_000  # new or changed files in one scan
_MAX_CHANGED_BYTES = 2 * 1024**3
_MAX_LISTING_SECONDS = 60.0  # for finding the changed files
_CLOCK_LAG_SECONDS = 2.0  # the time of a file may be behind the clock by less than this
_PACK_FROM_FILES = 200  # from this number on, files are stored in one pack
_FILE_NAME_DIGITS = 16  # of a hash: two roots never get the same name by chance


class RootScan:
    """A scan of one root. Paths are relative to the root unless they are absolute.

    `place` is the root and its base, a directory that commands cannot replace: the workspace
    root around a nested repository, otherwise the root itself.
    """

    def __init__(
        self, repository: SnapshotRepository, rules: IgnoreRules, place: tuple[str, str],
        other_roots: Sequence[str], session: str, lock: int,
    ) -> None:  # fmt: skip
        self.root, self._base = place
        self._lock_descriptor = lock
        self._began = 0.0  # when files were last compared with the index
        self._repository, self._ignored, self._others = repository, rules, other_roots
        self._folder = repository.directory / session
        top = repository_around(self.root)
        self._set_paths("" if top == "/" else top)

    def prepare(self) -> None:
        """Write the exclude file, and an index if there is none yet."""
        rules = self._ignored.rules(self.top, self.root, self._others)
        self._write_rules(rules)
        if self.top not in ("", self.root) and self._is_ignored_as_a_whole():
            # A repository of a whole home says nothing about what is ignored here.
            self._set_paths(top="")
            self._write_rules(
                self._ignored.rules(top="", folder=self.root, others=self._others)
            )
        with suppress(OSError):
            self._index.with_suffix(".index.lock").unlink()  # left by a git that was killed
        if not self._index.exists():
            self._start_from_last_index()

    def changes(self) -> tuple[set[str], dict[str, str], list[str]]:
        """Compare the files with the index.

        Return the paths that are not in the index; the changed paths, with the names of their
        contents in the index; and the nested repositories.
        """
        self._began = time.time() - _CLOCK_LAG_SECONDS
        # Both commands wait for the disk, so they run in parallel.
        listing = self._start_git("ls-files", "-z", "--others", "--exclude-standard")
        try:
            comparison = self._start_git("diff-files", "-z", "--no-abbrev", "--relative")
        except GitFailed:
            listing.drop()
            raise
        try:
            paths = set(split_at_nul(listing.read(seconds=_MAX_LISTING_SECONDS)))
        except GitFailed as error:
            comparison.drop()
            if error.output == OUT_OF_TIME:
                raise TooLarge(str(error)) from error
            raise
        fields = [*split_at_nul(comparison.read())]  # a head and a path, in turn
        heads, changed_paths = fields[::2], fields[1::2]
        # The third word of a head is the name of the content in the index.
        names = (head.split(" ")[2] for head in heads)
        changed = dict(zip(changed_paths, names, strict=True))
        nested = {path for path in paths if path.endswith("/")}
        nested_roots = sorted(os.path.join(self.root, path[:-1]) for path in nested)
        return paths - nested, changed, nested_roots

    def secure_borrowed(
        self, old_names: Mapping[str, str], progress: ScanProgress
    ) -> tuple[set[str], bool]:
        """Store lent contents of changed files, and contents that the lender has deleted.

        Return the files whose content is lost, and whether files were read again.
        """
        lender = read_lender(self._lender)
        if lender is None:
            return set(), False
        lost_names = set(self._copy_borrowed(sorted(set(old_names.values()))))
        lost_files = {
            os.path.join(self.root, path)
            for path, name in old_names.items()
            if name in lost_names
        }
        were_read_again = False
        with suppress(OSError):
            stamp = stamp_of(lender.objects)
            if stamp != lender.stamp:  # the lender may have deleted contents
                were_read_again = self._store_again(
                    self._repository.with_lenders(), old_names, progress
                )
                write_lender(self._lender, Lender(lender.objects, stamp))
        return lost_files, were_read_again

    def store_lent_contents(self, progress: ScanProgress) -> bool:
        """Store all lent contents. Return whether there were any."""
        if not self._lender.exists() or not self._index.exists():
            return False
        self._began = self._index.stat().st_mtime  # no other file is compared
        return self._store_again(self._repository, {}, progress)

    def _store_again(
        self,
        repository: SnapshotRepository,
        old_names: Mapping[str, str],
        progress: ScanProgress,
    ) -> bool:
        """Store the unchanged files whose content the repository `repository` lacks.

        Files in `old_names` have changed and are skipped. Return whether there were any to store.
        """
        names = {
            os.fsdecode(path).removeprefix(self.prefix): entry[NAME_PART].hex()
            for path, entry in self._entries().items()
        }
        missing = set(repository.missing(sorted(set(names.values()))))
        paths = [
            path
            for path, name in names.items()
            if name in missing and path not in old_names
        ]
        if paths:
            self._store_in_pack(paths, objects="", progress=progress)
        return bool(paths)

    def _copy_borrowed(self, names: Sequence[str]) -> list[str]:
        """Store contents that only a lender has.

        Return the names of contents that the lender has lost.
        """
        missing = self._repository.missing(names)
        if not missing:
            return []
        lost = list[str]()
        pack = PackWriter(self._pack_directory())
        try:
            with self._repository.blobs() as blobs:
                for name in missing:
                    try:
                        pack.add(BLOB_TYPE, bytes.fromhex(name), blobs.get(name))
                    except ToolFailed:
                        lost.append(name)
            pack.finish()
        finally:
            pack.drop()
        return lost

    def ignored_files(self, index: Path) -> set[str]:
        """Return the paths in a user's index that ignore rules match.

        Return none if git cannot read the index.
        """
        try:
            output = self._match_patterns(
                "ls-files", "-z", "--cached", "--ignored", "--exclude-standard", index=index
            )
        except GitFailed:  # the index is split, sparse, or being written
            return set()
        return set(split_at_nul(output))

    def add_to_index(
        self, paths: Collection[str], left_before: set[str], progress: ScanProgress
    ) -> tuple[bool, set[str]]:
        """Add files to the index. Return whether it changed, and the files left out."""
        if len(paths) > _PACK_FROM_FILES:
            may_lend = len(paths) >= LEND_FROM_FILES and self.top
            objects = user_objects(self.top) if may_lend else ""
            return True, self._store_in_pack(paths, objects, progress)
        to_store, to_remove, left_out = list[str](), list[str](), set[str]()
        total_bytes = 0
        decide_about = PathFilter(self.root)
        for path in sorted(paths):
            fate, size = decide_about(path)
            if fate == "kept":
                to_store.append(path)
                total_bytes += size
            elif fate == "gone":
                to_remove.append(path)
            else:  # left out
                left_out.add(path)
                if path not in left_before:  # so it may be in the index
                    to_remove.append(path)
        self._check_size(len(to_store), total_bytes)
        if to_remove:
            self._remove_from_index(to_remove)
        if to_store:
            self._store_one_by_one(to_store)
        return bool(to_store or to_remove), left_out

    def _remove_from_index(self, paths: Sequence[str]) -> None:
        """Remove files from the index. git removes an entry whose new mode is 0."""
        lines = (
            b"0 %s\t%s\0" % (b"0" * 40, os.fsencode(self.prefix + path)) for path in paths
        )
        self._run_git("update-index", "-z", "--index-info", input_bytes=b"".join(lines))

    def _store_one_by_one(self, paths: Sequence[str]) -> None:
        """Let git store each file as an object of its own, and put it in the index."""
        parents = ParentDirectories(self._base, self.root, paths)
        names = b"".join(os.fsencode(path) + b"\0" for path in paths)
        self._run_git(
            "update-index", "-z", "--add", "--replace", "--remove", "--stdin",
            input_bytes=names,
        )  # fmt: skip
        self._read_again(parents.paths_to_reread())

    def _store_in_pack(
        self, paths: Collection[str], objects: str, progress: ScanProgress
    ) -> set[str]:
        """Store many files in a pack, put them in the index, and return those that are left out.

        Contents in `objects`, an objects directory of the user or "", are not stored.
        """
        entries = self._entries()
        progress.total += len(paths)
        request = StoreRequest(
            self._base, self.root, tuple(paths), progress.add, self._check_size
        )
        pack = PackWriter(self._pack_directory())
        try:
            lender = ""
            if objects:
                with suppress(OSError):
                    lender = self._record_lender(objects)
            repository = self._repository
            if lender:
                repository = repository.with_lenders(lender)
            with repository.lookup() as known:
                files = store_many(request, pack, known)
            for path in (*files.gone, *files.left_out):
                entries.pop(os.fsencode(self.prefix + path), None)
            for path, entry in files.entries.items():
                entries[os.fsencode(self.prefix + path)] = entry
            trees = {name.hex(): content for name, content in to_trees(entries)}
            for name in self._repository.missing(tuple(trees)):
                pack.add(TREE_TYPE, bytes.fromhex(name), trees[name])
            pack.finish()
        finally:
            pack.drop()
        new_index = self._index.with_suffix(f".{os.urandom(4).hex()}")
        create_file(new_index, format_index(entries))
        # git compares files that changed after this time by their contents
        os.utime(new_index, (self._began, self._began))
        new_index.replace(self._index)
        return files.left_out

    def _record_lender(self, objects: str) -> str:
        """Record `objects` as the lender, and return it; "" if it cannot lend."""
        lender = read_lender(self._lender)
        if lender is not None and lender.objects != objects:
            return ""  # another repository lends already
        if not has_only_files(objects):
            return ""
        if lender is None:
            write_lender(self._lender, Lender(objects, stamp_of(objects)))
        return objects

    def _check_size(self, count: int, size: int) -> None:
        if count > _MAX_CHANGED_FILES or size > _MAX_CHANGED_BYTES:
            raise TooLarge(
                f"{escape_name(self.root)} is too large for checkpoints: {count:,} files of "
                f"{size / 1e9:.1f} GB would have to be stored. Ignore what can be generated "
                "(.gitignore), or work in a smaller directory."
            )

    def _entries(self) -> dict[bytes, bytes]:
        """Return the entries of the index by path; none if there is no index yet.

        Raises `ToolFailed` if it is damaged.
        """
        try:
            return parse_index(self._index.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise ToolFailed(
                f"The index {escape_name(str(self._index))} is damaged: {error}. "
                "Delete it, and the next checkpoint makes it again."
            ) from error

    def _pack_directory(self) -> Path:
        """Return the directory for packs, which is created first if it is missing."""
        directory = self._repository.directory / "objects" / "pack"
        directory.mkdir(mode=0o700, exist_ok=True)
        return directory

    def _read_again(self, paths: Sequence[str]) -> None:
        """Put the real content of files in the index, in case git followed a link."""
        if not paths:
            return
        lines = index_lines(self._repository, self._base, self.root, self.prefix, paths)
        self._run_git("update-index", "-z", "--index-info", input_bytes=b"".join(lines))

    def tree(self) -> str:
        """Store the index as git trees. Return the name of the tree of the root."""
        if not self.prefix:
            return self._run_git("write-tree", "--missing-ok").decode().strip()
        try:
            tree = self._run_git("write-tree", "--missing-ok", f"--prefix={self.prefix}")
            return tree.decode().strip()
        except GitFailed as error:
            if "not found" in error.output:  # the index has no file at this path
                return EMPTY_TREE
            raise

    def set_index_time(self, has_changed: bool) -> None:
        """Give the index the time of the comparison, and keep a link to it for later sessions.

        If the index has not changed, an earlier link is not replaced, because its content is
        the same.
        """
        with suppress(OSError):
            os.utime(self._index, (self._began, self._began))
            if has_changed or not self._last_index.exists():
                replace_by_hard_link(self._index, self._last_index)

    def _set_paths(self, top: str) -> None:
        """Set the paths that depend on `top`, the repository around the root; "" if there is none.

        The files of a root are named by a hash of its path and of `top`.
        """
        self.top, self._tree = top, top or self.root
        relative = os.path.relpath(self.root, self._tree)
        self.prefix = "" if relative == "." else relative + "/"
        digest = sha256(os.fsencode(f"{self.root}\0{self._tree}")).hexdigest()
        name = digest[:_FILE_NAME_DIGITS]
        self._index = self._folder / f"{name}.index"
        self._exclude = self._folder / f"{name}.exclude"
        self._last_index = self._repository.directory / f"{name}.index"
        self._lender = self._repository.directory / f"{name}.lender"

    def _write_rules(self, rules: bytes) -> None:
        """Write the exclude file, if its content would change. Raises `ToolFailed`."""
        try:
            if not self._exclude.exists() or self._exclude.read_bytes() != rules:
                with open(self._exclude, "wb", opener=open_checked) as writing:
                    writing.write(rules)
        except OSError as error:
            raise ToolFailed(
                f"No snapshot of the files could be taken: {error.strerror}."
            ) from error

    def _is_ignored_as_a_whole(self) -> bool:
        """Whether the repository around the root ignores the root itself."""
        try:
            self._match_patterns("check-ignore", "-q", "--no-index", self.root)
        except GitFailed:
            return False
        return True

    def _start_from_last_index(self) -> None:
        """Begin with the index of an earlier session, and delete what is no longer needed."""
        delete_old_indexes(self._folder.parent, self._folder)
        delete_partial_packs(self._repository.directory / "objects" / "pack")
        with suppress(OSError):
            replace_by_hard_link(self._last_index, self._index)

    def _match_patterns(self, *arguments: str, index: Path | None = None) -> bytes:
        """Return the output of a git command that may take long to match patterns."""
        return self._start_git(*arguments, index=index).read(seconds=_MAX_LISTING_SECONDS)

    def _run_git(
        self, *arguments: str, input_bytes: bytes = b"", index: Path | None = None
    ) -> bytes:
        """Return the output of a git command about the root's files, which uses its index."""
        return self._start_git(*arguments, index=index).read(input_bytes)

    def _start_git(self, *arguments: str, index: Path | None = None) -> GitProcess:
        """Start a git command about the root's files, which uses its index and exclude file."""
        return self._repository.start(
            "-c", f"core.excludesFile={self._exclude}", *arguments,
            folder=self.root, tree=self._tree, index=index or self._index, descriptor=self._lock_descriptor,
        )  # fmt: skip
