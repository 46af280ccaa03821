"""Finds the symbols of a file with a tree-sitter grammar, for languages without a server.

The grammars are packages of the extra `code`. Each has a query, `TAGS_QUERY`, that names the
definitions of its language, so this module needs no knowledge of languages. `languages` says
which grammar a file needs.
"""

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, cast

from msgspec import Struct

from refold.code.languages import Language
from refold.tools.code import Symbol

_MAX_FILE_BYTES = 2 * 1024 * 1024
_MAX_ROLE_PARENTS = 6  # of a name, which are examined for its role
_CODE_IN_STRINGS = ("interpolation", "template_substitution", "formatted_value")
_IMPORT_KINDS = ("import", "use_declaration", "preproc_include", "export_clause")
_MAX_SYMBOLS = 5_000  # in one file
_DEFINITION_PREFIX = "definition."
# The query of a language adds to the query of its base language.
_BASE_LANGUAGES = {"typescript": "javascript", "tsx": "javascript", "cpp": "c"}
# Suffixes whose files need another grammar than their language.
_SUFFIX_GRAMMARS = {
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx"), "javascript"),
    ".tsx": "tsx",
    **dict.fromkeys((".c", ".h"), "c"),
}
_HEAD_PARENT_TYPES = ("pointer_declarator", "reference_declarator", "function_definition")
_PACKAGE_NAMES = {"tsx": ("tree_sitter_typescript", "language_tsx"),
            "typescript": ("tree_sitter_typescript", "language_typescript")}  # fmt: skip
# Definitions that the queries of the grammars omit.
_C_MACROS = """
(preproc_def name: (identifier) @name) @definition.macro
(preproc_function_def name: (identifier) @name) @definition.macro
"""
_MORE_DEFINITIONS = {
    "c": _C_MACROS,
    "cpp": _C_MACROS,
    "go": """
(source_file (var_declaration (var_spec name: (identifier) @name) @definition.variable))
(source_file (const_declaration (const_spec name: (identifier) @name) @definition.constant))
""",
    "java": """
(enum_declaration name: (identifier) @name) @definition.enum
(record_declaration name: (identifier) @name) @definition.class
(constructor_declaration name: (identifier) @name) @definition.constructor
""",
    "rust": """
(const_item name: (identifier) @name) @definition.constant
(static_item name: (identifier) @name) @definition.constant
""",
    **dict.fromkeys(("typescript", "tsx"), """
(type_alias_declaration name: (type_identifier) @name) @definition.type
(enum_declaration name: (identifier) @name) @definition.enum
"""),
}  # fmt: skip


class _Grammar(Struct, frozen=True):
    parse: Callable[[bytes], Any]
    captures: Callable[[Any], Any]


def why_missing(language: Language, path: str) -> str:
    """Return the reason why no grammar can parse a file, as a clause, or "" if one can."""
    if not language.grammar:
        return f"there is no grammar for {language.name}"
    try:
        _grammar(_grammar_name(language, path))
    except ImportError:
        return "the grammars are not installed (pip install 'refold[code]')"
    return ""


def symbols(language: Language, path: str, content: bytes) -> Sequence[Symbol]:
    """Return the symbols of a file in file order, or () if it is too large.

    Call it in a thread, and only if `why_missing` returns "".
    """
    if len(content) > _MAX_FILE_BYTES:
        return ()
    grammar = _grammar(_grammar_name(language, path))
    definitions = dict[tuple[int, int], _Definition]()
    for _, captures in grammar.captures(grammar.parse(content)):
        names = captures.get("name", ())
        if not names:
            continue
        name = names[0]
        for kind, nodes in captures.items():
            if not kind.startswith(_DEFINITION_PREFIX):
                continue
            key = (name.start_byte, name.end_byte)
            # If a name is captured twice, the method is more precise than the function.
            if key not in definitions or kind.endswith("method"):
                definitions[key] = _to_definition(kind, name, nodes[0])
        if len(definitions) >= _MAX_SYMBOLS:
            break
    return tuple(_nest(sorted(definitions.items()), content, path))


