"""Reads sheets of an XLSX workbook as text and as tables, in a process with limits.

The format is ECMA-376, part 1: a zip archive of XML parts. Formulas are not computed: a cell
has the value that was saved, or its formula if there is no value. A model gets numbers with all
their digits, the user as `cell_formats` shows them. A part with a document type is refused, so
no entity is expanded. The unpacked size is limited here, time and memory in `bounded_process`.
"""

import json
import posixpath
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from io import BytesIO
from typing import Literal
from xml.parsers import expat
from zipfile import BadZipFile, ZipFile

import msgspec
from msgspec import Struct

from refold.errors import ToolFailed
from refold.tools.bounded_process import (
    CannotRead,
    LimitExceeded,
    exit_unreadable,
    run_bounded,
)
from refold.tools.cell_formats import (
    CellFormat,
    cell_format,
    shown_number,
    stored_number,
)
from refold.values.sheet_table import SheetTable

MAX_TABLE_ROWS = 501  # the header, and the rows that a page shows below it
MAX_COLUMNS = 200
_MAX_TEXT_CHARS = 10_000_000
_MAX_PART_BYTES = 200_000_000  # for one part, unpacked
_CHUNK_BYTES = 65_536
_WORKBOOK_SUFFIXES = (".xlsx", ".xlsm", ".xltx", ".xltm")
_PLAIN_FORMAT = CellFormat()
_EPOCH, _EPOCH_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)
Attributes = Mapping[str, str]
# The kind, the name of the element, its attributes, and the text before its end.
Event = tuple[Literal["start", "end"], str, Attributes, str]


def is_workbook(content: bytes, name: str) -> bool:
    if not content.startswith(b"PK\x03\x04"):  # a ZIP file
        return False
    return name.lower().endswith(_WORKBOOK_SUFFIXES) or b"xl/workbook.xml" in content


def workbook_text(content: bytes, name: str) -> str:
    """Return the rows of all sheets as text, each with its number, and cells separated by tabs.

    Raises `ToolFailed` for a workbook that cannot be read.
    """
    try:
        return run_bounded(print_workbook, content, name)
    except LimitExceeded as error:
        raise ToolFailed(
            f"{name} is a workbook that takes {error} to read. Use bash with a program that "
            "reads part of it."
        ) from error
    except CannotRead as error:
        raise ToolFailed(f"{name} is a workbook that cannot be read: {error}.") from error


def sheet_table(content: bytes, number: int) -> SheetTable:
    """Return the first rows of a sheet as a table. The number of the sheet counts from 1.

    Raises `ToolFailed` for a sheet that cannot be read.
    """
    try:
        printed = run_bounded(print_sheet, content, str(number))
    except LimitExceeded as error:
        raise ToolFailed(f"the workbook takes {error} to read: download it") from error
    except CannotRead as error:
        raise ToolFailed(f"the workbook cannot be read: {error}") from error
    return msgspec.json.decode(printed, type=SheetTable)


def print_workbook(_name: str) -> None:
    """Print the workbook on standard input as text. This runs in a process with limits."""
    try:
        text = _text(_Workbook(_standard_input()))
        sys.stdout.buffer.write(text.encode(errors="replace"))
    except _Unreadable as error:
        exit_unreadable(str(error))


def print_sheet(number: str) -> None:
    """Print a sheet of the workbook on standard input as a `SheetTable` in JSON.

    This runs in a process with limits.
    """
    try:
        workbook = _Workbook(_standard_input(), as_shown=True)
        table = _table(workbook, int(number))
    except _Unreadable as error:
        exit_unreadable(str(error))
        return
    sys.stdout.write(json.dumps(table))


def _standard_input() -> ZipFile:
    """Return the workbook on standard input. Raises `_Unreadable` if it is not a ZIP file."""
    try:
        return ZipFile(BytesIO(sys.stdin.buffer.read()))
    except BadZipFile as error:
        raise _Unreadable("it is damaged, or not an XLSX workbook") from error


