"""Describes an installed package, and finds the symbols in it that match a query.

`python_docs` and `npm_docs` read the packages, and `package_docs` renders the result.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.place.port import Files

_PRIVATE_PENALTY = 3  # of a score of up to 20
_MAX_SYMBOLS = 10  # the number of shown symbols
_MAX_FILE_BYTES = 1_000_000  # longer files are left out


class Symbol(Struct, frozen=True):
    """A function, class or type. `name` includes the names of the classes around it."""

    name: str
    signature: str
    doc: str
    where: str  # file:line


class PackageDocs(Struct, frozen=True):
    """The documentation of a package. `names` are its public names at the top level."""

    name: str
    version: str
    summary: str
    where: str
    readme: str = ""
    links: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    symbols: tuple[Symbol, ...] = ()


def words_of(query: str) -> tuple[str, ...]:
    """Return the words of a query in lower case. `Client.get` has two words."""
    return tuple(re.findall(r"\w+", query.casefold()))


def best_matches(symbols: Iterable[Symbol], query: str) -> tuple[Symbol, ...]:
    """Return the symbols that match the query, the best first.

    Of equally good symbols, those with a docstring come first, and then those with a short
    name.
    """
    matches = list[tuple[int, Symbol]]()
    for symbol in symbols:
        score = _score(symbol, query)
        if score > 0:
            matches.append((score, symbol))

    def rank(match: tuple[int, Symbol]) -> tuple[int, bool, int, str]:
        score, symbol = match
        return (-score, not symbol.doc, len(symbol.name), symbol.name)

    matches.sort(key=rank)
    return tuple(symbol for _, symbol in matches[:_MAX_SYMBOLS])


def _score(symbol: Symbol, query: str) -> int:
    """Return how well a symbol matches a query: 0 for not at all, 20 for its exact name.

    In between are its name with all words of the query, its name with these words as parts of
    words, and its docstring. Private symbols come after public symbols.
    """
    words, name = words_of(query), symbol.name.casefold()
    if not words:
        return 0
    is_private = any(part.startswith("_") for part in symbol.name.split("."))
    penalty = _PRIVATE_PENALTY if is_private else 0
    exact_name = query.casefold().removesuffix("()")
    if name == exact_name or name.endswith(f".{exact_name}"):
        return 20 - penalty
    name_words = re.findall(r"[a-z0-9]+", name)
    if all(word in name_words for word in words):
        return 12 - penalty
    if all(word in name for word in words):
        return 9 - penalty
    name_and_doc = f"{name} {symbol.doc.casefold()}"
    return 5 - penalty if all(word in name_and_doc for word in words) else 0


def with_query(docs: PackageDocs, symbols: Iterable[Symbol], query: str) -> PackageDocs:
    return replace(docs, symbols=best_matches(symbols, query))


def names_in(files: Files, folder: str) -> Sequence[tuple[str, str]]:
    """Return the name and kind of each entry of a folder; () if it is missing or unreadable."""
    try:
        real = files.real(folder)
        if files.kind(real) != "directory":
            return ()
        return [(item.name, item.kind) for item in files.items(real)]
    except ToolFailed:
        return ()


def text_of(files: Files, path: str) -> str:
    """Return the text of a file; "" if it is missing, too long, or not readable without asking."""
    try:
        real = files.real(path)
        if files.why_hidden(real):
            return ""
        return files.read(real, _MAX_FILE_BYTES).decode(errors="replace")
    except ToolFailed:
        return ""
