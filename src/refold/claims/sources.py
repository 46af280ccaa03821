"""Reads what claims are checked against: journals of the session and its subagents, and files.

Journals are read from the disk without a lock, while they may be written. Only subagents and
files that a journal names are read, so that a claim cannot be used to learn the content of
other files.
"""

import os
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from refold.claims.observed import SessionRecord
from refold.claims.passages import Passage, passage
from refold.errors import JournalError, ToolFailed
from refold.journal.events.child_events import ChildBorn, ChildEnded
from refold.journal.events.kinds import Entry
from refold.journal.session_index import SessionIndex
from refold.place.port import MAX_FILE_BYTES, Files
from refold.tools.text_files import decode_text
from refold.values.printable_names import escape_name

_NAME_PATTERN = re.compile(r"child-\d{1,6}")
_MAX_DEPTH = 16
_MAX_SESSIONS = 1_000


def records(
    sessions: SessionIndex, session: str, entries: Sequence[Entry]
) -> list[SessionRecord]:
    """Return the records of a session, whose entries are given, and of all its subagents."""
    result = [SessionRecord(entries, blob=_blobs(sessions, session))]
    waiting = list(_list_subagents(sessions, session, entries))
    while waiting and len(result) < _MAX_SESSIONS:
        child, head = waiting.pop(0)
        child_session = f"{session}/{child}"
        child_entries, damage = sessions.entries(child_session, head)
        blob = _blobs(sessions, child_session)
        result.append(SessionRecord(child_entries, child, blob, damage))
        if child.count("/") < _MAX_DEPTH:
            waiting += _list_subagents(sessions, session, child_entries, child)
    return result


def _list_subagents(
    sessions: SessionIndex, session: str, entries: Sequence[Entry], name: str = ""
) -> list[tuple[str, tuple[int, str]]]:
    """Return the name of each subagent, and the number and hash of its last event.

    Number and hash are (0, "") if the subagent has not ended. `name` is the subagent that
    started the returned ones; "" for the session itself.
    """
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
    """Return a function that returns a blob of the session, or None if it cannot be read."""

    def get(name: str) -> bytes | None:
        try:
            return sessions.blob(session, name)
        except JournalError:
            return None

    return get


class CurrentFile(Struct, frozen=True):
    """The current state of a file.

    `words` is the text of the file; None if the file is gone, unreadable or not text. `why`
    is the reason why a file that exists has no `words`.
    """

    kind: Literal["file", "gone", "unreadable"]
    sha256: str = ""
    words: Passage | None = None
    why: str = ""
    touched: float = 0.0  # the file's ctime, which programs cannot set


class CurrentFiles:
    """Reads the current files, each only once."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._read_files = dict[str, CurrentFile]()

    def real(self, path: str, directories: Sequence[str]) -> tuple[str, ...]:
        """Return the real paths, in printable form, that `path` may mean. Raises `ToolFailed`.

        A relative path may start in any of `directories`.
        """
        bases = directories if not os.path.isabs(path) else ("/",)
        paths = [escape_name(self._files.real(os.path.join(base, path))) for base in bases]
        return tuple(dict.fromkeys(paths))

    def read_file(self, path: str) -> CurrentFile:
        """Return the file at a path that `real` returned."""
        if path not in self._read_files:
            self._read_files[path] = self._read(path)
        return self._read_files[path]

    def _read(self, path: str) -> CurrentFile:
        """Return the current state of the file at this real path, in printable form."""
        try:
            real = self._files.real(path)
            if escape_name(real) != path:
                return CurrentFile("unreadable", why="a link leads elsewhere by now")
            if self._files.kind(real) == "nothing":
                return CurrentFile("gone")
            status = os.lstat(real)
            if status.st_size > MAX_FILE_BYTES:
                return CurrentFile("unreadable", why="it is too large to be looked through")
            content = self._files.read(real)
        except ToolFailed as error:
            return CurrentFile("unreadable", why=str(error).rstrip("."))
        except OSError as error:
            return CurrentFile("unreadable", why=error.strerror or "it cannot be read")
        text = decode_text(content)
        current = CurrentFile("file", sha256(content).hexdigest(), touched=status.st_ctime)
        if text is None or content.startswith(b"%PDF-"):
            return replace(current, why="it is not text")
        return replace(current, words=passage(text.plain))
