"""The tools `symbols`, `references`, `diagnostics` and `repo_map`: questions about source code.

The port `SourceCode` answers them. `code.source_code` implements it with language servers and
grammars, and `code.repomap` with its map of the repository. This module renders the answers as
text of limited length.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Protocol

from msgspec import Meta, Struct

from refold.errors import ToolFailed
from refold.place.port import Files, Real
from refold.tools.contract import Reply, tool
from refold.values.display import Note
from refold.values.printable_names import shorten
from refold.values.text import clean
from refold.values.tools import Effect

_MAX_ANSWER_LINES = 300  # in one answer
# The lengths of a line of code, and of a problem's message.
_MAX_LINE_CHARS, _MAX_MESSAGE_CHARS = 200, 600
_MAX_SYMBOL_CHARS = 200
_MAP_TOKENS = 1_500  # in one map of the repository
_MAX_FOCUS_WORDS = 20


class Symbol(Struct, frozen=True):
    """A definition in source code. `path` is absolute, and lines count from 1.

    `inside` names the enclosing symbol. `last_line` is 0 if it is not known.
    """

    name: str
    kind: str
    path: str
    line: int
    inside: str = ""
    last_line: int = 0


class Mention(Struct, frozen=True):
    """A place that mentions a symbol. `text` is the line, "" if it may not be shown."""

    path: str
    line: int
    text: str = ""


class Problem(Struct, frozen=True):
    path: str
    line: int
    severity: str
    message: str
    code: str = ""


class CodeAnswer(Struct, frozen=True):
    """An answer about source code: which program gave it, and sentences about what is missing
    in it.
    """

    by: str
    notes: tuple[str, ...] = ()


class Symbols(CodeAnswer, frozen=True):
    symbols: tuple[Symbol, ...] = ()


class Mentions(CodeAnswer, frozen=True):
    definitions: tuple[Mention, ...] = ()
    references: tuple[Mention, ...] = ()


class Problems(CodeAnswer, frozen=True):
    """Problems in source code. `files` are the files that were checked."""

    files: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


class SourceCode(Protocol):
    """Answers questions about source code. Each method raises `ToolFailed` with the reason."""

    async def list_symbols(self, file: Real, query: str) -> Symbols:
        """Return the symbols of a file whose names contain `query`; "" matches every name."""
        ...

    async def find_symbols(self, query: str) -> Symbols:
        """Return the symbols of the workspace whose names contain `query`, the best first."""
        ...

    async def mentions(self, file: Real, line: int, symbol: str) -> Mentions:
        """Return the places where the symbol on this line is defined and used."""
        ...

    async def problems(self, files: Sequence[Real]) -> Problems:
        """Return the problems of these files. Files in unsupported languages are left out."""
        ...

    async def outline(self, focus: Sequence[str], tokens: int) -> str:
        """Return the map of the repository around the files, symbols and words in `focus`, as
        text.
        """
        ...


@tool(Effect.LOOK, subject="query", path="file")
async def symbols(
    file: Annotated[str, Meta(description="its outline")] = "",
    query: Annotated[str, Meta(description="part of a name, in the file or anywhere")] = "",
    *,
    files: Files,
    code: SourceCode,
) -> Reply:
    """Classes, functions and other definitions: of a file, or of the workspace by name."""
    if not file and not query.strip():
        raise ToolFailed("Give a file, or a part of a name as query.")
    if file:
        answer = await code.list_symbols(files.real(file), query.strip())
    else:
        answer = await code.find_symbols(query.strip())
    subject = file or repr(query)
    if not answer.symbols:
        return _reply(
            answer, [f"There are no symbols of {subject}."], f"no symbols of {subject}"
        )
    lines = list[str]()
    for symbol in answer.symbols:
        path_prefix = "" if file else f"{files.display_name(Real(symbol.path))}:"
        lines.append(f"{path_prefix}{symbol.line} {symbol.kind} {_dotted_name(symbol)}")
    return _reply(answer, lines, f"{_count(lines, 'symbol')} of {subject}")


@tool(Effect.LOOK, subject="symbol", path="file")
async def references(
    file: str,
    line: Annotated[int, Meta(ge=1, description="where the symbol is")],
    symbol: str,
    *,
    files: Files,
    code: SourceCode,
) -> Reply:
    """Where a symbol is defined and used, as a language server knows it: not by text."""
    answer = await code.mentions(files.real(file), line, symbol)
    defined, used = answer.definitions, answer.references
    lines = (
        ["defined:", *(_mention(mention, files) for mention in defined)] if defined else []
    )
    if used:
        lines += ["used:", *(_mention(mention, files) for mention in used)]
    if not lines:
        lines = [f"No definition and no use of {symbol} is known."]
    count = f"{_count(defined, 'definition')}, {_count(used, 'use')} of {symbol}"
    return _reply(answer, lines, count)


@tool(Effect.LOOK, path="file")
async def diagnostics(
    file: Annotated[str, Meta(description="else: all files you read or changed")] = "",
    *,
    files: Files,
    known: Mapping[str, str],
    code: SourceCode,
) -> Reply:
    """Errors and warnings of a language server, without running anything."""
    checked_files = [files.real(file)] if file else [Real(path) for path in known]
    answer = await code.problems(checked_files)
    about = file or ", ".join(files.display_name(Real(item)) for item in answer.files)
    if not answer.problems:
        return _reply(answer, [f"No problems in {about}."], f"no problems in {about}")
    lines = [problem_line(item, files) for item in answer.problems]
    return _reply(answer, lines, f"{_count(lines, 'problem')} in {about}")


@tool(Effect.LOOK, subject="focus")
async def repo_map(
    focus: Annotated[str, Meta(description="files, symbols or words; else the whole")] = "",
    *,
    code: SourceCode,
) -> Reply:
    """The files and definitions that matter most, by who mentions them, near a focus."""
    words = focus.replace(",", " ").split()[:_MAX_FOCUS_WORDS]
    text = await code.outline(words, _MAP_TOKENS)
    about = f"around {shorten(' '.join(words), 200)}" if words else "of the workspace"
    return Reply(text, (Note(f"map {about}"),))


def problem_line(problem: Problem, files: Files) -> str:
    """Return a problem as one line, such as `src/a.py:3: error: …`"""
    code = f" ({one_line(problem.code, _MAX_SYMBOL_CHARS)})" if problem.code else ""
    message = one_line(problem.message, _MAX_MESSAGE_CHARS)
    location = f"{files.display_name(Real(problem.path))}:{problem.line}"
    return f"{location}: {problem.severity}: {message}{code}"


def _reply(answer: CodeAnswer, lines: Sequence[str], summary: str) -> Reply:
    """Return the reply with as many lines as fit. `summary` is for the user."""
    left_out = len(lines) - _MAX_ANSWER_LINES
    ellipsis = [f"… and {left_out:,} more. Ask about less."] if left_out > 0 else []
    notes = [f"({note})" for note in answer.notes]
    text = "\n".join((*lines[:_MAX_ANSWER_LINES], *ellipsis, f"By {answer.by}.", *notes))
    return Reply(text, (Note(f"{shorten(summary, 300)} ({answer.by})"),))


def _dotted_name(symbol: Symbol) -> str:
    inside = f"{symbol.inside}." if symbol.inside else ""
    return one_line(f"{inside}{symbol.name}", _MAX_SYMBOL_CHARS)


def _mention(mention: Mention, files: Files) -> str:
    """Return a mention as one line: the place, and the text of its line if that is known."""
    place = f"  {files.display_name(Real(mention.path))}:{mention.line}"
    text = mention.text.strip()
    return f"{place}: {shorten(text, _MAX_LINE_CHARS)}" if text else place


def one_line(text: str, max_chars: int) -> str:
    """Return text of another program on one line, shortened to `max_chars`.

    With several lines, it could imitate the output of refold.
    """
    return shorten(" ".join(clean(text).split()), max_chars)


def _count(items: Sequence[object], word: str) -> str:
    return f"{len(items):,} {word}{'' if len(items) == 1 else 's'}"
