"""Converts values from Monty's code to this process, and formats that code's errors. Pure."""

import ast
from collections.abc import Iterator
from typing import Any, cast

import pydantic_monty

LACKS_NOTE = (
    "(Python is run by Monty here. It has no generators, no del, no class inheritance, no "
    "threads, no programs and only a part of the standard library: write it without.)"
)
_MAX_LINE_CHARS = 200  # of a traceback
_MAX_ERROR_CHARS = 2_000


class Instance:
    """Shows an instance of a class that the code has defined."""

    def __init__(self, name: str, fields: dict[str, object]) -> None:
        self._name, self._fields = name, fields

    def __repr__(self) -> str:
        fields = ", ".join(f"{key}={value!r}" for key, value in self._fields.items())
        return f"{self._name}({fields})"


def to_host_value(value: Any) -> Any:
    """Convert a value of Monty, with the values inside it, to a value of this process.

    An instance of a dataclass becomes a dict, any other instance an `Instance` for display.
    """
    if isinstance(value, pydantic_monty.MontyClassProxy):
        fields = {key: to_host_value(item) for key, item in value.attributes.items()}
        return fields if value.is_dataclass else Instance(value.name, fields)
    if type(value) in (list, tuple):
        items = (to_host_value(item) for item in cast("list[Any]", value))
        return type(value)(items)
    if type(value) is dict:
        pairs = cast("dict[Any, Any]", value).items()
        return {key: to_host_value(item) for key, item in pairs}
    return value


def is_lacking(error: pydantic_monty.MontyError) -> bool:
    """Whether an error says that Monty does not have a feature that the code uses."""
    return isinstance(error.exception(), NotImplementedError | ModuleNotFoundError)


def error_text(error: pydantic_monty.MontyError) -> str:
    """Return the lines of cells that led to an error, and the error itself."""
    if not isinstance(
        error, pydantic_monty.MontyRuntimeError | pydantic_monty.MontySyntaxError
    ):
        return str(error)[:_MAX_ERROR_CHARS]
    frames = error.traceback()
    lines = list[str]()
    for frame in frames:
        is_earlier_cell = frame.filename != frames[0].filename
        text = f"  line {frame.line}"
        if is_earlier_cell:
            text = f"  an earlier cell, line {frame.line}"
        if frame.function_name not in (None, "<module>"):
            text += f", in {frame.function_name}"
        if frame.source_line:
            text += f": {frame.source_line.strip()[:_MAX_LINE_CHARS]}"
        lines.append(text)
    words = error.display("type-msg")
    if len(words) > _MAX_ERROR_CHARS:
        words = f"{words[:_MAX_ERROR_CHARS]}… ({len(words):,} characters)"
    return "\n".join([*lines, words])


def top_level_names(source: str) -> list[str]:
    """Return the names that a cell may bind outside of its functions and classes."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    return list(dict.fromkeys(_names_in(tree)))


def _names_in(node: ast.AST) -> Iterator[str]:
    """Yield the names that the code inside `node` binds in the same scope."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
                yield from _global_names(child)
                continue
            case ast.ClassDef(name=name):
                yield name
                continue
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                continue
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name.partition(".")[0]
            case ast.ExceptHandler(name=str(name)):
                yield name
            case _:
                pass
        yield from _names_in(child)


def _global_names(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Global):
            yield from node.names
