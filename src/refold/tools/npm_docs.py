"""Reads the documentation of an npm package that is installed in the workspace.

It uses the package.json, the readme and the TypeScript declarations, either those of the
package or those of @types. Declarations are found line by line, not parsed. `package_docs`
renders the result.
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
_MAX_TOTAL_CHARS, _MAX_FILES = 8_000_000, 400  # for all declarations together
_MAX_DEPTH = 6
_MAX_ROWS = 12  # for one declaration
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
    """Return the documentation of a package; None if no node_modules folder has it.

    Symbols are those that match `query`.
    """
    if not _NAME_PATTERN.fullmatch(package):
        return None
    folder = f"node_modules/{package}"
    about = _json(files, f"{folder}/package.json")
    if not about:
        return None
    file_names = (name for name, _ in names_in(files, folder))
    readme_name = next((name for name in file_names if name.lower() == "readme.md"), "")
    homepage = _text_field(about, "homepage")
    docs = PackageDocs(
        package,
        version=_text_field(about, "version"),
        summary=_text_field(about, "description"),
        where=folder,
        readme=text_of(files, f"{folder}/{readme_name}") if readme_name else "",
        links=(homepage,) if homepage else (),
    )
    words = words_of(query)
    # The types of `@scope/name` are in `@types/scope__name`.
    types_folder = f"node_modules/@types/{package.removeprefix('@').replace('/', '__')}"
    symbols = [*_symbols(files, folder, words), *_symbols(files, types_folder, words)]
    if words:
        return with_query(docs, symbols, query)
    names = dict.fromkeys(symbol.name for symbol in symbols if "." not in symbol.name)
    return msgspec.structs.replace(docs, names=tuple(names))


def _symbols(files: Files, folder: str, words: Sequence[str]) -> Iterator[Symbol]:
    """Yield the symbols in those declaration files that contain all words, up to the limits."""
    chars_left = _MAX_TOTAL_CHARS
    for path in list(_declarations(files, folder, depth=0))[:_MAX_FILES]:
        text = text_of(files, path)
        chars_left -= len(text)
        if chars_left < 0:
            return
        folded = text.casefold()
        if all(word in folded for word in words):
            yield from _parse_declarations(text.splitlines(), path)


def _declarations(files: Files, folder: str, depth: int) -> Iterator[str]:
    """Yield the files with type declarations in a folder, and then those below it."""
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
    """Yield the declarations in a file, and the members of its classes and interfaces."""
    container = ""  # the class, interface or namespace around the row
    comment, in_comment = list[str](), False
    for index, row in enumerate(rows):
        stripped = row.strip()
        if stripped.startswith("/**"):
            comment, in_comment = [], True
        if in_comment:
            comment.append(stripped.strip("/* ").strip())
            in_comment = "*/" not in stripped
            continue
        declaration = _DECLARATION_PATTERN.match(row)
        if row.startswith("}"):
            container = ""
        match = declaration or (_MEMBER_PATTERN.match(row) if container else None)
        if match is not None:
            name = match["name"]
            full_name = f"{container}.{name}" if container and name != container else name
            signature = _declaration_text(rows, index)
            doc = "\n".join(comment).strip()
            yield Symbol(full_name, signature, doc, f"{path}:{index + 1}")
            if (
                declaration
                and not declaration["indent"]
                and declaration["kind"] in _CONTAINER_KINDS
            ):
                container = name
        if stripped:
            comment = []


def _declaration_text(rows: Sequence[str], start: int) -> str:
    """Return the declaration that begins at the index `start`, up to its end or its body."""
    parts = list[str]()
    for row in rows[start : start + _MAX_ROWS]:
        parts.append(row.strip())
        if row.rstrip().endswith((";", "{", "}")):
            break
    return " ".join(parts).rstrip("{ ")


def _json(files: Files, path: str) -> dict[str, Any]:
    """Return the JSON object in a file; {} if it is missing or damaged."""
    try:
        return msgspec.json.decode(text_of(files, path), type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _text_field(about: dict[str, Any], key: str) -> str:
    value = about.get(key)
    return value if isinstance(value, str) else ""
