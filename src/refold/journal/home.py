"""The sessions on this machine: their ids, their directories, and how to find one.

Paths and stores only. `config.paths` decides which directory has the sessions, and `codec`
reads lines. Nothing is created here: a session's directory is created with its first line.
"""

import mmap
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from time import gmtime, strftime
from typing import TYPE_CHECKING

from msgspec import DecodeError, Struct

from refold.errors import BadInput, Corrupt, WrongFormat
from refold.journal.events import codec
from refold.journal.events.kinds import (
    LAST,
    Event,
    Imported,
    SessionResumed,
    SessionStarted,
)
from refold.journal.state.children import CHILD
from refold.journal.state.session_info import SessionDirectories
from refold.journal.store import log_file
from refold.journal.store.disk import as_journal_errors
from refold.journal.store.file import FileStore
from refold.journal.store.session_files import CHILDREN, list_sessions, stamp_of
from refold.journal.store.writer_threads import Writers
from refold.safe_open import unlinked

if TYPE_CHECKING:
    from refold.journal.catalogue.catalogue import Catalogue
    from refold.journal.catalogue.indexer import Tell
    from refold.journal.catalogue.session_card import Card

LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that looks like another
LONGEST_START = 64_000  # bytes; a first line longer than this names no directory
_UNASKED = 64  # sessions that are looked into before the catalogue is asked
_BEGINS = 64 * 1024  # bytes of a session in which its first words stand


class StoredSession(Struct, frozen=True):
    """A session that has a journal. `changed`: when it was last written."""

    id: str
    path: Path
    changed: float


