"""Make a workbook from a JSON description, with openpyxl.

    python3 write_xlsx.py book.json book.xlsx

The skill explains what the description may contain. If the description has an error, one
line says where, and nothing is written. check_xlsx.py checks the workbook.
"""

import argparse
import datetime
import json
import re
import sys
from importlib.util import find_spec

FORMATS = {
    "text": "@", "integer": "#,##0", "number": "#,##0.00", "percent": "0.0%", "date": "yyyy-mm-dd",
}  # fmt: skip
TOTALS = ("sum", "average", "min", "max", "count")
NUMBERS = ("integer", "number", "money", "percent")


def main(arguments):
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("target")
    options = parser.parse_args(arguments)
    if find_spec("openpyxl") is None:
        sys.exit("write_xlsx.py needs openpyxl: python3 -m pip install openpyxl")
    try:
        with open(options.source, encoding="utf-8-sig") as file:
            book = json.load(file)
    except (OSError, ValueError) as error:
        sys.exit(f"{options.source} cannot be read as JSON: {error}")
    output = workbook(book)
    try:
        output.save(options.target)
    except OSError as error:
        sys.exit(f"{options.target} cannot be written: {error}")
    sys.stdout.write(f"wrote {options.target}: {', '.join(output.sheetnames)}\n")
    return 0


def wrong(what):
    sys.exit(f"invalid description: {what}")


def workbook(book):
    """Return the workbook for a description, the content of the JSON file."""
    from openpyxl import Workbook

    sheets = book.get("sheets") if isinstance(book, dict) else None
    if not sheets:
        wrong("there is no list `sheets`")
    output = Workbook()
    output.remove(output.active)
    output.properties.title = str(book.get("title", ""))
    for sheet in sheets:
        name = str(sheet.get("name", ""))
        if not 0 < len(name) <= 31 or re.search(r"[\[\]:*?/\\]", name):
            wrong(f"the sheet name {name!r}: 1 to 31 characters, none of []:*?/\\")
        if name.lower() in (each.lower() for each in output.sheetnames):
            wrong(f"two sheets are called {name!r}")
        fill(output.create_sheet(name), sheet, name)
    return output


def fill(page, sheet, name):
    """Write a sheet: header, rows, totals, filter, widths, print settings, and chart."""
    columns, rows = sheet.get("columns") or [], sheet.get("rows") or []
    if not columns:
        wrong(f"sheet {name!r} has no `columns`")
    letters = letters_of(columns, name)
    header(page, columns)
    for number, row in enumerate(rows, start=2):
        if unknown := row.keys() - letters.keys():
            wrong(
                f"sheet {name!r}, row {number}: there is no column {sorted(unknown)[0]!r}"
            )
        for column in columns:
            cell = page[f"{letters[column['key']]}{number}"]
            cell_of(cell, column, row.get(column["key"]), letters, sheet)
    if sheet.get("totals"):
        totals(page, sheet, letters, len(rows) + 1)
    page.freeze_panes = "A2"
    if rows:
        page.auto_filter.ref = f"A1:{letters[columns[-1]['key']]}{len(rows) + 1}"
    widths(page, columns, letters)
    page.print_title_rows = "1:1"
    page.page_setup.orientation = "landscape" if len(columns) > 6 else "portrait"
    page.page_setup.fitToHeight = 0
    page.sheet_properties.pageSetUpPr.fitToPage = True
    if sheet.get("chart"):
        chart(page, sheet, letters, len(rows) + 1)


def letters_of(columns, name):
    """Return the letter of each column by its key. Exit if a column is not valid."""
    from openpyxl.utils import get_column_letter

    letters_by_key = {}
    for column_number, column in enumerate(columns, start=1):
        key, kind = column.get("key"), column.get("type", "text")
        if not key or not column.get("header") or key in letters_by_key:
            wrong(
                f"sheet {name!r}, column {column_number}: give it a `header` and a `key` of its own"
            )
        if kind != "money" and kind not in FORMATS:
            wrong(f"sheet {name!r}, column {key!r}: there is no type {kind!r}")
        letters_by_key[key] = get_column_letter(column_number)
    return letters_by_key


def header(page, columns):
    """Write the headers into the first row, aligned as the values of their columns."""
    from openpyxl.styles import Alignment, Font, PatternFill

    page.append([column["header"] for column in columns])
    for cell, column in zip(page[1], columns, strict=True):
        end = "right" if column.get("type") in NUMBERS else "left"
        cell.font = Font(bold=True)
        cell.fill = PatternFill("solid", fgColor="E8EDF2")
        cell.alignment = Alignment(horizontal=end, vertical="center", wrap_text=True)


