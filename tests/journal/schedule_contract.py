"""Tests the promises of a book of schedules, for the book in a file and that in a database."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from refold.errors import BadInput
from refold.journal.schedules.recurrence import parse_repeated
from refold.journal.schedules.schedule_book import (
    NewSchedule,
    ScheduleBook,
    ScheduledRun,
)
from refold.journal.schedules.webhook_calls import HookCalled

START, MINUTE = 1_790_000_000.0, 60.0
OpenBook = Callable[[], ScheduleBook]


def plan(prompt: str = "report") -> NewSchedule:
    return NewSchedule(prompt, "/work", parse_repeated("1m", START, "UTC"))


class ScheduleBookContract:
    """The promises. Each call of `open_book` opens the same schedules, as another process would."""

    @pytest.fixture
    def open_book(self) -> OpenBook:
        raise NotImplementedError

    def test_schedules_that_another_process_adds_or_stops_are_listed(
        self, open_book: OpenBook
    ) -> None:
        book, other = open_book(), open_book()
        assert book.stamp() is None
        first = book.add(plan("one"), START)
        other.add(plan("two"), START)
        before = other.stamp()

        book.stop(first.id)

        assert [(s.id, s.plan, s.stopped) for s in other.list_schedules()] == [
            (1, plan("one"), True),
            (2, plan("two"), False),
        ]
        assert other.stamp() != before
        with pytest.raises(BadInput, match="there is no schedule 3: there are 1 to 2"):
            other.find(3)

    def test_adding_a_schedule_again_with_the_same_key_adds_none(
        self, open_book: OpenBook
    ) -> None:
        first = open_book().add(plan(), START, "session:call")

        again = open_book().add(plan("another"), START, "session:call")

        assert again == first

    def test_a_due_run_is_claimed_by_only_one_of_many_processes(
        self, open_book: OpenBook
    ) -> None:
        open_book().add(plan(), START)
        books = [open_book() for _ in range(6)]
        now = START + 3 * MINUTE + 1
        with ThreadPoolExecutor(6) as pool:
            runs = list(pool.map(lambda book: book.claim(1, now), books))

        expected = ScheduledRun(START + 3 * MINUTE, now, missed=2)
        assert [run for run in runs if run is not None] == [expected]

    def test_a_run_keeps_its_first_session_id_and_a_late_end_changes_no_later_run(
        self, open_book: OpenBook
    ) -> None:
        one, two = open_book(), open_book()
        one.add(plan(), START)
        one.claim(1, START + MINUTE)

        first, second = one.open_run(1, "s1"), two.open_run(1, "s2")
        one.end_run(1, "s1", "answered", "Done.")
        two.claim(1, START + 2 * MINUTE)
        two.end_run(1, "s1", "failed")  # too late: another run has begun

        assert first == second == ScheduledRun(START + MINUTE, START + MINUTE, session="s1")
        runs = one.find(1).runs
        assert [(run.session, run.outcome) for run in runs] == [
            ("s1", "answered"),
            ("", ""),
        ]

    def test_a_call_of_a_webhook_is_recorded_once_and_gets_a_run(
        self, open_book: OpenBook
    ) -> None:
        one, two = open_book(), open_book()
        one.add(plan(), START)
        one.set_webhook(1, "deploy")
        call = HookCalled(1, 0, START, START, "proof", "body")

        first, again = one.call("deploy", call), two.call("deploy", call)
        run = two.claim(1, START + 1)

        assert isinstance(first, HookCalled)
        assert (first.number, again) == (1, "repeated")
        assert run is not None
        assert (run.call, run.body) == (1, "body")
