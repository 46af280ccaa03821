"""The sessions of this person: what they are called, and how one is found.

Paths and stores only: which directory they are in is `config.paths`' business, what
a session says `codec`'s. Nothing is made here; a session's directory comes with
its first line.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from time import gmtime, strftime

from msgspec import DecodeError, Struct

from refold.errors import BadInput, Corrupt
from refold.journal import codec, lines
from refold.journal.events import SessionStarted
from refold.journal.file import FileStore
from refold.journal.writers import Writers

_CHILD = re.compile(r"child-[1-9][0-9]{0,8}")
CHILDREN = "children"  # in the directory of their parent
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that looks like another
LONGEST_START = 64_000  # bytes; a first line longer than this names no directory
_BEGINS = 64 * 1024  # bytes of a session in which its first words stand


class Session(Struct, frozen=True):
    """A session that has at least begun. `changed`: when it was last written."""

    id: str
    path: Path
    changed: float


class Home:
    """The sessions under one directory, and the threads that serve them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._writers = Writers()

    def new_id(self, at: float) -> str:
        """An id for a session that begins at `at`: sorts by time, and is free."""
        while True:
            tail = "".join(LETTERS[byte % len(LETTERS)] for byte in os.urandom(4))
            name = f"{strftime('%Y%m%d-%H%M%S', gmtime(at))}-{tail}"
            if not (self.root / name).exists():
                return name

    def path(self, session: str) -> Path:
        """Where a session lies; a child's, whose id is "ROOT/child-1", below its parent."""
        root, *names = session.split("/")
        below = (part for name in names for part in (CHILDREN, name))
        return self.root.joinpath(root, *below)

    def store(self, session: str) -> FileStore:
        """The store of a session, there already or not."""
        return FileStore(self.path(session), self._writers)

    def sessions(self) -> Iterator[Session]:
        """All of them, the last written first. Looks at names and times only."""
        found = [each for name in self._names() if (each := self._session(name))]
        yield from sorted(found, key=lambda each: (each.changed, each.id), reverse=True)

    def newest_of(self, directory: Path) -> Session | None:
        """The session last written of those that were started in `directory`.

        One in which nothing was said counts only where there is no other.
        """
        wanted, silent = os.path.realpath(directory), None
        for session in self.sessions():
            started = started_in(session.path)
            if started and (started == wanted or os.path.realpath(started) == wanted):
                if _something_was_said(session.path):
                    return session
                silent = silent or session
        return silent

    def find(self, text: str) -> Session:
        """The session with this id, or the only one whose id begins so.

        A child's id goes on after that with its name: "ROOT/child-1/child-2".
        """
        root, *names = text.split("/")
        if root and names and _CHILD.fullmatch(names[0]):
            return self._below(self.find(root), names)
        if not text:
            raise BadInput("an empty text names no session: give an id or its beginning")
        names = self._names()
        like = [text] if text in names else [n for n in names if n.startswith(text)]
        found = [session for name in like if (session := self._session(name))]
        if not found:
            raise BadInput(_unknown(text, names))
        if len(found) > 1:
            few = ", ".join(sorted((each.id for each in found), reverse=True)[:3])
            raise BadInput(
                f"{text!r} is the beginning of {len(found)} sessions, among them {few}: "
                "give more of the id"
            )
        return found[0]

    def _below(self, session: Session, names: list[str]) -> Session:
        for name in names:
            found = (
                self._session(f"{session.id}/{name}") if _CHILD.fullmatch(name) else None
            )
            if found is None:
                raise BadInput(
                    f"the session {session.id} has no child {name!r} (`refold tree "
                    f"{session.id}` shows all)"
                )
            session = found
        return session

    def _names(self) -> list[str]:
        try:
            with os.scandir(self.root) as found:
                return [
                    each.name for each in found if each.is_dir() and each.name[0] != "."
                ]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BadInput(
                f"the sessions in {self.root} cannot be listed: {error.strerror}; make it "
                "readable, or set REFOLD_HOME to another directory"
            ) from error

    def _session(self, name: str) -> Session | None:
        path = self.path(name)
        try:
            return Session(name, path, (path / lines.NAME).stat().st_mtime)
        except OSError:  # no session, or one that is just being deleted
            return None


def started_in(path: Path) -> str:
    """The directory that the first line of a session names."""
    try:
        with (path / lines.NAME).open("rb") as file:
            line = file.readline(LONGEST_START)
        entry, _ = next(codec.decode([line.removesuffix(b"\n")]))
    except (OSError, Corrupt, DecodeError):
        return ""
    return entry.event.directory if isinstance(entry.event, SessionStarted) else ""


def _something_was_said(path: Path) -> bool:
    """Does it stand near the beginning that somebody spoke? A long session did something."""
    try:
        with (path / lines.NAME).open("rb") as file:
            begins = file.read(_BEGINS)
    except OSError:
        return False
    return len(begins) == _BEGINS or b'"kind":"Said"' in begins


def _unknown(text: str, names: list[str]) -> str:
    from difflib import get_close_matches  # only for this sentence

    near = get_close_matches(text, sorted(names, reverse=True), 1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"there is no session {text!r}{hint} (`refold sessions list` shows all)"
