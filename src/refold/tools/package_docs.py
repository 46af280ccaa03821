"""Looks up the documentation of a package, for the tool `docs_lookup`, without the network.

`python_docs` and `npm_docs` read packages that are installed in the workspace, without
importing or running any of them. For a package that is not installed, this module names
documentation sites, which `web_fetch` can read. `tools.web` has the tool.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from urllib.parse import quote

from refold.errors import ToolFailed
from refold.place.port import Files
from refold.tools import npm_docs, python_docs
from refold.tools.contract import Reply
from refold.tools.package_symbols import PackageDocs, words_of
from refold.values.display import Note
from refold.values.printable_names import shorten
from refold.values.text import mark_as_outside

NAME_PATTERN = re.compile(r"@?[A-Za-z0-9][A-Za-z0-9._/-]{0,100}")
_MAX_WHOLE_SYMBOLS = 3  # symbols shown with their whole documentation
_MAX_DOC_CHARS = 2_000  # for one symbol
_MAX_SHOWN_NAMES = 100
_MAX_README_CHARS, _MAX_SECTION_CHARS, _MAX_SECTIONS = 8_000, 2_000, 3
_MAX_LINE_CHARS = 160

# For each language: files that show that a project is written in it, and its sites.
DOCUMENTATION_SITES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = MappingProxyType({
    "Python": (("pyproject.toml", "requirements.txt", "setup.py"),
               ("https://pypi.org/project/{name}/", "https://{name}.readthedocs.io/",
                "https://docs.python.org/3/search.html?q={query}")),
    "JavaScript": (("package.json",),
                   ("https://www.npmjs.com/package/{name}",
                    "https://developer.mozilla.org/en-US/search?q={query}")),
    "Rust": (("Cargo.toml",), ("https://docs.rs/{name}/latest/?search={query}",)),
    "Go": (("go.mod",), ("https://pkg.go.dev/{name}",)),
    "Clojure": (("deps.edn", "project.clj", "bb.edn"),
                ("https://clojuredocs.org/search?q={query}", "https://cljdoc.org/d/{name}")),
    "Ruby": (("Gemfile",), ("https://rubydoc.info/gems/{name}",)),
    "Java": (("pom.xml", "build.gradle", "build.gradle.kts"),
             ("https://javadoc.io/doc/{name}",)),
    "Elixir": (("mix.exs",), ("https://hexdocs.pm/{name}",)),
    "Haskell": (("stack.yaml", "cabal.project"),
                ("https://hackage.haskell.org/package/{name}",
                 "https://hoogle.haskell.org/?hoogle={query}")),
    "PHP": (("composer.json",), ("https://packagist.org/packages/{name}",
                                 "https://www.php.net/manual-lookup.php?pattern={query}")),
    "C and C++": (("CMakeLists.txt", "meson.build"),
                  ("https://en.cppreference.com/mwiki/index.php?search={query}",)),
    "R": (("DESCRIPTION",), ("https://rdrr.io/cran/{name}/",)),
})  # fmt: skip


def lookup(files: Files, package: str, query: str) -> Reply:
    """Return the documentation of a package, or the sites that may have it.

    `query` is part of a name, or words. Raises `ToolFailed` for an invalid name.
    """
    name = package.strip()
    if not NAME_PATTERN.fullmatch(name) or ".." in name or len(query) > 200:
        raise ToolFailed(
            f"{package!r} is not the name of a package: give one such as httpx or @types/node."
        )
    packages = [
        docs
        for read in (python_docs.find_package, npm_docs.find_package)
        if (docs := read(files, name, query.strip())) is not None
    ]
    sites = _sites(files, name, query.strip())
    if not packages:
        return Reply(
            f"{name} is not installed in this workspace (.venv, venv, node_modules). Its "
            f"documentation may be at:\n{sites}",
            (Note(f"{name} is not installed"),),
        )
    text = "\n\n".join(
        mark_as_outside(_docs_text(package_docs, query), package_docs.where)
        for package_docs in packages
    )
    has_symbols = any(package_docs.symbols for package_docs in packages)
    web_text = "" if has_symbols else f"\nOn the web:\n{sites}"
    versions = ", ".join(
        f"{package_docs.name} {package_docs.version}" for package_docs in packages
    )
    return Reply(text + web_text, (Note(f"looked up {versions}"),))


def _docs_text(docs: PackageDocs, query: str) -> str:
    """Return the documentation for the model: with a query its matches, else an overview."""
    names_text = ", ".join(docs.names[:_MAX_SHOWN_NAMES])
    lines = [f"{docs.name} {docs.version}: {docs.summary}".rstrip(": ")]
    lines += docs.links
    if not words_of(query):
        if docs.names:
            lines.append(f"offers: {names_text}")
        if docs.readme:
            lines.append(f"\n{_shorten(docs.readme, _MAX_README_CHARS)}")
        return "\n".join(lines)
    for index, symbol in enumerate(docs.symbols):
        if index < _MAX_WHOLE_SYMBOLS:
            doc = _shorten(symbol.doc, _MAX_DOC_CHARS)
        else:
            doc = _shorten(symbol.doc.partition("\n")[0], _MAX_LINE_CHARS)
        indented = "".join(f"\n    {row}".rstrip(" ") for row in doc.splitlines())
        lines.append(f"\n{symbol.name} ({symbol.where})\n  {symbol.signature}{indented}")
    sections = _sections(docs.readme, words_of(query))
    for section in sections:
        lines.append(f"\nfrom its readme:\n{_shorten(section, _MAX_SECTION_CHARS)}")
    if not docs.symbols and not sections:
        lines.append(f"\nNothing in it is about {query!r}.")
        if docs.names:
            lines.append(f"It offers: {names_text}")
    return "\n".join(lines)


def _sections(readme: str, words: Sequence[str]) -> Sequence[str]:
    """Return the sections of a readme that contain all the words, up to a limit."""
    parts = re.split(r"(?m)^(?=#{1,4} )", readme)
    sections = [
        part.strip() for part in parts if all(word in part.casefold() for word in words)
    ]
    return sections[:_MAX_SECTIONS]


def _shorten(text: str, max_chars: int) -> str:
    return shorten(text.strip(), max_chars)


def _sites(files: Files, name: str, query: str) -> str:
    """Return the addresses of sites that may document a package, for the languages of the
    workspace.

    A language is recognized by files such as `Cargo.toml`. If none is, return the addresses for
    all languages.
    """
    file_names = {item.name for item in files.items(files.real("."))}
    all_sites, own_sites = dict[str, Sequence[str]](), dict[str, Sequence[str]]()
    for language, (marker_files, sites) in DOCUMENTATION_SITES.items():
        all_sites[language] = sites
        if file_names.intersection(marker_files):
            own_sites[language] = sites
    values = {"name": quote(name, safe="@/"), "query": quote(query or name, safe="")}
    return "\n".join(
        f"- {language}: {' '.join(site.format(**values) for site in sites)}"
        for language, sites in (own_sites or all_sites).items()
    )
