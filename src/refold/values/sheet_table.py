"""The first rows of a sheet, as a page shows them. `tools/spreadsheets` reads them from a workbook."""

from msgspec import Struct


class SheetTable(Struct, frozen=True):
    """Rows of one sheet, from its first, all of one length; and the names of all sheets."""

    sheets: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more_rows: bool = False
    more_columns: bool = False
