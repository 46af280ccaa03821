"""The sessions in a directory of this machine: the adapter of `session_index`.

This module generates ids, maps them to directories and finds sessions. Other modules, which it
calls, do everything else with a session. `config.paths` decides which directory has the
sessions. Opening a session creates nothing: its directory is created with its first line.
"""

import mmap
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from time import gmtime, strftime
from typing import TYPE_CHECKING

from msgspec import DecodeError

from refold.errors import BadInput, Corrupt, WrongFormat
from refold.journal.events import codec
from refold.journal.events.kinds import (
    Entry,
    Event,
    Imported,
    SessionResumed,
    SessionStarted,
)
from refold.journal.session_index import SessionWriter, StoredSession
from refold.journal.state.event_history import EventHistory
from refold.journal.state.session_info import SessionDirectories
from refold.journal.store import log_file, writer_lock
from refold.journal.store.blobs import BlobFiles
from refold.journal.store.disk import Disk, as_journal_errors
from refold.journal.store.file import FileStore
from refold.journal.store.session_files import CHILDREN_DIRECTORY, list_sessions, stamp_of
from refold.journal.store.writer_threads import Writers
from refold.safe_open import check_no_links

if TYPE_CHECKING:
    from refold.journal.bundle.pack import SessionPacker
    from refold.journal.catalogue.catalogue import Catalogue
    from refold.journal.catalogue.indexer import Tell
    from refold.journal.catalogue.session_card import Card
    from refold.journal.fork import Fork
    from refold.journal.state.session_tree import Node
    from refold.journal.store.check import JournalCheck
    from refold.journal.store.delete import SessionSize
    from refold.journal.store.tree_reader import TreeFollower

ID_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # without letters that look alike
MAX_START_BYTES = 64_000  # a longer first line is not read
_MAX_UNINDEXED_SESSIONS = 64  # read before the catalogue is queried
_START_BYTES = 64 * 1024  # searched for the first message


