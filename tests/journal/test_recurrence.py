"""Times of schedules, over changes of the clock."""

from datetime import datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from refold.errors import BadInput
from refold.journal.schedules.recurrence import (
    MAX_COUNTED_TIMES,
    Recurrence,
    format_moment,
    local_zone,
    parse_repeated,
    parse_single,
    zone_of,
)

BERLIN = "Europe/Berlin"


def timestamp(*moment: int, zone: str = BERLIN) -> float:
    year, month, day, *rest = moment
    return datetime(year, month, day, *(*rest, 0, 0)[:2], tzinfo=ZoneInfo(zone)).timestamp()


def next_times(recurrence: Recurrence, after: float, count: int) -> list[str]:
    times = list[str]()
    while len(times) < count:
        after = recurrence.next(after) or 0.0
        times.append(format_moment(after, BERLIN)[4:])
    return times


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("08:00", ["2026-03-29 08:00 CEST", "2026-03-30 08:00 CEST"]),
        ("mon-fri 8:00", ["2026-03-30 08:00 CEST", "2026-03-31 08:00 CEST"]),
        ("every sat,sun 9:30", ["2026-03-29 09:30 CEST", "2026-04-04 09:30 CEST"]),
        ("fri-sun 10:00", ["2026-03-29 10:00 CEST", "2026-04-03 10:00 CEST"]),
        ("0 8 29 feb *", ["2028-02-29 08:00 CET", "2032-02-29 08:00 CET"]),
        ("0 8 13 * 5", ["2026-04-03 08:00 CEST", "2026-04-10 08:00 CEST"]),
        ("15,45 8-9 1 */6 *", ["2026-07-01 08:15 CEST", "2026-07-01 08:45 CEST"]),
        ("0 0 * * 7", ["2026-03-29 00:00 CET", "2026-04-05 00:00 CEST"]),
        ("every 36h", ["2026-03-30 01:00 CEST", "2026-03-31 13:00 CEST"]),
    ],
)
def test_the_next_times_match_the_recurrence(text: str, expected: list[str]) -> None:
    now = timestamp(2026, 3, 28, 12)

    assert next_times(parse_repeated(text, now, BERLIN), now, 2) == expected


def test_a_time_skipped_by_summer_time_is_due_an_hour_later_once() -> None:
    recurrence = parse_repeated("02:30", timestamp(2026, 3, 28), BERLIN)

    assert next_times(recurrence, timestamp(2026, 3, 28), 3) == [
        "2026-03-28 02:30 CET", "2026-03-29 03:30 CEST", "2026-03-30 02:30 CEST",
    ]  # fmt: skip
    assert recurrence.count_due(timestamp(2026, 3, 29), timestamp(2026, 3, 30)) == (
        1,
        timestamp(2026, 3, 29, 3, 30),
    )


def test_a_time_repeated_by_the_clock_change_is_due_once() -> None:
    recurrence = parse_repeated("02:30", timestamp(2026, 10, 24), BERLIN)

    assert next_times(recurrence, timestamp(2026, 10, 24, 12), 2) == [
        "2026-10-25 02:30 CEST", "2026-10-26 02:30 CET",
    ]  # fmt: skip
    assert recurrence.count_due(timestamp(2026, 10, 25), timestamp(2026, 10, 26)) == (
        1,
        timestamp(2026, 10, 25, 2, 30),
    )


def test_half_hourly_schedule_keeps_its_interval_when_clocks_are_set_back() -> None:
    recurrence = parse_repeated("*/30 * * * *", timestamp(2026, 10, 24), BERLIN)

    moments = [timestamp(2026, 10, 25, 1, 30)]
    while len(moments) < 8:
        moments.append(recurrence.next(moments[-1]) or 0.0)

    assert {b - a for a, b in zip(moments, islice(moments, 1, None), strict=False)} == {
        1_800
    }
    assert recurrence.count_due(moments[0], moments[-1]) == (7, moments[-1])


def test_an_interval_of_a_day_is_24_hours_across_a_clock_change() -> None:
    recurrence = parse_repeated("every 1d", timestamp(2026, 3, 28, 12), BERLIN)

    assert next_times(recurrence, timestamp(2026, 3, 28, 12), 2) == [
        "2026-03-29 13:00 CEST", "2026-03-30 13:00 CEST",
    ]  # fmt: skip
    assert recurrence.count_due(timestamp(2026, 3, 28, 12), timestamp(2026, 3, 31)) == (
        2,
        timestamp(2026, 3, 30, 13),
    )


def test_missed_times_of_many_years_are_counted_up_to_a_limit() -> None:
    minutely = parse_repeated("* * * * *", 0, "UTC")

    assert minutely.count_due(0, 10**9) == (MAX_COUNTED_TIMES, 10**9 // 60 * 60)
    assert parse_repeated("1m", 0, "UTC").count_due(0, 10**9) == (
        MAX_COUNTED_TIMES,
        10**9 // 60 * 60,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-26T08:00", (2026, 11, 26, 8)),
        ("2026-11-26T08:00+01:00", (2026, 11, 26, 8)),
        ("11:59", (2026, 11, 26, 11, 59)),
        ("12:01", (2026, 11, 25, 12, 1)),
        ("Tomorrow 18:00", (2026, 11, 26, 18)),
    ],
)
def test_a_single_time_is_due_once(text: str, expected: tuple[int, ...]) -> None:
    now = timestamp(2026, 11, 25, 12)

    single = parse_single(text, now, BERLIN)

    assert single.next(now) == timestamp(*expected)
    assert single.count_due(now, timestamp(*expected)) == (1, timestamp(*expected))
    assert single.next(timestamp(*expected)) is None
    assert single.count_due(timestamp(*expected), timestamp(2030, 1, 1)) == (0, 0.0)


@pytest.mark.parametrize(
    "text",
    ["", "99", "99:00", "0m", "367d", "a b c d e", "*/0 * * * *", "0 8 31 2 *", "5-1 * * * *",
     "mon-xyz 08:00", "0 8 * *", "60 * * * *", "5/ * * * *", "-1 * * * *", "٣ * * * *"],
)  # fmt: skip
def test_invalid_recurrence_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_repeated(text, 0, "UTC")


@pytest.mark.parametrize("text", ["", "25:00", "soon", "2026-13-01", "2026-11-25T11:00"])
def test_invalid_or_past_time_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_single(text, timestamp(2026, 11, 25, 12), BERLIN)


def test_a_time_zone_is_found_by_name_and_invalid_ones_are_refused() -> None:
    assert local_zone("Europe/Berlin") == local_zone(":Europe/Berlin") == BERLIN
    with pytest.raises(BadInput, match="CET-1CEST"):
        local_zone("CET-1CEST,M3.5.0,M10.5.0/3")
    with pytest.raises(BadInput, match="nowhere"):
        zone_of("../nowhere")
