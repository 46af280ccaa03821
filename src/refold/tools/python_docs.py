"""Reads the documentation of a Python package that is installed in the workspace.

It finds virtual environments by their usual names, reads the metadata of the package, and
parses its source with `ast`, without importing anything. `package_docs` renders the result.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from posixpath import dirname

from msgspec import Struct

from refold.place.port import Files
from refold.tools.package_symbols import (
    PackageDocs,
    Symbol,
    names_in,
    text_of,
    with_query,
    words_of,
)
from refold.values.python_syntax import parse_module
from refold.values.similar_names import normalize_distribution

_ENVIRONMENT_NAMES = (".venv", "venv", "env")
# The size of all source files, and their number.
_MAX_TOTAL_CHARS, _MAX_FILES = 12_000_000, 2_000
_IGNORED_PATHS = re.compile(r"(?:^|/)(?:tests?|testing|_vendor|vendor|examples?)/")


class _Distribution(Struct, frozen=True):
    site: str  # the directory site-packages
    info: str  # the .dist-info in that directory
    modules: tuple[str, ...]  # paths of its source files in that directory


def find_package(files: Files, package: str, query: str) -> PackageDocs | None:
    """Return the documentation of a package; None if no environment of the workspace has it.

    Symbols are those that match `query`.
    """
    for site in _sites(files):
        if (distribution := _distribution(files, site, package)) is not None:
            return _read(files, distribution, package, query)
    return None


def _sites(files: Files) -> Iterator[str]:
    """Yield the folders with installed packages in the workspace's virtual environments."""
    for name in _ENVIRONMENT_NAMES:
        for folder, _ in names_in(files, f"{name}/lib"):
            if folder.startswith("python3"):
                yield f"{name}/lib/{folder}/site-packages"


def _distribution(files: Files, site: str, package: str) -> _Distribution | None:
    """Return the package that has this name or contains a module of this name, or None."""
    wanted = normalize_distribution(package)
    infos = [item for item, _ in names_in(files, site) if item.endswith(".dist-info")]
    for info in infos:
        if normalize_distribution(info.partition("-")[0]) == wanted:
            return _Distribution(site, info, _modules(files, site, info))
    # The name may be an import name: yaml is a module of PyYAML.
    for info in infos:
        modules = _modules(files, site, info)
        if any(item.startswith((f"{package}/", f"{package}.py")) for item in modules):
            return _Distribution(site, info, modules)
    return None


def _modules(files: Files, site: str, info: str) -> tuple[str, ...]:
    """Return the paths of a package's Python files, the outermost first."""
    rows = text_of(files, f"{site}/{info}/RECORD").splitlines()
    paths = [row.rsplit(",", 2)[0].strip('"') for row in rows]
    usable = [
        path
        for path in paths
        if path.endswith((".py", ".pyi")) and ".." not in path and not path.startswith("/")
    ]
    return tuple(sorted(usable, key=lambda path: (path.count("/"), path))[:_MAX_FILES])


def _read(
    files: Files, distribution: _Distribution, package: str, query: str
) -> PackageDocs:
    """Return the documentation of an installed package, with the symbols that match `query`."""
    metadata = text_of(files, f"{distribution.site}/{distribution.info}/METADATA")
    head, _, readme = metadata.partition("\n\n")
    rows = [row.partition(": ") for row in head.splitlines() if ": " in row]
    fields = [(name, value) for name, _, value in rows]
    # The first of several fields with a name counts.
    first_values = dict(reversed(fields))
    main_module = _main_module(distribution.modules)
    names: tuple[str, ...] = ()
    if main_module:
        names = _public_names(text_of(files, f"{distribution.site}/{main_module}"))
    docs = PackageDocs(
        first_values.get("Name", "") or package,
        version=first_values.get("Version", ""),
        summary=first_values.get("Summary", ""),
        where=f"{distribution.site}/{dirname(main_module) or main_module}",
        readme=readme.strip(),
        links=tuple(
            value for name, value in fields if name in ("Project-URL", "Home-page")
        ),
        names=names,
    )
    words = words_of(query)
    return with_query(docs, _symbols(files, distribution, words), query) if words else docs


def _main_module(modules: Sequence[str]) -> str:
    """Return the outermost `__init__.py`, if possible a public one; else the first module.

    Return "" if there are no modules.
    """
    init_files = [path for path in modules if path.endswith("__init__.py")]
    if not init_files:
        return next(iter(modules), "")
    return min(init_files, key=lambda path: (path.startswith("_"), path.count("/")))


def _symbols(
    files: Files, distribution: _Distribution, words: Sequence[str]
) -> Iterator[Symbol]:
    """Yield the definitions in modules that contain every word, up to the limits."""
    chars_left = _MAX_TOTAL_CHARS
    for path in distribution.modules:
        if _IGNORED_PATHS.search(path):
            continue
        text = text_of(files, f"{distribution.site}/{path}")
        chars_left -= len(text)
        if chars_left < 0:
            return
        path_and_text = f"{path} {text}".casefold()
        if all(word in path_and_text for word in words):
            yield from _parse_definitions(text, path, f"{distribution.site}/{path}")


def _parse_definitions(text: str, path: str, location: str) -> Iterator[Symbol]:
    """Yield the symbols of a module with their docstrings; nothing if it has a syntax error."""
    module = re.sub(r"(?:/__init__)?\.pyi?$", "", path).replace("/", ".")
    try:
        tree = parse_module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    doc = ast.get_docstring(tree) or ""
    if doc:
        yield Symbol(module, f"module {module}", doc, f"{location}:1")
    yield from _parse_body(tree, module, location)


def _parse_body(
    parent: ast.Module | ast.ClassDef, prefix: str, location: str
) -> Iterator[Symbol]:
    """Yield the functions and classes in a body, and those in the classes."""
    for node in parent.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        name = f"{prefix}.{node.name}"
        try:
            signature = _signature(node)
        except (RecursionError, ValueError):
            continue
        yield Symbol(
            name, signature, ast.get_docstring(node) or "", f"{location}:{node.lineno}"
        )
        if isinstance(node, ast.ClassDef):
            yield from _parse_body(node, name, location)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    """Return the first line of a definition, without decorators and colon."""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    begin = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{begin} {node.name}({ast.unparse(node.args)}){returns}"


def _public_names(text: str) -> tuple[str, ...]:
    """Return the public names of a module: its `__all__`, or the names that it defines and
    imports.

    Return () for a module that cannot be parsed.
    """
    try:
        tree = parse_module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    names = list[str]()
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id="__all__")], value=ast.List() | ast.Tuple()
            ):
                listed = [ast.literal_eval(e) for e in node.value.elts if _is_text(e)]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType, reportUnknownArgumentType]
                return tuple(listed)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.append(node.name)
            case ast.ImportFrom():
                names += (alias.asname or alias.name for alias in node.names)
            case _:
                pass
    public_names = (name for name in names if not name.startswith("_") and name != "*")
    return tuple(dict.fromkeys(public_names))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
