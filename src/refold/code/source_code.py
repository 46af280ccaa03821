"""Answers about source code: from the server of its language, or else from a grammar.

Implements `tools.code.SourceCode` for one workspace, as one agent may read it: what the agent
may not read is left out, whatever a server knows. `language_servers` runs the servers, and
`tree_sitter` parses.
"""

import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TypeAlias, TypeVar

from anyio import to_thread
from msgspec import Struct

from refold.code import tree_sitter, wire
from refold.code.code_files import CodeFiles
from refold.code.language_server import LanguageServer
from refold.code.language_servers import LanguageServers
from refold.code.languages import (
    KNOWN_LANGUAGES,
    Language,
    ServerSpec,
    kind_name,
    language_of,
)
from refold.errors import ToolFailed
from refold.place.port import Files, Real
from refold.tools.code import Mentions, Problem, Problems, Symbol, Symbols

_PARSE_SECONDS = 10.0  # to parse files for a name
_MAX_LANGUAGES = 3  # asked for a name, those with the most files first
_MAX_RESULTS = 1_000
_MAX_PROBLEM_FILES = 40  # files checked for problems in one request
_SEVERITY_NAMES = {1: "error", 2: "warning", 3: "information", 4: "hint"}
_WARNING_LEVEL = 2
_INDEXING_NOTE = "{name} still reads the workspace, so something may be missing: ask again"
T = TypeVar("T")
Work: TypeAlias = Callable[[LanguageServer, Mapping[str, int]], Awaitable[T]]


class CodeWorkspace(Struct, frozen=True):
    """`refused` is why no server may run here, or ""; `find` returns a program, or ""."""

    roots: tuple[str, ...]
    servers: LanguageServers
    find: Callable[[str], str]
    refused: str = ""


