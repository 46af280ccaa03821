"""Keeps copies of a place's checkpoints on this machine, as git packs.

They are stored under the directory that represents the place, beside the checkpoints of local
workspaces, and are deleted with the place's last session.

A place can lose its own checkpoints, for example because a container was removed. Then they are
sent back: `give_back` sends the snapshots that a rewind needs, and `rebuild` also restores the
files. Data from the place is checked before it counts as stored.
"""

import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from refold.errors import RefoldError, ToolFailed
from refold.place.elsewhere.pipe import OpenCall, PlaceAnswer
from refold.place.port import Trees
from refold.place.snapshot_exchange import (
    IncomingPack,
    check_name,
    check_trees,
    open_incoming,
    pack_pieces,
)
from refold.place.snapshot_repository import (
    EMPTY_TREE,
    SnapshotRepository,
    snapshot_directory,
)
from refold.programs import Programs
from refold.safe_open import create_file, open_checked

_NOTE_FILE = "pulled.jsonl"
_MAX_KNOWN_TREES = 64  # the number of trees named in one request
_IDENTITY_FILE = "identity"


class StoredCheckpoint(Struct, frozen=True):
    """A checkpoint of a session whose files are all stored on this machine.

    `seq` is the number of the checkpoint's event in the journal.
    """

    session: str
    seq: int
    trees: Trees


class Begin(Protocol):
    """Sends a request: `Pipe.begin`, or the same method of a connection that is being opened."""

    def __call__(
        self,
        method: str,
        raw: bytes = b"",
        on_frame: Callable[[PlaceAnswer], None] | None = None,
        **fields: object,
    ) -> OpenCall: ...


class _Lacking(Struct, frozen=True):
    trees: list[str]


class _Taken(Struct, frozen=True):
    trees: Trees


class _Restored(Struct, frozen=True):
    count: int


