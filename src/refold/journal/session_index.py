"""The port of all stored sessions: finds, lists, searches and reads them, and opens them
for writing.

`journal_directory` is the adapter for a directory on this machine. The composition root chooses
the adapter (`app.session_index`). Every method blocks: call it in a thread. Only a session's
store, `fork` and `delete` take its lock.

A session is named by its id; "ID/child-1/child-2" is a subagent. Unless stated otherwise,
`JournalError` or `OSError` is raised if something cannot be read.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from refold.journal.events.kinds import Entry
from refold.journal.state.event_history import EventHistory
from refold.journal.state.session_info import SessionDirectories
from refold.journal.store.port import Store

if TYPE_CHECKING:
    from refold.journal.catalogue.card_filter import CardFilter, ListPosition
    from refold.journal.catalogue.catalogue import RebuildResult
    from refold.journal.catalogue.session_card import Card, Hit
    from refold.journal.fork import Fork
    from refold.journal.state.session_tree import Node
    from refold.journal.store.check import JournalCheck
    from refold.journal.store.delete import SessionSize
    from refold.journal.store.session_files import SessionFiles

Progress = Callable[[int, int], None]  # number of sessions done, and of all sessions


class StoredSession(Struct, frozen=True):
    """A session that has a journal, and the time at which it was last `changed`."""

    id: str
    changed: float


class SessionWriter(Struct, frozen=True):
    """The process that has a session open. `text` describes it."""

    pid: int
    host: str
    text: str


class CardCatalogue(Protocol):
    """The cards and texts of all sessions. Each query first indexes new lines.

    Indexing stops after `seconds`: the query then uses what is indexed. The newest session
    comes first.
    """

    def newest_first(
        self,
        wanted: "CardFilter",
        *,
        after: "ListPosition | None" = None,
        seconds: float = ...,
    ) -> "Iterator[Card]":
        """Yield the cards of a list that come after the position `after`, or all if it is None.

        Only those cards are read that the caller takes.
        """
        ...

    def card(self, session: str, *, seconds: float = ...) -> "Card | None":
        """Return the card of a session or of a subagent; None if it is not indexed."""
        ...

    def match(self, text: str) -> "Card | None":
        """Return the card of the session that `text` means: by its name, or by the beginning of
        its id or name. Return None if no session matches.

        Raises `BadInput` if several match.
        """
        ...

    def asking(self, sessions: "Collection[str]") -> "frozenset[str]":
        """Return the sessions among these that waited for a person at the last query.

        The waiting call may belong to a subagent.
        """
        ...

    def cards(self, *, seconds: float = ..., children: bool = False) -> "list[Card]":
        """Return the cards of all sessions; with `children`, of subagents, too.

        The time grows with the number of sessions: to show a list, use `newest_first`.
        """
        ...

    def search(
        self,
        text: str,
        limit: int,
        matches: "Callable[[Card], bool]" = ...,
        *,
        seconds: float = ...,
    ) -> "list[Hit]":
        """Return at most `limit` hits for `text`, the best first, whose card satisfies
        `matches`.

        Raises `BadInput` if `text` has no term to search for.
        """
        ...

    def last_cards(self) -> "dict[str, Card]":
        """Return the cards by id, as the last query found them. They may be outdated."""
        ...

    def freshen(self, seconds: float = ...) -> bool:
        """Index new lines for at most `seconds`. Returns False if lines are left."""
        ...

    def rebuild(self) -> "RebuildResult":
        """Index all journals again from their start, and return how much was indexed."""
        ...


class TreeNews(Protocol):
    """Follows a session and its subagents, and returns their new entries.

    `damages` lists the journals that are no longer followed because they are damaged.
    """

    damages: list[str]

    def new_entries(self) -> list[tuple[str, Entry]]:
        """Return the entries since the last call, each with the address of its node, oldest
        first.
        """
        ...


class PackedSession(Protocol):
    """A session as a tar. `damages` lists what the tar lacks."""

    damages: list[str]

    @property
    def events(self) -> int:
        """Return the number of events in the tar."""
        ...

    @property
    def sessions(self) -> int:
        """Return the number of sessions in the tar, subagents included."""
        ...

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of the tar. Raises `JournalError` if the session cannot be read."""
        ...