def _text(workbook: "_Workbook") -> str:
    """Return the rows of all sheets as text, up to a limit, after a list of the sheets."""
    lines, starts = list[str](), list[str]()
    chars_left = _MAX_TEXT_CHARS
    for sheet in workbook.sheets:
        heading_index = len(lines)
        for number, cells in workbook.rows(sheet):
            row = "\t".join((str(number), *map(_one_line, cells[:MAX_COLUMNS])))
            if len(cells) > MAX_COLUMNS:
                row += f"\t({len(cells) - MAX_COLUMNS} more columns)"
            lines.append(row)
            chars_left -= len(row)
            if chars_left <= 0:
                lines.append(f"(Only the first {_MAX_TEXT_CHARS:,} characters were read.)")
                break
        count = len(lines) - heading_index
        heading = f'--- sheet "{sheet.name}", rows with cells: {count:,} ---'
        lines.insert(heading_index, heading)
        # Lines count from 1, and the list of the sheets is the first one.
        starts.append(f'"{sheet.name}" at line {heading_index + 2:,}')
        if chars_left <= 0:
            break
    return "\n".join((f"Sheets: {', '.join(starts)}", *lines))


def _table(workbook: "_Workbook", number: int) -> Mapping[str, object]:
    """Return the fields of a `SheetTable` for the sheet with this number, from 1."""
    names = [sheet.name for sheet in workbook.sheets]
    if not 1 <= number <= len(names):
        raise _Unreadable(f"it has {len(names)} sheets, not {number}")
    rows = list[Sequence[str]]()
    more_rows = more_columns = False
    for row_number, cells in workbook.rows(workbook.sheets[number - 1]):
        if row_number > MAX_TABLE_ROWS:
            more_rows = True
            break
        rows += [()] * (row_number - 1 - len(rows))  # rows without a value
        rows.append(cells[:MAX_COLUMNS])
        more_columns = more_columns or len(cells) > MAX_COLUMNS
    width = max(map(len, rows), default=0)
    padded = [[*cells, *[""] * (width - len(cells))] for cells in rows]
    return {"sheets": names, "rows": padded, "more_rows": more_rows, "more_columns": more_columns}  # fmt: skip


def _one_line(cell: str) -> str:
    return " ".join(cell.split()) if any(c in cell for c in "\t\r\n") else cell


class _Unreadable(Exception):
    """Raised if the workbook cannot be read. The message is the reason, as a clause about the
    file.
    """


class _Sheet(Struct, frozen=True):
    name: str
    part: str


class _Relation(Struct, frozen=True):
    id: str
    type: str
    target: str


