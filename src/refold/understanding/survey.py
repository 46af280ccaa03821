"""Which statements are about the present content of a repository, which are stale, and what a model has to read. Pure.

A statement about a piece is fresh if the file has a piece with exactly this content. One about a directory is
fresh if it follows from the same fresh statements about its parts, and no part waits to be read.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import Literal, TypeAlias

from msgspec import Struct

from refold.engine.nested_call import key_of
from refold.rlm.leaves import ModelQuestion
from refold.understanding.leaf_questions import module_question, reading_question
from refold.understanding.statement_file import (
    ModuleNotes,
    ModuleStatement,
    PieceNotes,
    StatementSource,
)
from refold.understanding.statements import FilePiece, Statement, cut, words_of
from refold.values.claims import Evidence

Freshness: TypeAlias = Literal["fresh", "stale"]
_MAX_FILE_STATEMENTS = 8  # of a file, among those about its directory
_MAX_MODULE_CHARS = 24_000  # of the statements that one question lists


class KnownStatement(Struct, frozen=True):
    """A statement about `about`, a file or a directory, which ends with `/`.

    The evidence of a stale one is as it was when the file was read.
    """

    about: str
    text: str
    evidence: tuple[Evidence, ...]
    state: Freshness = "fresh"


class Module(Struct, frozen=True):
    """A directory: the statements about its parts, and where each comes from."""

    path: str
    lines: tuple[str, ...]
    sources: tuple[tuple[StatementSource, ...], ...]  # of each line
    is_complete: bool  # no part waits to be read
    notes: ModuleNotes | None = None

    @property
    def content(self) -> str:
        return key_of("module", self.path, *self.lines)

    @property
    def question(self) -> ModelQuestion:
        return module_question(self.path, self.lines)

    @property
    def is_fresh(self) -> bool:
        return (
            self.is_complete
            and self.notes is not None
            and self.notes.content == self.content
        )

    @property
    def words(self) -> frozenset[str]:
        return words_of(self.path, *self.lines)


class Survey:
    """What is known about these `texts`, the files in scope by their paths, the first to be read first."""

    def __init__(
        self,
        texts: Mapping[str, str],
        pieces: Iterable[PieceNotes],
        modules: Iterable[ModuleNotes],
    ) -> None:
        self._module_notes = {notes.path: notes for notes in modules}
        known = dict[tuple[str, str], PieceNotes]()
        for notes in pieces:
            known[notes.path, notes.content] = notes
        self.files: Mapping[str, Sequence[FilePiece]] = {
            path: cut(path, text) for path, text in texts.items()
        }
        self.notes: Mapping[tuple[str, str], PieceNotes] = {
            key: known.pop(key)
            for path, parts in self.files.items()
            for piece in parts
            if (key := (path, piece.content)) in known
        }
        self.superseded: Sequence[PieceNotes] = tuple(known.values())

    @cached_property
    def pending(self) -> Sequence[FilePiece]:
        """The pieces without an answer to today's question, in the order of the files."""
        pieces = (piece for parts in self.files.values() for piece in parts)
        return [piece for piece in pieces if not self._is_read(piece)]

    def _is_read(self, piece: FilePiece) -> bool:
        notes = self._notes_of(piece)
        return (
            notes is not None
            and not notes.failed
            and notes.question == reading_question(piece).key()
        )

    def _notes_of(self, piece: FilePiece) -> PieceNotes | None:
        return self.notes.get((piece.path, piece.content))

    def fresh_statements(self) -> Sequence[KnownStatement]:
        about_modules = [
            KnownStatement(f"{module.path}/", item.text, self._evidence_of(item))
            for module in self.modules
            if module.is_fresh and module.notes is not None
            for item in module.notes.statements
        ]
        return [
            *about_modules,
            *(
                _to_known(notes, statement, piece.line)
                for parts in self.files.values()
                for piece in parts
                if (notes := self._notes_of(piece)) is not None
                for statement in notes.statements
            ),
        ]

    def stale_statements(self) -> Sequence[KnownStatement]:
        fresh = {module.path for module in self.modules if module.is_fresh}
        about_modules = [
            KnownStatement(
                f"{notes.path}/",
                item.text,
                tuple(Evidence(source.path, "", source.quote) for source in item.sources),
                "stale",
            )
            for path, notes in self._module_notes.items()
            if path not in fresh
            for item in notes.statements
        ]
        about_files = [
            _to_known(notes, statement, notes.line, "stale")
            for notes in self.superseded
            for statement in notes.statements
        ]
        return [*about_modules, *about_files]

    def gone_modules(self) -> Sequence[str]:
        """Directories that there are statements about, and that need none any more."""
        return sorted(self._module_notes.keys() - {module.path for module in self.modules})

    def _evidence_of(self, item: ModuleStatement) -> tuple[Evidence, ...]:
        lines = self._lines_of_sources
        return tuple(
            Evidence(source.path, lines[source], source.quote)
            for source in item.sources
            if source in lines
        )

    @cached_property
    def _lines_of_sources(self) -> Mapping[StatementSource, str]:
        return {
            StatementSource(piece.path, piece.content, statement.quote): _lines(
                statement, piece.line
            )
            for parts in self.files.values()
            for piece in parts
            if (notes := self._notes_of(piece)) is not None
            for statement in notes.statements
        }

    @cached_property
    def directories(self) -> Mapping[str, Set[str]]:
        """The files and directories that are directly in each directory."""
        children = defaultdict[str, set[str]](set)
        for path in self.files:
            while path:
                parent = path.rpartition("/")[0]
                children[parent].add(path)
                path = parent
        return children

    @cached_property
    def modules(self) -> Sequence[Module]:
        """The directories with several parts that there are statements about, the deepest first."""
        modules, known = list[Module](), dict[str, Module]()
        for directory in sorted(
            self.directories, key=lambda path: (-path.count("/") - bool(path), path)
        ):
            parts = [
                known[path] if path in known else self._file_part(path)
                for path in sorted(self.directories[directory])
            ]
            parts = [part for part in parts if part.lines or not part.is_complete]
            is_complete = all(part.is_complete for part in parts)
            if len(parts) == 1:
                known[directory] = parts[0]
                continue
            pairs = _shorten([(part.lines, part.sources) for part in parts])
            module = Module(
                directory,
                tuple(line for line, _ in pairs),
                tuple(sources for _, sources in pairs),
                is_complete,
                self._module_notes.get(directory),
            )
            if module.lines:
                modules.append(module)
            known[directory] = self._module_part(module)
        return modules

    def _file_part(self, path: str) -> Module:
        """A file as a part of its directory."""
        lines, sources = list[str](), list[tuple[StatementSource, ...]]()
        for piece in self.files[path]:
            notes = self._notes_of(piece)
            for statement in notes.statements if notes else ():
                lines.append(f"{path}: {statement.text}")
                sources.append((StatementSource(path, piece.content, statement.quote),))
        is_complete = all(self._notes_of(piece) is not None for piece in self.files[path])
        count = _MAX_FILE_STATEMENTS
        return Module(path, tuple(lines[:count]), tuple(sources[:count]), is_complete)

    def _module_part(self, module: Module) -> Module:
        """A directory as a part of the one above: the statements about it, if they are fresh."""
        if not module.lines:
            return Module(module.path, (), (), module.is_complete)
        if not module.is_fresh or module.notes is None:
            return Module(module.path, (), (), is_complete=False)
        statements = module.notes.statements
        return Module(
            module.path,
            tuple(f"{module.path}/: {item.text}" for item in statements),
            tuple(item.sources for item in statements),
            is_complete=True,
        )


