"""Stores the files of a session in a bucket, so that another worker can restore them.

A checkpoint is a snapshot of the files in a git repository of this machine. Its files are
stored as git packs, each with only what is new since the pack before. For each stored
checkpoint the bucket also has a record, which names all packs of its files. The names of
records sort by the epoch of their writer, so a worker that has lost the session cannot
replace the newest record. On this machine, a note beside the snapshots of a directory names
the record to which the directory's files belong.

`client.nodes.following_files` decides when to store and when to restore. Everything here
blocks.
"""

import os
import posixpath
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from refold.cluster.bucket import TenantObjects
from refold.errors import ToolFailed
from refold.place.checkpoints import Checkpoints
from refold.place.port import Trees
from refold.place.snapshot_exchange import (
    check_trees,
    lacking_trees,
    open_incoming,
    pack_pieces,
)
from refold.place.snapshot_repository import EMPTY_TREE, ScanProgress
from refold.safe_open import create_file, open_checked

MAX_PACKS = 64  # then one pack with all files replaces them
_FILES_FOLDER, _RECORD_SUFFIX = "files", ".json"
_NOTE_FILE, _PRESENCE_FILE = "stored-as", "epoch-here"
OpenCheckpoints = Callable[[Path, str], Checkpoints]


class StoredFiles(Struct, frozen=True):
    """A record in the bucket: how the files of one checkpoint are stored.

    `seq` is the event number of the checkpoint, and `epoch` that of its writer. `trees` are
    git trees with their directories, first that of the session's directory. `packs` names
    the packs that contain these trees.
    """

    epoch: int
    seq: int
    trees: Trees
    packs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the record. Names sort by the epoch of the writer, then by the event
        number.
        """
        return f"{self.epoch:010}-{self.seq:010}"


class WorkspacePacks:
    """Stores the files of one session in the bucket of `objects`, and restores them.

    `open_checkpoints` opens the snapshots of a directory for a session.
    """

    def __init__(
        self, objects: TenantObjects, session: str, open_checkpoints: OpenCheckpoints
    ) -> None:
        self._objects, self._session = objects, session
        self._open = open_checkpoints

    def newest(self) -> StoredFiles | None:
        """Return the newest record; None if no files were stored."""
        records = [name for name in self._names() if name.endswith(_RECORD_SUFFIX)]
        if not records:
            return None
        data = self._objects.get(self._key(max(records)))
        if data is None:  # another process replaced the record meanwhile
            return self.newest()
        return msgspec.json.decode(data, type=StoredFiles)

    def is_here(self, stored: StoredFiles, directory: Path) -> bool:
        """Return whether the files in `directory` come from this record; they may have
        changed since.
        """
        return self.note(directory) == stored.name

    def note(self, directory: Path) -> str:
        """Return the name of the record to which the files in `directory` belong; ""
        without a note.
        """
        try:
            return self._note_file(directory).read_text()
        except (OSError, UnicodeDecodeError):
            return ""

    def presence(self, directory: Path) -> int:
        """Return the epoch in which the session last worked in `directory` of this machine;
        0: never.
        """
        with suppress(OSError, ValueError):
            return int(self._note_file(directory).with_name(_PRESENCE_FILE).read_text())
        return 0

    def note_presence(self, directory: Path, epoch: int) -> None:
        """Note that the session works in `directory` in this epoch, before its files are
        stored.
        """
        _write_completely(self._note_file(directory).with_name(_PRESENCE_FILE), str(epoch))

    def write_note(self, directory: Path, name: str) -> None:
        """Note in `directory` that its files belong to the record called `name`."""
        _write_completely(self._note_file(directory), name)

    def push(
        self, directory: Path, stored: StoredFiles | None, new: StoredFiles
    ) -> StoredFiles:
        """Store the files of the checkpoint `new` of `directory`, and return its complete
        record.

        Trees in `stored`, the record before, are not stored again. The new pack is stored
        before the record that names it.
        """
        stored_trees = [tree for _, tree in stored.trees] if stored else []
        packs = stored.packs if stored else ()
        if len(packs) >= MAX_PACKS:
            # Store all files again, in one pack.
            stored_trees, packs = [], ()
        new_trees = [tree for _, tree in new.trees if tree not in stored_trees]
        if new_trees:
            pack = f"{new.name}.pack"
            self._put_pack(directory, pack, new_trees, stored_trees)
            packs = (*packs, pack)
        return self.publish(directory, msgspec.structs.replace(new, packs=packs))

    def publish(self, directory: Path, stored: StoredFiles) -> StoredFiles:
        """Store a record, and note in `directory` that its files belong to this record.

        Then delete all other records and packs, unless a later writer has a newer record.
        """
        record = stored.name + _RECORD_SUFFIX
        self._objects.put(self._key(record), msgspec.json.encode(stored))
        self.write_note(directory, stored.name)
        names = self._names()
        newest_record = max(name for name in names if name.endswith(_RECORD_SUFFIX))
        if newest_record == record:
            needed = {record, *stored.packs}
            self._objects.delete([self._key(name) for name in names if name not in needed])
        return stored

    def restore(self, stored: StoredFiles, directory: Path) -> int:
        """Change the files in `directory` to those of the record. Return how many were
        changed.
        """
        target = trees_below(stored.trees, str(directory))
        snapshots = self._open(directory, self._session)
        self._download_packs(snapshots, stored)
        # Only files that differ from a snapshot of the present ones are changed.
        scan = snapshots.start_taking()
        scan.done.wait()
        current = snapshots.snapshot_of_scan(scan).trees
        return snapshots.restore_now(current, target, (), ScanProgress())

    def _download_packs(self, snapshots: Checkpoints, stored: StoredFiles) -> None:
        """Download the packs of this record, unless the repository has all its trees
        already.
        """
        repository = snapshots.repository
        trees = [tree for _, tree in stored.trees]
        if lacking_trees(repository, trees):
            for name in stored.packs:
                with open_incoming(repository) as pack:
                    for piece in self._objects.pieces(self._key(name)):
                        pack.put(piece)
                    pack.finish()
        check_trees(repository, ((EMPTY_TREE, tree) for tree in trees))

    def _put_pack(
        self, directory: Path, name: str, wanted: Sequence[str], known: Sequence[str]
    ) -> None:
        """Store the objects of the trees `wanted`, without those of the trees `known`, as
        the pack `name`.
        """
        repository = self._open(directory, self._session).repository
        file = repository.directory / f"{_FILES_FOLDER}-{os.urandom(8).hex()}"
        try:
            with open(file, "xb", opener=open_checked) as pack:
                for piece in pack_pieces(repository, wanted, known):
                    pack.write(piece)
            self._objects.put(self._key(name), file)
        finally:
            file.unlink(missing_ok=True)

    def _names(self) -> list[str]:
        """Return the names of the session's records and packs in the bucket."""
        folder = f"{self._session}/{_FILES_FOLDER}"
        return [posixpath.basename(item.key) for item in self._objects.list(folder)]

    def _key(self, name: str) -> str:
        return f"{self._session}/{_FILES_FOLDER}/{name}"

    def _note_file(self, directory: Path) -> Path:
        repository = self._open(directory, self._session).repository
        return repository.directory / "sessions" / self._session / _NOTE_FILE


def _write_completely(file: Path, text: str) -> None:
    """Write a note completely or, if this process is killed, not at all."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.{os.urandom(4).hex()}")
    create_file(temporary, text.encode())
    temporary.replace(file)


def trees_below(trees: Trees, directory: str) -> Trees:
    """Return the trees of the first root and of the repositories below it.

    In the paths of these trees, `directory` replaces the first root. Raises `ToolFailed` if
    `trees` is empty.
    """
    if not trees:
        raise ToolFailed("The checkpoint has no files.")
    first_root, _ = trees[0]
    return tuple(
        (directory + root.removeprefix(first_root), tree)
        for root, tree in trees
        if root == first_root or root.startswith(f"{first_root}/")
    )
