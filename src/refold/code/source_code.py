"""Answers questions about source code with the server of its language, or else with a grammar.

It implements `tools.code.SourceCode` for one workspace and one agent: everything that the agent
may not read is left out, even if a server knows it. `language_servers` runs the servers, and
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

_PARSE_SECONDS = 10.0  # for parsing files to find a name
_MAX_LANGUAGES = 3  # for finding a name; those with the most files are chosen
_MAX_RESULTS = 1_000
_MAX_PROBLEM_FILES = 40  # checked for problems in one request
_SEVERITY_NAMES = {1: "error", 2: "warning", 3: "information", 4: "hint"}
_WARNING_LEVEL = 2
_INDEXING_NOTE = "{name} still reads the workspace, so something may be missing: ask again"
T = TypeVar("T")
Work: TypeAlias = Callable[[LanguageServer, Mapping[str, int]], Awaitable[T]]


class CodeWorkspace(Struct, frozen=True):
    """A workspace with its servers. `refused` is the reason why no server may run in it, or "".

    `find` returns the absolute path of a program, or "" if it is not installed.
    """

    roots: tuple[str, ...]
    servers: LanguageServers
    find: Callable[[str], str]
    refused: str = ""


class SourceCode:
    """Answers the questions of one agent about the source code of a workspace."""

    def __init__(self, workspace: CodeWorkspace, files: Files) -> None:
        self._workspace, self._files = workspace, files
        self._code = CodeFiles(workspace.roots, files)

    async def list_symbols(self, file: Real, query: str) -> Symbols:
        """Return the symbols in a file whose names contain `query`. Raises `ToolFailed`."""
        language = _language(file, self._files)
        content = await to_thread.run_sync(self._files.read, file)
        spec, why = self._find_server(language)
        if spec is not None:
            try:
                outline = await self._outline(spec, file)
                return Symbols(spec.program, symbols=tuple(_with_name(outline, query)))
            except ToolFailed as error:
                why = str(error).rstrip(".")
        if why_no_grammar := tree_sitter.why_missing(language, file):
            raise ToolFailed(f"{why}, and {why_no_grammar}.")
        parsed = await to_thread.run_sync(tree_sitter.symbols, language, file, content)
        return Symbols("tree-sitter", (why,), tuple(_with_name(parsed, query)))

    async def find_symbols(self, query: str) -> Symbols:
        """Return the symbols in the workspace whose names contain `query`, best first.

        Raises `ToolFailed` if no file can be searched.
        """
        files, missing_note = await to_thread.run_sync(self._code.list_files)
        by_language = _group_by_language(files)
        if not by_language:
            raise ToolFailed("There is no file of a known language in the workspace.")
        symbols = list[Symbol]()
        searchers = list[str]()
        notes = [missing_note] if missing_note else []
        if omitted_languages := by_language[_MAX_LANGUAGES:]:
            names = ", ".join(language.name for language, _ in omitted_languages)
            notes.append(f"not looked at: files of {names}")
        for language, matching_files in by_language[:_MAX_LANGUAGES]:
            answer = await self._search(language, matching_files, query)
            symbols += answer.symbols
            notes += answer.notes
            if answer.by:
                searchers.append(answer.by)
        if not searchers:
            raise ToolFailed(f"{'; '.join(notes)}.")
        ranked = sorted(_with_name(symbols, query), key=partial(_rank, query))
        return Symbols(", ".join(searchers), tuple(notes), tuple(ranked[:_MAX_RESULTS]))

    async def _search(
        self, language: Language, files: Sequence[str], query: str
    ) -> Symbols:
        """Return the symbols that the server of a language finds, or else its grammar.

        `files` are all files of the language. If neither the server nor the grammar can search
        them, `by` of the result is "".
        """
        spec, why = self._find_server(language)
        if spec is not None:
            try:
                symbols, is_busy = await self._symbols_by_name(spec, files, query)
                notes = (_INDEXING_NOTE.format(name=spec.program),) if is_busy else ()
                return Symbols(spec.program, notes, tuple(symbols))
            except ToolFailed as error:
                why = str(error).rstrip(".")
        if why_no_grammar := tree_sitter.why_missing(language, files[0]):
            return Symbols("", (f"{why}, and {why_no_grammar}",))
        parse = partial(self._parse_files, files, query)
        parsed, is_complete = await to_thread.run_sync(parse)
        notes = (why,) if is_complete else (why, "not every file was parsed in time")
        return Symbols(f"tree-sitter for {language.name}", notes, tuple(parsed))

    async def mentions(self, file: Real, line: int, symbol: str) -> Mentions:
        """Return the definitions and uses of the symbol at, or nearest to, a line of a file.

        Raises `ToolFailed`.
        """
        language = _language(file, self._files)
        spec = self._require_server(language, tool="references", instead="grep")
        text = await to_thread.run_sync(self._code.text, file)
        row, offset = _find_symbol(text, line, symbol, self._files.display_name(file))

        async def find_in_server(
            server: LanguageServer, changes: Mapping[str, int]
        ) -> tuple[Sequence[wire.Location], Sequence[wire.Location], bool]:
            """Return the definitions, the uses, and whether the server still indexes."""
            await self._sync(server, changes, [file])
            await server.wait_until_indexed()
            column = server.column(text.splitlines()[row], offset)
            params = {
                "textDocument": {"uri": wire.uri_of(file)},
                "position": {"line": row, "character": column},
            }
            defined = await server.request("textDocument/definition", params, wire.Location)
            # Without the declaration, some servers omit the requested position.
            with_context = {**params, "context": {"includeDeclaration": True}}
            used = await server.request(
                "textDocument/references", with_context, wire.Location
            )
            return defined, used, server.busy

        defined, used, busy = await self._ask(spec, find_in_server)
        notes = (_INDEXING_NOTE.format(name=spec.program),) if busy else ()
        if row + 1 != line:
            notes += (f"{symbol} is not on line {line}: line {row + 1} was taken",)
        definitions, mentions = await to_thread.run_sync(
            self._code.to_mentions, defined, used
        )
        references = tuple(mention for mention in mentions if mention not in definitions)
        return Mentions(spec.program, notes, definitions, references)

    async def problems(self, files: Sequence[Real]) -> Problems:
        """Return the errors and warnings in files, errors first. Raises `ToolFailed`."""
        if len(files) == 1:
            file_language = _language(files[0], self._files)
            self._require_server(file_language, tool="diagnostics", instead="a command")
            # Raises `ToolFailed` with the reason if the file cannot be read.
            await to_thread.run_sync(self._code.text, files[0])
        by_server, notes = self._group_by_server(files)
        if not by_server:
            if notes:
                raise ToolFailed(f"{'; '.join(notes)}.")
            raise ToolFailed(
                "None of the files that were read or changed is of a known language: "
                "name a file."
            )
        checked = list[str]()
        problems = list[Problem]()
        for spec, server_files in by_server.values():
            last_files = server_files[-_MAX_PROBLEM_FILES:]
            if len(server_files) > len(last_files):
                notes.append(
                    f"only the last {_MAX_PROBLEM_FILES} files of {spec.program} were looked at"
                )
            problems += await self.problems_of(spec, last_files)
            checked += last_files
        # Errors come before warnings.
        problems.sort(key=lambda item: (item.severity != "error", item.path, item.line))
        return Problems(", ".join(by_server), tuple(notes), tuple(checked), tuple(problems))

    def _group_by_server(
        self, files: Sequence[Real]
    ) -> tuple[Mapping[str, tuple[ServerSpec, Sequence[Real]]], list[str]]:
        """Group files by server. Return the groups, and why other files have no server.

        The groups are mapped by the program of the server. Files that the agent may not read
        are left out.
        """
        by_server = dict[str, tuple[ServerSpec, list[Real]]]()
        notes = list[str]()
        for file in files:
            language = language_of(file)
            if language is None or not self._code.is_readable_file(file):
                continue
            spec, why = self._find_server(language)
            if spec is not None:
                _, server_files = by_server.setdefault(spec.program, (spec, []))
                server_files.append(file)
            elif why not in notes:
                notes.append(why)
        return by_server, notes

    async def problems_of(
        self, spec: ServerSpec, files: Sequence[Real], seconds: float = 0.0
    ) -> Sequence[Problem]:
        """Return the errors and warnings that a server reports for files in its languages.

        `seconds` limits the wait; 0 means the limit of a request, after the workspace is
        indexed. Raises `ToolFailed`.
        """

        async def check_in_server(
            server: LanguageServer, changes: Mapping[str, int]
        ) -> Mapping[str, Sequence[wire.Diagnostic]]:
            await self._sync(server, changes, files)
            if not seconds:
                await server.wait_until_indexed()
            return await server.problems(files, seconds)

        result = await self._ask(spec, check_in_server)
        return [
            _problem(path, diagnostic)
            for path, diagnostics in result.items()
            for diagnostic in diagnostics
            if diagnostic.severity is None or diagnostic.severity <= _WARNING_LEVEL
        ]

    def server_of(self, file: str, *, running: bool) -> ServerSpec | None:
        """Return the server for a file, or None if there is none.

        If `running`, return None also if the server does not run yet.
        """
        language = language_of(file)
        if language is None:
            return None
        spec, _ = self._find_server(language)
        if running and spec is not None and not self._workspace.servers.runs(spec):
            return None
        return spec

    async def _outline(self, spec: ServerSpec, file: Real) -> Sequence[Symbol]:
        """Return the symbols that a server lists for a file, ordered by line."""

        async def outline_in_server(
            server: LanguageServer, changes: Mapping[str, int]
        ) -> Sequence[wire.DocumentSymbol]:
            await self._sync(server, changes, [file])
            params = {"textDocument": {"uri": wire.uri_of(file)}}
            return await server.request(
                "textDocument/documentSymbol", params, wire.DocumentSymbol
            )

        result = await self._ask(spec, outline_in_server)
        symbols = islice(_flatten(result, file), _MAX_RESULTS)
        return sorted(symbols, key=lambda symbol: symbol.line)

    async def _symbols_by_name(
        self, spec: ServerSpec, files: Sequence[str], query: str
    ) -> tuple[Sequence[Symbol], bool]:
        """Return the symbols that a server finds for a name, and whether it is still indexing.

        `files` are all files of its language in the workspace.
        """
        first_file = Real(files[0])

        async def search_in_server(
            server: LanguageServer, changes: Mapping[str, int]
        ) -> tuple[Sequence[wire.SymbolInformation], bool]:
            # Some servers only read a workspace once one of its files is open.
            await self._sync(server, changes, [] if server.open else [first_file])
            await server.wait_until_indexed()
            params = {"query": query}
            while True:
                result = await server.request(
                    "workspace/symbol", params, wire.SymbolInformation
                )
                # A new server may not have listed all files yet, and does not report that.
                if result or not await server.may_know_more():
                    return result, server.busy

        result, busy = await self._ask(spec, search_in_server)
        return await to_thread.run_sync(self._workspace_symbols, result), busy

    def _workspace_symbols(
        self, infos: Sequence[wire.SymbolInformation]
    ) -> Sequence[Symbol]:
        """Return the symbols that are in files of the workspace and that the agent may see."""
        symbols = list[Symbol]()
        # More than are returned, because the agent may not see some of them.
        for info in infos[: _MAX_RESULTS * 10]:
            if len(symbols) == _MAX_RESULTS:
                break
            # Without "/", an invalid location would mean the current directory.
            path = os.path.realpath(info.location.path or "/")
            if self._code.is_inside(path) and self._code.may_show(path):
                kind = kind_name(info.kind)
                inside = info.container_name or ""
                symbols.append(Symbol(info.name, kind, path, info.location.line, inside))
        return symbols

    async def _ask(self, spec: ServerSpec, work: Work[T]) -> T:
        """Run `work` with a server and the files changed since the server's last call."""
        files = await to_thread.run_sync(self._code.states, spec)
        return await self._workspace.servers.ask(spec, files, work)

    async def _sync(
        self, server: LanguageServer, changes: Mapping[str, int], files: Sequence[Real]
    ) -> None:
        """Send the server the changes, and the current texts of open files and of `files`."""
        # `files` come last, because the server closes the files first that were sent first.
        paths = (*(Real(p) for p in server.open if p not in files), *files)
        texts = await to_thread.run_sync(self._code.texts, paths)
        await server.sync(texts, changes)

    def _find_server(self, language: Language) -> tuple[ServerSpec | None, str]:
        """Return the server for a language and "", or None and the reason, as a clause."""
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
        """Return the server for a language.

        Raises `ToolFailed` if there is none. The message says that `tool` needs a server, and
        names what to use `instead`.
        """
        spec, why = self._find_server(language)
        if spec is None:
            raise ToolFailed(
                f"{why[:1].upper()}{why[1:]}. {tool} needs one: use {instead}."
            )
        return spec

    def _parse_files(
        self, paths: Sequence[str], query: str
    ) -> tuple[Sequence[Symbol], bool]:
        """Return the symbols whose names contain `query`, found with grammars.

        The second value is False if there was no time to parse all files.
        """
        deadline = time.monotonic() + _PARSE_SECONDS
        symbols = list[Symbol]()
        for path in paths:
            if time.monotonic() > deadline:
                return symbols, False
            language = language_of(path)
            with suppress(ToolFailed):
                content = self._files.read(Real(path))
                text = content.decode("utf-8", "replace")
                if language and query.casefold() in text.casefold():
                    symbols += _with_name(
                        tree_sitter.symbols(language, path, content), query
                    )
        return symbols, True


