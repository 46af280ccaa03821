"""The sources for checking claims: journals of the session and its subagents, and files.

Journals are read from the disk without a lock, while they may be written, and only those
of subagents that a journal names. Only files that the journal names are opened, so that a
claim cannot be used to learn what is in other files.
"""

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Literal

from msgspec import Struct

from refold.claims.observed import SessionRecord
from refold.claims.passages import Passage, passage
from refold.errors import JournalError, ToolFailed
from refold.journal.events.child_events import ChildBorn, ChildEnded
from refold.journal.events.kinds import Entry
from refold.journal.session_index import SessionIndex
from refold.place.port import AT_MOST, Files
from refold.tools.text_files import decode_text
from refold.values.printable_names import escape_name

_NAME_PATTERN = re.compile(r"child-\d{1,6}")
_MAX_DEPTH = 16
_MAX_SESSIONS = 1_000  # sessions


def records(
    sessions: SessionIndex, session: str, entries: Sequence[Entry]
) -> list[SessionRecord]:
    """The records of the session with these entries and of all its subagents."""
    result = [SessionRecord(entries, "", _blobs(sessions, session))]
    left = list(_list_subagents(sessions, session, entries))
    while left and len(result) < _MAX_SESSIONS:
        child, known = left.pop(0)
        below = f"{session}/{child}"
        child_entries, damage = sessions.entries(below, known)
        result.append(SessionRecord(child_entries, child, _blobs(sessions, below), damage))
        if child.count("/") < _MAX_DEPTH:
            left += _list_subagents(sessions, session, child_entries, child)
    return result


def _list_subagents(
    sessions: SessionIndex, session: str, entries: Sequence[Entry], name: str = ""
) -> list[tuple[str, tuple[int, str]]]:
    """The name of each subagent, and the head of its journal if it ended."""
    ends = {e.event.child: e.event.head for e in entries if isinstance(e.event, ChildEnded)}
    born = [e.event.child for e in entries if isinstance(e.event, ChildBorn)]
    # Subagents from before a fork are stored with the fork's source.
    stored = sessions.children(f"{session}/{name}" if name else session) if born else ()
    return [
        (f"{name}/{child}" if name else child, ends.get(child, (0, "")))
        for child in dict.fromkeys(born)
        if child in stored and _NAME_PATTERN.fullmatch(child)
    ]


def _blobs(sessions: SessionIndex, session: str) -> Callable[[str], bytes | None]:
    def get(name: str) -> bytes | None:
        try:
            return sessions.blob(session, name)
        except JournalError:
            return None

    return get


class CurrentFile(Struct, frozen=True):
    """A file as it is now. `words` is None if it is not text or unreadable; `why` says which."""

    kind: Literal["file", "gone", "unreadable"]
    sha256: str = ""
    words: Passage | None = None
    why: str = ""
    touched: float = 0.0  # its ctime, which programs cannot set


class CurrentFiles:
    """The current files; each is read once."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._looked = dict[str, CurrentFile]()

    def real(self, path: str, directories: Sequence[str]) -> tuple[str, ...]:
        """The printable paths that `path` may mean. Raises `ToolFailed` if invalid."""
        bases = directories if not os.path.isabs(path) else ("/",)
        paths = [escape_name(self._files.real(os.path.join(base, path))) for base in bases]
        return tuple(dict.fromkeys(paths))

    def read_file(self, path: str) -> CurrentFile:
        """The file at a path that `real` returned."""
        if path not in self._looked:
            self._looked[path] = self._read(path)
        return self._looked[path]

    def _read(self, path: str) -> CurrentFile:
        try:
            real = self._files.real(path)
            if escape_name(real) != path:
                return CurrentFile("unreadable", why="a link leads elsewhere by now")
            if self._files.kind(real) == "nothing":
                return CurrentFile("gone")
            about = os.lstat(real)
            if about.st_size > AT_MOST:
                return CurrentFile("unreadable", why="it is too large to be looked through")
            content, touched = self._files.read(real), about.st_ctime
        except ToolFailed as error:
            return CurrentFile("unreadable", why=str(error).rstrip("."))
        except OSError as error:
            return CurrentFile("unreadable", why=error.strerror or "it cannot be read")
        text = decode_text(content)
        current = partial(CurrentFile, "file", sha256(content).hexdigest(), touched=touched)
        if text is None or content.startswith(b"%PDF-"):
            return current(why="it is not text")
        return current(passage(text.plain))