def role_at(root: Any, start: int, end: int) -> str:
    """Return the role of the text at these bytes: "code", "import", "string" or "comment".

    `root` is the root of the syntax tree. The innermost node with a known role decides.
    """
    node = root.descendant_for_byte_range(start, end)
    for _ in range(_MAX_ROLE_PARENTS):
        if node is None:
            break
        kind = node.type
        if "comment" in kind:
            return "comment"
        if kind in _CODE_IN_STRINGS:
            return "code"
        if "string" in kind or kind == "char_literal":
            return "string"
        if kind.startswith(_IMPORT_KINDS):
            return "import"
        node = node.parent
    return "code"


def parse(language: Language, path: str, content: bytes) -> Any:
    """Return the root of the syntax tree. Call this only if `why_missing` returns ""."""
    return _grammar(_grammar_name(language, path)).parse(content)


class _Definition(Struct, frozen=True):
    kind: str
    line: int
    node: Any


def _to_definition(kind: str, name: Any, node: Any) -> _Definition:
    """Return a definition with its complete node.

    For a function in C, `node` is only the head; the complete node is the definition or the
    declaration around it.
    """
    kind = kind.removeprefix(_DEFINITION_PREFIX)
    row, _ = name.start_point
    if node.type == "function_declarator":
        while node.parent is not None and node.parent.type in _HEAD_PARENT_TYPES:
            node = node.parent
        if node.type != "function_definition":
            kind = "declaration"
    return _Definition(kind, row + 1, node)


def _nest(
    definitions: Sequence[tuple[tuple[int, int], _Definition]], content: bytes, path: str
) -> Iterator[Symbol]:
    """Yield the definitions as symbols, each with the names of the definitions around it."""
    enclosing = list[tuple[int, str]]()  # ends and names of the enclosing definitions
    for (start, end), definition in definitions:
        while enclosing and enclosing[-1][0] <= start:
            enclosing.pop()
        name = content[start:end].decode(errors="replace")
        inside = ".".join(parent for _, parent in enclosing)
        # Rows count from 0. A node that ends at column 0 does not reach into the row.
        row, column = definition.node.end_point
        end_line = row + 1 if column else row
        last_line = max(end_line, definition.line)
        yield Symbol(name, definition.kind, path, definition.line, inside, last_line)
        enclosing.append((definition.node.end_byte, name))


def _grammar_name(language: Language, path: str) -> str:
    suffix = os.path.splitext(path)[1].lower()
    return _SUFFIX_GRAMMARS.get(suffix, language.grammar)


@lru_cache(maxsize=16)
def _grammar(name: str) -> _Grammar:
    """Load a grammar and its query. Raises `ImportError` if it is not installed."""
    from tree_sitter import Language as Compiled
    from tree_sitter import Parser, Query, QueryCursor

    package, function = _PACKAGE_NAMES.get(name, (f"tree_sitter_{name}", "language"))
    module = importlib.import_module(package)
    compiled = Compiled(cast("object", getattr(module, function)()))
    tags: str = module.TAGS_QUERY
    if name in _BASE_LANGUAGES:
        tags = f"{_base_query(_BASE_LANGUAGES[name], compiled)}\n{tags}"
    query_text = f"{tags}\n{_MORE_DEFINITIONS.get(name, '')}"
    query = Query(compiled, query_text)
    _disable_references(query, query_text.encode())

    def parse(content: bytes) -> Any:
        return Parser(compiled).parse(content).root_node

    return _Grammar(
        parse, lambda root: QueryCursor(query, match_limit=65_536).matches(root)
    )


def _disable_references(query: Any, text: bytes) -> None:
    """Disable the patterns that find uses of names, because they take half of the time."""
    for index in range(query.pattern_count):
        start = query.start_byte_for_pattern(index)
        end = query.end_byte_for_pattern(index)
        pattern = text[start:end]
        if b"@definition." not in pattern:
            query.disable_pattern(index)


def _base_query(name: str, compiled: Any) -> str:
    """Return the query of the grammar `name`, or "" if `compiled` does not accept it."""
    from tree_sitter import Query, QueryError

    tags: str = importlib.import_module(f"tree_sitter_{name}").TAGS_QUERY
    try:
        Query(compiled, tags)
    except QueryError:
        return ""
    return tags
