"""Joins modules of `parts` into one Python file, without the code that the file does not need.

A `Composition` names the modules, the functions that are always kept, the functions that get
another name in the file, and the values of constants. Code that these functions do not use is
dropped, and so are the imports of that code. `generate` decides what an agent needs.

There are no templates, because no tool checks a template before it is filled in. The modules of
`parts` are formatted and type-checked like all others. The only target is Python, so that the
tests can run a generated program beside refold with the same fake model.
"""

import ast
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence, Set
from importlib.resources import files
from itertools import chain, pairwise
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.values.python_syntax import parse_module

Value: TypeAlias = str | float | tuple[str, ...] | frozenset[str]
PARTS_PACKAGE = "refold.declared.parts"
_MAX_LINE_CHARS = 88  # the default line length of formatters


class Section(Struct, frozen=True):
    """Modules that are together under one heading of the file, in their order."""

    heading: str
    modules: tuple[str, ...]


class Composition(Struct, frozen=True):
    """The description of a Python file: its title, its modules of `parts`, and changes.

    `roots` are the functions that are always kept, and `values` the new values of constants.
    `chosen` maps a name in the file to the function of `parts` that gets this name. `program`
    is the module that the file tests, or "" if the file is not a test.
    """

    title: str
    sections: tuple[Section, ...]
    roots: frozenset[str]
    values: Mapping[str, Value] = {}
    program: str = ""
    chosen: Mapping[str, str] = {}


class _Statement(Struct, frozen=True):
    """A statement at the top level of a module, with the comments before it."""

    text: str
    defines: frozenset[str]
    uses: frozenset[str]
    block: bool  # a function or class, which is surrounded by empty lines
    optional: bool = True  # dropped if nothing reaches it


class _Module(Struct, frozen=True):
    statements: tuple[_Statement, ...]
    imports: tuple[ast.Import | ast.ImportFrom, ...]


def compose_file(composition: Composition) -> str:
    """Return the text of the file."""
    modules = {
        name: _parse(name, composition)
        for section in composition.sections
        for name in section.modules
    }
    reachable = _reachable_names(modules, composition.roots)
    bodies = list[str]()
    for section in composition.sections:
        statements = list[_Statement]()
        for name in section.modules:
            statements += _needed(modules[name], reachable)
        if statements:
            space = "\n\n\n" if statements[0].block else "\n\n"
            heading = f"# --- {section.heading} ---{space}" if section.heading else ""
            bodies.append(heading + _join(statements))
    used = set[str]()
    for module in modules.values():
        used.update(*(statement.uses for statement in _needed(module, reachable)))
    docstring = _docstring(composition.title)
    imports = _imports(modules.values(), used, composition.program)
    head = f"{docstring}\n\n{imports}" if imports else docstring
    return f"{head}\n\n{_space_out(bodies)}\n"


def _needed(module: _Module, reachable: frozenset[str]) -> list[_Statement]:
    """Return the statements of a module that define a reachable name, or are always kept."""
    return [
        statement
        for statement in module.statements
        if statement.defines & reachable or not statement.optional
    ]


def _docstring(title: str) -> str:
    """Return the title as the source of a docstring, with escapes if it needs them."""
    text = title
    if _could_end_docstring(title):
        text = title.replace("\\", "\\\\").replace('"', '\\"')
    return f'"""{text}\n"""' if "\n" in title else f'"""{text}"""'


def _could_end_docstring(title: str) -> bool:
    """Return whether the title needs escapes, because of quotes or a backslash."""
    return "\\" in title or '""' in title or title.endswith('"')


def _space_out(bodies: Sequence[str]) -> str:
    """Join the sections with empty lines between them.

    If the first section has no heading, another empty line is put before it.
    """
    text = "\n\n\n".join(bodies)
    return text if bodies and text.startswith("# ---") else f"\n{text}"


def _join(statements: Sequence[_Statement]) -> str:
    """Join statements, with two empty lines around each function and class."""
    pieces = [statements[0].text]
    for before, statement in pairwise(statements):
        pieces.append("\n\n\n" if before.block or statement.block else "\n")
        pieces.append(statement.text)
    return "".join(pieces)


