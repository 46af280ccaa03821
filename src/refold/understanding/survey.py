"""Finds fresh and stale statements about a repository, and what a model must read. Pure.

A module is a directory. Its parts are the files and directories that are directly in it.

A statement about a piece is fresh if the file still has a piece with exactly this content. A
statement about a directory follows from the statements about its parts. It is fresh if those
statements are still the same and no part must still be read.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import chain
from typing import Literal, TypeAlias

from msgspec import Struct

from refold.engine.nested_call import key_of
from refold.rlm.leaf_calls import ModelQuestion
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
_MAX_FILE_STATEMENTS = 8  # of one file, in the question about its directory
_MAX_MODULE_CHARS = 24_000  # the length of the statements that one question lists


class KnownStatement(Struct, frozen=True):
    """A statement about the file or directory that `about` names; a directory ends with `/`.

    The evidence of a stale statement shows the file as the model read it.
    """

    about: str
    text: str
    evidence: tuple[Evidence, ...]
    state: Freshness = "fresh"


class Module(Struct, frozen=True):
    """A directory with the statements about its parts, which are `lines` for a question."""

    path: str
    lines: tuple[str, ...]
    sources: tuple[tuple[StatementSource, ...], ...]  # the sources of each line
    is_complete: bool  # whether no part must still be read
    notes: ModuleNotes | None = None

    @property
    def content(self) -> str:
        return key_of("module", self.path, *self.lines)

    @property
    def question(self) -> ModelQuestion:
        return module_question(self.path, self.lines)

    @property
    def is_fresh(self) -> bool:
        """Whether the notes are about all of the present lines."""
        return (
            self.is_complete
            and self.notes is not None
            and self.notes.content == self.content
        )

    @property
    def words(self) -> frozenset[str]:
        return words_of(self.path, *self.lines)


class Survey:
    """What is known about `texts`, the files in scope by path, in the order of reading."""

    def __init__(
        self,
        texts: Mapping[str, str],
        pieces: Iterable[PieceNotes],
        modules: Iterable[ModuleNotes],
    ) -> None:
        self._module_notes = {notes.path: notes for notes in modules}
        self.files: Mapping[str, Sequence[FilePiece]] = {
            path: cut(path, text) for path, text in texts.items()
        }
        # A piece is identified by its path and the hash of its content.
        known = {(notes.path, notes.content): notes for notes in pieces}
        present = [(piece.path, piece.content) for piece in self._pieces]
        self.notes: Mapping[tuple[str, str], PieceNotes] = {
            key: known[key] for key in present if key in known
        }
        self.superseded: Sequence[PieceNotes] = tuple(
            notes for key, notes in known.items() if key not in self.notes
        )

    @property
    def _pieces(self) -> Iterator[FilePiece]:
        return chain.from_iterable(self.files.values())

    @property
    def _read_pieces(self) -> Iterator[tuple[FilePiece, PieceNotes]]:
        """The pieces with stored results, in the order of the files."""
        for piece in self._pieces:
            if (notes := self._notes_of(piece)) is not None:
                yield piece, notes

    @cached_property
    def pending(self) -> Sequence[FilePiece]:
        """The pieces that have no answer to the current question, in the order of the files."""
        return [piece for piece in self._pieces if not self._is_read(piece)]

    def _is_read(self, piece: FilePiece) -> bool:
        """Whether a piece has notes for the current question that did not fail."""
        notes = self._notes_of(piece)
        return (
            notes is not None
            and not notes.failed
            and notes.question == reading_question(piece).key()
        )

    def _notes_of(self, piece: FilePiece) -> PieceNotes | None:
        return self.notes.get((piece.path, piece.content))

    def fresh_statements(self) -> Sequence[KnownStatement]:
        """Return the fresh statements, those about directories first."""
        about_modules = [
            KnownStatement(f"{module.path}/", item.text, self._evidence_of(item))
            for module in self.modules
            if module.is_fresh and module.notes is not None
            for item in module.notes.statements
        ]
        about_files = [
            _known_statement(notes, statement, piece.line)
            for piece, notes in self._read_pieces
            for statement in notes.statements
        ]
        return [*about_modules, *about_files]

    def stale_statements(self) -> Sequence[KnownStatement]:
        """Return the stale statements, those about directories first."""
        fresh = {module.path for module in self.modules if module.is_fresh}
        about_modules = [
            KnownStatement(
                f"{notes.path}/",
                item.text,
                tuple(
                    Evidence(source.path, lines="", quote=source.quote)
                    for source in item.sources
                ),
                state="stale",
            )
            for path, notes in self._module_notes.items()
            if path not in fresh
            for item in notes.statements
        ]
        about_files = [
            _known_statement(notes, statement, notes.line, state="stale")
            for notes in self.superseded
            for statement in notes.statements
        ]
        return [*about_modules, *about_files]

    def gone_modules(self) -> Sequence[str]:
        """Return the directories that have statements, but are not among `modules`."""
        return sorted(self._module_notes.keys() - {module.path for module in self.modules})

    def _evidence_of(self, item: ModuleStatement) -> tuple[Evidence, ...]:
        """Return the sources of a statement that still exist, with their present lines."""
        lines = self._lines_of_sources
        return tuple(
            Evidence(source.path, lines[source], source.quote)
            for source in item.sources
            if source in lines
        )

    @cached_property
    def _lines_of_sources(self) -> Mapping[StatementSource, str]:
        """The present line numbers of each statement about a file, as text."""
        return {
            StatementSource(piece.path, piece.content, statement.quote): _line_numbers(
                statement, piece.line
            )
            for piece, notes in self._read_pieces
            for statement in notes.statements
        }

    @cached_property
    def directories(self) -> Mapping[str, Set[str]]:
        """The entries of each directory: the files and directories that are directly in it."""
        children = defaultdict[str, set[str]](set)
        for path in self.files:
            while path:
                parent = path.rpartition("/")[0]
                children[parent].add(path)
                path = parent
        return children

    @cached_property
    def modules(self) -> Sequence[Module]:
        """The directories to ask about, the deepest first.

        A part counts if it has statements or must still be read. A directory is listed if two
        or more of its parts count. If only one part counts, that part takes the directory's
        place in its parent.
        """
        modules, known_parts = list[Module](), dict[str, Module]()
        by_name = sorted(self.directories)
        for directory in sorted(by_name, key=_depth, reverse=True):
            parts = list[Module]()
            for path in sorted(self.directories[directory]):
                part = known_parts.get(path) or self._file_part(path)
                counts = part.lines or not part.is_complete
                if counts:
                    parts.append(part)
            is_complete = all(part.is_complete for part in parts)
            if len(parts) == 1:
                known_parts[directory] = parts[0]
                continue
            pairs = _shorten([(part.lines, part.sources) for part in parts])
            module = Module(
                directory,
                lines=tuple(line for line, _ in pairs),
                sources=tuple(sources for _, sources in pairs),
                is_complete=is_complete,
                notes=self._module_notes.get(directory),
            )
            if module.lines:
                modules.append(module)
            known_parts[directory] = self._module_part(module)
        return modules

    def _file_part(self, path: str) -> Module:
        """Return a file as a part of its directory, with the first statements about it."""
        lines, sources = list[str](), list[tuple[StatementSource, ...]]()
        is_complete = True
        for piece in self.files[path]:
            notes = self._notes_of(piece)
            if notes is None:
                is_complete = False
                continue
            for statement in notes.statements:
                lines.append(f"{path}: {statement.text}")
                sources.append((StatementSource(path, piece.content, statement.quote),))
        first_lines = tuple(lines[:_MAX_FILE_STATEMENTS])
        first_sources = tuple(sources[:_MAX_FILE_STATEMENTS])
        return Module(path, first_lines, first_sources, is_complete)

    def _module_part(self, module: Module) -> Module:
        """Return a directory as a part of its parent, with the statements about it.

        If they are not fresh, the part has no statements and is not complete.
        """
        if not module.lines:
            return Module(module.path, lines=(), sources=(), is_complete=module.is_complete)
        if not module.is_fresh or module.notes is None:
            return Module(module.path, lines=(), sources=(), is_complete=False)
        statements = module.notes.statements
        return Module(
            module.path,
            lines=tuple(f"{module.path}/: {item.text}" for item in statements),
            sources=tuple(item.sources for item in statements),
            is_complete=True,
        )


def _depth(directory: str) -> int:
    """Return the number of directories in a path; 0 for the root, ""."""
    return directory.count("/") + bool(directory)


def _shorten(
    parts: Sequence[tuple[Sequence[str], Sequence[tuple[StatementSource, ...]]]],
) -> Sequence[tuple[str, tuple[StatementSource, ...]]]:
    """Return the lines of all parts with their sources, shortened to the maximum length.

    If the lines are too long, as many first lines of each part as fit are taken. If one line of
    each part is too much, every second line is removed until the rest fits.
    """
    pairs = [list(zip(lines, sources, strict=True)) for lines, sources in parts]
    count = max((len(part) for part in pairs), default=0)
    while count > 1 and _size(pairs, count) > _MAX_MODULE_CHARS:
        count -= 1
    chosen = [pair for part in pairs for pair in part[:count]]
    while len(chosen) > 1 and sum(len(line) for line, _ in chosen) > _MAX_MODULE_CHARS:
        chosen = chosen[::2]
    return chosen


def _size(pairs: Sequence[Sequence[tuple[str, object]]], count: int) -> int:
    """Return the number of characters in the first `count` lines of each part."""
    return sum(len(line) for part in pairs for line, _ in part[:count])


def _known_statement(
    notes: PieceNotes, statement: Statement, line: int, state: Freshness = "fresh"
) -> KnownStatement:
    evidence = Evidence(notes.path, _line_numbers(statement, line), statement.quote)
    return KnownStatement(notes.path, statement.text, (evidence,), state)


def _line_numbers(statement: Statement, line: int) -> str:
    """Return the lines of a statement in its file, like "3" or "3-5".

    `line` is the first line of its piece in the file.
    """
    first, last = statement.first + line - 1, statement.last + line - 1
    return str(first) if first == last else f"{first}-{last}"
