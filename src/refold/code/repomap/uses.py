"""Finds the uses of a name in a file, each with the definition around it.

The current content of the file is read. A use is a call, an import, a mention in code, or a
string that is only a dotted name, as in registries and tests. Mentions in comments and prose
are not uses.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal, TypeAlias

from msgspec import Struct

from refold.code import tree_sitter
from refold.code.languages import language_of
from refold.code.repomap.facts import Definition, definitions_of

UseKind: TypeAlias = Literal["call", "import", "mention", "string"]
_MAX_USES = 200  # in one file
_CALL_PATTERN = re.compile(rb"\s{0,20}(?:::<[^>\n]{0,80}>)?\(")
_QUOTED_NAME = re.compile(rb"""["']([\w.:/$-]*)["']""")


class Use(Struct, frozen=True):
    """A use of a name. `caller` is the definition around it, or "" if there is none."""

    path: str
    line: int
    kind: UseKind
    caller: str
    text: str


class ReadSource:
    """A file that was read: its current content and definitions."""

    def __init__(self, path: str, content: bytes) -> None:
        self.path, self.content = path, content
        self._lines = content.split(b"\n")

    @cached_property
    def definitions(self) -> Sequence[Definition]:
        return definitions_of(self.path, self.content)

    def line(self, number: int) -> str:
        if not 0 < number <= len(self._lines):
            return ""
        return self._lines[number - 1].decode(errors="replace")

    def uses(self, name: str) -> Sequence[Use]:
        """Return the uses of a name in this file. Its definitions are not uses."""
        return tuple(self._uses(name))

    def caller(self, line: int) -> Definition | None:
        """Return the innermost definition around a line, or None if there is none."""
        enclosing = [d for d in self.definitions if d.line <= line <= d.last_line]
        return max(enclosing, key=lambda d: (d.line, -d.last_line), default=None)

    def _uses(self, name: str) -> Iterator[Use]:
        """Yield the first `_MAX_USES` uses of a name, in the order of the file."""
        word = re.compile(rb"(?<![\w$])" + re.escape(name.encode()) + rb"(?![\w$])")
        definition_lines = {d.line for d in self.definitions if d.name == name}
        line, count = 1, 0
        counted_to = 0  # the offset up to which line ends were counted
        for match in word.finditer(self.content):
            start = match.start()
            line += self.content.count(b"\n", counted_to, start)
            counted_to = start
            is_on_definition = line in definition_lines
            if is_on_definition and self._is_first_on_line(word, start):
                continue  # the definition itself is not a use
            kind = self._kind(match)
            if kind is None:
                continue
            caller = self.caller(line)
            caller_name = caller.full_name if caller else ""
            count += 1
            yield Use(self.path, line, kind, caller_name, self.line(line))
            if count == _MAX_USES:
                return

    @cached_property
    def _syntax_root(self) -> object:
        """The root of the file's syntax tree, or None if there is no grammar for it."""
        language = language_of(self.path)
        if language is None or tree_sitter.why_missing(language, self.path):
            return None
        return tree_sitter.parse(language, self.path, self.content)

    def _is_first_on_line(self, word: re.Pattern[bytes], start: int) -> bool:
        """Whether the match of `word` at `start` is the first one on its line."""
        line_start = self.content.rfind(b"\n", 0, start) + 1
        return not word.search(self.content[line_start:start])

    def _kind(self, match: re.Match[bytes]) -> UseKind | None:
        """Return the kind of the use at a match, or None if it is in a comment or in prose.

        Without a grammar, every match counts as code.
        """
        role = "code"
        if self._syntax_root is not None:
            role = tree_sitter.role_at(self._syntax_root, match.start(), match.end())
        if role == "comment":
            return None
        if role == "string":
            return "string" if self._is_quoted_name(match) else None
        if role == "import":
            return "import"
        return "call" if _CALL_PATTERN.match(self.content, match.end()) else "mention"

    def _is_quoted_name(self, match: re.Match[bytes]) -> bool:
        """Whether a match is in a string that is only a dotted name, such as "a.name"."""
        line_start = self.content.rfind(b"\n", 0, match.start()) + 1
        line_end = self.content.find(b"\n", match.end())
        text_line = self.content[line_start : line_end if line_end >= 0 else None]
        offset = match.start() - line_start
        return any(q.start() < offset < q.end() for q in _QUOTED_NAME.finditer(text_line))