class JournalDirectory:
    """The sessions under one directory, and the threads that write them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._writers = Writers()

    def new_id(self, at: float) -> str:
        """A free id for a session that begins at `at`. Ids sort by time."""
        while True:
            tail = "".join(LETTERS[byte % len(LETTERS)] for byte in os.urandom(4))
            name = f"{strftime('%Y%m%d-%H%M%S', gmtime(at))}-{tail}"
            if not (self.root / name).exists():
                return name

    def path(self, session: str) -> Path:
        """The directory of a session; that of a subagent, "ROOT/child-1", is below its parent."""
        root, *names = session.split("/")
        below = (part for name in names for part in (CHILDREN, name))
        return self.root.joinpath(root, *below)

    def store(self, session: str) -> FileStore:
        """The store of a session, whether it exists or not. Raises if a link is in its path."""
        path = self.path(session)
        above = (each for each in path.parents if each.is_relative_to(self.root))
        with as_journal_errors("open", path):
            unlinked(path, *above)
        return FileStore(path, self._writers)

    def sessions(self) -> Iterator[StoredSession]:
        """All sessions, the last written first. Reads names and times only."""
        there = list_sessions(self.root)
        for id_ in there.ids:
            yield StoredSession(id_, self.path(id_), there.stamps[id_].changed)

    def newest_of(self, directory: Path) -> StoredSession | None:
        """The session that was started in `directory` and written last.

        A session without a message counts only if there is no other. One that checks another's
        claims never does, and a run of a schedule does once it was resumed.
        """
        place, silent = _Place(directory), ""
        there = list_sessions(self.root)
        known = dict[str, "Card"]()
        for at, id_ in enumerate(there.ids):
            if at == _UNASKED:
                known = self.catalogue().known()
            card, path = known.get(id_), self.path(id_)
            if card and card.changed == there.stamps[id_].changed:
                # It is as the catalogue knows it, and so was begun where that says.
                started = card.about.directory
                if started and not place.is_(started):
                    continue
            if place.is_(current_directory(path)):
                if _is_ours(path):
                    continue
                if _something_was_said(path):
                    return self._session(id_)
                silent = silent or id_
        return self._session(silent) if silent else None

    def named(
        self, text: str, directory: Path, tell: "Tell" = lambda _, __: None
    ) -> StoredSession:
        """The session that `text` means in `directory`: as `find`, or `last` for the newest."""
        first, *names = text.split("/")
        if first != LAST:
            return self.find(text, tell)
        if (found := self.newest_of(directory)) is None:
            raise BadInput(
                f"no session was started in {directory} yet: name one (refold sessions "
                "list --all)"
            )
        return self._below(found, names)

    def find(self, text: str, tell: "Tell" = lambda _, __: None) -> StoredSession:
        """The session with this id or name, or the only one whose id or name begins so.

        "ROOT/child-1/child-2" is a subagent. `tell` gets the progress if all sessions have to be
        read for that.
        """
        root, *names = text.split("/")
        if root and names and re.fullmatch(CHILD, names[0]):
            return self._below(self.find(root, tell), names)
        if not text:
            raise BadInput("an empty text names no session: give an id or its beginning")
        if "/" not in text and text[0] != ".":
            if exact := self._session(text):
                return exact
            if os.path.isdir(self.root / text):
                raise BadInput(
                    f"there is no readable journal in {self.root / text}: check what "
                    "happened to it"
                )
        from refold.journal.catalogue.session_card import meant

        card = meant(text, self.catalogue(tell).cards())
        found = self._session(card.id) if card else None
        if found is None:
            raise BadInput(_unknown(text, list_sessions(self.root).ids))
        return found

    def catalogue(
        self,
        tell: "Tell" = lambda _, __: None,
        notice: Callable[[str], None] = lambda _: None,
    ) -> "Catalogue":
        """The catalogue of all sessions. `tell` gets its progress, `notice` its failures."""
        from refold.journal.catalogue.catalogue import Catalogue

        return Catalogue(self.root, self.path, tell=tell, notice=notice)

    def _below(self, session: StoredSession, names: list[str]) -> StoredSession:
        for name in names:
            found = (
                self._session(f"{session.id}/{name}") if re.fullmatch(CHILD, name) else None
            )
            if found is None:
                raise BadInput(
                    f"the session {session.id} has no subagent {name!r} (`refold tree "
                    f"{session.id}` shows all)"
                )
            session = found
        return session

    def _session(self, name: str) -> StoredSession | None:
        path = self.path(name)
        stamp = stamp_of(path / log_file.NAME)
        return StoredSession(name, path, stamp.changed) if stamp else None


class _Place:
    """A directory by its real path, cached: thousands of sessions name few."""

    def __init__(self, directory: Path) -> None:
        self._real = os.path.realpath(directory)
        self._same = {"": False, self._real: True}

    def is_(self, directory: str) -> bool:
        if directory not in self._same:
            self._same[directory] = os.path.realpath(directory) == self._real
        return self._same[directory]


def first_directory(path: Path) -> str:
    """The directory that the first line of a session names."""
    try:
        started = _first_event(path)
    except WrongFormat as error:
        return error.directory
    return started.directory if started else ""


def _first_event(path: Path) -> SessionStarted | None:
    """The first line of a session. Raises `WrongFormat`."""
    try:
        with (path / log_file.NAME).open("rb") as file:
            line = file.readline(LONGEST_START)
        entry, _ = next(codec.decode([line.removesuffix(b"\n")]))
    except WrongFormat:
        raise
    except (OSError, Corrupt, DecodeError):
        return None
    return entry.event if isinstance(entry.event, SessionStarted) else None


def _is_ours(path: Path) -> bool:
    """Whether no user works in it: it checks another, or is a run of a schedule."""
    try:
        started = _first_event(path)
    except WrongFormat:
        return False
    if started is None or not started.schedule:
        return started is not None and bool(started.checks)
    try:
        with (path / log_file.NAME).open("rb") as file:
            return not any(b'"kind":"SessionResumed"' in line for line in file)
    except OSError:
        return True


def current_directory(path: Path) -> str:
    """The current working directory of a session."""
    return current_directories(path).directory


def _something_was_said(path: Path) -> bool:
    """Whether a message is near the beginning. A long session counts as yes."""
    try:
        with (path / log_file.NAME).open("rb") as file:
            begins = file.read(_BEGINS)
    except OSError:
        return False
    return len(begins) == _BEGINS or b'"kind":"Said"' in begins


def _unknown(text: str, names: Sequence[str]) -> str:
    from refold.values.similar_names import similar  # only for this sentence

    near = similar(text, sorted(names, reverse=True), 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"there is no session {text!r}{hint} (`refold sessions list` shows all)"


# Lines of these kinds name a directory. The text may also be in a call's arguments.
_MARKS = rb'"kind":"(?:SessionResumed|Imported)"'


def current_directories(session: Path) -> SessionDirectories:
    """The current directories of a session, read without following the chain.

    Settings, trust and the workspace depend on them, so they are needed before the session is
    opened. Empty if nothing can be read.
    """
    try:
        with (
            (session / log_file.NAME).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return _told(_newest_first(data))
    except (OSError, ValueError):  # not there, or empty
        return SessionDirectories()


def _told(news: Iterable[Event]) -> SessionDirectories:
    directory, roots = "", None
    for event in news:
        match event:
            case SessionResumed():
                directory = directory or event.directory
                roots = event.roots if roots is None else roots
            case SessionStarted():
                return SessionDirectories(
                    directory or event.directory, event.roots if roots is None else roots
                )
            case Imported():
                return SessionDirectories(directory or event.directory, roots or ())
            case _:
                pass
    return SessionDirectories(directory, roots or ())


def _newest_first(data: mmap.mmap) -> Iterator[Event]:
    begins = sorted(
        {0, *(data.rfind(b"\n", 0, m.start()) + 1 for m in re.finditer(_MARKS, data))}
    )
    for first in reversed(begins):
        last = data.find(b"\n", first)
        if last >= 0 and (event := codec.unchecked(data[first:last])) is not None:
            yield event
