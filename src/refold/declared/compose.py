"""Joins modules of `parts` to one Python file, without what it does not need.

A composition is data: which modules, which functions are kept for their own sake, which of
several functions stands for a name, and the values of constants. What these functions do not
reach is dropped, and so are the imports that are then unused. `generate` decides what an agent
needs.

There are no templates, because no tool checks them before they are filled in: `parts` are
modules that are formatted and type-checked with the rest. The only target is Python, which
the tests run beside refold against one fake model.
"""

import ast
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import pairwise
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

Value: TypeAlias = str | float | tuple[str, ...] | frozenset[str]
PARTS_PACKAGE = "refold.declared.parts"
_MAX_LINE_CHARS = 88  # the line length that formatters have without settings


class Section(Struct, frozen=True):
    """Modules under one heading, in the order of the file."""

    heading: str
    modules: tuple[str, ...]


class Composition(Struct, frozen=True):
    """What a file is made of. `program` is the name that tests import it by.

    `chosen` maps a name in the file to the function of the parts that gets this name.
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
    block: bool  # a function or class, which stands apart
    optional: bool = True  # dropped if nothing reaches it


class _Module(Struct, frozen=True):
    statements: tuple[_Statement, ...]
    imports: tuple[ast.Import | ast.ImportFrom, ...]


def compose_file(composition: Composition) -> str:
    """The text of the file."""
    modules = {
        name: _parse(name, composition)
        for section in composition.sections
        for name in section.modules
    }
    reachable = _reachable_names(modules, composition.roots)
    bodies = list[str]()
    for section in composition.sections:
        statements = [
            statement
            for name in section.modules
            for statement in modules[name].statements
            if statement.defines & reachable or not statement.optional
        ]
        if statements:
            space = "\n\n\n" if statements[0].block else "\n\n"
            heading = f"# --- {section.heading} ---{space}" if section.heading else ""
            bodies.append(heading + _join(statements))
    used = frozenset(
        name
        for module in modules.values()
        for statement in module.statements
        if statement.defines & reachable or not statement.optional
        for name in statement.uses
    )
    head = _docstring(composition.title)
    top = _imports(modules.values(), used, composition.program)
    return "\n\n".join(filter(None, (head, top))) + "\n\n" + _space_out(bodies) + "\n"


def _docstring(title: str) -> str:
    """Return the text as a docstring in source code. It is escaped, so that it cannot end
    there.
    """
    text = (
        title.replace("\\", "\\\\").replace('"', '\\"')
        if _could_end_docstring(title)
        else title
    )
    return f'"""{text}\n"""' if "\n" in title else f'"""{text}"""'


def _could_end_docstring(title: str) -> bool:
    """Return True if the title could end its docstring or be read as an escape."""
    return "\\" in title or '""' in title or title.endswith('"')


def _space_out(bodies: Sequence[str]) -> str:
    text = "\n\n\n".join(bodies)
    return text if bodies and text.startswith("# ---") else f"\n{text}"


def _join(statements: Sequence[_Statement]) -> str:
    pieces = [statements[0].text]
    for before, statement in pairwise(statements):
        pieces.append("\n\n\n" if before.block or statement.block else "\n")
        pieces.append(statement.text)
    return "".join(pieces)


def _parse(name: str, composition: Composition) -> _Module:
    text = files(PARTS_PACKAGE).joinpath(f"{name}.py").read_text(encoding="utf-8")
    lines = text.splitlines()
    statements, imports = list[_Statement](), list[ast.Import | ast.ImportFrom]()
    end = 0
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        elif not _is_docstring(node):
            statement = _statement(node, lines[end:], end, composition.values)
            statements += _choose(statement, composition.chosen)
        end = node.end_lineno or end
    return _Module(tuple(statements), tuple(imports))


def _choose(statement: _Statement, choices: Mapping[str, str]) -> list[_Statement]:
    """The statement under its name in the file; none where another one is chosen."""
    name = next(iter(statement.defines), "")
    new = next((key for key, part in choices.items() if part == name), "")
    if new:
        text = re.sub(rf"\b{name}\b", new, statement.text, count=1)
        return [replace(statement, text=text, defines=frozenset({new}))]
    return [] if name in choices else [statement]


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _statement(
    node: ast.stmt, lines: list[str], before: int, values: Mapping[str, Value]
) -> _Statement:
    """Return a statement with the comments before it.

    `lines` begin after the previous statement, `before` lines from the top of the module.
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
    """The names that the roots use, and what these use."""
    uses = dict[str, frozenset[str]]()
    for module in modules.values():
        for statement in module.statements:
            uses |= dict.fromkeys(statement.defines, statement.uses)
    reachable, waiting = set[str](), set(roots)
    while waiting:
        name = waiting.pop()
        if name in uses and name not in reachable:
            reachable.add(name)
            waiting |= uses[name]
    return frozenset(reachable)


