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
from refold.tools.file_versions import change, changed, current, digest, encoded
from refold.tools.text_files import EditableText, check_sendable, written
from refold.values.text import restored

_DEPTH = 2  # of a cell in the object that a notebook is
_WITH_IDS = (4, 5)  # the first format whose cells have ids


class CellEdit(Struct, frozen=True):
    cell: str | int
    source: str
    kind: str  # code, markdown, raw; same: as it was
    mode: str  # replace, insert, delete


class Layout(Struct, frozen=True):
    """`unit` is one step of indentation, None if all is on one line."""

    unit: str | None
    plain: bool  # letters beyond ASCII stand as they are
    tight: bool  # no blank after "," and ":" on one line

    def text(self, value: Any, depth: int) -> str:
        """`value` as it would be written at this depth. The first line is not indented."""
        if self.unit is None:
            separators = (",", ":") if self.tight else (", ", ": ")
            return json.dumps(value, ensure_ascii=not self.plain, separators=separators)
        found = json.dumps(value, ensure_ascii=not self.plain, indent=self.unit)
        return found.replace("\n", f"\n{self.unit * depth}")


class Span(Struct, frozen=True):
    """A value at text[start:end]."""

    start: int
    end: int


class _Notebook(Struct, frozen=True):
    text: str
    cells: Sequence[Span]
    array: Span
    layout: Layout
    ids: bool  # do its cells have ids?

    def cell(self, number: int) -> dict[str, Any]:
        span = self.cells[number]
        return json.loads(self.text[span.start : span.end])

    def replaced(self, span: Span, text: str) -> str:
        return self.text[: span.start] + text + self.text[span.end :]


def edited(path: str, edit: CellEdit, files: Files, known: Mapping[str, str]) -> Reply:
    check_sendable(edit.source, "source")
    real = files.real(path)
    name = files.called(real)
    before = current(real, files, known)
    was, book = _opened(before, name)
    sources = _sources(book)
    source = files.secrets(sources, name).restored(restored(edit.source, sources))
    edit = replace(edit, source=source)
    match edit.mode:
        case "replace":
            number = _number(book, edit.cell, name)
            after = _with_source(book, number, edit)
            told = f"Changed cell {number + 1} of {name}"
        case "insert":
            number = 0 if edit.cell in (0, "0") else _number(book, edit.cell, name) + 1
            after = _inserted(book, number, edit)
            told = f"Inserted cell {number + 1} into {name}"
        case _:  # delete
            number = _number(book, edit.cell, name)
            after = _without(book, number)
            told = f"Deleted cell {number + 1} of {name}"
    data = encoded(was, was.with_ends(after), name)
    if data == before:
        raise ToolFailed(f"The cell is like that already: {name} stays as it is.")
    files.write(real, data, expect=digest(before))
    made = change(was.plain, after)
    return Reply(f"{told} ({made.count}).", (changed(real, made, before, data),))


def _opened(content: bytes, name: str) -> tuple[EditableText, _Notebook]:
    was = written(content)
    try:
        text = was.plain if was else ""
        found = json.loads(text)
        top = members(text, text.index("{"))["cells"]
        cells = tuple(elements(text, top.start))
        for cell in found["cells"]:
            _ = cell["cell_type"], cell["source"]
        version = (found.get("nbformat", 0), found.get("nbformat_minor", 0))
        ids = version >= _WITH_IDS or any("id" in cell for cell in found["cells"])
    except (
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        RecursionError,
    ) as e:
        raise ToolFailed(f"{name} is not a Jupyter notebook with cells.") from e
    assert was is not None  # or there would have been no JSON
    return was, _Notebook(text, cells, top, layout(text), ids)


def _sources(book: _Notebook) -> str:
    """The text of all cells, as a model reads it."""
    cells = (book.cell(number)["source"] for number in range(len(book.cells)))
    return "\n".join(each if isinstance(each, str) else "".join(each) for each in cells)


def _number(book: _Notebook, cell: str | int, name: str) -> int:
    """Which cell is meant, from 0."""
    ids = [book.cell(number).get("id") for number in range(len(book.cells))]
    if isinstance(cell, str) and ids.count(cell) == 1:
        return ids.index(cell)
    number = int(cell) if str(cell).isdecimal() else 0
    if 1 <= number <= len(ids):
        return number - 1
    known = ", ".join(str(found) for found in ids if found)
    raise ToolFailed(
        f"{name} has no cell {str(cell)!r}: give a number from 1 to {len(ids)}"
        f"{f', or one of the ids {known}' if known else ''}."
    )


