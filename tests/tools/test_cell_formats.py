"""Numbers of a workbook as their formats show them."""

from datetime import datetime

import pytest

from refold.tools.cell_formats import cell_format, shown_number

EPOCH = datetime(1899, 12, 30)
OWN = 164  # the first id of a format that has a code


def show_number(code: str, number: float | str) -> str:
    return shown_number(str(number), cell_format(OWN, {OWN: code}), EPOCH)


@pytest.mark.parametrize(
    ("code", "number", "shown"),
    [
        ("0", 79.5, "80"),
        ("0.00", 80, "80.00"),
        ("0.00", 1.005, "1.01"),
        ("00000", 1234, "01234"),
        ("0.0#", 2.5, "2.5"),
        ("#.##", 0.5, ".5"),
        ("#,##0", 1234567.4, "1,234,567"),
        ("#,##0.00", 1234.5, "1,234.50"),
        ("#,##0.00", -1234.5, "-1,234.50"),
        ("#,##0,", 1234567, "1,235"),
        ("0%", 0.19, "19%"),
        ("0.0%", 0.1234, "12.3%"),
        ('#,##0.00 "€"', 1234.5, "1,234.50 €"),
        ("#,##0.00\\ [$€-407]", 80, "80.00 €"),
        ("[$$-409]#,##0.00", -5, "-$5.00"),
        ("#,##0.00;[Red](#,##0.00)", -5, "(5.00)"),
        ('0;-0;"none"', 0, "none"),
        ("0;;", -3, ""),
        ('_($* #,##0.00_);_($* (#,##0.00);_($* "-"??_);_(@_)', 1234.5, "$1,234.50"),
        ('_($* #,##0.00_);_($* (#,##0.00);_($* "-"??_);_(@_)', 0, "$-"),
        ("0.00", -0.001, "0.00"),
        ("0", "1e300", "1e+300"),
        ("0", "text", "text"),
        ("# ?/?", 0.5, "0.5"),
        ("0.00E+00", 12345, "12345"),
        ("[>100]0;0.0", 12.25, "12.25"),
        ("General", 0.1, "0.1"),
        ("@", 12, "12"),
    ],
)  # fmt: skip
def test_a_number_is_shown_as_its_format_says(
    code: str, number: float | str, shown: str
) -> None:
    assert show_number(code, number) == shown


@pytest.mark.parametrize(
    ("code", "number", "shown"),
    [
        ("yyyy-mm-dd", 46328, "2026-11-02"),
        ("dd.mm.yyyy", 46328, "02.11.2026"),
        ("[$-409]d/m/yy;@", 46328, "2/11/26"),
        ("mmm d, yyyy", 46328, "Nov 2, 2026"),
        ("dddd, mmmm d", 46328, "Monday, November 2"),
        ("yyyy\\-mm\\-dd hh:mm:ss", 46328.5, "2026-11-02 12:00:00"),
        ("h:mm AM/PM", 0.75, "6:00 PM"),
        ("hh:mm", 0.25, "06:00"),
        ("[h]:mm", 1.5, "36:00"),
        ("mm:ss.0", 0.00005, "00:04.3"),
        ("h:mm", -1, "-1"),
    ],
)
def test_a_date_or_time_is_shown_as_its_format_says(
    code: str, number: float, shown: str
) -> None:
    assert show_number(code, number) == shown


@pytest.mark.parametrize(
    ("id_", "shown"),
    [
        (0, "46328.25"), (1, "46328"), (4, "46,328.25"), (10, "4632825.00%"), (14, "2026-11-02"),
        (22, "2026-11-02 6:00"), (30, "2026-11-02 06:00:00"), (49, "46328.25"),
    ],
)  # fmt: skip
def test_a_format_without_a_code_in_the_file_is_known_by_its_number(
    id_: int, shown: str
) -> None:
    assert shown_number("46328.25", cell_format(id_, {}), EPOCH) == shown
