"""Changes one cell of a Jupyter notebook, and no other byte, for the tool `notebook_edit`.

The outputs of a changed cell are removed, because other code made them.
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

_CELL_DEPTH = 2  # of a cell in the notebook's JSON
_WITH_IDS = (4, 5)  # the first format whose cells have ids


class CellEdit(Struct, frozen=True):
    cell: str | int
    source: str
    kind: str  # code, markdown, raw; same: as it was
    mode: str  # replace, insert, delete


class Layout(Struct, frozen=True):
    """`unit` is one step of indentation, None if all is on one line."""

    unit: str | None
    plain: bool  # letters beyond ASCII are not escaped
    tight: bool  # no blank after "," and ":" on one line

    def text(self, value: Any, depth: int) -> str:
        """`value` as it would be written at this depth. The first line is not indented."""
        if self.unit is None:
            separators = (",", ":") if self.tight else (", ", ": ")
            return json.dumps(value, ensure_ascii=not self.plain, separators=separators)
        text = json.dumps(value, ensure_ascii=not self.plain, indent=self.unit)
        return text.replace("\n", f"\n{self.unit * depth}")


class Span(Struct, frozen=True):
    """A value at text[start:end]."""

    start: int
    end: int


class _Notebook(Struct, frozen=True):
    text: str
    cells: Sequence[Span]
    array: Span
    layout: Layout
    ids: bool  # its cells have ids

    def cell(self, number: int) -> dict[str, Any]:
        span = self.cells[number]
        return json.loads(self.text[span.start : span.end])

    def replace_span(self, span: Span, text: str) -> str:
        return self.text[: span.start] + text + self.text[span.end :]


def edit_cell(
    path: str, edit: CellEdit, files: Files, known_texts: Mapping[str, str]
) -> Reply:
    check_sendable(edit.source, "source")
    real = files.real(path)
    name = files.display_name(real)
    before = read_current(real, files, known_texts)
    old, book = _parse_notebook(before, name)
    sources = _sources(book)
    source = files.secrets(sources, name).unmask(restore_invisible(edit.source, sources))
    edit = replace(edit, source=source)
    match edit.mode:
        case "replace":
            number = _number(book, edit.cell, name)
            after = _replace_source(book, number, edit)
            summary = f"Changed cell {number + 1} of {name}"
        case "insert":
            number = 0 if edit.cell in (0, "0") else _number(book, edit.cell, name) + 1
            after = _insert_cell(book, number, edit)
            summary = f"Inserted cell {number + 1} into {name}"
        case _:  # delete
            number = _number(book, edit.cell, name)
            after = _delete_cell(book, number)
            summary = f"Deleted cell {number + 1} of {name}"
    data = encode_like(old, old.with_ends(after), name)
    if data == before:
        raise ToolFailed(f"The cell is like that already: {name} stays as it is.")
    files.write(real, data, expect=digest(before))
    diff_text = compare_texts(old.plain, after)
    return Reply(
        f"{summary} ({diff_text.count}).", (to_diff(real, diff_text, before, data),)
    )


def _parse_notebook(content: bytes, name: str) -> tuple[EditableText, _Notebook]:
    old = decode_text(content)
    try:
        text = old.plain if old else ""
        document = json.loads(text)
        top = members(text, text.index("{"))["cells"]
        cells = tuple(elements(text, top.start))
        for cell in document["cells"]:
            _ = cell["cell_type"], cell["source"]
        version = (document.get("nbformat", 0), document.get("nbformat_minor", 0))
        ids = version >= _WITH_IDS or any("id" in cell for cell in document["cells"])
    except (
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        RecursionError,
    ) as e:
        raise ToolFailed(f"{name} is not a Jupyter notebook with cells.") from e
    assert old is not None  # it parsed as JSON
    return old, _Notebook(text, cells, top, layout(text), ids)


def _sources(book: _Notebook) -> str:
    """The text of all cells, as shown to a model."""
    cells = (book.cell(number)["source"] for number in range(len(book.cells)))
    return "\n".join(
        source if isinstance(source, str) else "".join(source) for source in cells
    )


def _number(book: _Notebook, cell: str | int, name: str) -> int:
    """The index of the cell, from 0."""
    ids = [book.cell(number).get("id") for number in range(len(book.cells))]
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


def _replace_source(book: _Notebook, number: int, edit: CellEdit) -> str:
    if not edit.source:
        raise ToolFailed("source is empty: give the new text, or mode=delete.")
    span, cell = book.cells[number], book.cell(number)
    kind = cell["cell_type"] if edit.kind == "same" else edit.kind
    if kind != cell["cell_type"]:
        cell |= {"cell_type": kind, "source": _source(edit.source, cell["source"])}
        cell = {k: v for k, v in cell.items() if k not in ("outputs", "execution_count")}
        cell |= _empty_outputs(kind)
        return book.replace_span(span, book.layout.text(cell, _CELL_DEPTH))
    values = {"source": _source(edit.source, cell["source"])}
    if values["source"] != cell["source"]:
        values |= {k: v for k, v in _empty_outputs(kind).items() if k in cell}
    text = book.text
    parts = members(text, span.start)
    # From the end, so that earlier offsets stay valid.
    for key in sorted(values, key=lambda key: -parts[key].start):
        if values[key] != cell[key]:
            new = book.layout.text(values[key], _CELL_DEPTH + 1)
            text = text[: parts[key].start] + new + text[parts[key].end :]
    return text


def _insert_cell(book: _Notebook, number: int, edit: CellEdit) -> str:
    kind = "code" if edit.kind == "same" else edit.kind
    like: object = book.cell(0)["source"] if book.cells else None
    cell: dict[str, Any] = {"cell_type": kind}
    if book.ids:
        cell["id"] = _new_id(book, number, edit.source)
    cell |= {"metadata": {}, "source": _source(edit.source, like)} | _empty_outputs(kind)
    text = book.layout.text({key: cell[key] for key in sorted(cell)}, _CELL_DEPTH)
    if not book.cells:
        return book.replace_span(book.array, _only_cell_text(book, text))
    if number == 0:
        offset, new = book.cells[0].start, text + _separator(book)
    else:
        offset, new = book.cells[number - 1].end, _separator(book) + text
    return book.replace_span(Span(offset, offset), new)


def _delete_cell(book: _Notebook, number: int) -> str:
    if len(book.cells) == 1:
        return book.replace_span(book.array, "[]")
    if number == 0:
        return book.replace_span(Span(book.cells[0].start, book.cells[1].start), "")
    return book.replace_span(Span(book.cells[number - 1].end, book.cells[number].end), "")


def _separator(book: _Notebook) -> str:
    if len(book.cells) > 1:
        return book.text[book.cells[0].end : book.cells[1].start]
    # The white space before the only cell is used between two.
    before = book.text[book.array.start + 1 : book.cells[0].start]
    return f",{before}" if before or book.layout.tight else ", "


def _only_cell_text(book: _Notebook, text: str) -> str:
    unit = book.layout.unit
    if unit is None:
        return f"[{text}]"
    return f"[\n{unit * _CELL_DEPTH}{text}\n{unit}]"


def _source(source: str, like: object) -> str | list[str]:
    """The source of a cell as a list of lines, as Jupyter stores it, or as one text if
    `like` is one.
    """
    source = source.replace("\r\n", "\n")
    if isinstance(like, str):
        return source
    lines = [f"{line}\n" for line in source.split("\n")]
    lines[-1] = lines[-1][:-1]
    return [line for line in lines if line]


def _empty_outputs(kind: str) -> dict[str, Any]:
    return (
        {"execution_count": None, "outputs": cast("list[Any]", [])}
        if kind == "code"
        else {}
    )


def _new_id(book: _Notebook, number: int, source: str) -> str:
    taken = {book.cell(n).get("id") for n in range(len(book.cells))}
    seed = f"{number} {len(book.cells)} {source}"
    while (id_ := sha256(seed.encode()).hexdigest()[:8]) in taken:
        seed += "+"
    return id_


_WHITE_SPACE = " \t\r\n"


def members(text: str, start: int) -> Mapping[str, Span]:
    """The values of the object that begins at `start`, by their names."""
    spans, offset = dict[str, Span](), _skip_white_space(text, start + 1)
    while text[offset] != "}":
        key = _value_span(text, offset)
        name, offset = cast("str", json.loads(text[offset : key.end])), key.end
        value = _value_span(
            text, _skip_white_space(text, _skip_white_space(text, offset) + 1)
        )
        spans[name] = value
        offset = _next_offset(text, value.end)
    return spans


def elements(text: str, start: int) -> list[Span]:
    """The values of the array that begins at `start`."""
    spans, offset = list[Span](), _skip_white_space(text, start + 1)
    while text[offset] != "]":
        spans.append(_value_span(text, offset))
        offset = _next_offset(text, spans[-1].end)
    return spans


def layout(text: str) -> Layout:
    """The layout of an object, derived from its beginning."""
    top = _skip_white_space(text, 0)
    before = text[top + 1 : _skip_white_space(text, top + 1)]
    unit = before.rpartition("\n")[2] if "\n" in before else None
    plain = not (text.isascii() and "\\u" in text)
    return Layout(unit, plain, tight='": ' not in text)


def _value_span(text: str, offset: int) -> Span:
    _, end = json.JSONDecoder().raw_decode(text, offset)
    return Span(offset, end)


def _next_offset(text: str, offset: int) -> int:
    offset = _skip_white_space(text, offset)
    return _skip_white_space(text, offset + 1) if text[offset] == "," else offset


def _skip_white_space(text: str, offset: int) -> int:
    while offset < len(text) and text[offset] in _WHITE_SPACE:
        offset += 1
    return offset
