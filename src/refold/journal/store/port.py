"""The port of a journal's storage, and a store in memory.

A store has lines and does not interpret events. `codec` and the recorder are responsible
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
    """The writer lock: the number of the writer, and what was repaired when it was taken.

    `cut` is a partial line that a crash left at the end and that was removed. `head` is what
    the last writer noted as written, as (seq, h), or (0, "") without a note. A journal that
    ends before this head has lost its end.
    """

    epoch: int
    cut: bytes = b""
    head: tuple[int, str] = (0, "")


class Blobs(Protocol):
    """Content that is too large for a line of a session.

    `put` returns when the blob is *kept*; the name of the blob is its sha256 in hex. `get`
    reads a blob, or raises `JournalError`. No method blocks the event loop.
    """

    async def put(self, blob: bytes) -> str:
        """Keep `blob`, and return its name."""
        ...

    async def get(self, name: str) -> bytes:
        """Return the content of the blob. Raises `JournalError`."""
        ...


class FoldedView(Struct, frozen=True):
    """A view, and the head (seq, hash) of the journal up to which it was folded.

    `end` is the size of the journal up to that head, in bytes, if the store has a file.
    `earlier` are some earlier views, oldest first.
    """

    view: "View"
    head: tuple[int, str]
    end: int = 0
    earlier: "tuple[View, ...]" = ()


class Views(Protocol):
    """A cache of folded views, so that a long journal need not be folded from its start.

    `load` returns the newest view that may be used, or the newest view up to the event `up_to`;
    None if the cache has none. `save_soon` returns at once, and may fail without notice. Only
    the holder of the writer lock calls `save_soon`.
    """

    async def load(self, up_to: int | None = None) -> FoldedView | None:
        """Return the newest cached view, or the newest up to event `up_to`; None if there is
        none.
        """
        ...

    def save_soon(self, view: "View", head: "Head") -> None:
        """Store the view of the journal that ends at `head`, later and perhaps not at all."""
        ...


class NoViews:
    """The cache of a store without views."""

    async def load(self, up_to: int | None = None) -> FoldedView | None:
        return None

    def save_soon(self, view: "View", head: "Head") -> None:
        pass


class Store(Protocol):
    """The lines of one journal, for one writer. `blobs` has the blobs that they name.

    `append` returns when the lines are *written*: they survive the end of the program. It
    writes all of them or none, and raises `Conflict` unless the journal has `expect` lines,
    `Fenced` if a later writer took the lock, and `JournalError` if the disk fails. `keep`
    returns when everything written is *kept*: it survives a power failure. If `keep` raises an
    error, lines that were not kept may be lost, and `lease` must be called again. `read`
    returns complete lines only, without a partial line that a crash left. `head` is the (seq,
    hash) after the last of the lines. It is noted next to them, so that a journal that was cut
    at the end of a line is noticed.

    `lease` takes the writer lock and returns its number, which is higher than any before. It
    raises `Held` while another live writer has the lock, and removes a partial last line.
    `release` releases the lock. No method blocks the event loop.

    `claim` is the number under which a session was assigned to this process, or 0 if sessions
    are not assigned; then the lock alone decides. The claim is recorded. `Fenced` is raised for
    a claim that is older than the recorded claim: a process that was paused before its lease
    must not take the session from its successor. `read_claim` returns the recorded claim, or 0.

    A store that raised `Fenced` stays fenced: `lease` and `append` raise `Fenced` from then on,
    because otherwise its owner would take the session back. To open the session again, open a
    new store.
    """

    @property
    def blobs(self) -> Blobs:
        """Return the store of the blobs that the lines name."""
        ...

    @property
    def views(self) -> Views:
        """Return the cache of views, which were folded from the lines."""
        ...

    async def read_claim(self) -> int:
        """Return the recorded claim; 0 if there is none."""
        ...

    async def lease(self, claim: int = 0) -> Lease:
        """Take the writer lock, under this claim. Raises `Held` or `Fenced`."""
        ...

    async def release(self) -> None:
        """Release the lock."""
        ...

    async def append(
        self, lines: Sequence[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        """Append lines to a journal of `expect` lines. Raises `Conflict`, `Fenced` or
        `JournalError`.
        """
        ...

    async def keep(self) -> None:
        """Return once everything written would survive a power failure."""
        ...

    async def read(self, after: int = 0) -> Sequence[bytes]:
        """Return the complete lines after the first `after` ones."""
        ...


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
    """A store in memory. `kept` is how many lines would survive a power failure.

    It has no lock: the writer that called `lease` last may write.
    """

    def __init__(self, *lines: bytes, blobs: MemoryBlobs | None = None) -> None:
        self.lines, self.kept = list(lines), len(lines)
        self.blobs = blobs or MemoryBlobs()
        self.views: Views = NoViews()
        self._writer, self._fence = _LastWriter(), Fence()
        self._epoch = 0  # 0 after the release

    def another_writer(self) -> "MemoryStore":
        """Return a store for another writer of the same journal."""
        other = MemoryStore(blobs=self.blobs)
        other.share(self)
        return other

    def share(self, other: "MemoryStore") -> None:
        """Become another store of the journal of `other`."""
        self.lines, self._writer = other.lines, other._writer

    async def read_claim(self) -> int:
        return self._writer.claim

    async def lease(self, claim: int = 0) -> Lease:
        """Become the writer, with a number above that of the last writer."""
        last = self._writer
        with self._fence:
            if self._epoch:  # leased before: no other writer may have come since
                check_append(self._epoch, newest=last.epoch, expect=0, count=0)
            check_claim(claim, last.claim)
            last.epoch += 1
            last.claim = claim or last.claim
            self._epoch = last.epoch
        return Lease(self._epoch, head=last.head)

    async def release(self) -> None:
        self._epoch = 0

    async def append(
        self, lines: Sequence[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        """Append the lines, unless another writer has come or the journal is not as
        expected.
        """
        with self._fence:
            check_append(
                epoch, newest=self._writer.epoch, expect=expect, count=len(self.lines)
            )
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
    """A context manager. Once its block has raised `Fenced`, each entry raises that again."""

    def __init__(self) -> None:
        self._reason = ""

    def __enter__(self) -> None:
        if self._reason:
            raise Fenced(self._reason)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Fenced):
            self._reason = str(error)

    @property
    def is_closed(self) -> bool:
        """Whether the block has raised `Fenced`."""
        return bool(self._reason)


def check_append(epoch: int, newest: int, expect: int, count: int) -> None:
    """Raise `Fenced` or `Conflict` if this writer may not append to the journal.

    `epoch` is the number of this writer, `newest` that of the newest writer. `count` is the
    number of lines in the journal, `expect` the number that this writer expects.
    """
    if epoch < newest:
        raise Fenced(f"writer {epoch} lost the lock to writer {newest}")
    if expect != count:
        raise Conflict(f"expected {expect} lines in the journal, found {count}")


def check_claim(claim: int, recorded_claim: int) -> None:
    """Raise `Fenced` unless a writer with `claim` may lease a journal with
    `recorded_claim`.
    """
    if claim and claim < recorded_claim:
        raise Fenced(
            f"claim {claim} is older than claim {recorded_claim}, under which the session was "
            "leased: another process has the session now"
        )