class JournalDirectory:
    """The sessions under one directory, with the threads that write them: a
    `SessionIndex`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._writers = Writers()

    def new_id(self, started_at: float) -> str:
        """Return a free id for a session that begins at `started_at`. Ids sort by time."""
        while True:
            id_ = random_id(started_at)
            if not (self.root / id_).exists():
                return id_

    def path(self, session: str) -> Path:
        """Return the directory of a session; that of "ROOT/child-1" is below its
        parent's.
        """
        root, *names = session.split("/")
        below = (part for name in names for part in (CHILDREN_DIRECTORY, name))
        return self.root.joinpath(root, *below)

    def store(self, session: str) -> FileStore:
        """Return the store of a session. Raises if its path contains a link."""
        path = self.path(session)
        above = (parent for parent in path.parents if parent.is_relative_to(self.root))
        with as_journal_errors("open", path):
            check_no_links(path, *above)
        return FileStore(path, self._writers, root=self.root)

    def sessions(self) -> Iterator[StoredSession]:
        """Yield all sessions, the last written first. Only names and times are read."""
        listing = list_sessions(self.root)
        for id_ in listing.ids:
            yield StoredSession(id_, listing.stamps[id_].mtime_seconds)

    def newest_of(self, directory: Path) -> StoredSession | None:
        """Return the session that works in `directory` and was written last; None if none works
        there.

        A session without a message counts only if no session has one. A session that checks
        claims never counts. A run of a schedule counts only if it was resumed afterwards.
        """
        matcher = _DirectoryMatcher(directory)
        newest_without_message = ""
        listing = list_sessions(self.root)
        cards = dict[str, "Card"]()
        for index, id_ in enumerate(listing.ids):
            if index == _MAX_UNINDEXED_SESSIONS:
                cards = self.catalogue().last_cards()
            card = cards.get(id_)
            if card and card.changed == listing.stamps[id_].mtime_seconds:
                # The card is up to date, and so is the directory in it.
                directory_in_card = card.about.directory
                if directory_in_card and not matcher.matches(directory_in_card):
                    continue
            path = self.path(id_)
            if not matcher.matches(current_directory(path)) or _has_no_user(path):
                continue
            if _has_message(path):
                return self.look_up(id_)
            newest_without_message = newest_without_message or id_
        if not newest_without_message:
            return None
        return self.look_up(newest_without_message)

    def resolve(
        self, text: str, directory: Path, tell: "Tell" = lambda _, __: None
    ) -> StoredSession:
        from refold.journal import find_session  # imported late: few starts name a session

        return find_session.resolve(self, text, directory, tell)

    def find(self, text: str, tell: "Tell" = lambda _, __: None) -> StoredSession:
        """Return the session that `text` describes, as `find_session.find` does.

        Raises `BadInput` if `text` is the name of a directory without a readable journal.
        """
        is_name = text and "/" not in text and text[0] != "."
        has_directory = is_name and os.path.isdir(self.root / text)
        if has_directory and not self.look_up(text):
            raise BadInput(
                f"there is no readable journal in {self.root / text}: check what "
                "happened to it"
            )
        from refold.journal import find_session

        return find_session.find(self, text, tell)

    def catalogue(
        self,
        tell: "Tell" = lambda _, __: None,
        notice: Callable[[str], None] = lambda _: None,
    ) -> "Catalogue":
        from refold.journal.catalogue.catalogue import Catalogue

        return Catalogue(self.root, self.path, tell=tell, notice=notice)

    def exists(self, session: str) -> bool:
        return os.path.isfile(self.location(session))

    def entries(
        self,
        session: str,
        known_head: tuple[int, str] = (0, ""),
        *,
        may_be_missing: bool = False,
    ) -> tuple[list[Entry], str]:
        from refold.journal.store.tree_reader import entries_in

        return entries_in(self.path(session), known_head, may_be_missing=may_be_missing)

    def history(self, session: str, *, up_to: int | None = None) -> EventHistory:
        from refold.journal.store.tree_reader import history_in

        path = self.path(session)
        with as_journal_errors("read", path):
            return history_in(path, self.root / log_file.VIEWS_KEY_FILE, up_to)

    def mentions(self, session: str, text: bytes) -> bool:
        """Whether the journal contains `text` anywhere."""
        try:
            return text in Path(self.location(session)).read_bytes()
        except FileNotFoundError:  # it was deleted in the meantime
            return False

    def directories(self, session: str) -> SessionDirectories:
        return current_directories(self.path(session))

    def first_directory(self, session: str) -> str:
        return first_directory(self.path(session))

    def tree(self, session: str) -> "Node":
        from refold.journal.store.tree_reader import tree

        return tree(self.path(session), session)

    def follow(self, session: str, address: str) -> "TreeFollower":
        from refold.journal.store.tree_reader import JournalLines, TreeFollower

        return TreeFollower(JournalLines(self.path(session)), address)

    def children(self, session: str) -> Sequence[str]:
        from refold.journal.store.tree_reader import children_in

        return list(children_in(self.path(session)))

    def blob(self, session: str, name: str) -> bytes:
        return BlobFiles(self.path(session), Disk()).get(name)

    def refuse_links(self, session: str) -> None:
        """Raise `BadInput` if a link is part of the session's path."""
        path = self.path(session)
        above = [parent for parent in path.parents if parent.is_relative_to(self.root)]
        for place in (path / log_file.FILE_NAME, path, *above):
            if place.is_symlink():
                raise BadInput(
                    f"{place} is a link, and no session is read, copied or deleted through "
                    "one: put there what it leads to (only REFOLD_HOME itself may be a link)"
                )

    def writer(self, session: str) -> SessionWriter | None:
        """Return the process that has the session open; None if none is known."""
        from refold.journal.store.tree_reader import is_written

        path = self.path(session)
        if not is_written(path):
            return None
        writer = writer_lock.read(path).writer
        return SessionWriter(writer.pid, writer.host, writer_lock.describe_holder(writer))

    def is_locked_by(self, session: str, pid: int) -> bool:
        return writer_lock.is_locked_by(pid, self.path(session) / log_file.FILE_NAME)

    def location(self, session: str) -> str:
        return str(self.path(session) / log_file.FILE_NAME)

    def leftovers(self) -> Sequence[str]:
        from refold.journal.store.delete import leftovers

        return leftovers(self.root)

    def remember_time(self, session: str) -> Callable[[], None]:
        """Return a function that restores the present times of the journal."""
        file = self.location(session)
        before = os.stat(file)

        def restore() -> None:
            with suppress(OSError):
                os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

        return restore

    def fork(self, session: str, up_to: int | None, now: float) -> "Fork":
        from refold.journal.fork import fork

        return fork(self, session, up_to, now)

    def importing(self) -> "nullcontext[JournalDirectory]":
        """Return a context with this directory itself, because imports go straight into it."""
        return nullcontext(self)

    def check(self, session: str) -> "JournalCheck":
        from refold.journal.store.check import check

        return check(self.path(session))

    def pack(self, session: str, *, children: bool = True) -> "SessionPacker":
        from refold.journal.bundle.pack import SessionPacker

        path = self.path(session)
        with as_journal_errors("read", path):
            return SessionPacker(path, session, children=children)

    def size(self, session: str) -> "SessionSize":
        from refold.journal.store.delete import session_size

        return session_size(self.root, self.path(session))

    def delete(self, session: str) -> None:
        from refold.journal.store.delete import delete

        delete(self.root, self.path(session))

    def look_up(self, session: str) -> StoredSession | None:
        path = self.path(session)
        stamp = stamp_of(path / log_file.FILE_NAME)
        return StoredSession(session, stamp.mtime_seconds) if stamp else None


