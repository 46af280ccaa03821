"""Changes one cell of a Jupyter notebook, for the tool `notebook_edit`. Other bytes stay the
same.

The outputs of a changed cell are removed, because they are those of the old code.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.place.port import Files
from refold.tools.contract import Reply
from refold.tools.file_versions import (
    compare_texts,
    digest,
    encode_like,
    read_current,
    to_diff,
)
from refold.tools.text_files import EditableText, check_sendable, decode_text
from refold.values.text import restore_invisible

_CELL_DEPTH = 2  # the nesting depth of a cell in the notebook's JSON
_FIRST_FORMAT_WITH_IDS = (4, 5)  # the first format whose cells have ids


class CellEdit(Struct, frozen=True):
    cell: str | int
    source: str
    kind: str  # code, markdown, raw; same: unchanged
    mode: str  # replace, insert, delete


class Layout(Struct, frozen=True):
    """How a JSON text is written. `unit` is one step of indentation; None if the whole text is
    on one line.
    """

    unit: str | None
    plain: bool  # letters beyond ASCII are not escaped
    tight: bool  # no blank after "," and ":" on one line

    def text(self, value: Any, depth: int) -> str:
        """Return `value` as JSON in this layout, for a place at this depth. The first line is
        not indented.
        """
        if self.unit is None:
            separators = (",", ":") if self.tight else (", ", ": ")
            return json.dumps(value, ensure_ascii=not self.plain, separators=separators)
        text = json.dumps(value, ensure_ascii=not self.plain, indent=self.unit)
        return text.replace("\n", f"\n{self.unit * depth}")


class Span(Struct, frozen=True):
    """The place of a value in a JSON text, which is text[start:end]."""

    start: int
    end: int


class _Notebook(Struct, frozen=True):
    text: str
    cells: Sequence[Span]
    array: Span
    layout: Layout
    has_ids: bool  # whether its cells have ids

    def cell(self, index: int) -> dict[str, Any]:
        span = self.cells[index]
        return json.loads(self.text[span.start : span.end])

    def replace_span(self, span: Span, text: str) -> str:
        return self.text[: span.start] + text + self.text[span.end :]


def edit_cell(
    path: str, edit: CellEdit, files: Files, known_digests: Mapping[str, str]
) -> Reply:
    """Change, insert or delete one cell, and write the notebook."""
    check_sendable(edit.source, "source")
    real = files.real(path)
    name = files.display_name(real)
    before = read_current(real, files, known_digests)
    old, book = _parse_notebook(before, name)
    sources = _sources(book)
    source = files.secrets(sources, name).unmask(restore_invisible(edit.source, sources))
    edit = replace(edit, source=source)
    match edit.mode:
        case "replace":
            index = _cell_index(book, edit.cell, name)
            after = _replace_source(book, index, edit)
            summary = f"Changed cell {index + 1} of {name}"
        case "insert":
            index = 0 if edit.cell in (0, "0") else _cell_index(book, edit.cell, name) + 1
            after = _insert_cell(book, index, edit)
            summary = f"Inserted cell {index + 1} into {name}"
        case _:  # the mode delete
            index = _cell_index(book, edit.cell, name)
            after = _delete_cell(book, index)
            summary = f"Deleted cell {index + 1} of {name}"
    data = encode_like(old, old.with_ends(after), name)
    if data == before:
        raise ToolFailed(f"The cell is like that already: {name} stays as it is.")
    files.write(real, data, expect=digest(before))
    diff_text = compare_texts(old.plain, after)
    return Reply(
        f"{summary} ({diff_text.count}).", (to_diff(real, diff_text, before, data),)
    )


def _parse_notebook(content: bytes, name: str) -> tuple[EditableText, _Notebook]:
    """Return the text of a notebook, and where its cells are in it. Raises `ToolFailed`."""
    old = decode_text(content)
    try:
        text = old.plain if old else ""
        document = json.loads(text)
        array = members(text, text.index("{"))["cells"]
        cells = tuple(elements(text, array.start))
        for cell in document["cells"]:
            # A cell without these raises an error, which is reported below.
            _ = cell["cell_type"], cell["source"]
        version = (document.get("nbformat", 0), document.get("nbformat_minor", 0))
        has_ids = version >= _FIRST_FORMAT_WITH_IDS or any(
            "id" in cell for cell in document["cells"]
        )
    except (
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        RecursionError,
    ) as e:
        raise ToolFailed(f"{name} is not a Jupyter notebook with cells.") from e
    assert old is not None  # the text was parsed as JSON
    return old, _Notebook(text, cells, array, layout(text), has_ids)


def _sources(book: _Notebook) -> str:
    """Return the text of all cells, as a model sees it."""
    cells = (book.cell(index)["source"] for index in range(len(book.cells)))
    return "\n".join(
        source if isinstance(source, str) else "".join(source) for source in cells
    )


def _cell_index(book: _Notebook, cell: str | int, name: str) -> int:
    """Return the index, from 0, of the cell with an id or a number.

    Raises `ToolFailed` if there is none. `name` is the notebook's name for messages.
    """
    ids = [book.cell(index).get("id") for index in range(len(book.cells))]
    if isinstance(cell, str) and ids.count(cell) == 1:
        return ids.index(cell)
    number = int(cell) if str(cell).isdecimal() else 0
    if 1 <= number <= len(ids):
        return number - 1
    known = ", ".join(str(id_) for id_ in ids if id_)
    raise ToolFailed(
        f"{name} has no cell {str(cell)!r}: give a number from 1 to {len(ids)}"
        f"{f', or one of the ids {known}' if known else ''}."
    )


def _replace_source(book: _Notebook, index: int, edit: CellEdit) -> str:
    """Return the notebook's text with a new source or kind of one cell."""
    if not edit.source:
        raise ToolFailed("source is empty: give the new text, or mode=delete.")
    span, cell = book.cells[index], book.cell(index)
    kind = cell["cell_type"] if edit.kind == "same" else edit.kind
    if kind != cell["cell_type"]:
        cell |= {"cell_type": kind, "source": _to_cell_source(edit.source, cell["source"])}
        cell = {k: v for k, v in cell.items() if k not in ("outputs", "execution_count")}
        cell |= _empty_outputs(kind)
        return book.replace_span(span, book.layout.text(cell, _CELL_DEPTH))
    values = {"source": _to_cell_source(edit.source, cell["source"])}
    if values["source"] != cell["source"]:
        values |= {k: v for k, v in _empty_outputs(kind).items() if k in cell}
    text = book.text
    parts = members(text, span.start)
    # Replace from the end, so that earlier offsets stay valid.
    for key in sorted(values, key=lambda key: parts[key].start, reverse=True):
        if values[key] != cell[key]:
            new = book.layout.text(values[key], _CELL_DEPTH + 1)
            text = text[: parts[key].start] + new + text[parts[key].end :]
    return text


