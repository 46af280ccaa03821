"""The import graph: no cycle, not even by a late import, and names that say something.

import-linter checks the layers; here are the rules that it has no contract for.
"""

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.source_tree import parse_file

SOURCE = Path(__file__).parents[1] / "src"
FILES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((SOURCE / "refold").rglob("*.py"))
    if "learn/course" not in str(path)  # programs of beginners
    if "shipped" not in path.parts
}


def list_imports(
    tree: ast.AST, names: Collection[str], *, types: bool = False
) -> Iterator[str]:
    """Yield the modules among `names` that run when this does, or later, in a function of
    it.

    With `types` also those that only a type checker reads.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):
            continue  # no import is in an expression
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            if types:
                yield from list_imports(ast.Module(node.body, []), names)
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                name = whole if whole in names else node.module
                if name in names:
                    yield name
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        yield from list_imports(node, names, types=types)


@cache
def graph(*, types: bool = False) -> Mapping[str, set[str]]:
    """Return the modules that each module imports."""
    return {
        name: set(list_imports(parse_file(path), FILES, types=types)) - {name}
        for name, path in FILES.items()
    }


def cycle(edges: Mapping[str, Collection[str]]) -> list[str]:
    """Return the first cycle that there is, or nothing."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_modules_form_no_import_cycle_including_late_imports() -> None:
    assert cycle(graph()) == []


def test_modules_form_no_import_cycle_including_type_checking_imports() -> None:
    """Who reads one module of a cycle has to read all of them."""
    assert cycle(graph(types=True)) == []


PARENTS = sorted({name.rpartition(".")[0] for name in FILES} - {"", "refold"})


@pytest.mark.parametrize("room", PARENTS)
def test_the_subpackages_of_a_package_form_no_import_cycle(room: str) -> None:
    """Modules directly in the package are not counted: they may use its subpackages."""
    folders = {
        name
        for name in FILES
        if FILES[name].name == "__init__.py" and name.rpartition(".")[0] == room
    }
    edges: dict[str, set[str]] = defaultdict(set)
    for name, others in graph().items():
        for one in folders:
            if name.startswith(f"{one}."):
                edges[one] |= {
                    two
                    for two in folders - {one}
                    for other in others
                    if other.startswith(f"{two}.")
                }

    assert cycle(edges) == []


# Packages that import modules of the package that they are in, and are imported by such.
BOTH_WAYS = {
    "refold.permissions.shell",  # `facts` is a value of both
}


def test_a_package_and_its_parent_package_import_in_one_direction_only() -> None:
    """Packages that still do so are listed; nothing is added to the list."""

    def both_ways(package: str) -> bool:
        room = package.rpartition(".")[0]
        own = {name for name in FILES if name.rpartition(".")[0] == room} - set(PARENTS)
        inner = {name for name in FILES if name.startswith(f"{package}.")}
        edges = [(one, two) for one, others in graph().items() for two in others]
        up = any(one in inner and two in own for one, two in edges)
        return up and any(one in own and two in inner for one, two in edges)

    assert {
        text for text in PARENTS if text.count(".") > 1 and both_ways(text)
    } == BOTH_WAYS


def test_an_import_inside_a_function_is_in_the_import_graph() -> None:
    tree = ast.parse(
        "def f():\n    from a import b\n    import a.c\nif TYPE_CHECKING:\n    import d"
    )

    assert set(list_imports(tree, {"a.b", "a.c", "d"})) == {"a.b", "a.c"}


def test_no_public_class_name_is_used_more_than_twice() -> None:
    """With a third use, a reader would have to ask which class is meant."""
    modules_by_class: dict[str, list[str]] = defaultdict(list)
    for name, path in FILES.items():
        for node in parse_file(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules_by_class[node.name].append(name)

    assert {
        name: places for name, places in modules_by_class.items() if len(places) > 2
    } == {}


def test_no_module_name_is_used_more_than_three_times() -> None:
    modules_by_file_name: dict[str, list[str]] = defaultdict(list)
    for name, path in FILES.items():
        if path.name not in {"__init__.py", "__main__.py"}:
            modules_by_file_name[path.stem].append(name)

    assert {
        name: places for name, places in modules_by_file_name.items() if len(places) > 3
    } == {}