def _parse(name: str, composition: Composition) -> _Module:
    """Parse a module of `parts`, with the functions and values that the composition chooses."""
    text = files(PARTS_PACKAGE).joinpath(f"{name}.py").read_text(encoding="utf-8")
    lines = text.splitlines()
    statements = list[_Statement]()
    imports = list[ast.Import | ast.ImportFrom]()
    end = 0  # the last line of the previous statement
    for node in parse_module(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        elif not _is_docstring(node):
            statement = _statement(node, lines[end:], end, composition.values)
            statements += _choose(statement, composition.chosen)
        end = node.end_lineno or end
    return _Module(tuple(statements), tuple(imports))


def _choose(statement: _Statement, choices: Mapping[str, str]) -> list[_Statement]:
    """Return the statement, renamed if `choices` gives its function another name.

    `choices` maps a name in the file to the function that gets it. Return [] if another
    function gets the statement's name.
    """
    name = next(iter(statement.defines), "")
    new_name = next((key for key, part in choices.items() if part == name), "")
    if new_name:
        text = re.sub(rf"\b{name}\b", new_name, statement.text, count=1)
        return [replace(statement, text=text, defines=frozenset({new_name}))]
    return [] if name in choices else [statement]


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _statement(
    node: ast.stmt, lines: list[str], before: int, values: Mapping[str, Value]
) -> _Statement:
    """Return a statement with its source and the comments before it.

    `lines` are the lines after the previous statement, and `before` is the number of lines
    before them in the module. `values` are the new values of constants.
    """
    text = "\n".join(lines[: (node.end_lineno or 0) - before]).strip("\n")
    uses = frozenset(
        name_node.id for name_node in ast.walk(node) if isinstance(name_node, ast.Name)
    )
    block = isinstance(node, ast.FunctionDef | ast.ClassDef | ast.If)
    match node:
        case ast.FunctionDef(name) | ast.ClassDef(name):
            return _Statement(text, frozenset({name}), uses, block)
        case ast.Assign([ast.Name(name)]) | ast.AnnAssign(ast.Name(name)):
            if name in values:
                text = _with_value(node, lines, before, values[name])
            return _Statement(text, frozenset({name}), uses - {name}, block)
        case _:  # the call of main
            return _Statement(text, frozenset(), uses, block, optional=False)


def _reachable_names(
    modules: Mapping[str, _Module], roots: frozenset[str]
) -> frozenset[str]:
    """Return the roots and all names that they use, directly or indirectly."""
    uses = dict[str, frozenset[str]]()
    for module in modules.values():
        for statement in module.statements:
            uses |= dict.fromkeys(statement.defines, statement.uses)
    reachable = set[str]()
    to_visit = set(roots)
    while to_visit:
        name = to_visit.pop()
        if name in uses and name not in reachable:
            reachable.add(name)
            to_visit |= uses[name]
    return frozenset(reachable)


def _imports(modules: Iterable[_Module], used_names: Set[str], program: str) -> str:
    """Return the source of the imports that are used, sorted as formatters sort them.

    If `program` is not "", that module is imported, too, as `agent`.
    """
    imported_modules = set[str]()
    imported_members = dict[str, set[str]]()  # by the module from which they are imported
    for node in chain.from_iterable(module.imports for module in modules):
        if isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
            imported_modules |= {n for n in names if n.partition(".")[0] in used_names}
        elif node.module and not node.module.startswith(PARTS_PACKAGE):
            names = {alias.name for alias in node.names if alias.name in used_names}
            imported_members.setdefault(node.module, set()).update(names)
    lines = [f"import {name}" for name in sorted(imported_modules)]
    for name, members in sorted(imported_members.items()):
        if members:
            lines.append(f"from {name} import {', '.join(sorted(members, key=_sort_key))}")
    imports = "\n".join(lines)
    return f"{imports}\n\nimport {program} as agent" if program else imports


def _sort_key(name: str) -> tuple[int, str]:
    """Return the key by which formatters sort imported names: constants, classes, functions."""
    if name.isupper():
        return 0, name
    return (1, name) if name[0].isupper() else (2, name)


def _with_value(node: ast.stmt, lines: Sequence[str], before: int, value: Value) -> str:
    """Return the source of an assignment with another value, and with its comments.

    `lines` are the lines after the previous statement, and `before` is the number of lines
    before them in the module.
    """
    first = node.lineno - 1 - before
    last = (node.end_lineno or 0) - 1 - before
    left_side = lines[first].partition(" = ")[0]
    comment_after = lines[last][node.end_col_offset :]
    comments = [line for line in lines[:first] if line]
    return "\n".join((*comments, _assignment(left_side, value) + comment_after))


def _assignment(left_side: str, value: Value) -> str:
    """Return the source of an assignment, formatted as a formatter does."""
    line = f"{left_side} = {literal(value)}"
    if len(line) <= _MAX_LINE_CHARS and "\n" not in line:
        return line
    match value:
        case str() if "\n" not in value:
            width = _MAX_LINE_CHARS - 10  # for the indent, the quotes and escapes
            rows = textwrap.wrap(
                value, width, drop_whitespace=False, break_on_hyphens=False
            )
            body = "".join(f"    {literal(row)}\n" for row in rows)
            return f"{left_side} = (\n{body})"
        case str():
            return f"{left_side} = {_long_text(value)}"
        case tuple():
            body = "".join(f"    {literal(item)},\n" for item in value)
            return f"{left_side} = [\n{body}]"
        case _:
            return line


def literal(value: Value) -> str:
    """Return the value as Python source, with the quotes that formatters prefer."""
    match value:
        case str():
            source = repr(value)
            if source.startswith("'") and '"' not in value:
                return f'"{source[1:-1]}"'
            return source
        case tuple():
            return f"[{', '.join(map(literal, value))}]"
        case frozenset():
            return f"{{{', '.join(sorted(map(literal, value)))}}}" if value else "set()"
        case int() if value >= 10_000:
            return f"{value:_}"
        case _:
            return repr(value)


def _long_text(value: str) -> str:
    """Return a text of several lines as a triple-quoted literal, or else as any literal."""
    inside = value.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if inside.endswith('"'):
        inside = f'{inside[:-1]}\\"'
    literal_text = f'"""\\\n{inside}"""'
    try:
        is_same = ast.literal_eval(literal_text) == value
    except (SyntaxError, ValueError):
        is_same = False
    is_printable = all(map(str.isprintable, value.split("\n")))
    return literal_text if is_same and is_printable else literal(value)
