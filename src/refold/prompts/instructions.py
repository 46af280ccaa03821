"""Reads a project's instructions for agents: AGENTS.md and similar files, and what they import.

A problem with one file becomes a sentence for the user, and the other files are used. `app`
decides whether a folder is trusted, and `system_text` how much of the text is sent.

Instructions of subfolders are found later, during the session. They are recorded as an event
(`InstructionsFound`) and added to the next request as a note. They do not become part of the
system prompt, because a change to it would invalidate prompt caches.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

from refold.prompts.read_text import Unreadable, content_at, remove_invisible, text_of
from refold.prompts.repository import folder_chain
from refold.prompts.system_text import PromptFile
from refold.values.printable_names import escape_name
from refold.values.text import TrustedText, trust_unchanged

OWN_FILE = "AGENTS.md"
# Of each folder, the first file that exists is used.
FILE_NAMES = (
    OWN_FILE, "CLAUDE.md", ".refold/context.md", ".agent0/context.md", ".cursorrules",
    ".github/copilot-instructions.md", "GEMINI.md",
)  # fmt: skip
MAX_FILE_BYTES = 32 * 1024  # of one file
MAX_IMPORT_DEPTH = 5  # imports within imports
_MAX_FILES = 100
_MAX_TOTAL_BYTES = 256 * 1024  # of all files
_MAX_NOTICES = 8
_MAX_IMPORTS = 1_000  # in all files together, that are searched
_MAX_PATH_CHARS = 1_000  # of a path that is searched
_MAX_NAME_CHARS = 120  # of a file that is passed to the model
WhyUnreadable = Callable[[str], str]  # why a file may not be read, or ""


class InstructionFile(Struct, frozen=True):
    """A file of instructions. Links in its path may not leave the folder `within`.

    Messages show the path relative to the folder `near`, or all of it if `near` is "".
    """

    path: str
    within: str
    near: str = ""

    @property
    def display_name(self) -> str:
        path = os.path.relpath(self.path, self.near) if self.near else self.path
        name = escape_name(path)
        return name if len(name) <= _MAX_NAME_CHARS else f"…{name[1 - _MAX_NAME_CHARS :]}"

    @property
    def real(self) -> str:
        return os.path.realpath(self.path)


class Instructions(Struct, frozen=True):
    """The texts of instruction files. `notices` are sentences for the user about omitted text."""

    pieces: tuple[PromptFile, ...] = ()
    notices: tuple[str, ...] = ()


def project_instructions(directory: str, root: str) -> tuple[InstructionFile, ...]:
    """Return the instruction file of each folder from `root` down to `directory`.

    Folders without such a file are skipped. Both paths must be real paths.
    """
    files = list[InstructionFile]()
    for folder in folder_chain(directory, root):
        paths = (os.path.join(folder, name) for name in FILE_NAMES)
        if path := next((p for p in paths if os.path.lexists(p)), ""):
            files.append(InstructionFile(path, root, directory))
    return tuple(files)


def read(
    files: Iterable[InstructionFile],
    home: str,
    why_unreadable: WhyUnreadable,
    trusted: TrustedText = trust_unchanged,
) -> Instructions:
    """Read these files and the files that they import, each once.

    An imported file comes before the file that imports it. The total size of the texts is
    limited. The last of `files` are the nearest, so they get space first. `home` replaces `~`
    in imports. `why_unreadable` returns why a path may not be read, or "".
    """
    reading = _Reading(home, why_unreadable, trusted)
    nearest_first = [reading.read_file(file) for file in reversed(tuple(files))]
    pieces = tuple(
        piece for pieces_of_file in reversed(nearest_first) for piece in pieces_of_file
    )
    return Instructions(pieces, reading.notices())


class _Unknown(Exception):
    """Raised if the user has trusted no version of a file. Such a file gets no notice."""


class _Reading:
    """Reads the files of one call of `read`, and counts their number and size."""

    def __init__(
        self, home: str, why_unreadable: WhyUnreadable, trusted: TrustedText
    ) -> None:
        self._home = home
        self._why_unreadable = why_unreadable
        self._trusted = trusted
        self._pieces = list[PromptFile]()
        self._notices = list[str]()
        self._seen = set[str]()  # real paths
        self._bytes = 0  # of all files that were read
        self._imports = 0  # number of imports so far
        self._full = ""  # a notice, once a limit is reached

    def notices(self) -> tuple[str, ...]:
        """Return the first `_MAX_NOTICES` notices, and the number of the others."""
        notices = tuple(dict.fromkeys(self._notices))
        omitted = len(notices) - _MAX_NOTICES
        if omitted > 1:  # a single one takes no more room than the summary
            summary = f"{omitted} more files of instructions have such problems"
            notices = (*notices[:_MAX_NOTICES], summary)
        return (*notices, self._full) if self._full else notices

    def read_file(self, file: InstructionFile) -> tuple[PromptFile, ...]:
        """Return the texts of the files that `file` imports, and then that of `file`.

        Files that were read before are left out.
        """
        self._pieces = list[PromptFile]()
        real = file.real
        if real not in self._seen:
            self._add_file(file, real, {})
        return tuple(self._pieces)

    def _add_file(
        self, file: InstructionFile, real: str, importers: Mapping[str, InstructionFile]
    ) -> None:
        """Read a file, and add the files that it imports and then the file itself.

        `importers` are the files whose imports led to this file, by real path. The last one
        imports the file itself.
        """
        if self._bytes >= _MAX_TOTAL_BYTES or len(self._seen) >= _MAX_FILES:
            self._full = self._full or (
                f"{file.display_name} and what comes after it is left out: instructions may be "
                f"{_MAX_FILES} files of {_MAX_TOTAL_BYTES // 1024} KiB together"
            )
            return
        self._seen.add(real)
        try:
            text, unread_chars = self._read(file, real)
        except _Unknown:
            return
        except FileNotFoundError:
            self._note_left_out(file, importers, "there is no such file")
            return
        except Unreadable as error:
            self._note_left_out(file, importers, str(error))
            return
        for name in imports(text):
            self._import(name, file, {**importers, real: file})
        if text.strip():
            self._pieces.append(
                PromptFile(text.strip("\n"), file.display_name, unread_chars)
            )

    def _read(self, file: InstructionFile, real: str) -> tuple[str, int]:
        """Return the version of a file's text that the user trusts.

        Also return how many characters were not read. Raises `Unreadable`, or `_Unknown` if the
        user trusts no version of the file.
        """
        if reason := self._why_unreadable(real):
            raise Unreadable(reason)
        # The resolved file, which may be read.
        content = content_at(real, file.within, MAX_FILE_BYTES)
        self._bytes += len(content.data)
        current = text_of(content)
        text = self._trusted(real, current)
        if text is None:
            raise _Unknown
        clean = remove_invisible(text)
        if text != current:  # an earlier version: what follows is about the present one
            return clean.text, 0
        if clean.hidden:
            self._notices.append(
                f"{file.display_name}: {clean.hidden:,} invisible characters were left out"
            )
        unread_chars = content.size - len(content.data)
        if unread_chars <= 0:
            return clean.text, 0
        self._notices.append(
            f"{file.display_name} is {content.size:,} bytes; its first {MAX_FILE_BYTES // 1024} KiB are read"
        )
        whole_lines = clean.text.rpartition("\n")[0] or clean.text
        return whole_lines, unread_chars + len(clean.text) - len(whole_lines)

    def _import(
        self, name: str, file: InstructionFile, importers: Mapping[str, InstructionFile]
    ) -> None:
        """Add the file that `name` imports. If that is impossible, say why in a notice.

        A name that may mean something else than a path gets no notice.
        """
        if self._full or len(name) > _MAX_PATH_CHARS:
            return
        self._imports += 1
        if self._imports > _MAX_IMPORTS:
            self._full = (
                f"what {file.display_name} imports from @{escape_name(name)[:80]} on is left out: "
                f"instructions may name {_MAX_IMPORTS:,} files"
            )
            return
        imported = InstructionFile(self._path(name, file), file.within, file.near)
        # A name with a NUL cannot be resolved; `content_at` refuses it.
        real = imported.real if "\0" not in name else name
        if not is_path(name) and not os.path.isfile(real):
            return
        if real in importers:
            circle = " imports ".join(
                x.display_name for x in (*importers.values(), imported)
            )
            self._notices.append(f"{circle}: this goes round, so the last is left out")
        elif real in self._seen:
            return
        elif len(importers) > MAX_IMPORT_DEPTH:
            deep = f"it is imported more than {MAX_IMPORT_DEPTH} files deep"
            self._note_left_out(imported, importers, deep)
        else:
            self._add_file(imported, real, importers)

    def _path(self, name: str, file: InstructionFile) -> str:
        if name.startswith("~/"):
            return os.path.join(self._home, name[2:])
        return os.path.normpath(os.path.join(os.path.dirname(file.path), name))

    def _note_left_out(
        self, file: InstructionFile, importers: Mapping[str, InstructionFile], reason: str
    ) -> None:
        """Add a notice that the file was left out, and why."""
        by = ""
        if importers:
            *_, importer = importers.values()
            by = f", which {importer.display_name} imports,"
        self._notices.append(f"{file.display_name}{by} is left out: {reason}")


_IMPORT_PATTERN = r"(?:^|(?<=[\s(]))@([^\s@`]+)"
_FENCE_PATTERN = r" {0,3}(`{3,}|~{3,})"
_TRAILING_CHARS = ".,;:!?)]}>\"'*_"
# An import in this form can only be a path; `@name` and `@scope/package` may mean something
# else.
_PATH_PATTERN = r"(?i)(?:\.{0,2}/|~/).+|.*\.(?:md|mdc|markdown|txt|rst|adoc)"


def imports(text: str) -> tuple[str, ...]:
    """Return the names that the text imports with `@`, in order and without repetition."""
    return tuple(dict.fromkeys(_imported_names(text)))


def is_path(name: str) -> bool:
    """Whether an imported name can only mean a path, so that a missing file deserves a notice."""
    return bool(re.fullmatch(_PATH_PATTERN, name))


def _imported_names(text: str) -> Iterator[str]:
    """Yield the name after each `@` that is not in code."""
    fence = ""  # that began the block of code in which the line is; "" outside of code
    for line in text.split("\n"):
        fence_match = re.match(_FENCE_PATTERN, line)
        if fence:
            if fence_match is None or not fence_match[1].startswith(fence):
                continue
            has_text_after = line[fence_match.end() :].strip()
            if not has_text_after:
                fence = ""
        elif fence_match and "`" not in line[fence_match.end() :]:
            fence = fence_match[1]
        elif "@" in line:
            for piece in _outside_code(line):
                for name in re.findall(_IMPORT_PATTERN, piece):
                    if stripped := name.rstrip(_TRAILING_CHARS):
                        yield stripped


def _outside_code(line: str) -> Iterator[str]:
    """Yield the pieces of a line that are not inline code."""
    pieces = re.split(r"(`+)", line)  # every second piece is a run of backticks
    last_index = {run: index for index, run in enumerate(pieces) if index % 2}
    index = 0
    while index < len(pieces):
        piece = pieces[index]
        is_run = index % 2 == 1
        if is_run and last_index[piece] > index:
            index = pieces.index(piece, index + 1)  # skip the code, up to an equal run
        elif not is_run:
            # Text right after code does not begin a word, so a backtick stays before it.
            yield piece if index == 0 else f"`{piece}"
        index += 1
