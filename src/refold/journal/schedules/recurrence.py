"""Computes when something is due: at one time, at intervals, or at times of the clock.

    2026-11-26T08:00    08:00            tomorrow 08:00
    every 30m           every 2h         every 1d
    08:00               mon-fri 08:00    sat,sun 9:30
    0 8 * * 1-5

The intervals of the second line count from the start of the schedule, and not by the clock. The
last two lines are times of the clock in a time zone. A time that the change to summer time
skips is due later, by as much as the clock is set forward. A time that occurs twice is due only
the first time, unless it is due every hour (`*/30 * * * *`). Only the time zones of the machine
are read. `schedules.schedule_book` records the runs.
"""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

from refold.errors import BadInput

MAX_COUNTED_TIMES = 1_000
SYNTAX_HELP = (
    "write 30m, 2h or 1d (every so long), 08:00 or mon-fri 08:00 (times of the day), or the "
    "five fields of cron, such as 0 8 * * 1-5"
)
_ONCE_HELP = "write 2026-11-26T08:00, 08:00 (the next one) or tomorrow 08:00"
_UNIT_SECONDS = {"m": 60, "h": 3_600, "d": 86_400}
_MAX_INTERVAL_SECONDS = 366 * 86_400
_DAY_NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTH_NAMES = (
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
)  # fmt: skip
# The rarest date, 29 February, is at most 8 years away (around 2100).
_MAX_DAYS_AHEAD = 366 * 9
_MAX_NUMBER_DIGITS = 3  # of a number in a field of cron; the largest valid one is 59
_LOCAL_TIME = Path("/etc/localtime")
_ZONE_FOLDERS = ("/zoneinfo/",)