class HomePacks:
    """The copies of the checkpoints of one place, which `directory` represents.

    `store` is the directory with the snapshots of all workspaces. `notice` says why the newest
    checkpoints were not copied; "" if they were.
    """

    def __init__(self, store: Path, directory: str, environ: Mapping[str, str]) -> None:
        programs = Programs(environ, (directory,))
        git = programs.find("git")
        self._repository = SnapshotRepository(
            snapshot_directory(store, directory), git, programs.path
        )
        self._has_git = bool(git)
        self._lock = threading.Lock()  # held during a pull
        self.notice = "" if git else "git is not installed here, so checkpoints stay there"

    def stored(self) -> list[StoredCheckpoint]:
        """Return the checkpoints that are stored on this machine, the oldest first."""
        try:
            lines = (self._repository.directory / _NOTE_FILE).read_bytes().splitlines()
        except OSError:
            return []
        decoder = msgspec.json.Decoder(StoredCheckpoint)
        stored = list[StoredCheckpoint]()
        for line in lines:
            try:
                stored.append(decoder.decode(line))
            # an incomplete line, written by a process that was killed
            except msgspec.MsgspecError:
                continue
        return stored

    @property
    def identity(self) -> str:
        """The identity of the place whose checkpoints these are; "" if unknown."""
        try:
            return (self._repository.directory / _IDENTITY_FILE).read_text()
        except (OSError, UnicodeDecodeError):
            return ""

    def note_identity(self, identity: str) -> None:
        """Store the identity of the place with the copies. Do nothing without git."""
        if not self._has_git:
            return
        self._repository.create()
        path = self._repository.directory / _IDENTITY_FILE
        path.unlink(missing_ok=True)
        create_file(path, identity.encode())

    def pull(self, begin: Begin, checkpoints: Sequence[StoredCheckpoint]) -> bool:
        """Copy `checkpoints` from the place, without objects that are stored here already.

        Return False if that failed; `notice` then says why.
        """
        if not self._has_git:
            return False
        try:
            with self._lock:
                for start in range(0, len(checkpoints), _MAX_KNOWN_TREES):
                    self._pull(begin, checkpoints[start : start + _MAX_KNOWN_TREES])
        except (RefoldError, OSError) as error:
            self.notice = f"the newest checkpoints are only in the place: {error}"
            return False
        self.notice = ""
        return True

    def give_back(self, begin: Begin, trees: Collection[str]) -> None:
        """Send those of `trees` that the place lacks and that are stored here."""
        stored_trees = _trees_of(self.stored())
        if stored_trees.keys().isdisjoint(trees):
            return
        lacking = _answer(begin("lacks", trees=sorted(set(trees)))).read(_Lacking)
        wanted = [tree for tree in lacking.trees if tree in stored_trees]
        if wanted:
            self._send(begin, wanted)

    def rebuild(
        self, begin: Begin, checkpoint: StoredCheckpoint, *, always: bool
    ) -> int | None:
        """Restore the files of `checkpoint` in a place that lost them. Return their number.

        If the place still has files, do nothing and return None, unless `always` is set.
        """
        current = _answer(begin("take")).read(_Taken).trees
        if not always and any(tree != EMPTY_TREE for _, tree in current):
            return None
        self._send(begin, [tree for _, tree in checkpoint.trees])
        call = begin("restore", current=current, to=checkpoint.trees, only=())
        return _answer(call).read(_Restored).count

    def _pull(self, begin: Begin, checkpoints: Sequence[StoredCheckpoint]) -> None:
        """Fetch the missing trees of `checkpoints`, check them, and record each as stored."""
        stored = self.stored()
        stored_trees = _trees_of(stored)
        # The newest tree of each directory: only the differences from it are checked.
        newest = {root: tree for checkpoint in stored for root, tree in checkpoint.trees}
        wanted = [tree for tree in _trees_of(checkpoints) if tree not in stored_trees]
        for tree in wanted:
            check_name(tree)
        if wanted:
            newest_first = [*reversed(stored_trees)]
            self._fetch(begin, wanted, known=newest_first[:_MAX_KNOWN_TREES])
        for checkpoint in checkpoints:
            pairs = (
                (newest.get(root, EMPTY_TREE), tree) for root, tree in checkpoint.trees
            )
            check_trees(self._repository, pairs)
            newest.update(checkpoint.trees)
            self._note(checkpoint)

    def _fetch(self, begin: Begin, wanted: Sequence[str], known: Sequence[str]) -> None:
        """Fetch the trees `wanted` in one pack, without objects of the trees `known`."""
        with open_incoming(self._repository) as pack:
            receiving = _Receiving(pack)
            call = begin("pack", on_frame=receiving.receive, wanted=wanted, known=known)
            _answer(call)
            receiving.check()
            pack.finish()

    def _send(self, begin: Begin, trees: Sequence[str]) -> None:
        """Send git trees with all their objects to the place, piece by piece."""
        # one piece at a time, because the place stores only a few
        ready = threading.Semaphore(0)
        call = begin("unpack", on_frame=lambda _: ready.release())
        pieces = pack_pieces(self._repository, trees, known_trees=())
        for piece in chain(pieces, (b"",)):  # b"" is the end
            ready.acquire()
            if call.done.is_set():
                break
            call.send_input(piece)
        _answer(call)

    def _note(self, checkpoint: StoredCheckpoint) -> None:
        """Record that a checkpoint is stored completely."""
        # The session's directory keeps the repository in use, as with local checkpoints.
        part = self._repository.directory / "sessions" / checkpoint.session
        part.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        number = open_checked(self._repository.directory / _NOTE_FILE, flags)
        with open(number, "ab") as file:
            file.write(msgspec.json.encode(checkpoint) + b"\n")
            file.flush()
            os.fsync(file.fileno())


class _Receiving:
    """Writes the pieces of a pack as they arrive.

    `receive` runs in the thread that reads the pipe, where an exception would stop all
    requests. So it stores an error, and `check` raises that error.
    """

    def __init__(self, pack: IncomingPack) -> None:
        self._pack = pack
        self._error: ToolFailed | OSError | None = None

    def receive(self, answer: PlaceAnswer) -> None:
        """Write a piece of the pack. After an error, further pieces are ignored."""
        if answer.record.get("kind") == "data" and self._error is None:
            try:
                self._pack.put(answer.raw)
            except (ToolFailed, OSError) as error:
                self._error = error

    def check(self) -> None:
        if self._error is not None:
            raise self._error


def _trees_of(checkpoints: Iterable[StoredCheckpoint]) -> dict[str, None]:
    """Return the trees of checkpoints in order, each once."""
    return dict.fromkeys(tree for checkpoint in checkpoints for _, tree in checkpoint.trees)


def _answer(call: OpenCall) -> PlaceAnswer:
    call.done.wait()
    return call.result()