class _Workbook:
    """A workbook. With `as_shown`, numbers are shown in their formats, otherwise with all
    digits.
    """

    def __init__(self, archive: ZipFile, *, as_shown: bool = False) -> None:
        self._archive, self._as_shown = archive, as_shown
        part = _target(self._relations("_rels/.rels", folder=""), "officeDocument")
        if not part:
            raise _Unreadable("it is a zip archive without a workbook")
        folder, file = posixpath.split(part)
        relations = self._relations(f"{folder}/_rels/{file}.rels".lstrip("/"), folder)
        parts = {relation.id: relation.target for relation in relations}
        self.sheets = list[_Sheet]()
        self._epoch = _EPOCH
        for kind, name, attributes, _ in self._events(part):
            if (kind, name) == ("start", "sheet"):
                target = parts.get(attributes.get("id", ""), "")
                self.sheets.append(_Sheet(attributes.get("name", ""), target))
            elif name == "workbookPr" and attributes.get("date1904") in ("1", "true"):
                self._epoch = _EPOCH_1904
        strings_part = _target(relations, "sharedStrings")
        styles_part = _target(relations, "styles")
        self._strings = list(self._texts(strings_part)) if strings_part else []
        self._formats = list(self._styles(styles_part)) if styles_part else []

    def rows(self, sheet: _Sheet) -> Iterator[tuple[int, list[str]]]:
        """Yield the number and the cells of each row that has a value."""
        row = column = 0
        cells, cell_attributes = list[str](), dict[str, str]()
        text = formula = ""
        # `r`, the position of a row or cell, is optional: without it, the next one is meant.
        for kind, name, attributes, value in self._events(sheet.part):
            match kind, name:
                case "start", "row":
                    row = _to_whole_number(attributes.get("r")) or row + 1
                    column, cells = 0, []
                case "start", "c":
                    column = _column(attributes.get("r", "")) or column + 1
                    cell_attributes, text, formula = dict(attributes), "", ""
                case "end", "v" | "t":
                    text += value
                case "end", "f":
                    formula = value
                case "end", "c" if text or formula:
                    cells += [""] * (column - 1 - len(cells))
                    shown = self._cell(cell_attributes, text) if text else f"={formula}"
                    cells.append(shown)
                case "end", "row" if cells:
                    yield row, cells
                case _:
                    pass

    def _cell(self, attributes: Attributes, text: str) -> str:
        """Return the text to show for a cell. `text` is its stored value.

        The attribute `t` is the type of the value: a shared string, a Boolean or a number. The
        attribute `s` is the number of the style.
        """
        match attributes.get("t", "n"):
            case "s":
                index = _to_whole_number(text)
                return self._strings[index] if index < len(self._strings) else ""
            case "b":
                return "TRUE" if text == "1" else "FALSE"
            case "n":
                number_format = _PLAIN_FORMAT
                style_number = _to_whole_number(attributes.get("s"))
                if style_number < len(self._formats):
                    number_format = self._formats[style_number]
                if self._as_shown:
                    return shown_number(text, number_format, self._epoch)
                return stored_number(text, number_format.kind, self._epoch)
            case _:
                return text

    def _texts(self, part: str) -> Iterator[str]:
        """Yield the shared strings of the workbook. Their pronunciation (`rPh`) is left out.

        A string (`si`) consists of one or several texts (`t`).
        """
        text, in_pronunciation = "", False
        for kind, name, _, value in self._events(part):
            if name == "rPh":
                in_pronunciation = kind == "start"
            elif kind == "end" and name == "t" and not in_pronunciation:
                text += value
            elif kind == "end" and name == "si":
                yield text
                text = ""

    def _styles(self, part: str) -> Iterator[CellFormat]:
        """Yield the format of each cell style, in the order in which cells refer to them."""
        codes = dict[int, str]()  # of the formats that the workbook defines itself
        in_cell_styles = False
        for kind, name, attributes, _ in self._events(part):
            if name == "cellXfs":
                in_cell_styles = kind == "start"
            elif kind == "start" and name == "numFmt":
                number = _to_whole_number(attributes.get("numFmtId"))
                codes[number] = attributes.get("formatCode", "")
            elif kind == "start" and name == "xf" and in_cell_styles:
                number = _to_whole_number(attributes.get("numFmtId"))
                yield cell_format(number, codes)

    def _relations(self, part: str, folder: str) -> list[_Relation]:
        """Return the relations in a `.rels` part. Their targets are relative to `folder`."""
        return [
            _Relation(
                id=attributes.get("Id", ""),
                type=attributes.get("Type", "").rpartition("/")[2],
                target=posixpath.normpath(
                    posixpath.join("/", folder, attributes["Target"])
                ).removeprefix("/"),
            )
            for kind, name, attributes, _ in self._events(part)
            if (kind, name) == ("start", "Relationship") and "Target" in attributes
        ]

    def _events(self, part: str) -> Iterator[Event]:
        """Yield the starts and ends of the elements in an XML part. Namespaces are removed.

        An end has the text since the last start.
        """
        events, text = list[Event](), list[str]()
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True

        def start(name: str, attributes: dict[str, str]) -> None:
            text.clear()
            local = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
            events.append(("start", name.rpartition(" ")[2], local, ""))

        def end(name: str) -> None:
            events.append(("end", name.rpartition(" ")[2], {}, "".join(text)))
            text.clear()

        parser.StartElementHandler, parser.EndElementHandler = start, end
        parser.CharacterDataHandler = text.append
        parser.StartDoctypeDeclHandler = _refuse_document_type
        try:
            with self._archive.open(part) as file:
                if self._archive.getinfo(part).file_size > _MAX_PART_BYTES:
                    raise _Unreadable(f"it unpacks to more than {_MAX_PART_BYTES:,} bytes")
                while chunk := file.read(_CHUNK_BYTES):
                    parser.Parse(chunk)
                    yield from events
                    events.clear()
                parser.Parse(b"", True)  # the end of the document
        except (KeyError, BadZipFile, expat.ExpatError, EOFError, OSError) as error:
            raise _Unreadable(f"its part {part!r} is missing or damaged") from error
        # a password, or an unsupported compression
        except (RuntimeError, NotImplementedError) as error:
            raise _Unreadable(str(error)) from error


def _target(relations: Sequence[_Relation], type_: str) -> str:
    return next((relation.target for relation in relations if relation.type == type_), "")


def _refuse_document_type(*_: object) -> None:
    raise _Unreadable("a part has a document type, which no workbook needs")


def _to_whole_number(text: str | None) -> int:
    """Return the number in a text; 0 if it is not a number, or has more than 9 digits."""
    if not text or len(text) > 9:
        return 0
    return int(text) if text.isascii() and text.isdigit() else 0


def _column(reference: str) -> int:
    """Return the column number in a cell reference: 28 for AB12, 0 without a column."""
    number = 0
    for letter in reference.rstrip("0123456789").upper()[:3]:
        number = number * 26 + ord(letter) - ord("A") + 1
    return max(0, number)
