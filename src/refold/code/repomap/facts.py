"""Extracts what one file of source code defines, mentions and imports.

Definitions are found by a grammar or, for languages without one, by a pattern with the usual
keywords. Mentions are the names outside comments and prose. They are stored as numbers of 32
bits, because they only decide which files are worth reading. This module opens no file;
`refresh` does.
"""

import os
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

from msgspec import Struct

from refold.code import tree_sitter
from refold.code.languages import LANGUAGE_SUFFIXES, language_of
from refold.tools.code import Symbol

MAX_FILE_BYTES = 1024 * 1024
_MAX_LINE_BYTES = 20_000  # longer lines are assumed to be generated
_MAX_MENTIONS = 20_000  # different names in one file
_MAX_IMPORTS = 500
_MAX_NAME_CHARS = 120
_PLAIN_SUFFIXES = frozenset(
    [".rb", ".php", ".cs", ".swift", ".kt", ".kts", ".scala", ".lua", ".sh", ".bash", ".zsh", ".pl", ".pm", ".ex", ".exs", ".erl", ".hs", ".ml", ".mli", ".clj", ".cljs", ".el", ".lisp", ".scm", ".jl", ".r", ".dart", ".groovy", ".m", ".mm", ".zig", ".nim", ".v", ".sv", ".vhd", ".sql", ".proto", ".vue", ".svelte", ".tcl", ".f90", ".pas", ".d", ".cu", ".s", ".asm"]
)  # fmt: skip
_PLAIN_DEFINITION = re.compile(
    rb"^[ \t]*(?:(?:export|public|private|protected|internal|static|final|abstract|async|local|override|open|data"
    rb"|sealed|virtual|pub|inline|default)[ \t]+)*"
    rb"(class|module|interface|trait|struct|enum|record|object|protocol|namespace|function|func|fun|fn|def"
    rb"|defp|defmodule|defn|defun|sub|macro|message|service|type|CREATE (?:TABLE|VIEW|FUNCTION))[ \t]+"
    rb"(?:\([^)\n]*\)[ \t]*)?([A-Za-z_][\w.:?!-]*)",
    re.MULTILINE | re.IGNORECASE,
)
# A string that is one dotted name counts as a mention, because registries and patches name
# code that way.
_HASH_TOKENS = re.compile(
    rb'"""[\s\S]*?(?:"""|\Z)|\'\'\'[\s\S]*?(?:\'\'\'|\Z)|#[^\n]*'
    rb'|"((?:\\.|[^"\\\n])*)"|\'((?:\\.|[^\'\\\n])*)\'|([A-Za-z_]\w+)'
)
_SLASH_TOKENS = re.compile(
    rb"/\*[\s\S]*?(?:\*/|\Z)|//[^\n]*"
    rb'|"((?:\\.|[^"\\\n])*)"|\'((?:\\.|[^\'\\\n])*)\'|([A-Za-z_]\w+)'
)
_HASH_SUFFIXES = frozenset(
    [
        ".py",
        ".pyi",
        ".rb",
        ".sh",
        ".bash",
        ".zsh",
        ".pl",
        ".pm",
        ".ex",
        ".exs",
        ".jl",
        ".r",
        ".tcl",
        ".nim",
    ]
)
_NAME_PATTERN = re.compile(rb"[A-Za-z_]\w+")
_DOTTED_NAME = re.compile(rb"[A-Za-z_][\w.:/-]*\Z")
_IN_BRACES = re.compile(rb"\{([^{}]*)")
_PYTHON_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)|import[ \t]+([\w., \t]+))",
    re.MULTILINE,
)
_SCRIPT_IMPORT = re.compile(
    rb"""(?:\bfrom|\brequire\(|\bimport\(?)[ \t]*["']([^"'\n]+)["']"""
)
_IMPORT_PATTERNS = {
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".vue", ".svelte"), _SCRIPT_IMPORT),
    **dict.fromkeys((".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".m", ".mm", ".cu"),
                    re.compile(rb'^[ \t]*#[ \t]*(?:include|import)[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)),
    ".go": re.compile(rb'^[ \t]*(?:import[ \t]+)?(?:[\w.]+[ \t]+)?"([\w./-]+)"[ \t]*$', re.MULTILINE),
    ".rs": re.compile(rb"^[ \t]*(?:pub(?:\([^)]*\))?[ \t]+)?(?:use|mod)[ \t]+([\w:]+)", re.MULTILINE),
    **dict.fromkeys((".java", ".kt", ".kts", ".scala", ".groovy"),
                    re.compile(rb"^[ \t]*import[ \t]+(?:static[ \t]+)?([\w.]+)", re.MULTILINE)),
    **dict.fromkeys((".rb", ".php", ".lua", ".pl", ".dart", ".proto"),
                    re.compile(rb"""^[ \t]*(?:require(?:_relative|_once)?|include(?:_once)?|import)[ \t(]*["']([^"'\n]+)["']""", re.MULTILINE)),
}  # fmt: skip
_SUFFIX_FAMILIES = {
    ".pyi": ".py",
    **dict.fromkeys((".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".vue", ".svelte"), ".js"),
    **dict.fromkeys((".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".m", ".mm", ".cu", ".s"), ".c"),
    **dict.fromkeys((".kt", ".kts", ".scala", ".groovy"), ".java"),
}  # fmt: skip
_ENTRY_PATTERN = re.compile(
    rb"""^if __name__ == ["']__main__|^(?:pub )?(?:async )?fn main\(|^func main\(\)"""
    rb"""|^(?:int|void)\s+main\s*\(|static\s+void\s+main\s*\(\s*String|\A\#!""",
    re.MULTILINE,
)
_TEST_PATH = re.compile(
    r"(?:^|/)(?:tests?|specs?|__tests__|testing)/|(?:^|/)(?:test_[^/]*|conftest\.py|tests\.py)$"
    r"|(?:_test|_spec|\.test|\.spec|Tests?|IT)\.\w+$"
)


class Definition(Struct, frozen=True, array_like=True):
    """A definition of a name. `inside` names the definitions around it, joined by dots.

    Lines count from 1.
    """

    name: str
    kind: str
    line: int
    last_line: int
    inside: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.inside}.{self.name}" if self.inside else self.name


class FileFacts(Struct, frozen=True):
    """The facts of one file. `defines` and `mentions` are hashes of names.

    `by` is the parser, "tree-sitter" or "plain"; "" if the file was left out. `problem` is the
    reason why it was left out or its grammar was not used, or "".
    """

    by: str
    problem: str = ""
    definitions: Sequence[Definition] = ()
    imports: Sequence[str] = ()
    defines: bytes = b""
    mentions: bytes = b""
    is_entry: bool = False


def is_source(path: str) -> bool:
    """Whether the map reads files with this suffix."""
    suffix = _suffix(path)
    return suffix in _PLAIN_SUFFIXES or suffix in LANGUAGE_SUFFIXES


def family(path: str) -> int:
    """Return a number for the language of a file.

    Files with the same number can use each other's definitions.
    """
    suffix = _suffix(path)
    return crc32(_SUFFIX_FAMILIES.get(suffix, suffix).encode())


def is_test(path: str) -> bool:
    """Whether a file at this relative path is a test, by its language's conventions."""
    return _TEST_PATH.search(path) is not None


def parser_of(path: str) -> str:
    """Return the parser for a file: "tree-sitter", or "plain" if there is no grammar for it."""
    language = language_of(path)
    if language is None or tree_sitter.why_missing(language, path):
        return "plain"
    return "tree-sitter"


def read_facts(path: str, content: bytes, *, plain: bool = False) -> FileFacts:
    """Extract the facts of a file. If `plain`, no grammar is used, because it failed before."""
    if problem := _why_left_out(content):
        return FileFacts(by="", problem=problem)
    by = "plain" if plain else parser_of(path)
    definitions = definitions_of(path, content, plain=plain)
    return FileFacts(
        by,
        definitions=definitions,
        imports=tuple(_imports(path, content)),
        defines=to_hashes(item.name.encode() for item in definitions),
        mentions=to_hashes(_mentions(path, content)),
        is_entry=_ENTRY_PATTERN.search(content) is not None,
    )


def definitions_of(
    path: str, content: bytes, *, plain: bool = False
) -> Sequence[Definition]:
    """Return the definitions in a file in their order. If `plain`, no grammar is used."""
    language = language_of(path)
    if language is None or plain or tree_sitter.why_missing(language, path):
        return tuple(_plain_definitions(content))
    return tuple(map(_to_definition, tree_sitter.symbols(language, path, content)))


def name_hash(name: str) -> int:
    return crc32(name.encode())


def to_hashes(names: Iterable[bytes]) -> bytes:
    """Return the hashes of names, sorted and without duplicates.

    Each hash has four bytes, in the byte order of this machine.
    """
    return array("I", sorted(set(map(crc32, names)))).tobytes()


def from_hashes(hashes: bytes) -> "array[int]":
    """Return the numbers that `to_hashes` has encoded."""
    values = array("I")
    whole_bytes = len(hashes) // 4 * 4  # damaged data may end within a hash
    values.frombytes(hashes[:whole_bytes])
    return values


def _why_left_out(content: bytes) -> str:
    """Return the reason to leave out a file with this content, or "" if there is none."""
    if b"\0" in content[:8192]:
        return "it is binary"
    if len(content) > MAX_FILE_BYTES:
        return f"it is larger than {MAX_FILE_BYTES // 1024:,} KiB"
    if len(content) > _MAX_LINE_BYTES:
        longest_line = max(content.split(b"\n"), key=len)
        if len(longest_line) > _MAX_LINE_BYTES:
            return f"it has a line of more than {_MAX_LINE_BYTES:,} bytes"
    return ""


def _to_definition(symbol: Symbol) -> Definition:
    kind = "method" if symbol.kind == "function" and symbol.inside else symbol.kind
    name, inside = symbol.name[:_MAX_NAME_CHARS], symbol.inside[:_MAX_NAME_CHARS]
    return Definition(name, kind, symbol.line, symbol.last_line, inside)


def _plain_definitions(content: bytes) -> Iterator[Definition]:
    """Yield the definitions that a regular expression finds.

    Each definition counts as one line long.
    """
    line = 1
    counted_to = 0  # the offset up to which line ends were counted
    for match in _PLAIN_DEFINITION.finditer(content):
        name_start = match.start(2)
        line += content.count(b"\n", counted_to, name_start)
        counted_to = name_start
        kind, name = (group.decode(errors="replace") for group in match.groups())
        yield Definition(name[:_MAX_NAME_CHARS], kind.lower(), line, line)


def _mentions(path: str, content: bytes) -> set[bytes]:
    """Return the names that a file mentions in code.

    Names in strings count if the string is one dotted name, or if they are in braces.
    """
    tokens = _HASH_TOKENS if _suffix(path) in _HASH_SUFFIXES else _SLASH_TOKENS
    names, strings = set[bytes](), set[bytes]()
    # A match has a string in double quotes, one in single quotes, or a name; a comment has none.
    for double, single, name in tokens.findall(content):
        if name:
            names.add(name)
        elif text := double or single:
            strings.add(text)
    for text in strings:
        if _DOTTED_NAME.match(text):
            names.update(_NAME_PATTERN.findall(text))
        elif b"{" in text:
            for code in _IN_BRACES.findall(text):
                names.update(_NAME_PATTERN.findall(code))
    if len(names) > _MAX_MENTIONS:
        return set(sorted(names)[:_MAX_MENTIONS])
    return names


def _imports(path: str, content: bytes) -> Iterator[str]:
    """Yield the modules that a file imports, by the names that are used in the file.

    For `from a import b, c` the names are a, a.b and a.c.
    """
    suffix = _suffix(path)
    modules = dict[bytes, None]()  # a dict keeps the order
    if suffix in (".py", ".pyi"):
        # Either `from module import names`, or `import plain_names`.
        for module, names, plain_names in _PYTHON_IMPORT.findall(content):
            if module:
                modules[module] = None
                dot = b"" if module.endswith(b".") else b"."
                for name in re.findall(rb"([A-Za-z_]\w*)(?:[ \t]+as[ \t]+\w+)?", names):
                    modules[module + dot + name] = None
            for part in plain_names.split(b","):
                if part.strip():
                    modules[part.split()[0]] = None
    elif pattern := _IMPORT_PATTERNS.get(suffix):
        modules = dict.fromkeys(pattern.findall(content))
    for module in list(modules)[:_MAX_IMPORTS]:
        yield module.decode(errors="replace")[:_MAX_NAME_CHARS]


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()
