"""Generates the reference of the library: what `refold` exports, with its docstrings.

It reads the syntax trees and not the objects, because versions of Python print types differently.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType

import refold

MAX_SIGNATURE_CHARS = 88
MAX_TYPE_CHARS = 120  # a longer type is a union that a page of its own lists
Function = ast.FunctionDef | ast.AsyncFunctionDef


def exports() -> str:
    """Return every name of `refold.__all__`, in the order of the alphabet."""
    return "\n\n".join("\n\n".join(entry(name)) for name in sorted(refold.__all__))


def entry(name: str) -> Iterator[str]:
    yield f"### `{name}`"
    value: object = getattr(refold, name)
    if isinstance(value, ModuleType):
        yield f"{first_paragraph(value.__doc__)} [The journal](journal.md#events) lists them."
        return
    node = definition(str(getattr(value, "__module__", "")), name)
    if isinstance(node, ast.ClassDef):
        yield from description(node)
        yield from fields(node)
        yield from members(node)
    else:
        yield f"```text\n{signature(node)}\n```"
        yield from description(node)


def definition(module: str, name: str) -> ast.ClassDef | Function:
    """Return the class or function of this name, at the top of the module."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    nodes = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef | Function) and node.name == name
    ]
    return nodes[-1]  # overloads are before the definition that is called


def description(node: ast.ClassDef | Function) -> Iterator[str]:
    if text := ast.get_docstring(node):
        yield text


def fields(node: ast.ClassDef) -> Iterator[str]:
    """Yield the fields of a Struct, or the values of an Enum."""
    rows = [
        f"| `{ast.unparse(item.target)}` | {kind(item.annotation)} | {default(item.value)} |"
        for item in node.body
        if isinstance(item, ast.AnnAssign) and not ast.unparse(item.target).startswith("_")
    ]
    if rows:
        yield "\n".join(["| field | type | default |", "|---|---|---|", *rows])
    values = [
        f"`{ast.unparse(item.targets[0])}`"
        for item in node.body
        if isinstance(item, ast.Assign)
    ]
    if values:
        yield f"Values: {', '.join(values)}."


def kind(annotation: ast.expr) -> str:
    text = ast.unparse(annotation).replace("|", "\\|")
    return f"`{text if len(text) <= MAX_TYPE_CHARS else text[:MAX_TYPE_CHARS] + ' …'}`"


def default(value: ast.expr | None) -> str:
    return f"`{ast.unparse(value)}`" if value else "required"


def members(node: ast.ClassDef) -> Iterator[str]:
    """Yield the public methods and properties that a class itself defines."""
    public = [
        item
        for item in node.body
        if isinstance(item, Function) and not item.name.startswith("_")
    ]
    rows = [
        f"| `{member(item)}` | {first_paragraph(ast.get_docstring(item))} |"
        for item in public
        if not any(ast.unparse(one).endswith(".setter") for one in item.decorator_list)
    ]
    if rows:
        yield "\n".join(["| member | |", "|---|---|", *rows])


def member(node: Function) -> str:
    if any("property" in ast.unparse(one) for one in node.decorator_list):
        return node.name
    is_awaited = isinstance(node, ast.AsyncFunctionDef) and not any(
        "contextmanager" in ast.unparse(one) for one in node.decorator_list
    )
    return f"{'await ' if is_awaited else ''}{node.name}({parameters(node)})".replace(
        "|", "\\|"
    )


def signature(node: Function) -> str:
    text = f"{node.name}({parameters(node)})"
    if len(text) <= MAX_SIGNATURE_CHARS:
        return text
    rows = re.split(r", (?=\*|\w+:)", parameters(node))
    return "\n".join([f"{node.name}(", *(f"    {row}," for row in rows), ")"])


def parameters(node: Function) -> str:
    """Return the parameters of a function with their types, without `self`."""
    text = ast.unparse(node.args)
    for first in ("self, ", "cls, ", "self", "cls"):
        if text.startswith(first):
            return text.removeprefix(first)
    return text


def first_paragraph(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split()).replace("|", "\\|")