def _with_source(book: _Notebook, number: int, edit: CellEdit) -> str:
    if not edit.source:
        raise ToolFailed("source is empty: give the new text, or mode=delete.")
    span, cell = book.cells[number], book.cell(number)
    kind = cell["cell_type"] if edit.kind == "same" else edit.kind
    if kind != cell["cell_type"]:
        cell |= {"cell_type": kind, "source": _source(edit.source, cell["source"])}
        cell = {k: v for k, v in cell.items() if k not in ("outputs", "execution_count")}
        cell |= _unrun(kind)
        return book.replaced(span, book.layout.text(cell, _DEPTH))
    values = {"source": _source(edit.source, cell["source"])}
    if values["source"] != cell["source"]:
        values |= {k: v for k, v in _unrun(kind).items() if k in cell}
    text = book.text
    parts = members(text, span.start)
    # From the end on, so that what stands before keeps its place.
    for key in sorted(values, key=lambda key: -parts[key].start):
        if values[key] != cell[key]:
            new = book.layout.text(values[key], _DEPTH + 1)
            text = text[: parts[key].start] + new + text[parts[key].end :]
    return text


def _inserted(book: _Notebook, number: int, edit: CellEdit) -> str:
    kind = "code" if edit.kind == "same" else edit.kind
    like: object = book.cell(0)["source"] if book.cells else None
    cell: dict[str, Any] = {"cell_type": kind}
    if book.ids:
        cell["id"] = _new_id(book, number, edit.source)
    cell |= {"metadata": {}, "source": _source(edit.source, like)} | _unrun(kind)
    text = book.layout.text({key: cell[key] for key in sorted(cell)}, _DEPTH)
    if not book.cells:
        return book.replaced(book.array, _alone(book, text))
    if number == 0:
        at, new = book.cells[0].start, text + _between(book)
    else:
        at, new = book.cells[number - 1].end, _between(book) + text
    return book.replaced(Span(at, at), new)


def _without(book: _Notebook, number: int) -> str:
    if len(book.cells) == 1:
        return book.replaced(book.array, "[]")
    if number == 0:
        return book.replaced(Span(book.cells[0].start, book.cells[1].start), "")
    return book.replaced(Span(book.cells[number - 1].end, book.cells[number].end), "")


def _between(book: _Notebook) -> str:
    if len(book.cells) > 1:
        return book.text[book.cells[0].end : book.cells[1].start]
    # What stands before the only cell stands between two.
    before = book.text[book.array.start + 1 : book.cells[0].start]
    return f",{before}" if before or book.layout.tight else ", "


def _alone(book: _Notebook, text: str) -> str:
    unit = book.layout.unit
    if unit is None:
        return f"[{text}]"
    return f"[\n{unit * _DEPTH}{text}\n{unit}]"


def _source(source: str, like: object) -> str | list[str]:
    """Jupyter keeps lines, each with its end; some programs keep one text."""
    source = source.replace("\r\n", "\n")
    if isinstance(like, str):
        return source
    lines = [f"{line}\n" for line in source.split("\n")]
    lines[-1] = lines[-1][:-1]
    return [line for line in lines if line]


def _unrun(kind: str) -> dict[str, Any]:
    return (
        {"execution_count": None, "outputs": cast("list[Any]", [])}
        if kind == "code"
        else {}
    )


def _new_id(book: _Notebook, number: int, source: str) -> str:
    taken = {book.cell(n).get("id") for n in range(len(book.cells))}
    seed = f"{number} {len(book.cells)} {source}"
    while (found := sha256(seed.encode()).hexdigest()[:8]) in taken:
        seed += "+"
    return found


_WHITE = " \t\r\n"


def members(text: str, start: int) -> Mapping[str, Span]:
    """The values of the object that begins at `start`, by their names."""
    found, at = dict[str, Span](), _white(text, start + 1)
    while text[at] != "}":
        key = _value(text, at)
        name, at = cast("str", json.loads(text[at : key.end])), key.end
        value = _value(text, _white(text, _white(text, at) + 1))
        found[name] = value
        at = _next(text, value.end)
    return found


def elements(text: str, start: int) -> list[Span]:
    """The values of the array that begins at `start`."""
    found, at = list[Span](), _white(text, start + 1)
    while text[at] != "]":
        found.append(_value(text, at))
        at = _next(text, found[-1].end)
    return found


def layout(text: str) -> Layout:
    """How an object is laid out, as its beginning shows."""
    top = _white(text, 0)
    before = text[top + 1 : _white(text, top + 1)]
    unit = before.rpartition("\n")[2] if "\n" in before else None
    plain = not (text.isascii() and "\\u" in text)
    return Layout(unit, plain, tight='": ' not in text)


def _value(text: str, at: int) -> Span:
    _, end = json.JSONDecoder().raw_decode(text, at)
    return Span(at, end)


def _next(text: str, at: int) -> int:
    at = _white(text, at)
    return _white(text, at + 1) if text[at] == "," else at


def _white(text: str, at: int) -> int:
    while at < len(text) and text[at] in _WHITE:
        at += 1
    return at