class SessionIndex(Protocol):
    # Find.
    def new_id(self, started_at: float) -> str:
        """Return a free id for a session that begins at `started_at`. Ids sort by time."""
        ...

    def exists(self, session: str) -> bool:
        """Whether the session has a journal."""
        ...

    def sessions(self) -> Iterator[StoredSession]:
        """Yield all sessions without subagents, the last written first."""
        ...

    def newest_of(self, directory: Path) -> StoredSession | None:
        """Return the session that works in `directory` and was written last; None if none works
        there.

        A session without a message counts only if no session has one.
        """
        ...

    def find(self, text: str, tell: Progress = ...) -> StoredSession:
        """Return the session with this id or name, or the only session whose id or name begins
        with `text`.

        `tell` is called with the progress if all sessions must be read. Raises `BadInput`.
        """
        ...

    def resolve(self, text: str, directory: Path, tell: Progress = ...) -> StoredSession:
        """Return the session that `text` means, as `find` does.

        The text "last" means the session of `directory` that was written last.
        """
        ...

    def catalogue(
        self, tell: Progress = ..., notice: Callable[[str], None] = ...
    ) -> CardCatalogue:
        """Return the catalogue of all sessions.

        `tell` is called with the progress, and `notice` with failures.
        """
        ...

    # Read.
    def entries(
        self,
        session: str,
        known_head: tuple[int, str] = (0, ""),
        *,
        may_be_missing: bool = False,
    ) -> tuple[list[Entry], str]:
        """Return the valid entries of a session, and the damage after them, or "".

        `known_head` is an event that the parent recorded, as (seq, hash). If `may_be_missing`, a
        missing journal is not damage, because the session is only starting.
        """
        ...

    def history(self, session: str, *, up_to: int | None = None) -> EventHistory:
        """Return the valid events, decoded when they are read, with cached views near event
        `up_to` or near the end.
        """
        ...

    def mentions(self, session: str, text: bytes) -> bool:
        """Whether the journal contains `text` anywhere. Much faster than `entries`."""
        ...

    def directories(self, session: str) -> SessionDirectories:
        """Return the current directories of the session; empty if they cannot be read."""
        ...

    def first_directory(self, session: str) -> str:
        """Return the directory in which the session was started; "" if that is unknown."""
        ...

    def tree(self, session: str) -> "Node":
        """Return the session with all its subagents."""
        ...

    def follow(self, session: str, address: str) -> TreeNews:
        """Follow this session and its subagents, and return their news.

        `address` is the session's address in the tree.
        """
        ...

    def children(self, session: str) -> Sequence[str]:
        """Return the names of the subagents that are stored with the session."""
        ...

    def blob(self, session: str, name: str) -> bytes:
        """Return the content of a blob of this session. Raises `JournalError`."""
        ...

    def refuse_links(self, session: str) -> None:
        """Raise `BadInput` if a link is part of the session's path."""
        ...

    def writer(self, session: str) -> SessionWriter | None:
        """Return the process that has the session open, if this machine can determine
        it.
        """
        ...

    def is_locked_by(self, session: str, pid: int) -> bool:
        """Whether, according to the kernel, this local process holds the session's lock."""
        ...

    def path(self, session: str) -> Path:
        """Return the local directory of the session, which need not exist."""
        ...

    def location(self, session: str) -> str:
        """Return the place of the journal, for people."""
        ...

    # Write, copy and delete.
    def store(self, session: str) -> Store:
        """Return a store for one writer. The session need not exist."""
        ...

    def leftovers(self) -> Sequence[str]:
        """Return the names of stored directories that have no journal.

        A crash may leave such directories, and `delete` removes them. The directory of a
        session that is being created is briefly among them.
        """
        ...

    def remember_time(self, session: str) -> Callable[[], None]:
        """Return a function that restores the session's current modification time.

        Call that function after a write that does not count as use of the session: the session
        then keeps its position in lists.
        """
        ...

    def fork(self, session: str, up_to: int | None, now: float) -> "Fork":
        """Make a new session that is a copy up to the event `up_to`; None means up to the end.

        Raises `BadInput`.
        """
        ...

    def importing(self) -> "AbstractContextManager[SessionFiles]":
        """Return a context manager that yields a directory for session files.

        Sessions that are created in this directory are stored when the context is left.
        """
        ...

    def check(self, session: str) -> "JournalCheck":
        """Check every line of a session and every blob that a line names."""
        ...

    def pack(self, session: str, *, children: bool = True) -> PackedSession:
        """Return the session as a tar, with its subagents if `children`. Raises `BadInput` if
        it is empty.
        """
        ...

    def size(self, session: str) -> "SessionSize":
        """Return the size of what `delete` would remove for this session."""
        ...

    def delete(self, session: str) -> None:
        """Delete the session with its subagents. Raises `Held` while a writer has it."""
        ...
