"""The port of all stored sessions: find, list, search, read, and open them for writing.

`home` is the adapter for a directory on this machine; the composition root chooses one
(`app.session_index`). Everything here blocks: call it in a thread. Only a session's store,
`fork` and `delete` take its lock.

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

Progress = Callable[[int, int], None]  # sessions done, and sessions in all


class StoredSession(Struct, frozen=True):
    """A session that has a journal, and when it was last `changed`."""

    id: str
    changed: float


class SessionWriter(Struct, frozen=True):
    """The process that has a session open. `text` describes it."""

    pid: int
    host: str
    text: str


class CardCatalogue(Protocol):
    """The cards and texts of all sessions, brought up to date by each query.

    After `seconds`, a query uses what is indexed by then. The newest session is first.
    """

    def newest_first(
        self,
        wanted: "CardFilter",
        *,
        after: "ListPosition | None" = None,
        seconds: float = ...,
    ) -> "Iterator[Card]":
        """The cards of a list, from behind `after` on. No more is read than what is iterated."""
        ...

    def card(self, session: str, *, seconds: float = ...) -> "Card | None":
        """The card of a session, or of a subagent."""
        ...

    def match(self, text: str) -> "Card | None":
        """The session that `text` means: by its name, or the beginning of its id or name.

        Raises `BadInput` if several match.
        """
        ...

    def asking(self, sessions: "Collection[str]") -> "frozenset[str]":
        """Those of the sessions, as of the last query, that wait for a person.

        The call that waits may be one of a subagent.
        """
        ...

    def cards(self, *, seconds: float = ..., children: bool = False) -> "list[Card]":
        """All cards. To show sessions, read a list: this takes as long as there are sessions."""
        ...

    def search(
        self,
        text: str,
        limit: int,
        matches: "Callable[[Card], bool]" = ...,
        *,
        seconds: float = ...,
    ) -> "list[Hit]":
        """The best matches. Raises `BadInput` if there is nothing to search for."""
        ...

    def last_cards(self) -> "dict[str, Card]":
        """The cards as of the last query: fast, but they may be out of date."""
        ...

    def freshen(self, seconds: float = ...) -> bool:
        """Index what is new. Returns False if there was not enough time."""
        ...

    def rebuild(self) -> "RebuildResult": ...


class TreeNews(Protocol):
    """A tree of sessions that is followed. `damages` lists journals no longer followed."""

    damages: list[str]

    def new_entries(self) -> list[tuple[str, Entry]]:
        """New entries with the address of their node, in the order of time."""
        ...


class PackedSession(Protocol):
    """A session as a tar. `damages` lists what it lacks."""

    damages: list[str]

    @property
    def events(self) -> int: ...
    @property
    def sessions(self) -> int: ...
    def pieces(self) -> Iterator[bytes]: ...


class SessionIndex(Protocol):
    # Find.
    def new_id(self, started_at: float) -> str:
        """A free id for a session that begins at `started_at`. Ids sort by time."""
        ...

    def exists(self, session: str) -> bool:
        """Whether the session has a journal."""
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
        """The session with this id or name, or the only one whose id or name starts so.

        `tell` gets the progress if all sessions have to be read. Raises `BadInput`.
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
        self, session: str, known_head: tuple[int, str] = (0, ""), *, begins: bool = False
    ) -> tuple[list[Entry], str]:
        """The valid entries from the start of a session, and the damage after them, or "".

        `known_head` is an event that the parent recorded, as (seq, hash). With `begins` there
        may be no journal yet.
        """
        ...

    def history(self, session: str, *, up_to: int | None = None) -> EventHistory:
        """The valid events, decoded when they are read. It has views near `up_to`, or its end."""
        ...

    def mentions(self, session: str, text: bytes) -> bool:
        """Whether the journal contains `text` anywhere. Much faster than `entries`."""
        ...

    def directories(self, session: str) -> SessionDirectories:
        """The current directories. Empty if they cannot be read."""
        ...

    def first_directory(self, session: str) -> str:
        """The directory in which the session was started, or ""."""
        ...

    def tree(self, session: str) -> "Node":
        """The session with all its subagents."""
        ...

    def follow(self, session: str, address: str) -> TreeNews:
        """Follow the tree from this session on, which has this address in the tree."""
        ...

    def children(self, session: str) -> Sequence[str]:
        """The names of the subagents that are stored with the session."""
        ...

    def blob(self, session: str, name: str) -> bytes: ...
    def refuse_links(self, session: str) -> None:
        """Raise `BadInput` if the session's path contains a link."""
        ...

    def writer(self, session: str) -> SessionWriter | None:
        """The process that has the session open, as far as this machine can tell."""
        ...

    def is_locked_by(self, session: str, pid: int) -> bool:
        """Whether the kernel says that this local process holds the session's lock."""
        ...

    def path(self, session: str) -> Path:
        """The local directory of the session, which need not exist."""
        ...

    def location(self, session: str) -> str:
        """The place of the journal, to be shown to a person."""
        ...

    # Write, copy and delete.
    def store(self, session: str) -> Store:
        """A store for one writer. The session need not exist."""
        ...

    def leftovers(self) -> Sequence[str]:
        """What is stored without a journal, as a crash may leave it. `delete` removes it.

        A session that is being created is among them for a moment.
        """
        ...

    def remember_time(self, session: str) -> Callable[[], None]:
        """Return a function that restores the session's current modification time.

        For writes that do not use the session: it keeps its place in lists.
        """
        ...

    def fork(self, session: str, up_to: int | None, now: float) -> "Fork":
        """Copy the session up to the event `up_to`; None: to its end. Raises `BadInput`."""
        ...

    def importing(self) -> "AbstractContextManager[SessionFiles]":
        """A context manager: the sessions that are created in the directory become stored."""
        ...

    def check(self, session: str) -> "JournalCheck":
        """Check every line of a session and every blob that a line names."""
        ...

    def pack(self, session: str, *, children: bool = True) -> PackedSession:
        """Export the session. Raises `BadInput` if it is empty."""
        ...

    def size(self, session: str) -> "SessionSize":
        """The size of what `delete` removes."""
        ...

    def delete(self, session: str) -> None:
        """Delete the session with its subagents. Raises `Held` while a writer has it."""
        ...