class SourceCode:
    def __init__(self, workspace: CodeWorkspace, files: Files) -> None:
        self._workspace, self._files = workspace, files
        self._code = CodeFiles(workspace.roots, files)

    async def list_symbols(self, file: Real, query: str) -> Symbols:
        language = _language(file, self._files)
        content = await to_thread.run_sync(self._files.read, file)
        spec, why = self._server(language)
        if spec is not None:
            try:
                outline = await self._outline(spec, file)
                return Symbols(spec.program, symbols=tuple(_with_name(outline, query)))
            except ToolFailed as error:
                why = str(error).rstrip(".")
        if lacks := tree_sitter.why_missing(language, file):
            raise ToolFailed(f"{why}, and {lacks}.")
        parsed = await to_thread.run_sync(tree_sitter.symbols, language, file, content)
        return Symbols("tree-sitter", (why,), tuple(_with_name(parsed, query)))

    async def find_symbols(self, query: str) -> Symbols:
        files, left_out = await to_thread.run_sync(self._code.list_files)
        by_language = _group_by_language(files)
        if not by_language:
            raise ToolFailed("There is no file of a known language in the workspace.")
        symbols, by = list[Symbol](), list[str]()
        notes = [left_out] if left_out else []
        if others := by_language[_MAX_LANGUAGES:]:
            names = ", ".join(language.name for language, _ in others)
            notes.append(f"not looked at: files of {names}")
        for language, matching_files in by_language[:_MAX_LANGUAGES]:
            spec, why = self._server(language)
            if spec is not None:
                try:
                    answer, busy = await self._symbols_by_name(spec, matching_files, query)
                    symbols += answer
                    by.append(spec.program)
                    notes += [_INDEXING_NOTE.format(name=spec.program)] if busy else []
                    continue
                except ToolFailed as error:
                    why = str(error).rstrip(".")
            if lacks := tree_sitter.why_missing(language, matching_files[0]):
                notes.append(f"{why}, and {lacks}")
                continue
            parse = partial(self._parse_files, matching_files, query)
            parsed, all_of_them = await to_thread.run_sync(parse)
            symbols += parsed
            by.append(f"tree-sitter for {language.name}")
            notes += [why] if all_of_them else [why, "not every file was parsed in time"]
        if not by:
            raise ToolFailed(f"{'; '.join(notes)}.")
        ranked = sorted(_with_name(symbols, query), key=partial(_rank, query))
        return Symbols(", ".join(by), tuple(notes), tuple(ranked[:_MAX_RESULTS]))

    async def mentions(self, file: Real, line: int, symbol: str) -> Mentions:
        spec = self._require_server(_language(file, self._files), "references", "grep")
        text = await to_thread.run_sync(self._code.text, file)
        row, offset = _find_symbol(text, line, symbol, self._files.display_name(file))

        async def find_in_server(
            server: LanguageServer, changes: Mapping[str, int]
        ) -> tuple[Sequence[wire.Location], Sequence[wire.Location], bool]:
            await self._sync(server, changes, [file])
            await server.wait_until_indexed()
            column = server.column(text.splitlines()[row], offset)
            asked = {
                "textDocument": {"uri": wire.uri_of(file)},
                "position": {"line": row, "character": column},
            }
            defined = await server.request("textDocument/definition", asked, wire.Location)
            # Without the declaration, some servers leave out the requested place.
            asked = {**asked, "context": {"includeDeclaration": True}}
            used = await server.request("textDocument/references", asked, wire.Location)
            return defined, used, server.busy

        defined, used, busy = await self._ask(spec, find_in_server)
        notes = (_INDEXING_NOTE.format(name=spec.program),) if busy else ()
        if row + 1 != line:
            notes += (f"{symbol} is not on line {line}: line {row + 1} was taken",)
        definitions, every = await to_thread.run_sync(self._code.to_mentions, defined, used)
        references = tuple(mention for mention in every if mention not in definitions)
        return Mentions(spec.program, notes, definitions, references)

    async def problems(self, files: Sequence[Real]) -> Problems:
        if len(files) == 1:
            self._require_server(
                _language(files[0], self._files), "diagnostics", "a command"
            )
            await to_thread.run_sync(self._code.text, files[0])  # raises with the reason
        chosen, notes = dict[str, tuple[ServerSpec, list[Real]]](), list[str]()
        for file in files:
            language = language_of(file)
            if language is None or not self._code.is_readable_file(file):
                continue
            spec, why = self._server(language)
            if spec is None:
                notes += [] if why in notes else [why]
            else:
                chosen.setdefault(spec.program, (spec, []))[1].append(file)
        if not chosen:
            raise ToolFailed(
                f"{'; '.join(notes)}."
                if notes
                else "None of the files that were read or changed is of a known language: "
                "name a file."
            )
        searched, problems = list[str](), list[Problem]()
        for spec, matching_files in chosen.values():
            if len(matching_files) > _MAX_PROBLEM_FILES:
                notes.append(
                    f"only the last {_MAX_PROBLEM_FILES} files of {spec.program} were looked at"
                )
            answer = await self.problems_of(spec, matching_files[-_MAX_PROBLEM_FILES:])
            searched += matching_files[-_MAX_PROBLEM_FILES:]
            problems += answer
        problems.sort(key=lambda each: (each.severity != "error", each.path, each.line))
        return Problems(", ".join(chosen), tuple(notes), tuple(searched), tuple(problems))

    async def problems_of(
        self, spec: ServerSpec, files: Sequence[Real], seconds: float = 0.0
    ) -> Sequence[Problem]:
        """Errors and warnings of files that this server knows. Raises `ToolFailed`."""

        async def check_in_server(
            server: LanguageServer, changes: Mapping[str, int]
        ) -> Mapping[str, Sequence[wire.Diagnostic]]:
            await self._sync(server, changes, files)
            if not seconds:
                await server.wait_until_indexed()
            return await server.problems(files, seconds)

        result = await self._ask(spec, check_in_server)
        return [
            _problem(path, item)
            for path, several in result.items()
            for item in several
            if (item.severity or 1) <= _WARNING_LEVEL
        ]

    def server_of(self, file: str, *, running: bool) -> ServerSpec | None:
        """The server for a file, or None; with `running` only if it was started already."""
        language = language_of(file)
        spec = self._server(language)[0] if language else None
        return (
            spec if spec and (not running or self._workspace.servers.runs(spec)) else None
        )

    async def _outline(self, spec: ServerSpec, file: Real) -> Sequence[Symbol]:
        async def outline_in_server(
            server: LanguageServer, changes: Mapping[str, int]
        ) -> Sequence[wire.DocumentSymbol]:
            await self._sync(server, changes, [file])
            asked = {"textDocument": {"uri": wire.uri_of(file)}}
            return await server.request(
                "textDocument/documentSymbol", asked, wire.DocumentSymbol
            )

        result = await self._ask(spec, outline_in_server)
        every = islice(_flatten(result, file), _MAX_RESULTS)
        return sorted(every, key=lambda each: each.line)

    async def _symbols_by_name(
        self, spec: ServerSpec, files: Sequence[str], query: str
    ) -> tuple[Sequence[Symbol], bool]:
        first = Real(files[0])

        async def search_in_server(
            server: LanguageServer, changes: Mapping[str, int]
        ) -> tuple[Sequence[wire.SymbolInformation], bool]:
            # Some servers read a workspace only once a file of it is open.
            await self._sync(server, changes, [] if server.open else [first])
            await server.wait_until_indexed()
            asked = {"query": query}
            while True:
                result = await server.request(
                    "workspace/symbol", asked, wire.SymbolInformation
                )
                # A new server may not have listed all files yet, and does not report that.
                if result or not await server.may_know_more():
                    return result, server.busy

        result, busy = await self._ask(spec, search_in_server)
        return await to_thread.run_sync(self._workspace_symbols, result), busy

    def _workspace_symbols(
        self, infos: Sequence[wire.SymbolInformation]
    ) -> Sequence[Symbol]:
        symbols = list[Symbol]()
        for info in infos[: _MAX_RESULTS * 10]:
            path, line = os.path.realpath(info.location.path or "/"), info.location.line
            if (
                len(symbols) < _MAX_RESULTS
                and self._code.is_inside(path)
                and self._code.may_show(path)
            ):
                inside = info.container_name or ""
                symbols.append(Symbol(info.name, kind_name(info.kind), path, line, inside))
        return symbols

    async def _ask(self, spec: ServerSpec, work: Work[T]) -> T:
        files = await to_thread.run_sync(self._code.states, spec)
        return await self._workspace.servers.ask(spec, files, work)

    async def _sync(
        self, server: LanguageServer, changes: Mapping[str, int], files: Sequence[Real]
    ) -> None:
        """Send the server the current texts of its open files and of those in the request."""
        paths = (*(Real(p) for p in server.open if p not in files), *files)
        texts = await to_thread.run_sync(self._code.texts, paths)
        await server.sync(texts, changes)

    def _server(self, language: Language) -> tuple[ServerSpec | None, str]:
        """The server for a language, or why there is none, in a clause."""
        workspace = self._workspace
        if not language.servers:
            return None, f"no language server for {language.name} is known"
        if workspace.refused:
            return None, workspace.refused
        for spec in language.servers:
            if workspace.find(spec.program):
                return spec, ""
        first = language.servers[0]
        return None, (
            f"no language server for {language.name} is installed: {first.program} is not on "
            f"PATH ({first.install})"
        )

    def _require_server(self, language: Language, tool: str, instead: str) -> ServerSpec:
        spec, why = self._server(language)
        if spec is None:
            raise ToolFailed(
                f"{why[:1].upper()}{why[1:]}. {tool} needs one: use {instead}."
            )
        return spec

    def _parse_files(
        self, paths: Sequence[str], query: str
    ) -> tuple[Sequence[Symbol], bool]:
        """The symbols of these files by name, and whether the time sufficed for all."""
        until, symbols = time.monotonic() + _PARSE_SECONDS, list[Symbol]()
        for path in paths:
            if time.monotonic() > until:
                return symbols, False
            language = language_of(path)
            with suppress(ToolFailed):
                content = self._files.read(Real(path))
                if language and query.casefold().encode() in content.lower():
                    symbols += _with_name(
                        tree_sitter.symbols(language, path, content), query
                    )
        return symbols, True


