"""Lets a model read new content: first piece by piece, then directory by directory.

Each result is stored at once, and a killed build loses nothing that was paid for (see
`leaf_session`). It stops when the budget is used up.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.engine.call_cost import CHARS_PER_TOKEN
from refold.rlm.leaf_calls import LeafFailed
from refold.understanding.leaf_questions import reading_question
from refold.understanding.leaf_session import LeafSession
from refold.understanding.statement_file import (
    ModuleNotes,
    ModuleStatement,
    PieceNotes,
    StatementFile,
)
from refold.understanding.statements import (
    MAX_STATEMENTS,
    NAME_MISSING,
    NOT_STATED,
    FilePiece,
    check_answer,
    items_of,
    one_sentence,
    source_numbers,
    unknown_names,
)
from refold.understanding.survey import Module, Survey
from refold.values.usage import Usage

_BATCH_QUESTIONS = 32
_ANSWER_TOKENS = 450  # an estimate for one answer
_MODULE_TOKENS = 2_000  # an estimate for the statements of a directory
_MAX_SOURCES = 3  # of a statement about a directory
NUMBER_MISSING = "that follow from nothing that is there"


class Plan(Struct, frozen=True):
    """The questions that a build would ask: about pieces of files, and about directories.

    `usage` is an estimate, which is rough for directories.
    """

    pieces: Sequence[FilePiece]
    files: int
    modules: int

    @property
    def usage(self) -> Usage:
        size = sum(reading_question(piece).size for piece in self.pieces)
        fresh = size // CHARS_PER_TOKEN + self.modules * _MODULE_TOKENS
        return Usage(fresh=fresh, output=self.calls * _ANSWER_TOKENS)

    @property
    def calls(self) -> int:
        return len(self.pieces) + self.modules


class BuildProgress(Struct, frozen=True):
    """How many of the `calls` questions are `done`: answered, or finally failed."""

    done: int
    calls: int
    failed: int = 0


TakeSurvey: TypeAlias = Callable[[], Survey]
OnProgress: TypeAlias = Callable[[BuildProgress], None]


def plan(survey: Survey) -> Plan:
    """Return a build's questions: about the pending pieces and the directories above them."""
    pieces = survey.pending
    paths = {piece.path for piece in pieces}
    return Plan(pieces, files=len(paths), modules=_count_modules(survey, pieces))


def _count_modules(survey: Survey, pieces: Iterable[FilePiece]) -> int:
    """Return the number of directories to ask about.

    Their statements are missing or stale, or the answers about `pieces` will make them stale. A
    directory with a single entry is not asked about.
    """
    paths = {module.path for module in survey.modules if not module.is_fresh}
    for piece in pieces:
        paths.update(_parents(piece.path))
    return sum(len(survey.directories.get(path, ())) > 1 for path in paths)


def _parents(path: str) -> Iterable[str]:
    """Yield the directories above a file, up to the root, which is ""."""
    while path:
        path = path.rpartition("/")[0]
        yield path


async def build(
    take_survey: TakeSurvey,
    statements: StatementFile,
    session: LeafSession,
    on_progress: OnProgress,
) -> BuildProgress:
    """Ask the pending questions, about pieces of files first, and store the statements.

    `take_survey` returns what is known about the current files. Stop if the budget is used up.
    """
    work = plan(take_survey())
    progress = BuildProgress(done=0, calls=work.calls)
    for start in range(0, len(work.pieces), _BATCH_QUESTIONS):
        pieces = work.pieces[start : start + _BATCH_QUESTIONS]
        notes = await _ask_about_pieces(pieces, session)
        statements.put_pieces(notes)
        progress = _advance(progress, notes)
        on_progress(progress)
        if session.is_over_budget:
            return progress
    forget_superseded(take_survey(), statements)
    asked = set[tuple[str, str]]()
    while ready := _ready_modules(take_survey(), asked):
        modules = ready[:_BATCH_QUESTIONS]
        asked |= {(module.path, module.content) for module in modules}
        module_notes = await _ask_about_modules(modules, session)
        statements.put_modules(module_notes)
        progress = _advance(progress, module_notes)
        on_progress(progress)
        if session.is_over_budget:
            break
    return progress


