"""The port of a journal's storage, and a store in memory.

A store keeps lines and knows nothing of events. `codec` and the recorder are responsible
for the chain, numbers and meaning.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from refold.errors import Conflict, Fenced, JournalError

if TYPE_CHECKING:
    from refold.journal.events.codec import Head
    from refold.journal.state.fold import View


class Lease(Struct, frozen=True):
    """The writer lock: the writer's number, and what was repaired when it was taken.

    `cut` is a partial line that a crash left at the end and that was removed. `head` is what
    the last writer noted as written, as (seq, h), or (0, "") without a note: a journal that
    ends before it has lost its tail.
    """

    epoch: int
    cut: bytes = b""
    head: tuple[int, str] = (0, "")


class Blobs(Protocol):
    """Content that is too large for a line of a session.

    `put` returns when the blob is *kept*; its name is its sha256 in hex. `get` reads a blob, or
    raises `JournalError`. Nothing here blocks the event loop.
    """

    async def put(self, blob: bytes) -> str: ...
    async def get(self, name: str) -> bytes: ...


class FoldedView(Struct, frozen=True):
    """A view, and the head (seq, hash) of the journal up to which it was folded.

    `end` is where that line ends, in bytes, if the store has a file. `earlier` are some views of
    events before it, oldest first.
    """

    view: "View"
    head: tuple[int, str]
    end: int = 0
    earlier: "tuple[View, ...]" = ()


class Views(Protocol):
    """A cache of folded views, so that a long journal need not be folded from its start.

    `load` gives the newest view that may be used, or the newest one up to the event `up_to`; None:
    there is none. `save_soon` returns at once, and may fail without notice. It is for the holder
    of the writer lock.
    """

    async def load(self, up_to: int | None = None) -> FoldedView | None: ...
    def save_soon(self, view: "View", head: "Head") -> None: ...


class NoViews:
    """The cache of a store that keeps none."""

    async def load(self, up_to: int | None = None) -> FoldedView | None:
        return None

    def save_soon(self, view: "View", head: "Head") -> None:
        pass


class Store(Protocol):
    """The lines of one journal, for one writer. `blobs` has the blobs that they name.

    `append` returns when the lines are *written*: they survive the program. It takes all of
    them or none and raises: `Conflict` unless `expect` lines are there, `Fenced` if a later
    writer took the lock, `JournalError` if the disk fails. `keep` returns when everything
    written is *kept*: it survives a power failure; if it raises, what was not yet kept may be
    gone, and `lease` must be called again. `read` returns complete lines only, without a
    partial one that a crash left. `head` is the (seq, hash) after the last of the lines,
    noted next to them, so that a journal cut at a line's end is noticed.

    `lease` takes the writer lock and gives its number, higher than any before; it raises
    `Held` while another live writer has it, and removes a torn tail. `release` gives the lock
    back. Nothing here blocks the event loop.

    `claim` is the number under which the assigner of sessions to processes gave a session to
    this writer. It is recorded, and `Fenced` is raised if it is older than the one
    recorded: a process that was paused before its lease must not take the session from its
    successor. 0: sessions are not assigned, and the lock alone decides. `read_claim` gives the
    recorded one, or 0.

    A store that raised `Fenced` stays fenced: `lease` and `append` raise it from then on,
    or its owner would take the session back. To open the session again, open a new store.
    """

    @property
    def blobs(self) -> Blobs: ...
    @property
    def views(self) -> Views: ...

    async def read_claim(self) -> int: ...
    async def lease(self, claim: int = 0) -> Lease: ...
    async def release(self) -> None: ...
    async def append(
        self, lines: Sequence[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None: ...
    async def keep(self) -> None: ...
    async def read(self, after: int = 0) -> Sequence[bytes]: ...


class MemoryBlobs:
    """Blobs in memory."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    async def put(self, blob: bytes) -> str:
        name = sha256(blob).hexdigest()
        self.contents[name] = blob
        return name

    async def get(self, name: str) -> bytes:
        if name not in self.contents:
            raise JournalError(f"there is no blob {name}")
        return self.contents[name]


class MemoryStore:
    """A store in memory. `kept` is how many lines a power failure would leave.

    It has no lock: the last writer that leases it has it.
    """

    def __init__(self, *lines: bytes, blobs: MemoryBlobs | None = None) -> None:
        self.lines, self.kept = list(lines), len(lines)
        self.blobs = blobs or MemoryBlobs()
        self.views: Views = NoViews()
        self._writer, self._fence = _LastWriter(), Fence()
        self._epoch = 0  # 0: released

    def another_writer(self) -> "MemoryStore":
        """A store for another writer of the same journal."""
        other = MemoryStore(blobs=self.blobs)
        other.share(self)
        return other

    def share(self, other: "MemoryStore") -> None:
        """Write the same journal as this one."""
        self.lines, self._writer = other.lines, other._writer

    async def read_claim(self) -> int:
        return self._writer.claim

    async def lease(self, claim: int = 0) -> Lease:
        last = self._writer
        with self._fence:
            if self._epoch:
                check(self._epoch, last.epoch, 0, 0)
            check_claim(claim, last.claim)
            last.epoch, last.claim = last.epoch + 1, claim or last.claim
            self._epoch = last.epoch
        return Lease(self._epoch, head=last.head)

    async def release(self) -> None:
        self._epoch = 0

    async def append(
        self, lines: Sequence[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        with self._fence:
            check(epoch, self._writer.epoch, expect, len(self.lines))
        self.lines += lines
        self._writer.head = head

    async def keep(self) -> None:
        self.kept = len(self.lines)

    async def read(self, after: int = 0) -> Sequence[bytes]:
        return self.lines[after:]


class _LastWriter:
    """The state that all writers of one journal in memory share."""

    def __init__(self) -> None:
        self.epoch = self.claim = 0
        self.head: tuple[int, str] = (0, "")


class Fence:
    """A context manager that raises `Fenced` on entry once its block has raised it."""

    def __init__(self) -> None:
        self._reason = ""

    def __enter__(self) -> None:
        if self._reason:
            raise Fenced(self._reason)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Fenced):
            self._reason = str(error)

    def __bool__(self) -> bool:
        return bool(self._reason)


def check(epoch: int, newest: int, expect: int, count: int) -> None:
    """Raise unless writer `epoch` may append to a journal of `count` lines."""
    if epoch < newest:
        raise Fenced(f"writer {epoch} lost the lock to writer {newest}")
    if expect != count:
        raise Conflict(f"expected {expect} lines in the journal, found {count}")


def check_claim(claim: int, recorded_claim: int) -> None:
    """Raise unless a writer with `claim` may lease a journal with this recorded claim."""
    if claim and claim < recorded_claim:
        raise Fenced(
            f"claim {claim} is older than claim {recorded_claim}, under which the session was "
            "leased: another process has the session now"
        )
