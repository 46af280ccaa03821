"""Formats numbers of a spreadsheet as their number formats say (ECMA-376 part 1, 18.8.31).
Pure.

It supports digits, groups, percentages, literals, dates and times; months and days have English
names. If a format needs more (fractions, exponents, conditions), the number is shown as it is
stored.
"""

import calendar
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from math import isfinite
from typing import Literal, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal["", "date", "percent"]
_TokenKind: TypeAlias = Literal[
    "text", "digits", "date", "elapsed", "noon", "unknown", "end"
]

# Formats that every program knows, so their codes are not in the file: 18.8.30. The short date depends on the reader's
# country: here it has a form that everybody understands.
_BUILT_IN: Mapping[int, str] = {
    1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 14: "yyyy-mm-dd",
    15: "d-mmm-yy", 16: "d-mmm", 17: "mmm-yy", 18: "h:mm AM/PM", 19: "h:mm:ss AM/PM", 20: "h:mm",
    21: "h:mm:ss", 22: "yyyy-mm-dd h:mm", 37: "#,##0;(#,##0)", 38: "#,##0;(#,##0)",
    39: "#,##0.00;(#,##0.00)", 40: "#,##0.00;(#,##0.00)", 45: "mm:ss", 46: "[h]:mm:ss", 47: "mm:ss.0",
}  # fmt: skip
_LOCAL_DATES = frozenset((*range(27, 37), *range(50, 59)))  # of East Asian versions
_TOKEN_PATTERN = re.compile(
    r"""
    "(?P<quoted>[^"]*)" | \\(?P<escaped>.) | [_*].
    | \[\$(?P<currency>[^\]-]*)[^\]]*\] | \[(?P<elapsed>h+|m+|s+)\] | \[(?P<condition>[<>=][^\]]*)\] | \[[^\]]*\]
    | (?P<noon>am/pm|a/p) | (?P<general>general)
    | (?P<digits>[#0?][#0?,]*(?:\.[#0?]*)?,* | \.[#0?]+,*)
    | (?P<date>y+|m+|d+|h+|s+(?:\.0+)?) | (?P<end>;) | (?P<literal>[-+/$%():!^&'~{}<>=,\ .€£¥]) | (?P<unknown>.)
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_MAX_DAYS = 2_958_465  # 9999-12-31
_MAX_DECIMALS = 12
_MAX_NUMBER = 1e15
_DAY_SECONDS = 86_400


class Token(Struct, frozen=True):
    kind: _TokenKind
    text: str


_PERCENT_SIGN = Token("text", "%")


class CellFormat(Struct, frozen=True):
    """A number format: its kind, and for each sign of a number the tokens that show it.

    Without sections, a number is shown as it is stored.
    """

    kind: Kind = ""
    sections: tuple[tuple[Token, ...], ...] = ()


def cell_format(id_: int, codes: Mapping[int, str]) -> CellFormat:
    """Return the format with this id. `codes` are the formats that the workbook itself defines."""
    code = codes.get(id_) or _BUILT_IN.get(id_, "")
    if not code:
        return CellFormat("date" if id_ in _LOCAL_DATES else "")
    sections = [list[Token]()]
    for token in _tokens(code):
        if token.kind == "end":
            sections.append([])
        else:
            sections[-1].append(token)
    kind: Kind = "percent" if _PERCENT_SIGN in sections[0] else ""
    if any(token.kind in ("date", "elapsed") for token in sections[0]):
        kind = "date"
    return CellFormat(kind, tuple(tuple(_mark_minutes(section)) for section in sections))


def stored_number(text: str, kind: Kind, epoch: datetime) -> str:
    """Return a number with all its digits, or a date in the form of ISO 8601.

    A text that is not a number is returned unchanged. Dates count days from `epoch`.
    """
    number = _number(text)
    if number is None:
        return text
    if kind == "date" and 0 <= number <= _MAX_DAYS:
        moment = epoch + timedelta(seconds=round(number * _DAY_SECONDS))
        if number < 1:  # a time without a day
            return f"{moment:%H:%M:%S}"
        if number == int(number):
            return f"{moment:%Y-%m-%d}"
        return f"{moment:%Y-%m-%d %H:%M:%S}"
    # Spreadsheets compute with 15 digits.
    if kind == "percent":
        return f"{number * 100:.15g}%"
    return f"{number:.15g}"


def shown_number(text: str, format_: CellFormat, epoch: datetime) -> str:
    """Return a number as its format shows it, or as it is stored if the format is not
    supported.

    Dates count days from `epoch`.
    """
    number = _number(text)
    if number is None or not format_.sections or abs(number) >= _MAX_NUMBER:
        return stored_number(text, format_.kind, epoch)
    section, minus = _section(number, format_.sections)
    kinds = [token.kind for token in section]
    if "unknown" in kinds or kinds.count("digits") > 1:
        return stored_number(text, format_.kind, epoch)
    if format_.kind == "date":
        if 0 <= number <= _MAX_DAYS:
            return _date(number, section, epoch)
        return stored_number(text, kind="", epoch=epoch)
    percent_signs = section.count(_PERCENT_SIGN)  # each multiplies by a hundred
    value = Decimal(f"{abs(number):.15g}").scaleb(2 * percent_signs)
    digits = [_digits(value, token.text) for token in section if token.kind == "digits"]
    is_shown_as_zero = not re.search("[1-9]", "".join(digits))
    sign = "" if is_shown_as_zero else minus
    parts = [digits[0] if token.kind == "digits" else token.text for token in section]
    return f"{sign}{''.join(parts).strip()}"


def _number(text: str) -> float | None:
    """Return the number in a text; None for other text, an infinity or NaN."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


def _tokens(code: str) -> Iterator[Token]:
    """Yield the parts of a format code. The kind of an unsupported part is "unknown"."""
    for match in _TOKEN_PATTERN.finditer(code):
        kind = match.lastgroup or ""
        text = match[kind or 0]
        match kind:
            case "quoted" | "escaped" | "currency" | "literal":
                yield Token("text", text)
            case "digits" if len(text.partition(".")[2]) <= _MAX_DECIMALS:
                yield Token("digits", text)
            case "date" | "elapsed" | "noon" | "end":
                yield Token(kind, text.lower())
            case "":
                continue  # space for a character, a color or a language
            case _:
                yield Token("unknown", text)


def _mark_minutes(section: Sequence[Token]) -> Iterator[Token]:
    """Replace "m" by "n" in the tokens of a date if it means minutes: after hours or before
    seconds.
    """
    time_tokens = [token for token in section if token.kind in ("date", "elapsed")]
    letters = ["", *(token.text[0] for token in time_tokens), ""]
    position = 0  # of the token in `letters`
    for token in section:
        if token.kind not in ("date", "elapsed"):
            yield token
            continue
        position += 1
        is_after_hours = letters[position - 1] == "h"
        is_before_seconds = letters[position + 1] == "s"
        is_time = is_after_hours or is_before_seconds
        if is_time and token.kind == "date" and token.text in ("m", "mm"):
            yield Token("date", "n" * len(token.text))
        else:
            yield token


def _section(
    number: float, sections: Sequence[Sequence[Token]]
) -> tuple[Sequence[Token], str]:
    """Return the section for this number, and the sign to write before the number.

    A format can have sections for positive numbers, negative numbers and zero.
    """
    if number < 0 and len(sections) > 1:
        return sections[1], ""
    if number == 0 and len(sections) > 2:
        return sections[2], ""
    return sections[0], "-" if number < 0 else ""


def _digits(value: Decimal, code: str) -> str:
    """Return a number as a format code such as `#,##0.00` shows it.

    A 0 in the code is a digit that is always shown, and a # is a digit that is shown if it is
    needed.
    """
    places = code.rstrip(",")
    # Each comma after the digits divides by a thousand; one between them separates thousands.
    thousands = len(code) - len(places)
    value = value.scaleb(-3 * thousands)
    whole_code, _, decimal_code = places.partition(".")
    rounded = value.quantize(Decimal(1).scaleb(-len(decimal_code)), ROUND_HALF_UP)
    whole, _, decimals = f"{rounded:f}".partition(".")
    whole = whole.lstrip("0").rjust(whole_code.count("0"), "0")
    if "," in whole_code:
        whole = re.sub(r"(?<=\d)(?=(?:\d{3})+$)", ",", whole)
    min_decimals = decimal_code.count("0")
    decimals = decimals[:min_decimals] + decimals[min_decimals:].rstrip("0")
    return f"{whole}.{decimals}" if decimals else whole


def _date(number: float, section: Sequence[Token], epoch: datetime) -> str:
    """Return a date as the format shows it. `number` is the number of days since `epoch`."""
    shows_fractions = any("." in token.text for token in section if token.kind == "date")
    seconds = round(number * _DAY_SECONDS, 3 if shows_fractions else 0)
    moment = epoch + timedelta(seconds=seconds)
    twelve_hours = any(token.kind == "noon" for token in section)
    parts = (_date_part(token, moment, seconds, twelve_hours) for token in section)
    return "".join(parts).strip()


def _date_part(token: Token, moment: datetime, seconds: float, twelve_hours: bool) -> str:
    """Return the text for one token of a date format.

    `seconds` is the time in seconds since the epoch. With `twelve_hours`, hours count to
    twelve, with AM or PM.
    """
    width = len(token.text)
    hour = (moment.hour % 12 or 12) if twelve_hours else moment.hour
    match token.kind, token.text[:1]:
        case "noon", _:
            word = "AM" if moment.hour < 12 else "PM"
            return word if width > 3 else word[0]
        case "elapsed", unit:
            size = {"h": 3600, "m": 60, "s": 1}[unit]
            return f"{int(seconds // size):0{width}}"
        case "date", "y":
            return f"{moment.year:04}" if width > 2 else f"{moment.year % 100:02}"
        case "date", "m" if width > 2:
            name = calendar.month_name[moment.month]
            return {3: name[:3], 4: name}.get(width, name[:1])
        case "date", "d" if width > 2:
            name = calendar.day_name[moment.weekday()]
            return name if width > 3 else name[:3]
        case "date", "s" if "." in token.text:
            places = len(token.text.partition(".")[2])
            second = moment.second + moment.microsecond / 1e6
            return f"{second:0{width}.{places}f}"
        case "date", unit:
            value = {"m": moment.month, "d": moment.day, "h": hour, "n": moment.minute, "s": moment.second}[unit]  # fmt: skip
            return f"{value:0{width}}"
        case _:
            return token.text
