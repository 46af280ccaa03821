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

_NAME = re.compile(r"(?:@[a-z0-9._~-]+/)?[A-Za-z0-9._~-]+")
_TOTAL, _FILES = 8_000_000, 400  # characters of all declarations, and files
_DEEPEST = 6
_ROWS = 12  # of one declaration
_DECLARES = re.compile(
    r"^(?P<indent>\s*)(?:export\s+)?(?:declare\s+)?(?:default\s+)?(?:abstract\s+)?"
    r"(?:async\s+)?(?P<kind>function|class|interface|type|const|let|var|enum|namespace)\s+"
    r"(?P<name>[\w$]+)"
)
_MEMBER = re.compile(
    r"^\s+(?:(?:static|readonly|public|protected|get|set)\s+)*(?P<name>[\w$]+)\??\s*[(<:]"
)
_OPENS = ("class", "interface", "namespace")


def installed(files: Files, package: str, query: str) -> PackageDocs | None:
    """None: there is no such folder in node_modules."""
    if not _NAME.fullmatch(package):
        return None
    folder = f"node_modules/{package}"
    about = _json(files, f"{folder}/package.json")
    if not about:
        return None
    name = next((n for n, _ in names_in(files, folder) if n.lower() == "readme.md"), "")
    docs = PackageDocs(
        package,
        _word(about, "version"),
        _word(about, "description"),
        folder,
        text_of(files, f"{folder}/{name}") if name else "",
        tuple(filter(None, (_word(about, "homepage"),))),
    )
    words = words_of(query)
    typed = f"node_modules/@types/{package.removeprefix('@').replace('/', '__')}"
    found = [*_symbols(files, folder, words), *_symbols(files, typed, words)]
    if words:
        return with_query(docs, found, query)
    names = dict.fromkeys(each.name for each in found if "." not in each.name)
    return msgspec.structs.replace(docs, names=tuple(names))


def _symbols(files: Files, folder: str, words: Sequence[str]) -> Iterator[Symbol]:
    left = _TOTAL
    for path in list(_declarations(files, folder, 0))[:_FILES]:
        text = text_of(files, path)
        left -= len(text)
        if left < 0:
            return
        small = text.casefold()
        if all(word in small for word in words):
            yield from _declared(text.splitlines(), path)


def _declarations(files: Files, folder: str, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    below = list[str]()
    for name, kind in names_in(files, folder):
        if kind == "directory" and name != "node_modules":
            below.append(name)
        elif name.endswith((".d.ts", ".d.mts", ".d.cts")):
            yield f"{folder}/{name}"
    for name in below:
        yield from _declarations(files, f"{folder}/{name}", depth + 1)


def _declared(rows: Sequence[str], path: str) -> Iterator[Symbol]:
    """Declarations, and the members of the class or interface that is open."""
    inside, comment, started = "", list[str](), False
    for number, row in enumerate(rows):
        stripped = row.strip()
        if stripped.startswith("/**"):
            comment, started = [], True
        if started:
            comment.append(stripped.strip("/* ").strip())
            started = "*/" not in stripped
            continue
        found = _DECLARES.match(row)
        if row.startswith("}"):
            inside = ""
        named = found or (_MEMBER.match(row) if inside else None)
        if named is not None:
            name = named["name"]
            full = f"{inside}.{name}" if inside and name != inside else name
            doc = "\n".join(comment).strip()
            yield Symbol(full, _whole(rows, number), doc, f"{path}:{number + 1}")
            if found and not found["indent"] and found["kind"] in _OPENS:
                inside = name
        if stripped:
            comment = []


def _whole(rows: Sequence[str], number: int) -> str:
    """The declaration, to its end or to where its body opens."""
    taken = list[str]()
    for row in rows[number : number + _ROWS]:
        taken.append(row.strip())
        if row.rstrip().endswith((";", "{", "}")):
            break
    return " ".join(taken).rstrip("{ ")


def _json(files: Files, path: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text_of(files, path), type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _word(about: dict[str, Any], key: str) -> str:
    found = about.get(key)
    return found if isinstance(found, str) else ""
