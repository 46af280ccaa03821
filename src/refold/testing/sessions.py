"""A `SessionIndex` for tests of adapters, over journal lines that are stored anywhere.

To read, it copies all sessions to files in a temporary directory and asks `JournalDirectory`,
which is right for tests but far too slow for users. To write, follow, copy or delete a session,
it uses the stored lines directly.
"""

import os
import shutil
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import inf
from pathlib import Path
from tempfile import mkdtemp
from typing import Protocol

from refold.errors import BadInput, JournalError
from refold.journal.catalogue.card_filter import CardFilter, ListPosition, select_cards
from refold.journal.catalogue.catalogue import RebuildResult
from refold.journal.catalogue.session_card import Card, Hit, match_card
from refold.journal.events.kinds import Entry
from refold.journal.fork import Fork
from refold.journal.journal_directory import JournalDirectory
from refold.journal.session_index import Progress, SessionWriter, StoredSession
from refold.journal.state.event_history import EventHistory
from refold.journal.state.session_info import SessionDirectories
from refold.journal.state.session_tree import Node
from refold.journal.store.check import JournalCheck
from refold.journal.store.delete import SessionSize
from refold.journal.store.log_file import FILE_NAME
from refold.journal.store.port import MemoryBlobs, MemoryStore, Store
from refold.journal.store.tree_reader import LineSource, TreeFollower


class StoredLines(Protocol):
    """A storage of journal lines. `session` is the id of a session or of a subagent."""

    def changed(self) -> Mapping[str, float]:
        """Return the time of the last write, for each session that has lines."""
        ...

    def lines(self, session: str) -> Sequence[bytes]: ...  # of its journal
    def blobs(self, session: str) -> Mapping[str, bytes]: ...  # content by name
    def store(self, session: str) -> Store: ...
    def put(self, session: str, lines: Sequence[bytes], blobs: Mapping[str, bytes]) -> None:
        """Store a session with these lines and blobs. It replaces what was stored for the id."""
        ...

    def remove(self, session: str) -> None: ...
    def set_changed(self, session: str, time: float) -> None: ...  # of the last write


def _no_progress(done: int, remaining: int) -> None:
    return


def _no_notice(text: str) -> None:
    return