def _insert_cell(book: _Notebook, index: int, edit: CellEdit) -> str:
    """Return the notebook's text with a new cell at this index."""
    kind = "code" if edit.kind == "same" else edit.kind
    other_source: object = book.cell(0)["source"] if book.cells else None
    cell: dict[str, Any] = {"cell_type": kind}
    if book.has_ids:
        cell["id"] = _new_id(book, index, edit.source)
    cell["metadata"] = {}
    cell["source"] = _to_cell_source(edit.source, like=other_source)
    cell |= _empty_outputs(kind)
    # Jupyter sorts the keys of a cell.
    text = book.layout.text({key: cell[key] for key in sorted(cell)}, _CELL_DEPTH)
    if not book.cells:
        return book.replace_span(book.array, _only_cell_text(book, text))
    if index == 0:
        offset, new = book.cells[0].start, text + _separator(book)
    else:
        offset, new = book.cells[index - 1].end, _separator(book) + text
    return book.replace_span(Span(offset, offset), new)


def _delete_cell(book: _Notebook, index: int) -> str:
    """Return the notebook's text without the cell at this index, and one separator."""
    if len(book.cells) == 1:
        return book.replace_span(book.array, "[]")
    if index == 0:
        removed = Span(book.cells[0].start, book.cells[1].start)
    else:
        removed = Span(book.cells[index - 1].end, book.cells[index].end)
    return book.replace_span(removed, "")


