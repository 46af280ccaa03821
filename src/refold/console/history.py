"""The history of typed lines, which is saved in a file and used for suggestions.

Several processes share the file: each appends complete entries. A line that seems to contain a
key is not saved, and is available only in this process.
"""

import fcntl
import os
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from prompt_toolkit.auto_suggest import AutoSuggest, Suggestion
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.history import History, InMemoryHistory

from refold.safe_open import create_file, open_checked

_MIN_TYPED_CHARS = 2  # a single character is not enough for a suggestion
_MAX_ENTRY_CHARS = 10_000  # the length of an entry
_MAX_FILE_BYTES = 1_000_000  # if the file is larger, its older half is dropped


def open_history(
    path: Path | None,
    restore_pastes: Callable[[str], str],
    mask_secrets: Callable[[str], str],
) -> History:
    """Return the history in the file `path`. If it cannot be written, the history is not saved.

    Entries are saved with pasted text expanded by `restore_pastes`, and without secrets.
    """
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(open_checked(path, os.O_WRONLY | os.O_CREAT))
    except OSError:  # the disk is full or read-only; the history is only a convenience
        return InMemoryHistory()
    return _FileHistory(path, restore_pastes, mask_secrets)


class _FileHistory(History):
    """A history that is stored in a file.

    In the file, each entry is a line with the time, followed by the lines of the typed text.
    Each of these lines begins with a plus sign.
    """

    def __init__(
        self,
        path: Path,
        restore_pastes: Callable[[str], str],
        mask_secrets: Callable[[str], str],
    ) -> None:
        super().__init__()
        self._path = path
        self._restore_pastes, self._mask_secrets = restore_pastes, mask_secrets

    def load_history_strings(self) -> Iterable[str]:
        """Return the entries, newest first; none if the file cannot be read."""
        try:
            return reversed(_parse_entries(self._read_bounded()))
        except OSError:
            return ()

    def store_string(self, string: str) -> None:
        """Append an entry with its secrets masked. An entry that is too long is not stored."""
        text = self._restore_pastes(string)
        if len(text) > _MAX_ENTRY_CHARS:
            return
        lines = "".join(f"+{line}\n" for line in self._mask_secrets(text).split("\n"))
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        entry = f"\n# {when}\n{lines}".encode(errors="replace")
        try:
            with _open_locked(self._path) as file:
                os.write(file, entry)
        except OSError:  # the line is still available in this session
            return

    def _read_bounded(self) -> bytes:
        """Return the content of the file.

        If the file is too large, reduce it to its newer half.
        """
        with _open_locked(self._path) as file:
            size = os.fstat(file).st_size
            content = os.pread(file, size, 0)
            if size <= _MAX_FILE_BYTES:
                return content
            newer_half = content[size - _MAX_FILE_BYTES // 2 :]
            # It begins with the rest of an entry. If no entry begins in it, all of it is kept.
            first_entry = newer_half.find(b"\n\n") + 1
            newer_entries = newer_half[first_entry:]
            newer_file = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            newer_file.unlink(missing_ok=True)
            create_file(newer_file, newer_entries)
            newer_file.replace(self._path)
            return newer_entries


class HistorySuggester(AutoSuggest):
    """Suggests the rest of the newest line that begins like the typed text."""

    def get_suggestion(self, buffer: Buffer, document: Document) -> Suggestion | None:
        """Return the rest of a line of which the user has typed the beginning, or None.

        The line is the first line of the newest history entry that begins with the typed
        text.
        """
        typed = document.text
        if len(typed) < _MIN_TYPED_CHARS or "\n" in typed:
            return None
        if not document.is_cursor_at_the_end:
            return None
        for entry in reversed(buffer.history.get_strings()):
            if entry.startswith(typed):
                rest = entry[len(typed) :].partition("\n")[0]
                if rest and rest.isprintable():
                    return Suggestion(rest)
        return None


@contextmanager
def _open_locked(path: Path) -> Generator[int]:
    """Open the file for reading and appending, and lock it against other refold processes."""
    while True:
        file = open_checked(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                # another process may have replaced the file before it was locked
                is_same_file = os.path.samestat(os.fstat(file), path.lstat())
            except FileNotFoundError:
                is_same_file = False
            if is_same_file:
                yield file
                return
        finally:
            os.close(file)


def _parse_entries(content: bytes) -> list[str]:
    """Return the entries, oldest first. An incomplete entry ends where the next one begins.

    The lines of an entry begin with "+".
    """
    entries = list[str]()
    lines = list[str]()
    file_lines = content.decode(errors="replace").split("\n")
    for line in [*file_lines, ""]:  # the empty line ends the last entry
        if line.startswith("+"):
            lines.append(line[1:])
        elif lines:
            entries.append("\n".join(lines))
            lines = []
    return entries