def cell_of(cell, column, value, letters, sheet):
    """Write a value, or the formula of its column, in which keys of columns become cells."""
    kind = column.get("type", "text")
    cell.number_format = format_of(kind, sheet)
    if formula := column.get("formula"):
        if value is not None:
            wrong(f"{cell.coordinate} is computed, so no value can be given for it")
        keys = {key: f"{letter}{cell.row}" for key, letter in letters.items()}
        try:
            cell.value = formula.format(**keys, row=cell.row)
        except (KeyError, ValueError, IndexError) as error:
            wrong(f"the formula of {column['key']!r} names no column: {error}")
    elif value is not None:
        cell.value = converted(value, kind, cell.coordinate)
        if isinstance(cell.value, str):
            # Text stays text, even if it begins with "=".
            cell.data_type = "s"


def format_of(kind, sheet):
    """Return the number format for a type of column; money has the currency of the sheet."""
    if kind != "money":
        return FORMATS[kind]
    currency = sheet.get("currency", "")
    return f'#,##0.00 "{currency}"' if currency else "#,##0.00"


def converted(value, kind, where):
    """Return a value of the JSON file as a cell needs it. `where` is the cell, for errors."""
    if kind == "date":
        try:
            return datetime.date.fromisoformat(value)
        except (TypeError, ValueError):
            wrong(f"{where}: {value!r} is no date such as 2026-03-31")
    if kind in NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int | float):
            wrong(f"{where}: {value!r} is no number; numbers stand without quotes")
        return value
    text = str(value)
    if bad := re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", text):
        wrong(f"{where} holds the character U+{ord(bad[0]):04X}, which no workbook can")
    return text


def totals(page, sheet, letters, last):
    """Write a row of totals below the row `last`, the last one with values."""
    from openpyxl.styles import Border, Font, Side

    if last < 2:
        wrong(f"sheet {page.title!r} has totals and no rows")
    kinds = {column["key"]: column.get("type", "text") for column in sheet["columns"]}
    row = last + 1
    first_key = next(iter(letters))
    if first_key not in sheet["totals"]:
        page[f"{letters[first_key]}{row}"].value = "Total"
    for key, how in sheet["totals"].items():
        if key not in letters or how not in TOTALS:
            wrong(
                f"totals: {key!r}: {how!r}; there are {', '.join(TOTALS)} of {', '.join(letters)}"
            )
        cell = page[f"{letters[key]}{row}"]
        cell.value = f"={how.upper()}({letters[key]}2:{letters[key]}{last})"
        cell.number_format = (
            FORMATS["integer"] if how == "count" else format_of(kinds[key], sheet)
        )
    for letter in letters.values():
        page[f"{letter}{row}"].font = Font(bold=True)
        page[f"{letter}{row}"].border = Border(top=Side(style="thin"))


def widths(page, columns, letters):
    """Set the width of each column by its longest text; for formulas, guess it."""
    for column in columns:
        letter = letters[column["key"]]
        longest = len(str(column["header"])) + 3  # for the filter's arrow
        for cell in page[letter][1:]:
            value = cell.value
            shown = "" if value is None else str(value)
            if isinstance(value, int | float):
                shown = f"{value:,.2f} EUR"
            elif isinstance(value, str) and value.startswith("=") and cell.data_type == "f":
                shown = "0,000,000.00 EUR"
            longest = max(longest, len(shown) + 2)
        page.column_dimensions[letter].width = column.get("width") or min(longest, 60)


def chart(page, sheet, letters, last):
    """Add a chart of the rows down to `last`. In the description, x and y are column keys."""
    from openpyxl.chart import BarChart, LineChart, PieChart, Reference
    from openpyxl.utils import column_index_from_string

    wanted = sheet["chart"]
    kinds = {"bar": BarChart, "line": LineChart, "pie": PieChart}
    keys = [wanted.get("x"), *wanted.get("y", [])]
    are_columns = all(key in letters for key in keys)
    if wanted.get("type") not in kinds or len(keys) < 2 or not are_columns:
        wrong(
            f"chart of {page.title!r}: type bar, line or pie; x and y are keys of columns"
        )
    output = kinds[wanted["type"]]()
    output.title = wanted.get("title", "")
    x_column, *y_columns = (column_index_from_string(letters[key]) for key in keys)
    for column in y_columns:  # with the header, which is the title of the series
        values = Reference(page, min_col=column, min_row=1, max_row=last)
        output.add_data(values, titles_from_data=True)
    output.set_categories(Reference(page, min_col=x_column, min_row=2, max_row=last))
    if wanted["type"] != "pie":
        # Newer versions of Excel hide axes that do not say that they are there.
        output.x_axis.delete = output.y_axis.delete = False
    output.width, output.height = 18, 9
    page.add_chart(output, f"A{last + 4}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