class SessionsOfLines:
    """A `SessionIndex` over the sessions in a storage of lines."""

    def __init__(self, stored: StoredLines) -> None:
        self._stored = stored

    def new_id(self, started_at: float) -> str:
        with self._files() as files:
            return files.new_id(started_at)

    def exists(self, session: str) -> bool:
        return session in self._stored.changed()

    def sessions(self) -> Iterator[StoredSession]:
        """Yield the sessions, the last written first, without subagents."""
        changed = self._stored.changed()
        for id_ in sorted(changed, key=lambda id_: (changed[id_], id_), reverse=True):
            if "/" not in id_:
                yield StoredSession(id_, changed[id_])

    def newest_of(self, directory: Path) -> StoredSession | None:
        with self._files() as files:
            return files.newest_of(directory)

    def find(self, text: str, tell: Progress = _no_progress) -> StoredSession:
        with self._files() as files:
            return files.find(text, tell)

    def resolve(
        self, text: str, directory: Path, tell: Progress = _no_progress
    ) -> StoredSession:
        with self._files() as files:
            return files.resolve(text, directory, tell)

    def catalogue(
        self, tell: Progress = _no_progress, notice: Callable[[str], None] = _no_notice
    ) -> "CatalogueOfLines":
        return CatalogueOfLines(self._files, tell, notice)

    def entries(
        self,
        session: str,
        known_head: tuple[int, str] = (0, ""),
        *,
        may_be_missing: bool = False,
    ) -> tuple[list[Entry], str]:
        with self._files() as files:
            return files.entries(session, known_head, may_be_missing=may_be_missing)

    def history(self, session: str, *, up_to: int | None = None) -> EventHistory:
        entries, _ = self.entries(session)
        return EventHistory(entries)

    def mentions(self, session: str, text: bytes) -> bool:
        return text in b"\n".join(self._stored.lines(session))

    def directories(self, session: str) -> SessionDirectories:
        with self._files() as files:
            return files.directories(session)

    def first_directory(self, session: str) -> str:
        with self._files() as files:
            return files.first_directory(session)

    def tree(self, session: str) -> Node:
        with self._files() as files:
            return files.tree(session)

    def follow(self, session: str, address: str) -> TreeFollower:
        return TreeFollower(_Lines(self._stored, session), address)

    def children(self, session: str) -> Sequence[str]:
        """Return the names of the direct subagents of a session."""
        prefix = f"{session}/"
        names = (
            id_.removeprefix(prefix)
            for id_ in self._stored.changed()
            if id_.startswith(prefix)
        )
        return sorted(name for name in names if "/" not in name)

    def blob(self, session: str, name: str) -> bytes:
        blobs = self._stored.blobs(session)
        if name not in blobs:
            raise JournalError(f"the session {session} has no blob {name!r}")
        return blobs[name]

    def refuse_links(self, session: str) -> None:
        """Do nothing: stored lines have no links."""

    def writer(self, session: str) -> SessionWriter | None:
        """Return None: the writer is unknown, because a store of lines has no lock."""
        return None

    def is_locked_by(self, session: str, pid: int) -> bool:
        return False

    def path(self, session: str) -> Path:
        return Path(os.sep, "stored-lines", session)

    def location(self, session: str) -> str:
        return f"the lines of {session}"

    def store(self, session: str) -> Store:
        return self._stored.store(session)

    def remember_time(self, session: str) -> Callable[[], None]:
        before = self._stored.changed()[session]
        return lambda: self._stored.set_changed(session, before)

    def fork(self, session: str, up_to: int | None, now: float) -> Fork:
        with self._files() as files:
            fork = files.fork(session, up_to, now)
            self._put_files(files, fork.id)
        return fork

    def _put_files(self, files: JournalDirectory, session: str) -> None:
        """Store the lines and blobs of a session, and of its subagents, from files."""
        directory = files.path(session)
        blobs = {path.name: path.read_bytes() for path in directory.glob("blobs/*")}
        lines = (directory / FILE_NAME).read_bytes().split(b"\n")[:-1]
        self._stored.put(session, lines, blobs)
        for child in files.children(session):
            self._put_files(files, f"{session}/{child}")

    @contextmanager
    def importing(self) -> Generator[JournalDirectory]:
        """Yield a directory, and store the sessions that the block has added to it."""
        with self._files() as files:
            known = set(self._stored.changed())
            yield files
            for session in files.sessions():
                if session.id not in known:
                    self._put_files(files, session.id)

    def check(self, session: str) -> JournalCheck:
        with self._files() as files:
            return files.check(session)

    def pack(self, session: str, *, children: bool = True) -> "PackedLines":
        with self._files() as files:
            packed = files.pack(session, children=children)
            return PackedLines(
                packed.damages, packed.events, packed.sessions, list(packed.pieces())
            )

    def size(self, session: str) -> SessionSize:
        with self._files() as files:
            return files.size(session)

    def leftovers(self) -> Sequence[str]:
        return ()

    def delete(self, session: str) -> None:
        """Delete a session and its subagents, whose ids begin with its id and a slash."""
        if not self.exists(session):
            raise BadInput(f"there is no session {session!r}")
        for id_ in self._stored.changed():
            if f"{id_}/".startswith(f"{session}/"):
                self._stored.remove(id_)

    @contextmanager
    def _files(self) -> Generator[JournalDirectory]:
        """Yield a temporary directory with files of all stored sessions, and delete it
        afterwards.
        """
        above = Path(mkdtemp(prefix="refold-lines-"))
        try:
            files = JournalDirectory(above / "sessions")
            files.root.mkdir()
            for id_, changed in self._stored.changed().items():
                directory = files.path(id_)
                (directory / "blobs").mkdir(parents=True)
                for name, blob in self._stored.blobs(id_).items():
                    (directory / "blobs" / name).write_bytes(blob)
                file = directory / FILE_NAME
                file.write_bytes(b"".join(line + b"\n" for line in self._stored.lines(id_)))
                os.utime(file, (changed, changed))
            yield files
        finally:
            shutil.rmtree(above)