def _language(file: Real, files: Files) -> Language:
    """Return the language of a file. Raises `ToolFailed` if it is not a known one."""
    if (language := language_of(file)) is None:
        suffixes = ", ".join(s for known in KNOWN_LANGUAGES for s in known.suffixes)
        raise ToolFailed(
            f"{files.display_name(file)} is not in a known language. Known are {suffixes}."
        )
    return language


def _group_by_language(files: Iterable[str]) -> Sequence[tuple[Language, Sequence[str]]]:
    """Group files by language. The language with the most files comes first."""
    groups = dict[str, tuple[Language, list[str]]]()
    for path in files:
        if (language := language_of(path)) is not None:
            _, paths = groups.setdefault(language.name, (language, []))
            paths.append(path)

    def file_count(group: tuple[Language, list[str]]) -> int:
        _, paths = group
        return len(paths)

    return sorted(groups.values(), key=file_count, reverse=True)


def _with_name(symbols: Iterable[Symbol], query: str) -> Iterator[Symbol]:
    wanted = query.casefold()
    return (symbol for symbol in symbols if wanted in symbol.name.casefold())


def _rank(query: str, symbol: Symbol) -> tuple[int, str, str, int]:
    """Return a sort key: first names equal to `query`, then names that begin with it."""
    name, wanted = symbol.name.casefold(), query.casefold()
    if name == wanted:
        group = 0
    elif name.startswith(wanted):
        group = 1
    else:
        group = 2
    return group, name, symbol.path, symbol.line


