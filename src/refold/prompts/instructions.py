"""The instructions of a project for agents: AGENTS.md and similar files, and what they import.

The files are read as untrusted: a problem with one becomes a sentence for the user, and the others
count all the same. `app` decides whether a folder is trusted, and `system_text` how much of the
text is sent.

Instructions of folders below are an event and a note to the next request
(`InstructionsFound`). The system prompt stays as it was, so that prompt caches stay valid.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

from refold.prompts.read_text import Unreadable, cleaned, content_at, text_of
from refold.prompts.repository import chain
from refold.prompts.system_text import PromptFile
from refold.values.printable_names import escaped
from refold.values.text import TrustedText, as_it_is

OWN = "AGENTS.md"
# Of each folder the first that is there.
NAMES = (
    OWN, "CLAUDE.md", ".refold/context.md", ".agent0/context.md", ".cursorrules",
    ".github/copilot-instructions.md", "GEMINI.md",
)  # fmt: skip
LARGEST = 32 * 1024  # bytes of one file
DEEPEST = 5  # imports within imports
_MOST_FILES = 100
_MOST_BYTES = 256 * 1024  # of all files
_MOST_NOTICES = 8
_MOST_IMPORTS = 1_000  # that are looked for, in all files
_LONGEST = 1_000  # letters of a path that is looked for
_LONGEST_CALLED = 120  # letters of one that is told
Unread = Callable[[str], str]  # why a file may not be read, or ""


class InstructionFile(Struct, frozen=True):
    """A file of instructions. Its links may not lead out of `within`.

    It is called by its way from the folder `near`; where that is "", by its whole path.
    """

    path: str
    within: str
    near: str = ""

    @property
    def called(self) -> str:
        way = os.path.relpath(self.path, self.near) if self.near else self.path
        called = escaped(way)
        most = _LONGEST_CALLED
        return called if len(called) <= most else f"…{called[1 - most :]}"

    @property
    def real(self) -> str:
        return os.path.realpath(self.path)


class Instructions(Struct, frozen=True):
    """`notices` are sentences for the user: what was left out, and why."""

    pieces: tuple[PromptFile, ...] = ()
    notices: tuple[str, ...] = ()


def of_project(directory: str, root: str) -> tuple[InstructionFile, ...]:
    """Those from `root` down to `directory`, the nearest last. Both are real paths."""
    found = list[InstructionFile]()
    for folder in chain(directory, root):
        paths = (os.path.join(folder, name) for name in NAMES)
        if path := next((p for p in paths if os.path.lexists(p)), ""):
            found.append(InstructionFile(path, root, directory))
    return tuple(found)


def read(
    files: Iterable[InstructionFile],
    home: str,
    unread: Unread,
    trusted: TrustedText = as_it_is,
) -> Instructions:
    """Read these files and what they import, each once. What a file imports comes right
    before it.

    The nearest are read first, so that they have room before the others. `home` is the
    meaning of `~`.
    """
    reading = _Reading(home, unread, trusted)
    told = [reading.told_of(file) for file in reversed(tuple(files))]
    pieces = tuple(piece for each in reversed(told) for piece in each)
    return Instructions(pieces, reading.notices())


class _Unknown(Exception):
    """The user has seen no version of the file: who knows the versions says so."""


class _Reading:
    def __init__(self, home: str, unread: Unread, trusted: TrustedText) -> None:
        self._home, self._unread, self._trusted = home, unread, trusted
        self._pieces = list[PromptFile]()
        self._notices = list[str]()
        self._seen = set[str]()  # real paths
        self._bytes, self._imports, self._full = 0, 0, ""

    def notices(self) -> tuple[str, ...]:
        said = tuple(dict.fromkeys(self._notices))
        more = len(said) - _MOST_NOTICES
        if more > 1:
            rest = f"{more} more files of instructions have such problems"
            said = (*said[:_MOST_NOTICES], rest)
        return (*said, self._full) if self._full else said

    def told_of(self, file: InstructionFile) -> tuple[PromptFile, ...]:
        """A file, after what it imports; nothing of what was read already."""
        self._pieces = list[PromptFile]()
        real = file.real
        if real not in self._seen:
            self._take(file, real, {})
        return tuple(self._pieces)

    def _take(
        self, file: InstructionFile, real: str, importers: Mapping[str, InstructionFile]
    ) -> None:
        """`importers` are by their real paths."""
        if self._bytes >= _MOST_BYTES or len(self._seen) >= _MOST_FILES:
            self._full = self._full or (
                f"{file.called} and what comes after it is left out: instructions may be "
                f"{_MOST_FILES} files of {_MOST_BYTES // 1024} KiB together"
            )
            return
        self._seen.add(real)
        try:
            text, more = self._read(file, real)
        except _Unknown:
            return
        except FileNotFoundError:
            self._say(file, importers, "there is no such file")
            return
        except Unreadable as error:
            self._say(file, importers, str(error))
            return
        for name in imports(text):
            self._import(name, file, {**importers, real: file})
        if text.strip():
            self._pieces.append(PromptFile(text.strip("\n"), file.called, more))

    def _read(self, file: InstructionFile, real: str) -> tuple[str, int]:
        if reason := self._unread(real):
            raise Unreadable(reason)
        found = content_at(real, file.within, LARGEST)  # the one that may be read
        self._bytes += len(found.data)
        now = text_of(found)
        text = self._trusted(real, now)
        if text is None:
            raise _Unknown
        clean = cleaned(text)
        if text != now:
            return clean.text, 0
        if clean.hidden:
            self._notices.append(
                f"{file.called}: {clean.hidden:,} invisible characters were left out"
            )
        more = found.size - len(found.data)
        if more <= 0:
            return clean.text, 0
        self._notices.append(
            f"{file.called} is {found.size:,} bytes; its first {LARGEST // 1024} KiB are read"
        )
        whole_lines = clean.text.rpartition("\n")[0] or clean.text
        return whole_lines, more + len(clean.text) - len(whole_lines)

    def _import(
        self, name: str, file: InstructionFile, importers: Mapping[str, InstructionFile]
    ) -> None:
        if self._full or len(name) > _LONGEST:
            return
        self._imports += 1
        if self._imports > _MOST_IMPORTS:
            self._full = (
                f"what {file.called} imports from @{escaped(name)[:80]} on is left out: "
                f"instructions may name {_MOST_IMPORTS:,} files"
            )
            return
        found = InstructionFile(self._path(name, file), file.within, file.near)
        real = found.real if "\0" not in name else name
        if not is_path(name) and not os.path.isfile(real):
            return
        if real in importers:
            circle = " imports ".join(x.called for x in (*importers.values(), found))
            self._notices.append(f"{circle}: this goes round, so the last is left out")
        elif real in self._seen:
            return
        elif len(importers) > DEEPEST:
            deep = f"it is imported more than {DEEPEST} files deep"
            self._say(found, importers, deep)
        else:
            self._take(found, real, importers)

    def _path(self, name: str, file: InstructionFile) -> str:
        if name.startswith("~/"):
            return os.path.join(self._home, name[2:])
        return os.path.normpath(os.path.join(os.path.dirname(file.path), name))

    def _say(
        self, file: InstructionFile, importers: Mapping[str, InstructionFile], why: str
    ) -> None:
        last = tuple(importers.values())[-1:]
        by = f", which {last[0].called} imports," if last else ""
        self._notices.append(f"{file.called}{by} is left out: {why}")


_NAMED = r"(?:^|(?<=[\s(]))@([^\s@`]+)"
_FENCE = r" {0,3}(`{3,}|~{3,})"
_AFTER = ".,;:!?)]}>\"'*_"
# So written, it can be meant as a path only; @somebody and @scope/package may be no file.
_PATH = r"(?i)(?:\.{0,2}/|~/).+|.*\.(?:md|mdc|markdown|txt|rst|adoc)"


def imports(text: str) -> tuple[str, ...]:
    """The names, each once, in the order of the text."""
    return tuple(dict.fromkeys(_names(text)))


def is_path(name: str) -> bool:
    """Whether this must be meant as a path, so that a missing file is worth a notice."""
    return bool(re.fullmatch(_PATH, name))


def _names(text: str) -> Iterator[str]:
    fence = ""
    for line in text.split("\n"):
        found = re.match(_FENCE, line)
        if fence:
            closes = (
                found and found[1].startswith(fence) and not line[found.end() :].strip()
            )
            fence = "" if closes else fence
        elif found and "`" not in line[found.end() :]:
            fence = found[1]
        elif "@" in line:
            for piece in _outside_code(line):
                for name in re.findall(_NAMED, piece):
                    if stripped := name.rstrip(_AFTER):
                        yield stripped


def _outside_code(line: str) -> Iterator[str]:
    """The pieces of a line that are not between two equal runs of backticks."""
    pieces = re.split(r"(`+)", line)
    last = {run: at for at, run in enumerate(pieces) if at % 2}
    at = 0
    while at < len(pieces):
        if at % 2 and last[pieces[at]] > at:
            at = pieces.index(pieces[at], at + 1)
        elif not at % 2:
            # What follows code at once stands at the beginning of no word.
            yield pieces[at] if at == 0 else f"`{pieces[at]}"
        at += 1
