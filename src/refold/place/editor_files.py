"""Files while an editor has some of them open: its unsaved text counts, and it makes the changes.

Implements `port.Files` over `files.DiskFiles`, which decides what a path is and whether it may be
read; `acp` implements `port.Editor`. Only files that a call names, in the workspace, in plain
UTF-8, are asked of the editor, up to 1 MB; searches and commands see the disk. An editor opens
files by their paths, so it writes none while a command that could replace a folder by a link
runs: `EditorGate`.
"""

import re
import time
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from threading import Condition

from anyio import to_thread
from msgspec import Struct

from refold.errors import ToolFailed
from refold.place.dry_run import DryRunFiles, FilesOver
from refold.place.file_secrets import check_masks
from refold.place.files import DiskFiles
from refold.place.port import (
    AT_MOST,
    Editor,
    Files,
    FileWrite,
    Real,
    Why,
)
from refold.values.text import clean

_CLOCK_LAG_NANOSECONDS = 50_000_000  # more than the clock of a file system may be late
# Of a file requested from the editor: an answer is one line.
_MAX_EDITOR_FILE_BYTES = 1_000_000
_UTF8_BOM = b"\xef\xbb\xbf"

_EDITOR_SILENT = (
    "the editor did not give its text of {name} ({error}), so this is the saved text"
)
_FOLDERS_CHANGING = "a command that changes folders runs, so {name} was read from the disk"
_UNSAVED_TEXT = (
    "{name} has unsaved changes in the editor; commands and searches see the saved text"
)
_HELD_BY_EDITOR = (
    "the editor has not saved {name}; commands see the text before this change until then"
)
_SAVED_OTHER_TEXT = (
    "the editor saved {name} with other text than it was given: read it again"
)
_NOT_KEPT = "the editor does not save {name}: a checkpoint has only the text on the disk"
_BY_DISK = "{name} was written to the disk and not by the editor: {error}"
_EDITOR_REFUSED = (
    "{name} has unsaved changes in the editor, and the editor cannot be asked to write it: "
    "{error}. Nothing was written. Ask the user to save it."
)
_CHANGED_MEANWHILE = "{name} changed in the meantime. Nothing was written."