class Recurrence(Struct, frozen=True):
    """The times at which something is due, parsed from `text`.

    `start` is when the schedule began or, if `once`, the only time that is due.
    """

    text: str
    start: float
    zone: str = ""
    once: bool = False

    def next(self, after: float) -> float | None:
        """Return the first time after `after`, or None if no time follows."""
        return next(self._times_after(after), None)

    def count_due(self, after: float, end: float) -> tuple[int, float]:
        """Return the number of due times after `after` and up to `end`, and the last one.

        The last one is 0 if no time is due. At most `MAX_COUNTED_TIMES` are counted.
        """
        if self.once or _parse_interval(self.text):
            return self._due_by_interval(after, end)
        count, last = 0, 0.0
        for moment in self._times_between(after, end):
            count += 1
            last = max(moment, last)
            if count >= MAX_COUNTED_TIMES:
                break
        return count, last

    def _due_by_interval(self, after: float, end: float) -> tuple[int, float]:
        """Return what `count_due` returns, for an interval or a single time."""
        if self.once:
            is_due = after < self.start <= end
            return (1, self.start) if is_due else (0, 0.0)
        interval = _parse_interval(self.text)
        # Times are numbered from the start of the schedule, which is not due itself.
        first_number = int((max(after, self.start) - self.start) // interval) + 1
        last_number = int((end - self.start) // interval)
        if last_number < first_number:
            return 0, 0.0
        count = min(last_number - first_number + 1, MAX_COUNTED_TIMES)
        return count, self.start + last_number * interval

    def _times_after(self, after: float) -> Iterator[float]:
        """Yield the times after `after`, in order. For an interval, yield only the first
        one.
        """
        if self.once:
            if self.start > after:
                yield self.start
            return
        if interval := _parse_interval(self.text):
            past_count = int((max(after, self.start) - self.start) // interval)
            yield self.start + (past_count + 1) * interval
            return
        zone, cron = zone_of(self.zone), _parse_cron(self.text)
        # A time that the clock skips at midnight is due on the day after that.
        first_day = datetime.fromtimestamp(after, zone).date() - timedelta(1)
        for ahead in range(_MAX_DAYS_AHEAD):
            for moment in cron.times_on(first_day + timedelta(ahead), zone):
                if moment > after:
                    yield moment

    def _times_between(self, begin: float, end: float) -> Iterator[float]:
        """Yield the times of a cron line after `begin` and up to `end`, the last one first."""
        zone, cron = zone_of(self.zone), _parse_cron(self.text)
        day = datetime.fromtimestamp(end, zone).date() + timedelta(1)
        first_day = datetime.fromtimestamp(begin, zone).date() - timedelta(1)
        while day >= first_day:
            for moment in reversed(cron.times_on(day, zone)):
                if begin < moment <= end:
                    yield moment
            day -= timedelta(1)


class _Cron(Struct, frozen=True):
    """The five fields of a cron line.

    With `either`, both a day of the month and a weekday are set, and one of them must
    match.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool

    def times_on(self, day: date, zone: tzinfo) -> list[float]:
        """Return the times on `day`, in order."""
        if not self._is_on(day):
            return []
        # A time that occurs twice is due the second time, too, only if every hour is.
        folds = (0, 1) if len(self.hours) == 24 else (0,)
        moments = {
            datetime.combine(day, time(hour, minute, fold=fold), zone).timestamp()
            for hour in self.hours
            for minute in self.minutes
            for fold in folds
            if fold == 0 or _comes_twice(day, hour, minute, zone)
        }
        return sorted(moments)

    def _is_on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        fits_date = day.day in self.days
        fits_weekday = day.isoweekday() % 7 in self.weekdays
        if self.either:
            return fits_date or fits_weekday
        return fits_date and fits_weekday


def parse_repeated(text: str, now: float, zone: str) -> Recurrence:
    """Parse a repeated time, which begins `now`, in a time zone. Raises `BadInput`."""
    rule = " ".join(text.lower().split()).removeprefix("every ")
    recurrence = Recurrence(rule, now, zone)
    if not _parse_interval(rule):
        _parse_cron(rule)
    if recurrence.next(now) is None:
        raise BadInput(f"{text!r} never comes: {SYNTAX_HELP}")
    return recurrence


def parse_single(text: str, now: float, zone: str) -> Recurrence:
    """Parse a single time, which must be after `now`, in a time zone. Raises `BadInput`."""
    moment = _parse_moment(" ".join(text.split()), now, zone_of(zone))
    if moment is None:
        raise BadInput(f"{text!r} is not a time: {_ONCE_HELP}")
    if moment <= now:
        raise BadInput(f"{text!r} is in the past: give a time that is still to come")
    return Recurrence(text.strip(), moment, zone, once=True)


def never_recurring(zone: str) -> Recurrence:
    """Return a recurrence without times: only a webhook starts the schedule."""
    return Recurrence(text="", start=0.0, zone=zone, once=True)


def local_zone(name: str) -> str:
    """Return the name of the local zone.

    `name` is the value of TZ; "": use /etc/localtime. Returns "UTC" without that file, and ""
    if the file does not say which zone it has. Raises `BadInput` for an unknown `name`.
    """
    zone_name = name.removeprefix(":")  # as in TZ=":Europe/Berlin"
    if zone_name:
        zone_of(zone_name)  # raises an error if the zone is unknown
        return zone_name
    try:
        target = str(_LOCAL_TIME.resolve(strict=True))
    except OSError:
        return "UTC"
    for folder in _ZONE_FOLDERS:
        if folder in target:
            return target.split(folder, 1)[1]
    return ""


@lru_cache(8)
def zone_of(name: str) -> tzinfo:
    """Return the zone with this name. Raises `BadInput`."""
    if name == "UTC":
        return UTC
    try:
        if name:
            return ZoneInfo(name)
        with _LOCAL_TIME.open("rb") as file:
            return ZoneInfo.from_file(file)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadInput(
            f"unknown time zone {name!r}; use a name such as Europe/Berlin"
        ) from error


def format_moment(moment: float, zone: str) -> str:
    """Return a time, in seconds since 1970, as people read it in this time zone."""
    return f"{datetime.fromtimestamp(moment, zone_of(zone)):%a %Y-%m-%d %H:%M %Z}"


def _parse_moment(text: str, now: float, zone: tzinfo) -> float | None:
    """Return the moment of an ISO time, of the next "9:30" or of "tomorrow 9:30"; None if
    `text` is none of these.
    """
    if match := re.fullmatch(r"(tomorrow )?(\d{1,2}):(\d\d)", text.lower()):
        hour, minute = int(match[2]), int(match[3])
        if hour > 23 or minute > 59:
            return None
        today = datetime.fromtimestamp(now, zone).date()
        day = today + timedelta(1) if match[1] else today
        moment = datetime.combine(day, time(hour, minute), zone).timestamp()
        if moment <= now:
            # The same time of the next day need not be 24 hours later.
            next_day = day + timedelta(1)
            moment = datetime.combine(next_day, time(hour, minute), zone).timestamp()
        return moment
    try:
        parsed = datetime.fromisoformat(text)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        return None


def _parse_interval(text: str) -> int:
    """Return the seconds of an interval; 0 if `text` is not an interval.

    Raises `BadInput` if the interval is out of range.
    """
    match = re.fullmatch(r"(\d{1,9}) ?([mhd])", text)
    if not match:
        return 0
    seconds = int(match[1]) * _UNIT_SECONDS[match[2]]
    if not 60 <= seconds <= _MAX_INTERVAL_SECONDS:
        raise BadInput(f"every {text!r}: 1m is the shortest, 366d the longest")
    return seconds


@lru_cache(64)
def _parse_cron(text: str) -> _Cron:
    """Return the fields of a cron text, or of "mon,tue 9:30". Raises `BadInput`."""
    fields = text.split()
    # A time such as "mon,fri 9:30" or "9:30" becomes five fields, too.
    if match := re.fullmatch(r"(?:([a-z,-]+) )?(\d{1,2}):(\d\d)", text):
        weekday_names, hour, minute = match.groups()
        fields = [str(int(minute)), str(int(hour)), "*", "*", weekday_names or "*"]
    if len(fields) != 5:
        raise BadInput(f"{text!r} is not a time of a schedule: {SYNTAX_HELP}")
    minute_field, hour_field, day_field, month_field, weekday_field = fields
    minutes = _parse_numbers(minute_field, text, low=0, high=59)
    hours = _parse_numbers(hour_field, text, low=0, high=23)
    days = _parse_numbers(day_field, text, low=1, high=31)
    months = _parse_numbers(month_field, text, low=1, high=12, names=_MONTH_NAMES)
    weekdays = _parse_numbers(weekday_field, text, low=0, high=7, names=_DAY_NAMES)
    return _Cron(
        tuple(minutes),
        tuple(hours),
        frozenset(days),
        frozenset(months),
        frozenset(day % 7 for day in weekdays),  # 0 and 7 are Sunday
        # As in cron, one of the two must fit if both are limited.
        either=not day_field.startswith("*") and not weekday_field.startswith("*"),
    )


def _parse_numbers(
    field: str, text: str, *, low: int, high: int, names: tuple[str, ...] = ()
) -> list[int]:
    """Return the numbers of a field of cron: `*`, `5`, `1-5`, `*/10`, or a list of these.

    `text` is the whole line, for the error.
    """
    numbers = set[int]()
    for part in field.split(","):
        span, slash, step_text = part.partition("/")
        first, dash, last = span.partition("-")
        step = 1
        if slash:
            is_number = step_text.isascii() and step_text.isdecimal()
            step = int(step_text) if is_number else 0  # 0 is refused below
        begin = low if span == "*" else _parse_number(first, low, names)
        if dash:
            end = _parse_number(last, low, names)
            if names == _DAY_NAMES and end == 0:  # Sunday as the end, as in "fri-sun"
                end = 7
        elif slash or span == "*":  # "5/10" begins at 5 and has no other end
            end = high
        else:
            end = begin
        if not (step and low <= begin <= end <= high):
            raise BadInput(
                f"{part!r} in {text!r} is not a time of a schedule: {SYNTAX_HELP}"
            )
        numbers.update(range(begin, end + 1, step))
    return sorted(numbers)


def _parse_number(word: str, low: int, names: tuple[str, ...]) -> int:
    """Return the number that `word` is or names; -1 if it is neither a number nor a name."""
    if word in names:
        return names.index(word) + low
    is_number = word.isascii() and word.isdecimal() and len(word) <= _MAX_NUMBER_DIGITS
    return int(word) if is_number else -1


def _comes_twice(day: date, hour: int, minute: int, zone: tzinfo) -> bool:
    """Whether the clock shows this time twice on `day`, because it is set back."""
    first = datetime.combine(day, time(hour, minute), zone)
    second = first.replace(fold=1)
    # In a skipped hour the two moments differ, too, but the second one is earlier.
    return second.timestamp() > first.timestamp()
