"""The tools `symbols`, `references` and `diagnostics`: what an editor knows of source code.

They know it through a port, which `code.source_code` implements with language servers and
grammars. This module makes the text, whose length is bounded.
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

_MOST = 300  # lines of one answer
_LINE, _MESSAGE = 200, 600  # characters of a line of code, and of what is wrong
_NAME = 200  # characters of a symbol


class Symbol(Struct, frozen=True):
    """`path` is absolute, `line` counts from 1, and `inside` names what it is in."""

    name: str
    kind: str
    path: str
    line: int
    inside: str = ""


class Mention(Struct, frozen=True):
    """A place where a symbol is. `text` is the line, "" if it may not be shown."""

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
    """Who answered, and sentences about what the answer lacks."""

    by: str
    notes: tuple[str, ...] = ()


class Symbols(CodeAnswer, frozen=True):
    symbols: tuple[Symbol, ...] = ()


class Mentions(CodeAnswer, frozen=True):
    definitions: tuple[Mention, ...] = ()
    references: tuple[Mention, ...] = ()


class Problems(CodeAnswer, frozen=True):
    """`files` are those that were looked at."""

    files: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


class SourceCode(Protocol):
    """Each method raises `ToolFailed` with the reason."""

    async def of_file(self, file: Real, query: str) -> Symbols:
        """The symbols of a file, those whose name holds `query`."""
        ...

    async def named(self, query: str) -> Symbols:
        """The symbols of the workspace whose name holds `query`, the best first."""
        ...

    async def mentions(self, file: Real, line: int, symbol: str) -> Mentions:
        """Where the symbol on this line is defined, and where it is used."""
        ...

    async def problems(self, files: Sequence[Real]) -> Problems:
        """What is wrong with these files. Those of other languages are left out."""
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
        found = await code.of_file(files.real(file), query.strip())
    else:
        found = await code.named(query.strip())
    what = file or repr(query)
    if not found.symbols:
        return _reply(found, [f"There are no symbols of {what}."], f"no symbols of {what}")
    lines = [
        f"{'' if file else files.called(Real(each.path)) + ':'}{each.line} {each.kind} "
        f"{_dotted(each)}"
        for each in found.symbols
    ]
    return _reply(found, lines, f"{_count(lines, 'symbol')} of {what}")


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
    found = await code.mentions(files.real(file), line, symbol)
    defined, used = found.definitions, found.references
    lines = ["defined:", *(_mention(each, files) for each in defined)] if defined else []
    if used:
        lines += ["used:", *(_mention(each, files) for each in used)]
    if not lines:
        lines = [f"No definition and no use of {symbol} is known."]
    count = f"{_count(defined, 'definition')}, {_count(used, 'use')} of {symbol}"
    return _reply(found, lines, count)


@tool(Effect.LOOK, path="file")
async def diagnostics(
    file: Annotated[str, Meta(description="else: all files you read or changed")] = "",
    *,
    files: Files,
    known: Mapping[str, str],
    code: SourceCode,
) -> Reply:
    """Errors and warnings of a language server, without running anything."""
    asked = [files.real(file)] if file else [Real(path) for path in known]
    found = await code.problems(asked)
    about = file or ", ".join(files.called(Real(each)) for each in found.files)
    if not found.problems:
        return _reply(found, [f"No problems in {about}."], f"no problems in {about}")
    lines = [problem_line(each, files) for each in found.problems]
    return _reply(found, lines, f"{_count(lines, 'problem')} in {about}")


def problem_line(problem: Problem, files: Files) -> str:
    """`src/a.py:3: error: …`"""
    code = f" ({one_line(problem.code, _NAME)})" if problem.code else ""
    message = one_line(problem.message, _MESSAGE)
    where = f"{files.called(Real(problem.path))}:{problem.line}"
    return f"{where}: {problem.severity}: {message}{code}"


def _reply(found: CodeAnswer, lines: Sequence[str], shown: str) -> Reply:
    more = len(lines) - _MOST
    rest = [f"… and {more:,} more. Ask about less."] if more > 0 else []
    notes = [f"({note})" for note in found.notes]
    text = "\n".join((*lines[:_MOST], *rest, f"By {found.by}.", *notes))
    return Reply(text, (Note(f"{shorten(shown, 300)} ({found.by})"),))


def _dotted(symbol: Symbol) -> str:
    inside = f"{symbol.inside}." if symbol.inside else ""
    return one_line(f"{inside}{symbol.name}", _NAME)


def _mention(mention: Mention, files: Files) -> str:
    text = f": {shorten(mention.text.strip(), _LINE)}" if mention.text.strip() else ""
    return f"  {files.called(Real(mention.path))}:{mention.line}{text}"


def one_line(said: str, most: int) -> str:
    """What another program says, so that it cannot be taken for a line of ours."""
    return shorten(" ".join(clean(said).split()), most)


def _count(found: Sequence[object], word: str) -> str:
    return f"{len(found):,} {word}{'' if len(found) == 1 else 's'}"
