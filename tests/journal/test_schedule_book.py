"""What is due when, over restarts, changes of the clock, and crashes."""

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from refold.errors import BadInput
from refold.journal.schedules.recurrence import parse_repeated, parse_single
from refold.journal.schedules.schedule_book import NewSchedule, ScheduleBook, ScheduledRun
from refold.testing.clock import Clock
from tests.journal.schedule_contract import OpenBook, ScheduleBookContract

ZONE = "Europe/Berlin"
HOUR, DAY = 3_600.0, 86_400.0


def timestamp(*moment: int) -> float:
    year, month, day, hour = moment
    return datetime(year, month, day, hour, tzinfo=ZoneInfo(ZONE)).timestamp()


@pytest.fixture
def clock() -> Clock:
    return Clock(timestamp(2026, 11, 23, 12))  # a Monday


def plan(text: str, clock: Clock) -> NewSchedule:
    return NewSchedule("report", "/work", parse_repeated(text, clock(), ZONE))


def run_due(book: ScheduleBook, clock: Clock, id_: int = 1) -> ScheduledRun | None:
    with book.claim_run(id_, clock()) as run:
        if run is not None:
            book.record_session(id_, "s1")
            book.end(id_, "answered", "Done.")
    return run


class TestSchedulesInAFile(ScheduleBookContract):
    @pytest.fixture
    def open_book(self, tmp_path: Path) -> OpenBook:
        return lambda: ScheduleBook(tmp_path)


def test_a_run_is_due_once_even_after_a_restart(tmp_path: Path, clock: Clock) -> None:
    book = ScheduleBook(tmp_path)
    book.add(plan("08:00", clock), clock())
    early = run_due(book, clock)
    clock.now = timestamp(2026, 11, 24, 8) + 20

    first, again = run_due(book, clock), run_due(ScheduleBook(tmp_path), clock)

    due = timestamp(2026, 11, 24, 8)
    assert (early, again) == (None, None)
    assert first == ScheduledRun(due, due + 20)
    (schedule,) = ScheduleBook(tmp_path).list_schedules()
    assert schedule.runs == (ScheduledRun(due, due + 20, 0, "s1", "answered", "Done."),)
    assert schedule.next == timestamp(2026, 11, 25, 8)


def test_missed_times_are_made_up_for_by_one_run_that_counts_them(
    tmp_path: Path, clock: Clock
) -> None:
    book = ScheduleBook(tmp_path)
    book.add(plan("mon-fri 08:00", clock), clock())
    clock.now = timestamp(2026, 11, 30, 17)  # Tuesday to Friday, and Monday

    run = run_due(book, clock)

    assert run == ScheduledRun(timestamp(2026, 11, 30, 8), clock.now, missed=5)
    assert run_due(book, clock) is None


def test_a_run_that_takes_too_long_queues_no_further_runs(
    tmp_path: Path, clock: Clock
) -> None:
    book = ScheduleBook(tmp_path)
    book.add(plan("every 1m", clock), clock())
    clock.jump(60)

    with book.claim_run(1, clock()) as run:
        clock.jump(180)
        with ScheduleBook(tmp_path).claim_run(1, clock()) as other:
            pass
        book.end(1, "answered")
    after = run_due(book, clock)

    assert (run is not None, other) == (True, None)
    assert after == ScheduledRun(clock.now, clock.now, missed=2)


def test_setting_the_clock_back_an_hour_repeats_no_run(
    tmp_path: Path, clock: Clock
) -> None:
    book = ScheduleBook(tmp_path)
    book.add(plan("08:00", clock), clock())
    clock.now = timestamp(2026, 11, 24, 8)
    first = run_due(book, clock)
    clock.jump(-HOUR)
    back = run_due(book, clock)
    clock.jump(HOUR + 1)

    assert (first is not None, back, run_due(book, clock)) == (True, None, None)


def test_a_clock_that_was_years_ahead_does_not_end_a_schedule(
    tmp_path: Path, clock: Clock
) -> None:
    book = ScheduleBook(tmp_path)
    book.add(plan("08:00", clock), clock())
    clock.now = timestamp(2031, 1, 1, 9)
    run_due(book, clock)
    clock.now = timestamp(2026, 11, 24, 7)

    early = run_due(book, clock)
    clock.now = timestamp(2026, 11, 24, 8)

    assert early is None
    assert run_due(book, clock) == ScheduledRun(clock.now, clock.now)


@pytest.mark.parametrize("day", [(2026, 3, 29), (2026, 10, 25)], ids=["spring", "autumn"])
def test_a_day_with_a_clock_change_has_one_run(
    day: tuple[int, int, int], tmp_path: Path, clock: Clock
) -> None:
    clock.now = timestamp(*day, 0) - 60
    book = ScheduleBook(tmp_path)
    book.add(plan("02:30", clock), clock())
    end = timestamp(*day, 12)

    runs = list[ScheduledRun]()
    while clock() < end:
        clock.jump(300)
        runs += filter(None, [run_due(book, clock)])

    assert [run.missed for run in runs] == [0]


def test_an_interrupted_run_is_recorded_as_cut_off_and_not_repeated(
    tmp_path: Path, clock: Clock
) -> None:
    book = ScheduleBook(tmp_path)
    book.add(plan("08:00", clock), clock())
    clock.now = timestamp(2026, 11, 24, 8)

    with book.claim_run(1, clock()):
        pass

    assert book.find(1).runs[-1].outcome == "cut off"
    assert run_due(book, clock) is None


def test_a_schedule_with_a_single_time_runs_once_and_ends(
    tmp_path: Path, clock: Clock
) -> None:
    book = ScheduleBook(tmp_path)
    one = parse_single("tomorrow 08:00", clock(), ZONE)
    book.add(NewSchedule("report", "/work", one), clock())
    clock.jump(3 * DAY)

    assert run_due(book, clock) == ScheduledRun(
        timestamp(2026, 11, 24, 8), clock.now, missed=1
    )
    assert (run_due(book, clock), book.find(1).next) == (None, None)


def test_a_stopped_schedule_does_not_run(tmp_path: Path, clock: Clock) -> None:
    book = ScheduleBook(tmp_path)
    book.add(plan("1m", clock), clock())
    book.stop(1)
    clock.jump(DAY)

    assert run_due(book, clock) is None
    with pytest.raises(BadInput, match="there is no schedule 2: there are 1 to 1"):
        book.stop(2)


def test_adding_a_schedule_twice_with_one_call_key_adds_one(
    tmp_path: Path, clock: Clock
) -> None:
    book = ScheduleBook(tmp_path)

    first = book.add(plan("1m", clock), clock(), "s1:c1")
    again = ScheduleBook(tmp_path).add(plan("1m", clock), clock(), "s1:c1")

    assert first == again == book.list_schedules()[0]
    assert len(book.list_schedules()) == 1
