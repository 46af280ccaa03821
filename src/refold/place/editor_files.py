"""Reads and writes files that may be open in an editor, with the editor's unsaved text.

Implements `port.Files` over `files.DiskFiles`; `acp` implements `port.Editor`. The editor is
only asked for files that a call names and that are UTF-8, in the workspace and at most 1 MB.
Searches and commands use the disk.

An editor opens files by path, so it must not write while a command runs that could replace a
folder by a link. `EditorGate` prevents that.
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
    MAX_FILE_BYTES,
    Editor,
    Files,
    FileWrite,
    Real,
    Why,
)
from refold.values.text import clean

# the clock of a file system may be late by less than this
_CLOCK_LAG_NANOSECONDS = 50_000_000
# An answer of the editor is one line, so larger files are not requested.
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
_UNSAVED_NOTICE = (
    "the editor does not save {name}: a checkpoint has only the text on the disk"
)
_BY_DISK = "{name} was written to the disk and not by the editor: {error}"
_EDITOR_REFUSED = (
    "{name} has unsaved changes in the editor, and the editor cannot be asked to write it: "
    "{error}. Nothing was written. Ask the user to save it."
)
_CHANGED_MEANWHILE = "{name} changed in the meantime. Nothing was written."
_COMMAND_RUNS = "a command that can change files runs"


class EditorGate:
    """Keeps an editor from writing while a command runs that may change files.

    A command waits until the editor has written. If a command runs, the editor is not asked.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        # How many commands run, and how many `editing` blocks that yielded True.
        self._commands = self._editing = 0

    async def begin_command(self) -> None:
        while not self._try_begin_command():
            await to_thread.run_sync(self._wait_until_written, abandon_on_cancel=True)

    def end_command(self) -> None:
        with self._changed:
            self._commands -= 1

    @contextmanager
    def editing(self) -> Generator[bool]:
        """Yield whether no command runs. If so, new commands wait until the block ends."""
        with self._changed:
            is_alone = not self._commands
            if is_alone:
                self._editing += 1
        try:
            yield is_alone
        finally:
            with self._changed:
                if is_alone:
                    self._editing -= 1
                self._changed.notify_all()

    def _try_begin_command(self) -> bool:
        """Count a new command. Return False if the editor is writing now."""
        with self._changed:
            if self._editing:
                return False
            self._commands += 1
            return True

    def _wait_until_written(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._editing)


class _Text(Struct, frozen=True):
    """The editor's text of a file. `unsaved` means that the file on the disk differs.

    `editor_text` is the text as the editor returned it, `content` the same text as bytes, with
    the line ends of the file on the disk.
    """

    content: bytes
    editor_text: str
    unsaved: bool