async def _ask_about_pieces(
    pieces: Sequence[FilePiece], session: LeafSession
) -> Sequence[PieceNotes]:
    """Ask about each piece, and return what to store.

    Questions for which the budget was too small are left out.
    """
    answers = await session.ask_all([reading_question(piece) for piece in pieces])
    return [
        _piece_notes(piece, answer)
        for piece, answer in zip(pieces, answers, strict=True)
        if not _is_unpaid(answer, session)
    ]


async def _ask_about_modules(
    modules: Sequence[Module], session: LeafSession
) -> Sequence[ModuleNotes]:
    """Ask about each directory, and return what to store.

    Questions for which the budget was too small are left out.
    """
    answers = await session.ask_all([module.question for module in modules])
    return [
        _module_notes(module, answer)
        for module, answer in zip(modules, answers, strict=True)
        if not _is_unpaid(answer, session)
    ]


def forget_superseded(survey: Survey, statements: StatementFile) -> None:
    """Delete stale statements about files and directories whose current content was read."""
    unread = {piece.path for piece in survey.pending}
    statements.forget_pieces(
        notes for notes in survey.superseded if notes.path not in unread
    )
    if not unread:
        statements.forget_modules(survey.gone_modules())


def _ready_modules(survey: Survey, asked_modules: set[tuple[str, str]]) -> Sequence[Module]:
    """Return the directories to ask about now: all statements about their parts are known.

    `asked_modules` has the directories that were asked about before, each with the hash of the
    statements about its parts.
    """
    ready = list[Module]()
    for module in survey.modules:
        has_failed = module.notes is not None and bool(module.notes.failed)
        is_pending = has_failed or not module.is_fresh
        was_asked = (module.path, module.content) in asked_modules
        if module.is_complete and is_pending and not was_asked:
            ready.append(module)
    return ready


def _is_unpaid(answer: str | LeafFailed, session: LeafSession) -> bool:
    """Whether a question was not asked, because the budget was used up."""
    return isinstance(answer, LeafFailed) and session.is_over_budget


def _advance(
    progress: BuildProgress, notes: Sequence[PieceNotes | ModuleNotes]
) -> BuildProgress:
    """Return the progress after storing `notes`. There may be more notes than estimated."""
    failed = progress.failed + sum(bool(item.failed) for item in notes)
    done = progress.done + len(notes)
    return BuildProgress(done, max(progress.calls, done), failed)


def _piece_notes(piece: FilePiece, answer: str | LeafFailed) -> PieceNotes:
    """Return what to store for a piece: checked statements, or why there is no answer."""
    question = reading_question(piece).key()
    notes = PieceNotes(piece.path, piece.content, question, piece.line)
    if isinstance(answer, LeafFailed):
        return replace(notes, failed=str(answer))
    try:
        checked = check_answer(answer, piece)
    except ValueError as error:
        return replace(notes, failed=str(error))
    return replace(notes, statements=checked.statements, dropped=checked.dropped)


def _module_notes(module: Module, answer: str | LeafFailed) -> ModuleNotes:
    """Return what to store for a directory: checked statements, or why there is no answer."""
    notes = ModuleNotes(module.path, module.content, module.question.key())
    if isinstance(answer, LeafFailed):
        return replace(notes, failed=str(answer))
    try:
        items = list(items_of(answer, "statements"))
    except ValueError as error:
        return replace(notes, failed=str(error))
    statements, dropped = list[ModuleStatement](), Counter[str]()
    for item in items[:MAX_STATEMENTS]:
        result = _check_module_statement(item, module)
        if isinstance(result, str):
            dropped[result] += 1
        else:
            statements.append(result)
    return replace(notes, statements=tuple(statements), dropped=dropped)


def _check_module_statement(
    item: Mapping[str, object], module: Module
) -> ModuleStatement | str:
    """Return the statement in `item` with its sources, or the reason to drop it, as a text."""
    text = one_sentence(item.get("text"))
    if not text:
        return NOT_STATED
    numbers = source_numbers(item, len(module.lines))
    if not numbers:
        return NUMBER_MISSING
    if unknown_names(text, module.words):
        return NAME_MISSING
    sources = (source for number in numbers for source in module.sources[number - 1])
    return ModuleStatement(text, tuple(dict.fromkeys(sources))[:_MAX_SOURCES])
