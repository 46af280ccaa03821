"""Workbooks as `read_file` shows them to a model, and as tables for a page."""

import datetime
import io

import anyio
import pytest

from refold.errors import ToolFailed
from refold.testing.places import ToolDirectory
from refold.tools.read import read_file
from refold.tools.spreadsheets import MAX_COLUMNS, sheet_table, workbook_text
from refold.values.sheet_table import SheetTable
from tests.tools.workbooks import cells, text_row, workbook

pytestmark = pytest.mark.slow  # each is read in a process of its own
ENTITY = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>'


def rows_of(content: bytes) -> list[str]:
    return workbook_text(content, "a.xlsx").split("\n")[2:]


def test_read_file_shows_the_rows_of_all_sheets_and_how_many_more_there_are(
    place: ToolDirectory,
) -> None:
    rows = [text_row("Name", "Sum"), "", *(text_row("Fern", str(n)) for n in range(5))]
    content = workbook(Invoices=cells(*rows), Paid=cells(text_row("none")))
    (place.directory / "book.xlsx").write_bytes(content)

    reply = anyio.run(place.use, read_file, {"path": "book.xlsx", "count": 4})

    assert reply.text == (
        '1\tSheets: "Invoices" at line 2, "Paid" at line 9\n'
        '2\t--- sheet "Invoices", rows with cells: 6 ---\n'
        "3\t1\tName\tSum\n"
        "4\t3\tFern\t0\n"
        "(lines 1-4 of 10; continue with first=5; a workbook, as rows with their numbers)"
    )


def test_workbook_cells_are_shown_by_their_types_and_formats() -> None:
    strings = "<si><t>plain</t></si><si><r><t>rich </t></r><r><t>text</t></r><rPh><t>said</t></rPh></si>"
    row = (
        '<c t="s"><v>0</v></c><c t="s"><v>1</v></c><c t="b"><v>1</v></c><c t="e"><v>#N/A</v></c>'
        '<c><v>0.30000000000000004</v></c><c><v>12</v></c><c s="1"><v>46328</v></c>'
        '<c s="2"><v>46328</v></c><c s="3"><v>0.19</v></c><c s="4"><v>46328.5</v></c>'
        '<c t="str"><f>A1</f><v>plain</v></c><c><f>SUM(B1:B9)</f></c><c r="P1"><v>9</v></c>'
    )

    (line,) = rows_of(workbook(strings, A=cells(row)))

    assert line.split("\t") == [
        "1", "plain", "rich text", "TRUE", "#N/A", "0.3", "12", "2026-11-02", "2026-11-02", "19%",
        "2026-11-02 12:00:00", "plain", "=SUM(B1:B9)", "", "", "", "9",
    ]  # fmt: skip


def test_a_table_for_a_person_has_numbers_as_their_formats_show_them() -> None:
    row = '<c><v>0.5</v></c><c s="2"><v>46328</v></c><c s="3"><v>0.194</v></c>'

    assert sheet_table(workbook(A=cells(row)), 1).rows == (("0.5", "02.11.2026", "19%"),)


def test_dates_of_a_workbook_that_counts_from_1904_are_right() -> None:
    content = workbook(
        "", '<workbookPr date1904="1"/>', A=cells('<c s="1"><v>44866</v></c>')
    )

    assert rows_of(content) == ["1\t2026-11-02"]


def test_a_sheet_table_keeps_empty_rows_and_gives_all_rows_one_width() -> None:
    content = workbook(
        A=cells(text_row("a", "b"), "", text_row("c")),
        B=f'<row r="1">{text_row(*["x"] * (MAX_COLUMNS + 1))}</row><row r="900"><c><v>1</v></c></row>',
    )

    wide = sheet_table(content, 2)

    assert sheet_table(content, 1) == SheetTable(
        ("A", "B"), (("a", "b"), ("", ""), ("c", ""))
    )
    assert (len(wide.rows), len(wide.rows[0])) == (1, MAX_COLUMNS)
    assert (wide.more_rows, wide.more_columns) == (True, True)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"PK\x03\x04 and no more", "it is damaged"),
        (workbook("", "", ENTITY, A=cells("<c><v>&b;</v></c>")), "a document type"),
        (workbook(A="<row>"), "'xl/worksheets/sheet1.xml' is missing or damaged"),
        (
            workbook(A=f"<row><c><v>{' ' * 200_000_000}</v></c></row>"),
            "unpacks to more than",
        ),
    ],
    ids=["damaged", "entities", "cut off", "bomb"],
)
def test_an_unreadable_workbook_is_refused_with_the_reason(
    content: bytes, reason: str
) -> None:
    with pytest.raises(ToolFailed, match=reason):
        workbook_text(content, "a.xlsx")


def test_a_missing_sheet_of_a_workbook_is_refused() -> None:
    with pytest.raises(ToolFailed, match="it has 1 sheets, not 2"):
        sheet_table(workbook(A=""), 2)


@pytest.mark.peer
def test_workbooks_written_by_openpyxl_and_xlsxwriter_are_read() -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    xlsxwriter = pytest.importorskip("xlsxwriter", reason="xlsxwriter is not installed")
    row = ["Müller & Söhne", 1234.5, datetime.date(2026, 11, 2), True]
    first, second = io.BytesIO(), io.BytesIO()
    book = openpyxl.Workbook()
    book.active.append(row)
    book.save(first)
    other = xlsxwriter.Workbook(second, {"default_date_format": "d mmm yyyy"})
    other.add_worksheet().write_row(0, 0, row)
    other.close()

    lines = [rows_of(file.getvalue()) for file in (first, second)]

    assert lines == [["1\tMüller & Söhne\t1234.5\t2026-11-02\tTRUE"]] * 2