class EditorFiles(FilesOver):
    """The files of `disk`, with the editor's text for the files in `named`."""

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
        self._remarks = dict[str, None]()

    def only(self, reals: Collection[str]) -> "EditorFiles":
        return EditorFiles(self._disk.only(reals), self._editor, self._gate, reals)

    def with_restrictions(self, why_unreadable: Why, why_hidden: Why) -> "EditorFiles":
        disk = self._disk.with_restrictions(why_unreadable, why_hidden)
        return EditorFiles(disk, self._editor, self._gate, self._named)

    def dry_run(self) -> Files:
        return DryRunFiles(self)

    def read(self, real: Real, at_most: int = MAX_FILE_BYTES) -> bytes:
        """Return the editor's unsaved text of a file; otherwise its content on the disk."""
        content = self._disk.read(real, at_most)
        text = self._editor_text(real, content)
        if text is None or not text.unsaved:
            return content
        if len(text.content) > at_most:
            raise ToolFailed(f"{self.display_name(real)} is too large to be read whole.")
        self._add_remark(_UNSAVED_TEXT, real)
        return text.content

    def put_all(self, puts: Sequence[FileWrite]) -> None:
        """Write a single new content through the editor, and all other changes to the disk."""
        check_masks(puts, self)
        # Several files must change together or not at all, and an editor does not guarantee
        # that.
        match puts:
            case [FileWrite(executable=None, content=bytes() as content) as file_write]:
                self._write_to_editor(file_write, content)
            case _:
                self._disk.put_all(puts)

    async def save_first(self) -> bool:
        return await to_thread.run_sync(self._save_all)

    def remarks(self) -> Sequence[str]:
        return tuple(self._remarks)

    def _save_all(self) -> bool:
        """Save the editor's text of all named files. Return whether any was unsaved."""
        any_unsaved = False
        for named in sorted(self._named):
            real = Real(named)
            try:
                if self.kind(real) != "file":
                    continue
                text = self._editor_text(real, self._disk.read(real))
                if text is None or not text.unsaved:
                    continue
                any_unsaved = True
                if not self._save(real, text):
                    self._add_remark(_UNSAVED_NOTICE, real)
            except ToolFailed:  # the call itself reports this error better
                continue
        return any_unsaved

    def _save(self, real: Real, text: _Text) -> bool:
        """Let the editor save its text. Return whether the file now has that text.

        Return False if a command runs that may change files, or the editor cannot write.
        """
        with self._gate.editing() as is_alone:
            if not is_alone or not self._editor.writes:
                return False
            self._disk.check_writable(real)
            self._editor.write(real, text.editor_text)
        return self._disk.read(real) == text.content

    def _write_to_editor(self, file_write: FileWrite, content: bytes) -> None:
        """Write one file through the editor, or to the disk if the editor cannot be asked."""
        real = file_write.real
        may_be_open = self._may_be_open(real) and _is_plain_utf8(content)
        if not may_be_open or not self._editor.writes:
            self._disk.put_all([file_write])
            return
        if file_write.expect:
            self._replace(file_write, content)
            return
        # A new file is created here, empty, because an editor could follow a link.
        empty_digest = _hash(b"")
        self._disk.put_all([FileWrite(real, b"", expect="", like=file_write.like)])
        try:
            self._replace(FileWrite(real, content, expect=empty_digest), content)
        except ToolFailed:
            with suppress(ToolFailed):
                self._disk.remove(real, expect=empty_digest)
            raise

    def _replace(self, file_write: FileWrite, content: bytes) -> None:
        """Let the editor write `content` to an existing file, or write it to the disk."""
        if not self._replace_in_editor(file_write, content):
            self._disk.put_all([file_write])

    def _replace_in_editor(self, file_write: FileWrite, content: bytes) -> bool:
        """Let the editor write `content` to an existing file. Return whether it did.

        Return False if the editor has no text of the file, or cannot write. Raises `ToolFailed`
        if the file differs from the expected one, or if the editor has unsaved text that a
        write to the disk would not change.
        """
        real = file_write.real
        saved = self._disk.read(real)
        with self._gate.editing() as is_alone:
            text = self._editor_text(real, saved)
            if text is None:
                return False
            name = self.display_name(real)
            if _hash(text.content) != file_write.expect:
                raise ToolFailed(_CHANGED_MEANWHILE.format(name=name))
            error = self._write_in_editor(real, content) if is_alone else _COMMAND_RUNS
            if not error:
                self._check_saved(real, saved, content)
                return True
            if text.unsaved:
                raise ToolFailed(_EDITOR_REFUSED.format(name=name, error=error))
            self._add_remark(_BY_DISK, real, error)
            return False

    def _write_in_editor(self, real: Real, content: bytes) -> str:
        """Let the editor write a file. Return "", or the reason why it did not."""
        self._disk.check_writable(real)
        try:
            self._editor.write(real, content.decode())
        except ToolFailed as error:
            return str(error)
        return ""

    def _check_saved(self, real: Real, before: bytes, content: bytes) -> None:
        """Add a remark if the file does not have the `content` that the editor accepted.

        `before` is what the file contained before.
        """
        current = self._disk.read(real)
        if current == content:
            return
        remark = _SAVED_OTHER_TEXT
        if current == before:
            with suppress(ToolFailed):
                if _is_same_text(content.decode(), self._editor.read(real)):
                    remark = _HELD_BY_EDITOR
        self._add_remark(remark, real)

    def _editor_text(self, real: Real, content: bytes) -> _Text | None:
        """Return the editor's text of a file; None if the editor cannot provide it.

        `content` is the content of the file on the disk. A failure of the editor adds a remark.
        """
        if not self._may_be_open(real) or not _is_plain_utf8(content):
            return None
        try:
            text = self._read(real)
            if text is None:
                self._add_remark(_FOLDERS_CHANGING, real)
                return None
            saved = content.decode()
            # some editors answer this for a file that they cannot read
            if saved and not text:
                raise ToolFailed("it gave an empty text")
            if _is_same_text(saved, text):
                return _Text(content, text, unsaved=False)
            text_with_line_ends = text
            if "\r\n" in saved and "\r" not in text:  # the editor has normalized line ends
                text_with_line_ends = text.replace("\n", "\r\n")
            return _Text(text_with_line_ends.encode(), text, unsaved=True)
        except (ToolFailed, UnicodeEncodeError) as error:
            self._add_remark(_EDITOR_SILENT, real, str(error))
            return None

    def _read(self, real: Real) -> str | None:
        """Return the editor's text of a file, even while a command runs.

        Return None if a folder of the path has changed meanwhile, so that the text may be that
        of another file. Raises `ToolFailed`.
        """
        with self._gate.editing() as is_alone:
            if is_alone:
                self._disk.path_stamps(real)  # raises an error for a link
                return self._editor.read(real)
        # If a folder on the path is replaced by a link, the time of its parent folder
        # changes. A second change soon after the first may leave the same time.
        now = time.time_ns()
        stamps = self._disk.path_stamps(real)
        newest_change = max(changed for _, _, changed in stamps)
        if now - newest_change < _CLOCK_LAG_NANOSECONDS:
            return None
        text = self._editor.read(real)
        return text if self._disk.path_stamps(real) == stamps else None

    def _may_be_open(self, real: Real) -> bool:
        """Whether a file may be open in the editor, so that the editor is asked for it.

        The call must name the file, and the path must be in the workspace and printable.
        """
        return (
            real in self._named and self._disk.is_within_roots(real) and clean(real) == real
        )

    def _add_remark(self, sentence: str, real: Real, error: str = "") -> None:
        notice = sentence.format(name=self.display_name(real), error=error.rstrip("."))
        self._remarks[notice] = None


def _is_plain_utf8(content: bytes) -> bool:
    """Whether `content` is UTF-8 without zero bytes and byte order mark, and not too large."""
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
    """Whether two texts are equal, apart from their kind of line ends and a last line end.

    Editors normalize line ends, and some drop the last one.
    """
    if saved_text == text:
        return True
    return _normalize_line_ends(saved_text) == _normalize_line_ends(text)


def _normalize_line_ends(text: str) -> str:
    return re.sub(r"\r\n?", "\n", text).removesuffix("\n")