def _shorten(
    parts: Sequence[tuple[Sequence[str], Sequence[tuple[StatementSource, ...]]]],
) -> Sequence[tuple[str, tuple[StatementSource, ...]]]:
    """Join the lines of all parts; of many, take the first lines of each, as many as fit."""
    pairs = [list(zip(lines, sources, strict=True)) for lines, sources in parts]
    count = max((len(part) for part in pairs), default=0)
    while count > 1 and _size(pairs, count) > _MAX_MODULE_CHARS:
        count -= 1
    chosen = [pair for part in pairs for pair in part[:count]]
    while len(chosen) > 1 and sum(len(line) for line, _ in chosen) > _MAX_MODULE_CHARS:
        chosen = chosen[::2]
    return chosen


def _size(pairs: Sequence[Sequence[tuple[str, object]]], count: int) -> int:
    return sum(len(line) for part in pairs for line, _ in part[:count])


def _to_known(
    notes: PieceNotes, statement: Statement, line: int, state: Freshness = "fresh"
) -> KnownStatement:
    evidence = Evidence(notes.path, _lines(statement, line), statement.quote)
    return KnownStatement(notes.path, statement.text, (evidence,), state)


def _lines(statement: Statement, line: int) -> str:
    first, last = statement.first + line - 1, statement.last + line - 1
    return str(first) if first == last else f"{first}-{last}"