class CatalogueOfLines:
    """A catalogue that is built again for each query."""

    def __init__(
        self,
        files: Callable[[], AbstractContextManager[JournalDirectory]],
        tell: Progress,
        notice: Callable[[str], None],
    ) -> None:
        self._files, self._tell, self._notice = files, tell, notice

    def newest_first(
        self,
        wanted: CardFilter,
        *,
        after: ListPosition | None = None,
        seconds: float = inf,
    ) -> Iterator[Card]:
        return select_cards(self.cards(), wanted, after)

    def card(self, session: str, *, seconds: float = inf) -> Card | None:
        with self._files() as files:
            return files.catalogue(self._tell, self._notice).card(session)

    def match(self, text: str) -> Card | None:
        return match_card(text, self.cards())

    def asking(self, sessions: Collection[str]) -> frozenset[str]:
        with self._files() as files:
            catalogue = files.catalogue(self._tell, self._notice)
            catalogue.freshen()
            return catalogue.asking(sessions)

    def cards(self, *, seconds: float = inf, children: bool = False) -> list[Card]:
        with self._files() as files:
            return files.catalogue(self._tell, self._notice).cards(children=children)

    def search(
        self,
        text: str,
        limit: int,
        matches: Callable[[Card], bool] = lambda _: True,
        *,
        seconds: float = inf,
    ) -> list[Hit]:
        with self._files() as files:
            return files.catalogue(self._tell, self._notice).search(text, limit, matches)

    def last_cards(self) -> dict[str, Card]:
        return {}

    def freshen(self, seconds: float = inf) -> bool:
        return True

    def rebuild(self) -> RebuildResult:
        with self._files() as files:
            return files.catalogue(self._tell, self._notice).rebuild()


class PackedLines:
    def __init__(
        self, damages: list[str], events: int, sessions: int, pieces: Sequence[bytes]
    ) -> None:
        self.damages, self.events, self.sessions = damages, events, sessions
        self._pieces = pieces

    def pieces(self) -> Iterator[bytes]:
        yield from self._pieces


class MemorySessions(SessionsOfLines):
    """A `SessionIndex` over sessions in memory."""

    def __init__(self) -> None:
        super().__init__(_MemoryLines())


class _MemoryLines:
    def __init__(self) -> None:
        self._stores = dict[str, MemoryStore]()
        self._changed = dict[str, float]()

    def changed(self) -> Mapping[str, float]:
        return dict(self._changed)

    def lines(self, session: str) -> Sequence[bytes]:
        return list(self._stores[session].lines)

    def blobs(self, session: str) -> Mapping[str, bytes]:
        return dict(self._stores[session].blobs.contents)

    def store(self, session: str) -> Store:
        first = self._stores.setdefault(session, MemoryStore())
        return _TimedStore(first, lambda: self.set_changed(session, time.time()))

    def put(self, session: str, lines: Sequence[bytes], blobs: Mapping[str, bytes]) -> None:
        content = MemoryBlobs()
        content.contents.update(blobs)
        self._stores[session] = MemoryStore(*lines, blobs=content)
        self.set_changed(session, time.time())

    def remove(self, session: str) -> None:
        del self._stores[session], self._changed[session]

    def set_changed(self, session: str, time: float) -> None:
        self._changed[session] = time


class _TimedStore(MemoryStore):
    """A second store for the journal of the store `first`. It calls `on_write` after each
    append.
    """

    def __init__(self, first: MemoryStore, on_write: Callable[[], None]) -> None:
        super().__init__(blobs=first.blobs)
        self.share(first)
        self._written = on_write

    async def append(
        self, lines: Sequence[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        await super().append(lines, expect=expect, epoch=epoch, head=head)
        self._written()


class _Lines:
    """The lines of a session, as a source for `TreeFollower`."""

    def __init__(self, stored: StoredLines, session: str) -> None:
        self._stored, self.name = stored, session

    def read(self, after: int) -> Sequence[bytes]:
        if self.name not in self._stored.changed():
            return ()
        return self._stored.lines(self.name)[after:]

    def below(self, child: str) -> LineSource:
        return _Lines(self._stored, f"{self.name}/{child}")