class EditorGate:
    """Commands that may change files, and an editor that writes, never run at the same time.

    A command waits while the editor writes. The editor does not wait: it is not asked then.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._commands = self._editing = 0

    async def begin_command(self) -> None:
        while not self._try_begin_command():
            await to_thread.run_sync(self._wait_until_written, abandon_on_cancel=True)

    def end_command(self) -> None:
        with self._changed:
            self._commands -= 1

    @contextmanager
    def editing(self) -> Generator[bool]:
        """Yield True if the editor may be asked; False while a command runs."""
        with self._changed:
            free = not self._commands
            self._editing += free
        try:
            yield free
        finally:
            with self._changed:
                self._editing -= free
                self._changed.notify_all()

    def _try_begin_command(self) -> bool:
        with self._changed:
            self._commands += not self._editing
            return not self._editing

    def _wait_until_written(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._editing)


class _Text(Struct, frozen=True):
    """A file as the editor has it. `said` is the text as the editor returned it."""

    content: bytes
    said: str
    unsaved: bool


class EditorFiles(FilesOver):
    """`disk`, with what the editor has of the files that a call names."""

    def __init__(
        self,
        disk: DiskFiles,
        editor: Editor,
        gate: EditorGate,
        named: Collection[str] = (),
    ) -> None:
        super().__init__(disk)
        self._disk, self._editor, self._gate = disk, editor, gate
        self._named = frozenset(named)
        self._said = dict[str, None]()

    def only(self, reals: Collection[str]) -> "EditorFiles":
        return EditorFiles(self._disk.only(reals), self._editor, self._gate, reals)

    def with_restrictions(self, why_unreadable: Why, why_hidden: Why) -> "EditorFiles":
        disk = self._disk.with_restrictions(why_unreadable, why_hidden)
        return EditorFiles(disk, self._editor, self._gate, self._named)

    def dry_run(self) -> Files:
        return DryRunFiles(self)

    def read(self, real: Real, at_most: int = AT_MOST) -> bytes:
        content = self._disk.read(real, at_most)
        text = self._editor_text(real, content)
        if text is None or not text.unsaved:
            return content
        if len(text.content) > at_most:
            raise ToolFailed(f"{self.display_name(real)} is too large to be read whole.")
        self._add_remark(_UNSAVED_TEXT, real)
        return text.content

    def put_all(self, puts: Sequence[FileWrite]) -> None:
        check_masks(puts, self)
        # Several files change together or not at all, which an editor does not guarantee.
        match puts:
            case [FileWrite(executable=None, content=bytes() as content) as file_write]:
                self._write_to_editor(file_write, content)
            case _:
                self._disk.put_all(puts)

    async def save_first(self) -> bool:
        return await to_thread.run_sync(self._save_all)

    def remarks(self) -> Sequence[str]:
        return tuple(self._said)

    def _save_all(self) -> bool:
        any_saved = False
        for named in sorted(self._named):
            real = Real(named)
            try:
                if self.kind(real) != "file":
                    continue
                text = self._editor_text(real, self._disk.read(real))
                if text is None or not text.unsaved:
                    continue
                any_saved = True
                if not self._save(real, text):
                    self._add_remark(_NOT_KEPT, real)
            except ToolFailed:  # the call itself reports it better
                continue
        return any_saved

    def _save(self, real: Real, text: _Text) -> bool:
        with self._gate.editing() as free:
            if not (free and self._editor.writes):
                return False
            self._disk.check_writable(real)
            self._editor.write(real, text.said)
        return self._disk.read(real) == text.content

    def _write_to_editor(self, file_write: FileWrite, content: bytes) -> None:
        asked = self._is_open_in_editor(file_write.real) and _is_plain_utf8(content)
        if not (asked and self._editor.writes):
            self._disk.put_all([file_write])
        elif file_write.expect:
            self._replace(file_write, content)
        else:  # created by us: an editor could follow a link
            self._disk.put_all([FileWrite(file_write.real, b"", "", file_write.like)])
            try:
                self._replace(FileWrite(file_write.real, content, _hash(b"")), content)
            except ToolFailed:
                with suppress(ToolFailed):
                    self._disk.remove(file_write.real, expect=_hash(b""))
                raise

    def _replace(self, file_write: FileWrite, content: bytes) -> None:
        saved = self._disk.read(file_write.real)
        with self._gate.editing() as free:
            text = self._editor_text(file_write.real, saved)
            if text is not None and _hash(text.content) != file_write.expect:
                raise ToolFailed(
                    _CHANGED_MEANWHILE.format(name=self.display_name(file_write.real))
                )
            if text is not None and free:
                error = self._write_in_editor(file_write.real, content)
                if not error:
                    self._check(file_write.real, saved, content)
                    return
            else:
                error = "a command that can change files runs"
        if text is not None:
            if text.unsaved:
                name = self.display_name(file_write.real)
                raise ToolFailed(_EDITOR_REFUSED.format(name=name, error=error))
            self._add_remark(_BY_DISK, file_write.real, error)
        self._disk.put_all([file_write])

    def _write_in_editor(self, real: Real, content: bytes) -> str:
        """Let the editor write the file. Return "", or why it did not."""
        self._disk.check_writable(real)
        try:
            self._editor.write(real, content.decode())
        except ToolFailed as error:
            return str(error)
        return ""

    def _check(self, real: Real, before: bytes, content: bytes) -> None:
        """Check that the text which the editor accepted was saved."""
        current = self._disk.read(real)
        if current == content:
            return
        try:
            unchanged = current == before and _is_same_text(
                content.decode(), self._editor.read(real)
            )
        except ToolFailed:
            unchanged = False
        self._add_remark(_HELD_BY_EDITOR if unchanged else _SAVED_OTHER_TEXT, real)

    def _editor_text(self, real: Real, content: bytes) -> _Text | None:
        """The editor's text of a file; None if it has none or cannot be asked."""
        if not self._is_open_in_editor(real) or not _is_plain_utf8(content):
            return None
        try:
            text = self._read(real)
            if text is None:
                self._add_remark(_FOLDERS_CHANGING, real)
                return None
            saved = content.decode()
            if saved and not text:  # the answer of some editors that cannot read it
                raise ToolFailed("it gave an empty text")
            if _is_same_text(saved, text):
                return _Text(content, text, unsaved=False)
            windows = "\r\n" in saved and "\r" not in text
            return _Text(
                (text.replace("\n", "\r\n") if windows else text).encode(),
                text,
                unsaved=True,
            )
        except (ToolFailed, UnicodeEncodeError) as error:
            self._add_remark(_EDITOR_SILENT, real, str(error))
            return None

    def _read(self, real: Real) -> str | None:
        """The editor's text; None if it may be that of another file."""
        with self._gate.editing() as free:
            if free:
                self._disk.path_stamps(real)  # raises for a link
                return self._editor.read(real)
        # Replacing a folder on the way by a link changes the time of the folder above.
        clock, before = time.time_ns(), self._disk.path_stamps(real)
        if clock - max(changed for _, _, changed in before) < _CLOCK_LAG_NANOSECONDS:
            return None
        text = self._editor.read(real)
        return text if self._disk.path_stamps(real) == before else None

    def _is_open_in_editor(self, real: Real) -> bool:
        return (
            real in self._named and self._disk.is_within_roots(real) and clean(real) == real
        )

    def _add_remark(self, sentence: str, real: Real, error: str = "") -> None:
        notice = sentence.format(name=self.display_name(real), error=error.rstrip("."))
        self._said[notice] = None


def _is_plain_utf8(content: bytes) -> bool:
    """Whether the file is plain UTF-8, whose bytes follow from the editor's text."""
    if len(content) > _MAX_EDITOR_FILE_BYTES:
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in content and not content.startswith(_UTF8_BOM)


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()


def _is_same_text(saved_text: str, text: str) -> bool:
    """Compare without line ends: editors normalize them, and some drop the last."""
    return saved_text == text or _normalize_line_ends(saved_text) == _normalize_line_ends(
        text
    )


def _normalize_line_ends(text: str) -> str:
    return re.sub(r"\r\n?", "\n", text).removesuffix("\n")
