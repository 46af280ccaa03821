"""Changes one key of a TOML text and leaves the rest unchanged: comments, order, line ends.

`tomlkit` changes the text. Then `tomllib` parses the result, to check that no other key has
changed.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from tomlkit import TOMLDocument, dumps, key, parse, table
from tomlkit import value as parse_value
from tomlkit.container import OutOfOrderTableProxy
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Comment, InlineTable, Item, Key, Table, Whitespace

from refold.config.toml_text import Names, value_in_toml
from refold.errors import BadInput

_BY_HAND = "refold config edit opens it"


def set_key(text: str, path: Names, value: object) -> str:
    """Return `text` with `path` set to `value`.

    Raises `BadInput` if the text has a form that can only be edited by hand.
    """
    wanted = tomllib.loads(text)
    _table_around(wanted, path)[path[-1]] = value
    item = parse_value(value_in_toml(value))
    return _edit(text, path, wanted, lambda document: _set(document, path, item))


def unset_key(text: str, path: Names) -> str:
    """Return `text` without the key at `path`. Raises `BadInput` like `set_key`."""
    wanted = tomllib.loads(text)
    if _table_around(wanted, path).pop(path[-1], None) is None:
        return text
    return _edit(text, path, wanted, lambda document: _remove(document, path))


def _table_around(document: dict[str, Any], path: Names) -> dict[str, Any]:
    """Return the table for the last name of `path`. Tables that are missing are added."""
    for name in path[:-1]:
        inner = document.setdefault(name, {})
        if not isinstance(inner, dict):
            raise BadInput(
                f"{'.'.join(path)} cannot be set there: {name} is not a table; {_BY_HAND}"
            )
        document = cast("dict[str, Any]", inner)
    return document


def _edit(
    text: str,
    path: Names,
    new_document: dict[str, Any],
    change: Callable[[TOMLDocument], None],
) -> str:
    """Return `text` after `change` was applied to its document.

    Raises `BadInput` if the result does not have the content of `new_document`.
    """
    line_end = "\r\n" if "\r\n" in text else "\n"
    has_only_crlf = line_end == "\r\n" and "\n" not in text.replace("\r\n", "")
    try:
        # tomlkit would add a key to a last line without an end.
        lacks_line_end = bool(text) and not text.endswith("\n")
        whole = text + line_end if lacks_line_end else text
        document = parse(whole)
        change(document)
        after = dumps(document)
        if has_only_crlf:
            after = re.sub(r"(?<!\r)\n", "\r\n", after)
        is_line_added = after.count("\n") > whole.count("\n")
        if lacks_line_end and not is_line_added:
            after = after.removesuffix(line_end)
        result = _without_empty_tables(tomllib.loads(after))
        if result == _without_empty_tables(new_document):
            return after
    except (TOMLKitError, ValueError):  # tomlkit cannot write a valid value at this place
        pass
    raise BadInput(
        f"{'.'.join(path)} is written there in a form that can only be edited by hand: "
        f"{_BY_HAND}"
    )


def _set(document: TOMLDocument, path: Names, value: Item) -> None:
    """Set the value at `path`, where it is written now or in a new place.

    Raises `ValueError` if `path` leads to a table or through an array of tables.
    """
    around, rest = _enclosing_table(document, path)
    name = rest[0]
    written = around.get(name)
    if written is None:
        _add(around, rest, value)
    elif isinstance(written, InlineTable):  # it is written again as a whole
        inner = {name: written.unwrap()}
        _table_around(inner, rest)[rest[-1]] = value.unwrap()
        around[name] = parse_value(value_in_toml(inner[name]))
    elif isinstance(written, dict | AoT):
        raise ValueError(f"{name} is a table")
    else:
        around[name] = value


def _add(around: Any, path: Names, value: Item) -> None:
    """Add `value` at `path` in the table `around`, which has nothing at its first name."""
    name, *inner_names = path
    if isinstance(around, TOMLDocument) and not inner_names:
        _insert(around.body, path, value, at_top=True)
    elif isinstance(around, Table) and not around.is_super_table():  # it has a header
        _insert(around.value.body, path, value)
    else:
        around[name] = _new_table(inner_names, value) if inner_names else value


def _remove(document: TOMLDocument, path: Names) -> None:
    """Remove the value at `path`.

    Raises `ValueError` for a table with content, unless it is an inline table.
    """
    around, rest = _enclosing_table(document, path)
    name = rest[0]
    written = around[name]
    if len(rest) > 1:  # the value is in the inline table `name`
        inner = {name: written.unwrap()}
        del _table_around(inner, rest)[rest[-1]]
        around[name] = parse_value(value_in_toml(inner[name]))
    elif isinstance(written, AoT) or _is_filled_table(written):
        raise ValueError(f"{name} is a table")
    elif isinstance(around, OutOfOrderTableProxy):
        # With the last key of a table, tomlkit would also remove the table and its comments.
        parts = _tables_at(document.body, path[:-1])
        part_with_name = next(part for part in parts if name in part)
        del part_with_name[name]
    else:
        del around[name]


def _is_filled_table(value: object) -> bool:
    """Whether the value is a table with content, but not an inline table."""
    return isinstance(value, dict) and value != {} and not isinstance(value, InlineTable)


def _tables_at(body: list[tuple[Key | None, Item]], path: Names) -> Iterator[Table]:
    """Yield the tables of the document that define `path`."""
    for name, item in body:
        if name is not None and name.key == path[0] and isinstance(item, Table):
            if len(path) == 1:
                yield item
            else:
                yield from _tables_at(item.value.body, path[1:])


def _enclosing_table(document: TOMLDocument, path: Names) -> tuple[Any, Names]:
    """Return the innermost table around `path` that is not inline, and the path in it."""
    around: Any = document
    for depth, name in enumerate(path[:-1]):
        inner = around.get(name)
        if inner is None or isinstance(inner, InlineTable):
            return around, path[depth:]
        around = inner
    return around, path[-1:]


def _new_table(path: Sequence[str], value: Item) -> Table:
    """Return a table that has `value` at `path`. The outer tables get no header of their own."""
    *outer_names, last_name = path
    result = table()
    result[last_name] = value
    for name in reversed(outer_names):
        outer = table(is_super_table=True)
        outer[name] = result
        result = outer
    return result


def _insert(
    body: list[tuple[Key | None, Item]], path: Names, value: Item, *, at_top: bool = False
) -> None:
    """Insert a key with `value` after the last key of `body`.

    With `at_top`, if there is no key, insert it after the comment at the top of the file.
    """
    index = 0
    for position, (name, item) in enumerate(body):
        # The item of a dotted key is a table, too.
        is_key = name is not None and (
            name.is_dotted() or not isinstance(item, Table | AoT)
        )
        if is_key:
            index = position + 1
    if at_top and not index:
        index = _header_end(body)
    value.trivia.trail = "\n"
    body.insert(index, (key(path), value))


def _header_end(body: list[tuple[Key | None, Item]]) -> int:
    """Return the index after the comment at the top of the file; 0 if there is none.

    The comment counts only if a blank line or the end of the file follows it.
    """
    end = 0
    while end < len(body) and isinstance(body[end][1], Comment):
        end += 1
    is_separate = end == len(body) or isinstance(body[end][1], Whitespace)
    return end if is_separate else 0


def _without_empty_tables(tables: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the table without tables that have no value in them."""
    result = dict[str, Any]()
    for name, value in tables.items():
        if isinstance(value, dict):
            value = _without_empty_tables(cast("dict[str, Any]", value))
        if value != {}:
            result[name] = value
    return result
