"""The port of all sessions that are stored: found, listed, searched, read, and opened to write.

`home` is the adapter for a directory on this machine; the composition root chooses one
(`app.session_index`). Everything here blocks: call it in a thread. Nothing here takes the lock of
a session but its store, `fork` and `delete`.

A session is named by its id; "ID/child-1/child-2" is a subagent. Where it is not said otherwise,
what cannot be read is `JournalError` or `OSError`.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from refold.journal.events.kinds import Entry
from refold.journal.state.session_info import SessionDirectories
from refold.journal.store.port import Store

if TYPE_CHECKING:
    from refold.journal.catalogue.catalogue import RebuildResult
    from refold.journal.catalogue.session_card import Card, Hit
    from refold.journal.fork import Fork
    from refold.journal.state.session_tree import Node
    from refold.journal.store.check import JournalCheck
    from refold.journal.store.delete import SessionSize

Progress = Callable[[int, int], None]  # so many of so many are done


class StoredSession(Struct, frozen=True):
    """A session that has a journal. `changed`: when it was last written."""

    id: str
    changed: float


class SessionWriter(Struct, frozen=True):
    """The process that has a session open, and in words."""

    pid: int
    host: str
    text: str


class CardCatalogue(Protocol):
    """What is known of all sessions, brought up to date by each query.

    After `seconds`, a query goes by what is known until then. The newest session is first.
    """

    def cards(self, *, seconds: float = ..., children: bool = False) -> "list[Card]": ...
    def search(
        self,
        text: str,
        limit: int,
        wanted: "Callable[[Card], bool]" = ...,
        *,
        seconds: float = ...,
    ) -> "list[Hit]":
        """The best matches. Raises `BadInput` if there is nothing to search for."""
        ...

    def last_cards(self) -> "dict[str, Card]":
        """The cards as of the last query: a hint, and fast."""
        ...

    def freshen(self, seconds: float = ...) -> bool:
        """Read what is new. False if there was not enough time for all of it."""
        ...

    def rebuild(self) -> "RebuildResult": ...


class TreeNews(Protocol):
    """A tree of sessions that is followed. `damages` are journals that it follows no longer."""

    damages: list[str]

    def new_entries(self) -> list[tuple[str, Entry]]:
        """New entries with the address of their node, in the order of time."""
        ...


class PackedSession(Protocol):
    """A session as a tar. `damages` is what is not in it."""

    damages: list[str]

    @property
    def events(self) -> int: ...
    @property
    def sessions(self) -> int: ...
    def pieces(self) -> Iterator[bytes]: ...


class SessionIndex(Protocol):
    # Found.
    def new_id(self, started_at: float) -> str:
        """A free id for a session that begins at `at`. Ids sort by time."""
        ...

    def exists(self, session: str) -> bool:
        """Has it a journal?"""
        ...

    def sessions(self) -> Iterator[StoredSession]:
        """All sessions without subagents, the last written first."""
        ...

    def newest_of(self, directory: Path) -> StoredSession | None:
        """The session that was started in `directory` and written last.

        A session without a message counts only if there is no other.
        """
        ...

    def find(self, text: str, tell: Progress = ...) -> StoredSession:
        """The session with this id or name, or the only one whose id or name begins so.

        `tell` gets the progress if all sessions have to be read for that. Raises `BadInput`.
        """
        ...

    def resolve(self, text: str, directory: Path, tell: Progress = ...) -> StoredSession:
        """The session that `text` means in `directory`: as `find`, or `last` for the newest."""
        ...

    def catalogue(
        self, tell: Progress = ..., notice: Callable[[str], None] = ...
    ) -> CardCatalogue:
        """The catalogue of all sessions. `tell` gets its progress, `notice` its failures."""
        ...

    # Read.
    def entries(
        self, session: str, known: tuple[int, str] = (0, ""), *, begins: bool = False
    ) -> tuple[list[Entry], str]:
        """The good entries of a session from the start, and what is wrong with the next.

        `known` is an event that the parent recorded, as (seq, hash). One that `begins` may have
        no journal yet.
        """
        ...

    def mentions(self, session: str, text: bytes) -> bool:
        """Is `text` in its journal, in any form? Far quicker than `entries`."""
        ...

    def directories(self, session: str) -> SessionDirectories:
        """Where it works now. Empty if that cannot be read."""
        ...

    def first_directory(self, session: str) -> str:
        """Where it was started, or ""."""
        ...

    def tree(self, session: str) -> "Node":
        """The session with all its subagents."""
        ...

    def follow(self, session: str, address: str) -> TreeNews:
        """The tree from this session on, which has `address` in it."""
        ...

    def children(self, session: str) -> Sequence[str]:
        """The names of the subagents that are stored with it."""
        ...

    def blob(self, session: str, name: str) -> bytes: ...
    def refuse_links(self, session: str) -> None:
        """Raises `BadInput` if it is read through a link that another program has put there."""
        ...

    def writer(self, session: str) -> SessionWriter | None:
        """Who has it open, as far as this machine can tell."""
        ...

    def is_locked_by(self, session: str, pid: int) -> bool:
        """Is this process of this machine seen to hold its lock, whatever was noted?"""
        ...

    def path(self, session: str) -> Path:
        """A directory of this machine that stands for it, whether anything is there or not."""
        ...

    def location(self, session: str) -> str:
        """Where its journal is, for a person."""
        ...

    # Written, copied and deleted.
    def store(self, session: str) -> Store:
        """The store of one writer, whether the session exists or not."""
        ...

    def remember_time(self, session: str) -> Callable[[], None]:
        """What sets its time back to what it is now.

        For who writes what is no use of the session: it keeps its place among the others.
        """
        ...

    def fork(self, session: str, up_to: int | None, now: float) -> "Fork":
        """A copy up to the event `at`; None: up to its end. Raises `BadInput`."""
        ...

    def check(self, session: str) -> "JournalCheck":
        """Check every line of a session and every blob that a line names."""
        ...

    def pack(self, session: str, *, children: bool = True) -> PackedSession:
        """Raises `BadInput` if the session is empty."""
        ...

    def size(self, session: str) -> "SessionSize":
        """What is removed if it is deleted."""
        ...

    def delete(self, session: str) -> None:
        """Delete it for good, with its subagents. Raises `Held` while it is written."""
        ...
