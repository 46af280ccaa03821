"""The files of sessions in a bucket: git packs of their checkpoints, for a worker that takes one over.

A pack has what is new since the one before. A record beside the packs says which of them make up the
files of a checkpoint; the newest record is that of the latest writer (epoch), so a worker that lost
the session cannot replace it. A note beside the snapshots of a directory says which record its files
are of. `client.nodes.following_files` decides when to push and when to restore. It blocks.
"""

import os
from collections.abc import Callable, Sequence
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
_NOTE_FILE = "stored-as"
OpenCheckpoints = Callable[[Path, str], Checkpoints]


class StoredFiles(Struct, frozen=True):
    """The files of a checkpoint. `seq` is its event, and the first of `trees` the directory."""

    epoch: int
    seq: int
    trees: Trees
    packs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Names sort by the writer first."""
        return f"{self.epoch:010}-{self.seq:010}"


class WorkspacePacks:
    """Those of one session. `open_checkpoints` opens the snapshots of a directory for a session."""

    def __init__(
        self, objects: TenantObjects, session: str, open_checkpoints: OpenCheckpoints
    ) -> None:
        self._objects, self._session = objects, session
        self._open = open_checkpoints

    def newest(self) -> StoredFiles | None:
        """The files that were stored last."""
        records = [name for name in self._names() if name.endswith(_RECORD_SUFFIX)]
        if not records:
            return None
        data = self._objects.get(self._key(max(records)))
        if data is None:  # replaced meanwhile
            return self.newest()
        return msgspec.json.decode(data, type=StoredFiles)

    def is_here(self, stored: StoredFiles, directory: Path) -> bool:
        """Whether the files in `directory` are those that were stored, or later ones."""
        return self.note(directory) == stored.name

    def note(self, directory: Path) -> str:
        """The name of the record of these files; "": the session was never here."""
        try:
            return self._note_file(directory).read_text()
        except (OSError, UnicodeDecodeError):
            return ""

    def was_here(self, directory: Path) -> bool:
        """Whether the session has worked in this directory of this machine."""
        return self._note_file(directory).parent.is_dir()

    def note_presence(self, directory: Path) -> None:
        """Note that the session works here, before anything of it is stored."""
        self._note_file(directory).parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write_note(self, directory: Path, name: str) -> None:
        file = self._note_file(directory)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = file.with_name(f"{file.name}.{os.urandom(4).hex()}")
        create_file(temporary, name.encode())
        temporary.replace(file)

    def push(
        self, directory: Path, stored: StoredFiles | None, new: StoredFiles
    ) -> StoredFiles:
        """Store the files of a checkpoint of `directory`, without what `stored` has already.

        Return what is stored now. The pack is stored before the record that names it.
        """
        known = [tree for _, tree in stored.trees] if stored else []
        packs = stored.packs if stored else ()
        if len(packs) >= MAX_PACKS:
            known, packs = [], ()
        wanted = [tree for _, tree in new.trees if tree not in known]
        if wanted:
            pack = f"{new.name}.pack"
            self._put_pack(directory, pack, wanted, known)
            packs = (*packs, pack)
        return self.publish(directory, msgspec.structs.replace(new, packs=packs))

    def publish(self, directory: Path, stored: StoredFiles) -> StoredFiles:
        """Make this the newest record, unless a later writer has one, and delete what it replaces."""
        self._objects.put(
            self._key(stored.name + _RECORD_SUFFIX), msgspec.json.encode(stored)
        )
        self.write_note(directory, stored.name)
        names = self._names()
        records = [name for name in names if name.endswith(_RECORD_SUFFIX)]
        if max(records) == stored.name + _RECORD_SUFFIX:
            kept = {*stored.packs, stored.name + _RECORD_SUFFIX}
            self._objects.delete([self._key(name) for name in names if name not in kept])
        return stored

    def restore(self, stored: StoredFiles, directory: Path) -> int:
        """Make the files in `directory` those that were stored. Return how many were changed."""
        target = trees_below(stored.trees, str(directory))
        snapshots = self._open(directory, self._session)
        self._receive(snapshots, stored)
        task = snapshots.start_taking()
        task.done.wait()
        current = snapshots.taken(task).trees
        return snapshots.restore_now(current, target, (), ScanProgress())

    def _receive(self, snapshots: Checkpoints, stored: StoredFiles) -> None:
        """Get the packs of these files, if they are not here."""
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
        folder = f"{self._session}/{_FILES_FOLDER}"
        return [item.key.rpartition("/")[2] for item in self._objects.list(folder)]

    def _key(self, name: str) -> str:
        return f"{self._session}/{_FILES_FOLDER}/{name}"

    def _note_file(self, directory: Path) -> Path:
        repository = self._open(directory, self._session).repository
        return repository.directory / "sessions" / self._session / _NOTE_FILE


def trees_below(trees: Trees, directory: str) -> Trees:
    """The trees of the first root and of repositories below it, as if that were `directory`."""
    if not trees:
        raise ToolFailed("The checkpoint has no files.")
    first = trees[0][0]
    return tuple(
        (directory + root[len(first) :], tree)
        for root, tree in trees
        if root == first or root.startswith(f"{first}/")
    )
