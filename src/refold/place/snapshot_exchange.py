"""Sends and receives snapshots between two repositories, as git packs.

A place sends the packs of its checkpoints to this machine, and gets them back if it has lost
them; both sides use this module. A pack has only objects that the receiver lacks. What arrives
is not trusted: git computes the name of each object from its content, and `check_trees`
examines the new parts of a tree. On this machine, `home_packs` decides when packs are
exchanged.
"""

import os
import re
import shutil
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from refold.errors import ToolFailed
from refold.place.snapshot_repository import (
    EMPTY_TREE,
    GitFailed,
    SnapshotRepository,
    split_at_nul,
)
from refold.safe_open import open_checked

MAX_PACK_BYTES = 512 * 1024 * 1024  # the size of one pack
PIECE_BYTES = 1024 * 1024
_UNFINISHED_PREFIX = "exchange-"
_UNFINISHED_SECONDS = 3600.0  # an unfinished pack of this age was left by a killed process
_TREE_MODES = frozenset(("100644", "100755", "120000", "000000"))
_TOO_LARGE = f"The checkpoint has more than {MAX_PACK_BYTES >> 20} MiB that is new"


def lacking_trees(repository: SnapshotRepository, trees: Iterable[str]) -> list[str]:
    """Return those of `trees` that the repository does not have.

    The empty tree need not be stored.
    """
    repository.create()
    return repository.missing(_not_empty(trees))


def pack_pieces(
    repository: SnapshotRepository, trees: Sequence[str], known_trees: Sequence[str]
) -> Iterator[bytes]:
    """Yield a pack with the objects of `trees`, in pieces.

    Objects of `known_trees`, which the receiver has, are left out. Contents that only the
    user's repository has are included. Raises `ToolFailed` if a tree does not exist or the pack
    is too large.
    """
    lacking = lacking_trees(repository, (*trees, *known_trees))
    if missing := [tree for tree in trees if tree in lacking]:
        raise ToolFailed(f"The checkpoint {missing[0][:12]} is not there any more.")
    lines = (
        *_not_empty(trees),
        # "^" leaves out what a tree has.
        *(f"^{tree}" for tree in _not_empty(known_trees) if tree not in lacking),
    )
    with _directory(repository) as directory:
        process = repository.with_lenders().start(
            "pack-objects", "--revs", "-q", "--delta-base-offset", "--threads=1",
            f"{directory}/pack", folder=str(repository.directory),
        )  # fmt: skip
        process.read("".join(f"{line}\n" for line in lines).encode())
        for pack in directory.glob("*.pack"):
            if pack.stat().st_size > MAX_PACK_BYTES:
                raise ToolFailed(f"{_TOO_LARGE}: it stays here.")
            with open(pack, "rb") as file:
                while piece := file.read(PIECE_BYTES):
                    yield piece


@contextmanager
def open_incoming(repository: SnapshotRepository) -> "Generator[IncomingPack]":
    """Yield a new, empty pack for pieces that arrive. Unless it is finished, it is deleted."""
    repository.create()
    with _directory(repository) as directory:
        pack = IncomingPack(repository, directory)
        try:
            yield pack
        finally:
            pack.file.close()


class IncomingPack:
    """A pack that arrives in pieces. `open_incoming` creates it."""

    def __init__(self, repository: SnapshotRepository, directory: Path) -> None:
        self._repository, self._path = repository, directory / "new.pack"
        self.file = open(  # noqa: SIM115 (closed by `open_incoming`)
            self._path, "xb", opener=open_checked
        )
        self._size = 0

    def put(self, piece: bytes) -> None:
        """Add a piece of the pack. Raises `ToolFailed` if the pack becomes too large."""
        self._size += len(piece)
        if self._size > MAX_PACK_BYTES:
            raise ToolFailed(f"{_TOO_LARGE}: it is not stored.")
        self.file.write(piece)

    def finish(self) -> None:
        """Store the pack in the repository; git computes the names of its objects."""
        self.file.flush()
        os.fsync(self.file.fileno())
        if not self._size:
            return
        output = self._repository.run(
            "index-pack", "--threads=1", str(self._path),
            folder=str(self._repository.directory),
        )  # fmt: skip
        pack_hash = output.decode().split()[-1]
        target = self._repository.directory / "objects" / "pack"
        target.mkdir(mode=0o700, exist_ok=True)
        # git finds a pack by its index, so that is moved last
        for suffix in (".pack", ".idx"):
            final = target / f"pack-{pack_hash}{suffix}"
            self._path.with_suffix(suffix).replace(final)


def check_trees(repository: SnapshotRepository, pairs: Iterable[tuple[str, str]]) -> None:
    """Raise `ToolFailed` unless each new tree is complete and has only valid file names.

    A pair is an old and a new tree. Only their differences are examined, because the old tree
    was checked before or is empty.
    """
    for before, tree in pairs:
        check_name(tree)
        try:
            output = repository.run(
                "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", before, tree,
                folder=str(repository.directory),
            )  # fmt: skip
        except GitFailed as error:
            raise _incomplete(tree) from error
        new_contents = set[str]()
        parts = split_at_nul(output)  # a head and a path, in turn
        for head in parts:
            _old_mode, mode, _old_content, content, status = head.split(" ")
            path = next(parts, "")
            if mode not in _TREE_MODES or not _is_plain(path):
                raise ToolFailed(
                    f"The checkpoint {tree[:12]} names {path!r}, which no file may be called."
                )
            if status != "D":
                new_contents.add(content)
        if repository.missing(sorted(new_contents)):
            raise _incomplete(tree)


def check_name(tree: str) -> None:
    """Raise `ToolFailed` unless `tree` is a valid object name.

    git could take another text for an option.
    """
    if not re.fullmatch(r"[0-9a-f]{40}", tree):
        raise ToolFailed("The place sent a name that no checkpoint has.")


def _incomplete(tree: str) -> ToolFailed:
    return ToolFailed(f"The checkpoint {tree[:12]} is incomplete.")


def _not_empty(trees: Iterable[str]) -> list[str]:
    return [tree for tree in dict.fromkeys(trees) if tree != EMPTY_TREE]


def _is_plain(path: str) -> bool:
    parts = path.split("/")
    return all(part not in ("", ".", "..") and part.lower() != ".git" for part in parts)


@contextmanager
def _directory(repository: SnapshotRepository) -> Generator[Path]:
    """Create a directory for an incomplete pack, and delete it after the block.

    Old directories that killed processes left are deleted, too.
    """
    for old in repository.directory.glob(f"{_UNFINISHED_PREFIX}*"):
        with suppress(OSError):
            if time.time() - old.lstat().st_mtime > _UNFINISHED_SECONDS:
                shutil.rmtree(old)
    directory = repository.directory / f"{_UNFINISHED_PREFIX}{os.urandom(8).hex()}"
    directory.mkdir(mode=0o700)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