def _find_symbol(text: str, line: int, symbol: str, file: str) -> tuple[int, int]:
    """Return the row and column of the mention of a symbol that is nearest to `line`.

    Row and column count from 0, `line` from 1. Of a dotted symbol like `Class.method`, the last
    name is searched. Raises `ToolFailed` if it is not in the text.
    """
    last_name = symbol.strip().rpartition(".")[2]
    if not last_name:
        raise ToolFailed("The symbol is empty: give a name that is in the file.")
    word = re.compile(rf"(?<!\w){re.escape(last_name)}(?!\w)")
    columns_by_row = {
        row: match.start()
        for row, text_line in enumerate(text.splitlines())
        if (match := word.search(text_line))
    }
    if not columns_by_row:
        raise ToolFailed(f"{file} does not contain {last_name!r}.")
    nearest_row = min(columns_by_row, key=lambda row: abs(row + 1 - line))
    return nearest_row, columns_by_row[nearest_row]


def _flatten(
    symbols: Iterable[wire.DocumentSymbol], path: str, inside: str = ""
) -> Iterator[Symbol]:
    """Yield symbols, and the symbols inside them unless they are functions."""
    for symbol in symbols:
        line = symbol.selection_range.start.line + 1
        yield Symbol(symbol.name, kind_name(symbol.kind), path, line, inside)
        name = f"{inside}.{symbol.name}" if inside else symbol.name
        if kind_name(symbol.kind) not in ("function", "method", "constructor"):
            yield from _flatten(symbol.children or (), path, name)


def _problem(path: str, diagnostic: wire.Diagnostic) -> Problem:
    code = "" if diagnostic.code is None else str(diagnostic.code)
    line = max(diagnostic.range.start.line, 0) + 1
    # A diagnostic without a severity counts as an error.
    severity = _SEVERITY_NAMES.get(diagnostic.severity or 1, "error")
    return Problem(path, line, severity, diagnostic.message, code)