def _separator(book: _Notebook) -> str:
    """Return the text between two cells: a comma, and the white space of this notebook."""
    if len(book.cells) > 1:
        return book.text[book.cells[0].end : book.cells[1].start]
    # With only one cell, the white space before it serves as the separator.
    before = book.text[book.array.start + 1 : book.cells[0].start]
    return f",{before}" if before or book.layout.tight else ", "


def _only_cell_text(book: _Notebook, text: str) -> str:
    """Return the list of cells with a single cell, whose JSON is `text`."""
    unit = book.layout.unit
    if unit is None:
        return f"[{text}]"
    return f"[\n{unit * _CELL_DEPTH}{text}\n{unit}]"


def _to_cell_source(source: str, like: object) -> str | list[str]:
    """Return the source of a cell as a text if `like` is a text, otherwise as lines.

    `like` is a source that the notebook has already.
    """
    source = source.replace("\r\n", "\n")
    if isinstance(like, str):
        return source
    lines = [f"{line}\n" for line in source.split("\n")]
    lines[-1] = lines[-1][:-1]
    return [line for line in lines if line]


def _empty_outputs(kind: str) -> dict[str, Any]:
    """Return the fields for outputs that a new cell of this kind must have."""
    return (
        {"execution_count": None, "outputs": cast("list[Any]", [])}
        if kind == "code"
        else {}
    )


def _new_id(book: _Notebook, index: int, source: str) -> str:
    """Return an id that no other cell has. It is not random, so that a repeated call gives the
    same id.
    """
    taken = {book.cell(i).get("id") for i in range(len(book.cells))}
    seed = f"{index} {len(book.cells)} {source}"
    while (id_ := sha256(seed.encode()).hexdigest()[:8]) in taken:
        seed += "+"
    return id_


_WHITE_SPACE = " \t\r\n"


def members(text: str, start: int) -> Mapping[str, Span]:
    """Return the places of the values in the JSON object that begins at `start`, by their
    names.
    """
    spans = dict[str, Span]()
    offset = _skip_white_space(text, start + 1)
    while text[offset] != "}":
        key = _value_span(text, offset)
        name = cast("str", json.loads(text[key.start : key.end]))
        colon = _skip_white_space(text, key.end)
        value_start = _skip_white_space(text, colon + 1)
        spans[name] = _value_span(text, value_start)
        offset = _next_offset(text, spans[name].end)
    return spans


def elements(text: str, start: int) -> list[Span]:
    """Return the places of the values in the JSON array that begins at `start`."""
    spans = list[Span]()
    offset = _skip_white_space(text, start + 1)
    while text[offset] != "]":
        spans.append(_value_span(text, offset))
        offset = _next_offset(text, spans[-1].end)
    return spans


def layout(text: str) -> Layout:
    """Return how a JSON text is written, derived from its beginning.

    If the object begins on a line of its own, the blanks before its first key are the unit of
    indentation.
    """
    brace = _skip_white_space(text, offset=0)
    first_key = _skip_white_space(text, brace + 1)
    between = text[brace + 1 : first_key]
    unit = between.rpartition("\n")[2] if "\n" in between else None
    escapes_non_ascii = text.isascii() and "\\u" in text
    return Layout(unit, plain=not escapes_non_ascii, tight='": ' not in text)


def _value_span(text: str, offset: int) -> Span:
    _, end = json.JSONDecoder().raw_decode(text, offset)
    return Span(offset, end)


def _next_offset(text: str, value_end: int) -> int:
    """Return the offset of the next item, or of the bracket that closes the list."""
    offset = _skip_white_space(text, value_end)
    return _skip_white_space(text, offset + 1) if text[offset] == "," else offset


def _skip_white_space(text: str, offset: int) -> int:
    while offset < len(text) and text[offset] in _WHITE_SPACE:
        offset += 1
    return offset
