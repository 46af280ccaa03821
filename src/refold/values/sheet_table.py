"""The first rows of a spreadsheet, as the web page shows them. `tools/spreadsheets` reads them
from a workbook.
"""

from msgspec import Struct


class SheetTable(Struct, frozen=True):
    """The first rows of one sheet of a workbook, all equally long, and the names of all its
    sheets.
    """

    sheets: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more_rows: bool = False
    more_columns: bool = False
