"""Where a file mentions a name: found in the file as it is now, with the definition around each.

A use is a call, an import, a mention in code, or a string that is nothing but a dotted name, as
registries and tests have them. Comments and prose are not uses.
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
    """`caller` is the definition around it, "" at the top of the file."""

    path: str
    line: int
    kind: UseKind
    caller: str
    text: str


class ReadSource:
    """A file that was read now: its content and its definitions."""

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
        """The uses of a name, without its definitions."""
        return tuple(self._uses(name))

    def caller(self, line: int) -> Definition | None:
        """The innermost class or function around a line."""
        around = [d for d in self.definitions if d.line <= line <= d.last_line]
        return max(around, key=lambda d: (d.line, -d.last_line), default=None)

    def _uses(self, name: str) -> Iterator[Use]:
        word = re.compile(rb"(?<![\w$])" + re.escape(name.encode()) + rb"(?![\w$])")
        own = {d.line for d in self.definitions if d.name == name}
        language = language_of(self.path)
        root = None
        line, start, count = 1, 0, 0
        for match in word.finditer(self.content):
            line += self.content.count(b"\n", start, match.start())
            start = match.start()
            if line in own and self._is_first_on_line(name, line, match.start()):
                continue
            if (
                root is None
                and language
                and not tree_sitter.why_missing(language, self.path)
            ):
                root = tree_sitter.parse(language, self.path, self.content)
            kind = self._kind(root, match)
            if kind is None:
                continue
            caller = self.caller(line)
            count += 1
            yield Use(
                self.path, line, kind, caller.full_name if caller else "", self.line(line)
            )
            if count == _MAX_USES:
                return

    def _is_first_on_line(self, name: str, line: int, start: int) -> bool:
        begin = self.content.rfind(b"\n", 0, start) + 1
        return not re.search(
            rb"(?<![\w$])" + re.escape(name.encode()) + rb"(?![\w$])",
            self.content[begin:start],
        )

    def _kind(self, root: object, match: re.Match[bytes]) -> UseKind | None:
        role = tree_sitter.role_at(root, *match.span()) if root is not None else "code"
        if role == "comment":
            return None
        if role == "string":
            begin = self.content.rfind(b"\n", 0, match.start()) + 1
            end = self.content.find(b"\n", match.end())
            rest = self.content[begin : end if end >= 0 else None]
            offset = match.start() - begin
            named = any(q.start() < offset < q.end() for q in _QUOTED_NAME.finditer(rest))
            return "string" if named else None
        if role == "import":
            return "import"
        return "call" if _CALL_PATTERN.match(self.content, match.end()) else "mention"