def random_id(started_at: float) -> str:
    """Return an id for a session that begins at `started_at`, in seconds since 1970."""
    tail = "".join(ID_LETTERS[byte % len(ID_LETTERS)] for byte in os.urandom(4))
    return f"{strftime('%Y%m%d-%H%M%S', gmtime(started_at))}-{tail}"


class _DirectoryMatcher:
    """Checks whether paths mean one directory.

    Results are cached, because many sessions have the same path.
    """

    def __init__(self, directory: Path) -> None:
        self._real = os.path.realpath(directory)
        self._same = {"": False, self._real: True}

    def matches(self, directory: str) -> bool:
        """Whether `directory` is the same directory, also by a symbolic link."""
        if directory not in self._same:
            self._same[directory] = os.path.realpath(directory) == self._real
        return self._same[directory]


def first_directory(path: Path) -> str:
    """Return the directory that the first line of a session names; "" if the line is
    unreadable.
    """
    try:
        started = _first_event(path)
    except WrongFormat as error:
        return error.directory
    return started.directory if started else ""


def _first_event(path: Path) -> SessionStarted | None:
    """Return the event of a session's first line; None if it is unreadable. Raises
    `WrongFormat`.
    """
    try:
        with (path / log_file.FILE_NAME).open("rb") as file:
            line = file.readline(MAX_START_BYTES)
        entry, _ = next(codec.decode([line.removesuffix(b"\n")]))
    except WrongFormat:
        raise
    except (OSError, Corrupt, DecodeError):
        return None
    return entry.event if isinstance(entry.event, SessionStarted) else None


def _has_no_user(path: Path) -> bool:
    """Whether a session never had a user.

    That is so for a session that checks claims, and for a scheduled run that was never resumed.
    """
    try:
        started = _first_event(path)
    except WrongFormat:
        return False
    if started is None:  # its first line cannot be read
        return False
    if not started.schedule:
        return bool(started.checks)
    try:
        with (path / log_file.FILE_NAME).open("rb") as file:
            return not any(b'"kind":"SessionResumed"' in line for line in file)
    except OSError:
        return True


def current_directory(path: Path) -> str:
    """Return the current working directory of a session; "" if its journal cannot be read."""
    return current_directories(path).directory


def _has_message(path: Path) -> bool:
    """Whether the session has a message. A long session is assumed to have one."""
    try:
        with (path / log_file.FILE_NAME).open("rb") as file:
            start = file.read(_START_BYTES)
    except OSError:
        return False
    return len(start) == _START_BYTES or b'"kind":"Said"' in start


# Lines of these kinds name a directory. The same text may occur in the arguments of a call.
_DIRECTORY_PATTERN = rb'"kind":"(?:SessionResumed|Imported)"'


def current_directories(session: Path) -> SessionDirectories:
    """Return the current directories of a session; empty if its journal cannot be read.

    Settings, trust and the workspace depend on these directories, so they are needed before the
    session is opened. The chain is not checked.
    """
    try:
        with (
            (session / log_file.FILE_NAME).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return directories_of(_directory_events(data))
    except (OSError, ValueError):  # missing or empty
        return SessionDirectories()


def directories_of(events: Iterable[Event]) -> SessionDirectories:
    """Return the current directories according to `events`.

    `events` are those that name directories, the newest first.
    """
    directory, roots = "", None
    for event in events:
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


def _directory_events(data: mmap.mmap) -> Iterator[Event]:
    """Yield the events of all lines that name a directory, the newest first. The first line is
    always among them.
    """
    line_starts = {0}
    for match in re.finditer(_DIRECTORY_PATTERN, data):
        line_starts.add(data.rfind(b"\n", 0, match.start()) + 1)
    for start in sorted(line_starts, reverse=True):
        end = data.find(b"\n", start)
        if end < 0:  # an incomplete line
            continue
        event = codec.decode_unchecked(data[start:end])
        if event is not None:
            yield event
