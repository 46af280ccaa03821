"""Reads the documentation of an npm package that is installed in the workspace.

From its package.json, its readme and the declarations for TypeScript: its own, or those of
@types. Declarations are found by their lines, not parsed. `package_docs` writes what is found.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from refold.place.port import Files
from refold.tools.package_symbols import (
    PackageDocs,
    Symbol,
    names_in,
    text_of,
    with_query,
    words_of,
)

_NAME_PATTERN = re.compile(r"(?:@[a-z0-9._~-]+/)?[A-Za-z0-9._~-]+")
_MAX_TOTAL_CHARS, _MAX_FILES = 8_000_000, 400  # of all declarations together
_MAX_DEPTH = 6
_MAX_ROWS = 12  # of one declaration
_DECLARATION_PATTERN = re.compile(
    r"^(?P<indent>\s*)(?:export\s+)?(?:declare\s+)?(?:default\s+)?(?:abstract\s+)?"
    r"(?:async\s+)?(?P<kind>function|class|interface|type|const|let|var|enum|namespace)\s+"
    r"(?P<name>[\w$]+)"
)
_MEMBER_PATTERN = re.compile(
    r"^\s+(?:(?:static|readonly|public|protected|get|set)\s+)*(?P<name>[\w$]+)\??\s*[(<:]"
)
_CONTAINER_KINDS = ("class", "interface", "namespace")


def find_package(files: Files, package: str, query: str) -> PackageDocs | None:
    """The documentation of a package; None without its folder in node_modules."""
    if not _NAME_PATTERN.fullmatch(package):
        return None
    folder = f"node_modules/{package}"
    about = _json(files, f"{folder}/package.json")
    if not about:
        return None
    name = next((n for n, _ in names_in(files, folder) if n.lower() == "readme.md"), "")
    docs = PackageDocs(
        package,
        _text_field(about, "version"),
        _text_field(about, "description"),
        folder,
        text_of(files, f"{folder}/{name}") if name else "",
        tuple(filter(None, (_text_field(about, "homepage"),))),
    )
    words = words_of(query)
    typed = f"node_modules/@types/{package.removeprefix('@').replace('/', '__')}"
    symbols = [*_symbols(files, folder, words), *_symbols(files, typed, words)]
    if words:
        return with_query(docs, symbols, query)
    names = dict.fromkeys(symbol.name for symbol in symbols if "." not in symbol.name)
    return msgspec.structs.replace(docs, names=tuple(names))


def _symbols(files: Files, folder: str, words: Sequence[str]) -> Iterator[Symbol]:
    left = _MAX_TOTAL_CHARS
    for path in list(_declarations(files, folder, 0))[:_MAX_FILES]:
        text = text_of(files, path)
        left -= len(text)
        if left < 0:
            return
        small = text.casefold()
        if all(word in small for word in words):
            yield from _parse_declarations(text.splitlines(), path)


def _declarations(files: Files, folder: str, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        return
    below = list[str]()
    for name, kind in names_in(files, folder):
        if kind == "directory" and name != "node_modules":
            below.append(name)
        elif name.endswith((".d.ts", ".d.mts", ".d.cts")):
            yield f"{folder}/{name}"
    for name in below:
        yield from _declarations(files, f"{folder}/{name}", depth + 1)


def _parse_declarations(rows: Sequence[str], path: str) -> Iterator[Symbol]:
    """Declarations, and the members of classes and interfaces."""
    inside, comment, started = "", list[str](), False
    for number, row in enumerate(rows):
        stripped = row.strip()
        if stripped.startswith("/**"):
            comment, started = [], True
        if started:
            comment.append(stripped.strip("/* ").strip())
            started = "*/" not in stripped
            continue
        declaration = _DECLARATION_PATTERN.match(row)
        if row.startswith("}"):
            inside = ""
        named = declaration or (_MEMBER_PATTERN.match(row) if inside else None)
        if named is not None:
            name = named["name"]
            full = f"{inside}.{name}" if inside and name != inside else name
            doc = "\n".join(comment).strip()
            yield Symbol(full, _declaration_text(rows, number), doc, f"{path}:{number + 1}")
            if (
                declaration
                and not declaration["indent"]
                and declaration["kind"] in _CONTAINER_KINDS
            ):
                inside = name
        if stripped:
            comment = []


def _declaration_text(rows: Sequence[str], number: int) -> str:
    """The declaration, to its end or to where its body opens."""
    taken = list[str]()
    for row in rows[number : number + _MAX_ROWS]:
        taken.append(row.strip())
        if row.rstrip().endswith((";", "{", "}")):
            break
    return " ".join(taken).rstrip("{ ")


def _json(files: Files, path: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text_of(files, path), type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _text_field(about: dict[str, Any], key: str) -> str:
    value = about.get(key)
    return value if isinstance(value, str) else ""
