"""The port of a journal's storage, and a store in memory.

A store keeps lines and knows nothing of events. `codec` and the recorder are responsible
for the chain, numbers and meaning.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Protocol

from msgspec import Struct

from refold.errors import Conflict, Fenced, JournalError


class Lease(Struct, frozen=True):
    """The writer lock: the writer's number, and what was repaired when it was taken.

    `cut` is half a line that a crash had left at the end, which was removed. `head` is what
    the last writer noted as written, as (seq, h): a journal that ends before it has lost its
    tail. (0, "") if there is no note.
    """

    epoch: int
    cut: bytes = b""
    head: tuple[int, str] = (0, "")


class Store(Protocol):
    """The lines of one journal, and the blobs they name.

    `append` returns when the lines are *written*: they survive the program. It takes all of
    them or none and raises: `Conflict` unless `expect` lines are there, `Fenced` if a later
    writer took the lock, `JournalError` if the disk fails. `keep` returns when everything
    written is *kept*: it survives a power failure; if it raises, what was not yet kept may be
    gone, and `lease` must be called again. `read` gives whole lines only; half a line, left
    by a crash, does not count. `head` is the (seq, hash) after the last of the lines, noted
    next to them, so that a cut at a line's end is noticed.

    `lease` takes the writer lock and gives its number, higher than any before; it raises
    `Held` while another live writer has it, and removes a torn tail. `release` gives the lock
    back. `put` returns when the blob is kept; its name is its sha256 in hex. `get` reads a
    blob, or raises `JournalError`. Nothing here blocks the event loop.
    """

    async def lease(self) -> Lease: ...
    async def release(self) -> None: ...
    async def append(
        self, lines: Sequence[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None: ...
    async def keep(self) -> None: ...
    async def read(self, after: int = 0) -> Sequence[bytes]: ...
    async def put(self, blob: bytes) -> str: ...
    async def get(self, name: str) -> bytes: ...


class MemoryStore:
    """A store in memory. `kept` is how many lines a power failure would leave."""

    def __init__(self, *lines: bytes) -> None:
        self.lines, self.kept, self._epoch = list(lines), len(lines), 0
        self.blobs: dict[str, bytes] = {}
        self._head = (0, "")

    async def lease(self) -> Lease:
        self._epoch += 1
        return Lease(self._epoch, head=self._head)

    async def release(self) -> None:
        return

    async def append(
        self, lines: Sequence[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        check(epoch, self._epoch, expect, len(self.lines))
        self.lines += lines
        self._head = head

    async def keep(self) -> None:
        self.kept = len(self.lines)

    async def read(self, after: int = 0) -> Sequence[bytes]:
        return self.lines[after:]

    async def put(self, blob: bytes) -> str:
        name = sha256(blob).hexdigest()
        self.blobs[name] = blob
        return name

    async def get(self, name: str) -> bytes:
        if name not in self.blobs:
            raise JournalError(f"there is no blob {name}")
        return self.blobs[name]


def check(epoch: int, newest: int, expect: int, found: int) -> None:
    """Raise unless writer `epoch` may append to a journal of `found` lines."""
    if epoch < newest:
        raise Fenced(f"writer {epoch} lost the lock to writer {newest}")
    if expect != found:
        raise Conflict(f"expected {expect} lines in the journal, found {found}")
