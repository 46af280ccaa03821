"""The checkpoints of a place elsewhere, on this machine: packs that were pulled from it.

They are stored beside the checkpoints of workspaces here, under the directory that stands for the
place, and are deleted with its last session. If the place has lost its own (a container that was
removed), it gets them back from here: `give_back` when a rewind needs one, `rebuild` when the place
has no file any more. What the place sends is checked before it is noted as stored.
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
from refold.place.checkpoints import snapshot_directory
from refold.place.elsewhere.pipe import OpenCall, PlaceAnswer
from refold.place.port import Trees
from refold.place.snapshot_exchange import (
    IncomingPack,
    check_name,
    check_trees,
    open_incoming,
    pack_pieces,
)
from refold.place.snapshot_repository import EMPTY_TREE, SnapshotRepository
from refold.programs import Programs
from refold.safe_open import create_file, open_checked

_NOTE_FILE = "pulled.jsonl"
_MAX_KNOWN_TREES = 64  # named in one request
_IDENTITY_FILE = "identity"


class StoredCheckpoint(Struct, frozen=True):
    """A checkpoint of `session` that is complete here. `seq` is its event."""

    session: str
    seq: int
    trees: Trees


class Begin(Protocol):
    """Sends a request: `Pipe.begin`, or the same of a connection that is being opened."""

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
    """The packs of the place that `directory` stands for, in `store`.

    `notice` says why the newest checkpoints are not here, or is "".
    """

    def __init__(self, store: Path, directory: str, environ: Mapping[str, str]) -> None:
        programs = Programs(environ, (directory,))
        git, path = programs.find("git"), programs.path
        self._repository = SnapshotRepository(
            snapshot_directory(store, directory), git, path
        )
        self._has_git = bool(git)
        self._lock = threading.Lock()  # one pull at a time
        self.notice = "" if git else "git is not installed here, so checkpoints stay there"

    def stored(self) -> list[StoredCheckpoint]:
        """The checkpoints that are here, oldest first."""
        try:
            lines = (self._repository.directory / _NOTE_FILE).read_bytes().splitlines()
        except OSError:
            return []
        decoder = msgspec.json.Decoder(StoredCheckpoint)
        stored = list[StoredCheckpoint]()
        for line in lines:
            try:
                stored.append(decoder.decode(line))
            except msgspec.MsgspecError:  # half a line, of a killed process
                continue
        return stored

    @property
    def identity(self) -> str:
        """The identity of the place that the checkpoints are of; "" if none is known."""
        try:
            return (self._repository.directory / _IDENTITY_FILE).read_text()
        except (OSError, UnicodeDecodeError):
            return ""

    def note_identity(self, identity: str) -> None:
        if not self._has_git:
            return
        self._repository.create()
        path = self._repository.directory / _IDENTITY_FILE
        path.unlink(missing_ok=True)
        create_file(path, identity.encode())

    def pull(self, begin: Begin, checkpoints: Sequence[StoredCheckpoint]) -> bool:
        """Get these checkpoints from the place, without what is here already.

        Return False if that failed; `notice` then has the reason.
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
        """Send the place those of `trees` that it has lost and that are here."""
        here = _names(self.stored())
        if here.keys().isdisjoint(trees):
            return
        lacking = _answer(begin("lacks", trees=sorted(set(trees)))).read(_Lacking)
        wanted = [tree for tree in lacking.trees if tree in here]
        if wanted:
            self._send(begin, wanted)

    def rebuild(
        self, begin: Begin, checkpoint: StoredCheckpoint, *, always: bool
    ) -> int | None:
        """Restore the files of a checkpoint in a place that has lost its own. Return their number.

        A place that has files keeps them, and None is returned, unless `always`.
        """
        current = _answer(begin("take")).read(_Taken).trees
        if not always and any(tree != EMPTY_TREE for _, tree in current):
            return None
        self._send(begin, [tree for _, tree in checkpoint.trees])
        call = begin("restore", current=current, to=checkpoint.trees, only=())
        return _answer(call).read(_Restored).count

    def _pull(self, begin: Begin, checkpoints: Sequence[StoredCheckpoint]) -> None:
        stored = self.stored()
        here = _names(stored)
        newest = {root: tree for one in stored for root, tree in one.trees}
        wanted = [tree for tree in _names(checkpoints) if tree not in here]
        for tree in wanted:
            check_name(tree)
        if wanted:
            with open_incoming(self._repository) as pack:
                known = [*reversed(here)][:_MAX_KNOWN_TREES]
                receiving = _Receiving(pack)
                call = begin("pack", b"", receiving.receive, wanted=wanted, known=known)
                _answer(call)
                receiving.check()
                pack.finish()
        for one in checkpoints:
            check_trees(
                self._repository,
                ((newest.get(root, EMPTY_TREE), tree) for root, tree in one.trees),
            )
            newest.update(one.trees)
            self._note(one)

    def _send(self, begin: Begin, trees: Sequence[str]) -> None:
        ready = threading.Semaphore(0)  # one piece at a time: the place stores few
        call = begin("unpack", b"", lambda _answer: ready.release())
        for piece in chain(pack_pieces(self._repository, trees, ()), (b"",)):
            ready.acquire()
            if call.done.is_set():
                break
            call.send_input(piece)
        _answer(call)

    def _note(self, checkpoint: StoredCheckpoint) -> None:
        # Its session keeps the repository, as with checkpoints of this machine.
        part = self._repository.directory / "sessions" / checkpoint.session
        part.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        number = open_checked(self._repository.directory / _NOTE_FILE, flags)
        with open(number, "ab") as file:
            file.write(msgspec.json.encode(checkpoint) + b"\n")
            file.flush()
            os.fsync(file.fileno())


class _Receiving:
    """Writes the frames of a pack, in the reading thread, which nothing may end."""

    def __init__(self, pack: IncomingPack) -> None:
        self._pack = pack
        self._error: ToolFailed | OSError | None = None

    def receive(self, answer: PlaceAnswer) -> None:
        if answer.record.get("kind") == "data" and self._error is None:
            try:
                self._pack.put(answer.raw)
            except (ToolFailed, OSError) as error:
                self._error = error

    def check(self) -> None:
        if self._error is not None:
            raise self._error


def _names(checkpoints: Iterable[StoredCheckpoint]) -> dict[str, None]:
    return dict.fromkeys(tree for one in checkpoints for _, tree in one.trees)


def _answer(call: OpenCall) -> PlaceAnswer:
    call.done.wait()
    return call.result()