def _imports(modules: Iterable[_Module], used_names: frozenset[str], program: str) -> str:
    """Return the imports that are used, sorted as formatters sort them."""
    whole, parts = set[str](), dict[str, set[str]]()
    for node in (node for module in modules for node in module.imports):
        if isinstance(node, ast.Import):
            whole |= {
                alias.name for alias in node.names if alias.name.split(".")[0] in used_names
            }
        elif node.module and not node.module.startswith(PARTS_PACKAGE):
            names = {alias.name for alias in node.names if alias.name in used_names}
            parts.setdefault(node.module, set()).update(names)
    lines = [f"import {name}" for name in sorted(whole)]
    for name, members in sorted(parts.items()):
        if members:
            lines.append(f"from {name} import {', '.join(sorted(members, key=_sort_key))}")
    imports = "\n".join(lines)
    return f"{imports}\n\nimport {program} as agent" if program else imports


def _sort_key(name: str) -> tuple[int, str]:
    """Return the sort key of a name: constants come first, then classes, then functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def _with_value(node: ast.stmt, lines: Sequence[str], before: int, value: Value) -> str:
    """The statement with another value, and its comments."""
    index = node.lineno - 1 - before
    begin = lines[index].partition(" = ")[0]
    last = lines[(node.end_lineno or 0) - 1 - before]
    comments = [line for line in lines[:index] if line]
    return "\n".join((*comments, _assignment(begin, value) + last[node.end_col_offset :]))


def _assignment(begin: str, value: Value) -> str:
    """The statement that sets a constant, laid out as a formatter leaves it."""
    line = f"{begin} = {literal(value)}"
    if len(line) <= _MAX_LINE_CHARS and "\n" not in line:
        return line
    match value:
        case str() if "\n" not in value:
            width = _MAX_LINE_CHARS - 10
            rows = textwrap.wrap(
                value, width, drop_whitespace=False, break_on_hyphens=False
            )
            return f"{begin} = (\n" + "".join(f"    {literal(row)}\n" for row in rows) + ")"
        case str():
            return f"{begin} = {_long_text(value)}"
        case tuple():
            return f"{begin} = [\n" + "".join(f"    {literal(v)},\n" for v in value) + "]"
        case _:
            return line


def literal(value: Value) -> str:
    """A value as Python source, in the quotes that formatters prefer."""
    match value:
        case str():
            plain = repr(value)
            if plain.startswith("'") and '"' not in value:
                return f'"{plain[1:-1]}"'
            return plain
        case tuple():
            return f"[{', '.join(map(literal, value))}]"
        case frozenset():
            return f"{{{', '.join(sorted(map(literal, value)))}}}" if value else "set()"
        case int() if value >= 10_000:
            return f"{value:_}"
        case _:
            return repr(value)


def _long_text(value: str) -> str:
    """Text of several lines as a triple-quoted string, if that has the same value."""
    inside = value.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if inside.endswith('"'):
        inside = f'{inside[:-1]}\\"'
    literal_text = f'"""\\\n{inside}"""'
    try:
        same = ast.literal_eval(literal_text) == value and all(
            map(str.isprintable, value.split("\n"))
        )
    except (SyntaxError, ValueError):
        same = False
    return literal_text if same else literal(value)
