"""The symbols of a file, found with a tree-sitter grammar: what there is without a server.

The grammars are packages of the extra `code`. Each has a query, `TAGS_QUERY`, that names the
definitions of its language, so this module knows no language itself. `languages` says which
grammar a file needs.
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, cast

from msgspec import Struct

from refold.code.languages import Language
from refold.tools.code import Symbol

_MAX_FILE_BYTES = 2 * 1024 * 1024
_MAX_SYMBOLS = 5_000  # of one file
_DEFINITION_PREFIX = "definition."
# A method differs from a function by its place; a query reports a struct as a class.
_BASE_LANGUAGES = {"typescript": "javascript", "tsx": "javascript", "cpp": "c"}
_SUFFIX_LANGUAGES = {
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx"), "javascript"),
    ".tsx": "tsx",
    **dict.fromkeys((".c", ".h"), "c"),
}
_PACKAGE_NAMES = {"tsx": ("tree_sitter_typescript", "language_tsx"),
            "typescript": ("tree_sitter_typescript", "language_typescript")}  # fmt: skip


class _Grammar(Struct, frozen=True):
    parse: Callable[[bytes], Any]
    captures: Callable[[Any], Any]


def why_missing(language: Language, path: str) -> str:
    """A clause on why symbols of this file are unavailable, or ""."""
    if not language.grammar:
        return f"there is no grammar for {language.name}"
    try:
        _grammar(_grammar_name(language, path))
    except ImportError:
        return "the grammars are not installed (pip install 'refold[code]')"
    return ""


def symbols(language: Language, path: str, content: bytes) -> Sequence[Symbol]:
    """Symbols in file order. Call it in a thread, and only if `why_missing` returns ""."""
    if len(content) > _MAX_FILE_BYTES:
        return ()
    grammar = _grammar(_grammar_name(language, path))
    definitions = dict[tuple[int, int], tuple[Any, str]]()
    for _, captures in grammar.captures(grammar.parse(content)):
        for kind, nodes in captures.items():
            if not kind.startswith(_DEFINITION_PREFIX):
                continue
            for name in captures.get("name", ())[:1]:
                key = (name.start_byte, name.end_byte)
                before = definitions.get(key)
                # If a name is captured twice, the method is more precise than the function.
                if before is None or kind.endswith("method"):
                    definitions[key] = nodes[0], kind.removeprefix(_DEFINITION_PREFIX)
        if len(definitions) >= _MAX_SYMBOLS:
            break
    return tuple(_nest(sorted(definitions.items()), content, path))


def _nest(
    definitions: Sequence[tuple[tuple[int, int], tuple[Any, str]]],
    content: bytes,
    path: str,
) -> Iterator[Symbol]:
    around = list[tuple[int, str]]()  # the ends of the enclosing definitions
    for (start, end), (node, kind) in definitions:
        while around and around[-1][0] <= start:
            around.pop()
        name = content[start:end].decode(errors="replace")
        inside = ".".join(parent for _, parent in around)
        line = content.count(b"\n", 0, start) + 1
        yield Symbol(name, kind, path, line, inside)
        around.append((node.end_byte, name))


def _grammar_name(language: Language, path: str) -> str:
    index = path.rfind(".")
    return _SUFFIX_LANGUAGES.get(path[index:].lower(), language.grammar)


@lru_cache(maxsize=16)
def _grammar(name: str) -> _Grammar:
    from tree_sitter import Language as Compiled
    from tree_sitter import Parser, Query, QueryCursor

    package, function = _PACKAGE_NAMES.get(name, (f"tree_sitter_{name}", "language"))
    module = importlib.import_module(package)
    compiled = Compiled(cast("object", getattr(module, function)()))
    tags: str = module.TAGS_QUERY
    if name in _BASE_LANGUAGES:
        tags = f"{_base_query(_BASE_LANGUAGES[name], compiled)}\n{tags}"
    query = Query(compiled, tags)

    def parse(content: bytes) -> Any:
        return Parser(compiled).parse(content).root_node

    return _Grammar(
        parse, lambda root: QueryCursor(query, match_limit=65_536).matches(root)
    )


def _base_query(name: str, compiled: Any) -> str:
    """The query of the base language, if it fits."""
    from tree_sitter import Query, QueryError

    tags: str = importlib.import_module(f"tree_sitter_{name}").TAGS_QUERY
    try:
        Query(compiled, tags)
    except QueryError:
        return ""
    return tags
