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
_MAX_ROLE_PARENTS = 6  # looked at around a name
_CODE_IN_STRINGS = ("interpolation", "template_substitution", "formatted_value")
_IMPORT_KINDS = ("import", "use_declaration", "preproc_include", "export_clause")
_MAX_SYMBOLS = 5_000  # of one file
_DEFINITION_PREFIX = "definition."
# A method differs from a function by its place; a query reports a struct as a class.
_BASE_LANGUAGES = {"typescript": "javascript", "tsx": "javascript", "cpp": "c"}
_SUFFIX_LANGUAGES = {
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx"), "javascript"),
    ".tsx": "tsx",
    **dict.fromkeys((".c", ".h"), "c"),
}
_AROUND_A_HEAD = ("pointer_declarator", "reference_declarator", "function_definition")
_PACKAGE_NAMES = {"tsx": ("tree_sitter_typescript", "language_tsx"),
            "typescript": ("tree_sitter_typescript", "language_typescript")}  # fmt: skip
# What the queries of the grammars leave out.
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
    definitions = dict[tuple[int, int], _Definition]()
    for _, captures in grammar.captures(grammar.parse(content)):
        for kind, nodes in captures.items():
            if not kind.startswith(_DEFINITION_PREFIX):
                continue
            for name in captures.get("name", ())[:1]:
                key = (name.start_byte, name.end_byte)
                # If a name is captured twice, the method is more precise than the function.
                if key not in definitions or kind.endswith("method"):
                    definitions[key] = _to_definition(kind, name, nodes[0])
        if len(definitions) >= _MAX_SYMBOLS:
            break
    return tuple(_nest(sorted(definitions.items()), content, path))


def role_at(root: Any, start: int, end: int) -> str:
    """What the text at these bytes is: "code", "import", "string" or "comment"."""
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
    """The root of the tree. Only if `why_missing` returns ""."""
    return _grammar(_grammar_name(language, path)).parse(content)


class _Definition(Struct, frozen=True):
    kind: str
    line: int
    node: Any


def _to_definition(kind: str, name: Any, node: Any) -> _Definition:
    """The node of a whole definition. For C, a query names only the head of a function,
    inside the definition or a declaration.
    """
    kind, line = kind.removeprefix(_DEFINITION_PREFIX), name.start_point[0] + 1
    if node.type == "function_declarator":
        while node.parent is not None and node.parent.type in _AROUND_A_HEAD:
            node = node.parent
        if node.type != "function_definition":
            kind = "declaration"
    return _Definition(kind, line, node)


def _nest(
    definitions: Sequence[tuple[tuple[int, int], _Definition]], content: bytes, path: str
) -> Iterator[Symbol]:
    around = list[tuple[int, str]]()  # the ends of the enclosing definitions
    for (start, end), definition in definitions:
        while around and around[-1][0] <= start:
            around.pop()
        name = content[start:end].decode(errors="replace")
        inside = ".".join(parent for _, parent in around)
        row, column = definition.node.end_point
        last_line = max(row + 1 if column else row, definition.line)
        yield Symbol(name, definition.kind, path, definition.line, inside, last_line)
        around.append((definition.node.end_byte, name))


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
    query = Query(compiled, f"{tags}\n{_MORE_DEFINITIONS.get(name, '')}")
    _disable_references(query, f"{tags}\n{_MORE_DEFINITIONS.get(name, '')}".encode())

    def parse(content: bytes) -> Any:
        return Parser(compiled).parse(content).root_node

    return _Grammar(
        parse, lambda root: QueryCursor(query, match_limit=65_536).matches(root)
    )


def _disable_references(query: Any, text: bytes) -> None:
    """Skip the patterns of uses, which take half of the time."""
    for index in range(query.pattern_count):
        pattern = text[
            query.start_byte_for_pattern(index) : query.end_byte_for_pattern(index)
        ]
        if b"@definition." not in pattern:
            query.disable_pattern(index)


def _base_query(name: str, compiled: Any) -> str:
    """The query of the base language, if it fits."""
    from tree_sitter import Query, QueryError

    tags: str = importlib.import_module(f"tree_sitter_{name}").TAGS_QUERY
    try:
        Query(compiled, tags)
    except QueryError:
        return ""
    return tags
