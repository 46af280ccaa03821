"""Open a workbook again and say what is wrong with it.

    python3 check_xlsx.py book.xlsx

The exit code is 0 if nothing is wrong. The script computes no formulas: check their results
against the source data.
"""

import argparse
import datetime
import re
import sys
import warnings
from importlib.util import find_spec

ERRORS = ("#REF!", "#DIV/0!", "#VALUE!", "#NAME?", "#N/A", "#NUM!", "#NULL!")
NUMERIC = re.compile(r"-?(0|[1-9]\d*)([.,]\d+)?")
MANY = 20  # rows; with more of them, a header has to stay in sight
MAX_REPORTED = 20  # problems of one sheet that are reported


def main(arguments):
    """Print what is wrong with a workbook. Return the exit code: 1 if something is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file")
    options = parser.parse_args(arguments)
    if find_spec("openpyxl") is None:
        sys.exit("check_xlsx.py needs openpyxl: python3 -m pip install openpyxl")
    import openpyxl

    warnings.simplefilter("ignore")  # of parts that openpyxl does not know
    try:
        book = openpyxl.load_workbook(options.file)
        computed = openpyxl.load_workbook(options.file, data_only=True)
    except Exception as error:  # a damaged file raises many kinds of errors
        sys.exit(f"{options.file} cannot be opened as a workbook: {error}")
    count, formulas, unknown = 0, 0, 0
    for page in book.worksheets:
        problems = [*check_sheet(page), *check_cells(page, computed[page.title], book)]
        count += len(problems)
        for each in problems[:MAX_REPORTED]:
            sys.stdout.write(f"wrong: {page.title}: {each}\n")
        if len(problems) > MAX_REPORTED:
            sys.stdout.write(
                f"wrong: {page.title}: and {len(problems) - MAX_REPORTED} more\n"
            )
        cells = [cell for row in page.iter_rows() for cell in row if cell.data_type == "f"]
        formulas += len(cells)
        unknown += sum(computed[page.title][c.coordinate].value is None for c in cells)
    sys.stdout.write(
        f"{len(book.worksheets)} sheets: {', '.join(book.sheetnames)}; {formulas} formulas\n"
    )
    if unknown:
        sys.stdout.write(
            f"{unknown} results are computed when a spreadsheet program opens it\n"
        )
    return 1 if count else 0


def check_sheet(page):
    """Report what is wrong with a sheet as a whole."""
    if page.max_row == 1 and page.max_column == 1 and page["A1"].value is None:
        yield "it is empty"
        return
    headers = [cell.value for cell in page[1]]
    named = [str(value).strip() for value in headers if value not in (None, "")]
    if len(named) < len(headers):
        coordinate_of_first = next(c.coordinate for c in page[1] if c.value in (None, ""))
        yield f"{coordinate_of_first}: a column without a header"
    for name in sorted({name for name in named if named.count(name) > 1}):
        yield f"two columns are called {name!r}"
    if page.max_row > MANY and not page.freeze_panes:
        yield f"{page.max_row} rows, and the header is not frozen"


def check_cells(page, computed, book):
    """Report what is wrong with cells. `computed` is the sheet with results of formulas."""
    for row in page.iter_rows():
        for cell in row:
            value = cell.value
            if value is None:
                continue
            if value in ERRORS or computed[cell.coordinate].value in ERRORS:
                yield f"{cell.coordinate} holds {computed[cell.coordinate].value or value}"
            elif cell.data_type == "f":
                yield from check_formula(cell, page, book)
            elif isinstance(value, str) and is_number(cell):
                yield f"{cell.coordinate}: the number {value!r} is kept as text"
            elif too_narrow(cell, page):
                yield f"{cell.coordinate}: column {cell.column_letter} is too narrow, it shows ####"


def is_number(cell):
    """Return whether a text should be a number.

    A format for text shows that it should not.
    """
    return (
        cell.number_format != "@" and cell.row > 1 and bool(NUMERIC.fullmatch(cell.value))
    )


def too_narrow(cell, page):
    """Return whether a number or date is wider than its column. The widths are estimates."""
    value = cell.value
    if isinstance(value, bool) or not isinstance(value, int | float | datetime.date):
        return False
    width = 8.43  # the default of Excel
    dimension = page.column_dimensions.get(cell.column_letter)
    if dimension and dimension.width:
        width = dimension.width
    shown = "2026-03-31" if isinstance(value, datetime.date) else f"{value:,.0f}"
    chars = len(shown)
    if decimals := re.search(r"0\.(0+)", cell.number_format or ""):
        chars += len(decimals[1]) + 1  # and the point
    return chars > width


def check_formula(cell, page, book):
    """Report ranges in a formula that do not exist, are empty, or contain its own cell."""
    from openpyxl.formula import Tokenizer

    text = getattr(cell.value, "text", cell.value)
    for token in Tokenizer(str(text)).items:
        if token.type != "OPERAND" or token.subtype != "RANGE":
            continue
        sheet, _, area = token.value.rpartition("!")
        sheet = sheet.strip("'").replace("''", "'") or page.title
        if "[" in token.value or not re.fullmatch(
            r"\$?[A-Z]{1,3}\$?\d+(:\$?[A-Z]{1,3}\$?\d+)?", area
        ):
            continue  # another file, a name, a whole column
        if sheet not in book.sheetnames:
            yield f"{cell.coordinate}: there is no sheet {sheet!r} ({text})"
            continue
        cells = cells_of(book[sheet], area.replace("$", ""))
        if sheet == page.title and cell in cells:
            yield f"{cell.coordinate} refers to itself ({text})"
        elif all(each.value is None for each in cells):
            yield f"{cell.coordinate}: {token.value} is empty ({text})"


def cells_of(page, area):
    """Return the cells of an area such as "A1:B9", none after the last row or column."""
    from openpyxl.utils import range_boundaries

    left, top, right, bottom = range_boundaries(area)
    bottom, right = (
        min(bottom, max(page.max_row, top)),
        min(right, max(page.max_column, left)),
    )
    return [
        page.cell(row, column)
        for row in range(top, bottom + 1)
        for column in range(left, right + 1)
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