def _language(file: Real, files: Files) -> Language:
    if (language := language_of(file)) is None:
        known = ", ".join(suffix for other in KNOWN_LANGUAGES for suffix in other.suffixes)
        raise ToolFailed(
            f"{files.display_name(file)} is of no language that is known here: {known}."
        )
    return language


def _group_by_language(files: Iterable[str]) -> Sequence[tuple[Language, Sequence[str]]]:
    """Group files by language, the one with the most files first."""
    groups = dict[str, tuple[Language, list[str]]]()
    for path in files:
        if (language := language_of(path)) is not None:
            groups.setdefault(language.name, (language, []))[1].append(path)
    return sorted(groups.values(), key=lambda each: -len(each[1]))


def _with_name(symbols: Iterable[Symbol], query: str) -> Iterator[Symbol]:
    wanted = query.casefold()
    return (symbol for symbol in symbols if wanted in symbol.name.casefold())


def _rank(query: str, symbol: Symbol) -> tuple[int, str, str, int]:
    """Sort key: the name itself first, then names that begin with it."""
    name, wanted = symbol.name.casefold(), query.casefold()
    quality = 0 if name == wanted else 1 if name.startswith(wanted) else 2
    return quality, name, symbol.path, symbol.line


def _find_symbol(text: str, line: int, symbol: str, file: str) -> tuple[int, int]:
    """The place of the symbol nearest to `line`: the line, from 0, and the character."""
    last = symbol.strip().rpartition(".")[2]
    if not last:
        raise ToolFailed("The symbol is empty: give a name that is in the file.")
    word = re.compile(rf"(?<!\w){re.escape(last)}(?!\w)")
    rows = [
        (abs(n + 1 - line), n) for n, r in enumerate(text.splitlines()) if word.search(r)
    ]
    if not rows:
        raise ToolFailed(f"{file} does not contain {last!r}.")
    row = min(rows)[1]
    match = word.search(text.splitlines()[row])
    return row, match.start() if match else 0


def _flatten(
    symbols: Iterable[wire.DocumentSymbol], path: str, inside: str = ""
) -> Iterator[Symbol]:
    for symbol in symbols:
        line = symbol.selection_range.start.line + 1
        yield Symbol(symbol.name, kind_name(symbol.kind), path, line, inside)
        name = f"{inside}.{symbol.name}" if inside else symbol.name
        if kind_name(symbol.kind) not in ("function", "method", "constructor"):
            yield from _flatten(symbol.children or (), path, name)


def _problem(path: str, diagnostic: wire.Diagnostic) -> Problem:
    code = str(diagnostic.code) if diagnostic.code is not None else ""
    severity = _SEVERITY_NAMES.get(diagnostic.severity or 1, "error")
    return Problem(
        path, max(diagnostic.range.start.line, 0) + 1, severity, diagnostic.message, code
    )
