"""Generates docs/reference/settings.md: a section with a table for each table of `config.toml`.

It translates Python types for a person who writes TOML: what may be written for a setting, its
default as it would be written, and the name of the table in which the setting is. The meaning of a
setting is the comment behind its field in the source.
"""

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin
from typing import get_type_hints as hints_of

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import FieldInfo

from refold.config.settings import Settings

HEAD = ("| setting | type | default | meaning |", "|---|---|---|---|")
# The keys of tables in a table of tables, where the key is not a NAME.
KEYS = {"prices": '"provider/model"'}


class Table(NamedTuple):
    """A table of the file: the title of its section, and the class that describes it."""

    title: str
    kind: type[Struct]


def sections() -> str:
    """Return every table in the order of the settings; first the settings outside of tables."""
    result = [Table("Above all tables", Settings), *tables("", Settings)]
    return "\n\n".join(section(table) for table in result)


def tables(prefix: str, kind: type[Struct]) -> Iterator[Table]:
    """Yield the tables of a class, each followed by the tables in it. Each class occurs once."""
    result = set[type]()
    for name, hint in hints(kind).items():
        inner = table_in(hint)
        if inner is None or inner in result:
            continue
        result.add(inner)
        if get_origin(hint) is tuple:
            yield Table(f"An item of a list in `[{prefix.rstrip('.')}]`", inner)
            continue
        key = f".{KEYS.get(name, 'NAME')}" if get_origin(hint) is dict else ""
        yield Table(f"`[{prefix}{name}{key}]`", inner)
        yield from tables(f"{prefix}{name}{key}.", inner)


def table_in(hint: Any) -> type[Struct] | None:
    """Return the class of the table that a setting is or contains; None for a plain value."""
    if isinstance(hint, type) and issubclass(hint, Struct):
        return hint
    inner = [table_in(arg) for arg in get_args(hint) if get_origin(hint) is not Literal]
    return next((item for item in inner if item is not None), None)


def section(table: Table) -> str:
    data = comments(table.kind)
    own = hints(table.kind)
    rows = [
        f"| `{field.name}` | {words(own[field.name])} | {default(field)} | {data[field.name]} |"
        for field in msgspec.structs.fields(table.kind)
        if get_origin(own[field.name]) is tuple or table_in(own[field.name]) is None
    ]
    about = inspect.cleandoc(table.kind.__doc__ or "")
    parts = [f"### {table.title}", about, "\n".join([*HEAD, *rows]) if rows else ""]
    return "\n\n".join(filter(None, parts))


def hints(kind: type[Struct]) -> dict[str, Any]:
    return hints_of(kind, include_extras=True)


def comments(kind: type) -> dict[str, str]:
    """Return the comment behind each field in the source."""
    source = inspect.getsource(sys.modules[kind.__module__])
    lines = source.splitlines()
    nodes = {n.name: n for n in ast.parse(source).body if isinstance(n, ast.ClassDef)}
    return {
        item.target.id: lines[(item.end_lineno or 1) - 1].partition("  # ")[2].strip()
        for item in nodes[kind.__name__].body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }


# Types. -------------------------------------------------------------------------------

PLAIN: dict[Any, str] = {bool: "true or false", int: "whole number", float: "number"}


def words(hint: Any, bounds: str = "") -> str:
    """Return in words what may be written for a setting."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return words(inner[0], describe_bounds(inner[1]))
    if origin is tuple:
        return f"list of {several(inner[0])}"
    if origin is dict:
        return f"table of {several(inner[1])}"
    if result := choices(hint):
        return "one of " + ", ".join(f"`{toml(value)}`" for value in result)
    if origin in (Union, UnionType):
        return " or ".join(words(item) for item in inner if item is not NoneType)
    return f"{PLAIN.get(hint, 'string')}{bounds}"


def describe_bounds(meta: Meta) -> str:
    bounds = [
        f"at least {meta.ge:,}" if meta.ge is not None else "",
        f"above {meta.gt:,}" if meta.gt is not None else "",
        f"at most {meta.le:,}" if meta.le is not None else "",
        "not empty" if meta.min_length else "",
    ]
    text = " and ".join(bound for bound in bounds if bound)
    return f", {text}" if text else ""


def choices(hint: Any) -> tuple[Any, ...]:
    """Return the values of a literal, or of a union of literals; () for another type."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        result = [choices(arg) for arg in get_args(hint)]
        return tuple(value for item in result for value in item) if all(result) else ()
    return ()


def several(hint: Any) -> str:
    """Return a plural noun for the items of a list, or the values of a table."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(several(arg) for arg in get_args(hint))
    if hint is bool:
        return "true and false"
    return "tables" if table_in(hint) else "strings"


# Defaults. ----------------------------------------------------------------------------


def default(field: FieldInfo) -> str:
    """Return the default of a setting as it would be written in the file."""
    if field.required:
        return "required"
    value = (
        field.default_factory()
        if field.default_factory is not msgspec.NODEFAULT
        else field.default
    )
    return "not set" if value is None else f"`{toml(value)}`"


def toml(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case int():
            return str(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case tuple():
            return "[" + ", ".join(map(toml, value)) + "]"
        case dict() if not value:
            return "{}"
        case _:
            raise TypeError(f"no TOML for {value!r}")
