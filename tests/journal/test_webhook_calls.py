"""Which calls of a webhook are taken, over clocks that are wrong and what is forgotten."""

from pathlib import Path

import pytest

from refold.errors import BadInput
from refold.journal.schedules.recurrence import never_recurring, parse_repeated
from refold.journal.schedules.schedule_book import (
    NewSchedule,
    Schedule,
    ScheduleBook,
    ScheduledRun,
)
from refold.journal.schedules.webhook_calls import HookCalled, WaitingCall

NOW = 1_800_000_000.0
DAY = 86_400.0


@pytest.fixture
def book(tmp_path: Path) -> ScheduleBook:
    """Return a book with schedule 1, which only its webhook `ci` starts."""
    schedules = ScheduleBook(tmp_path)
    schedules.add(NewSchedule("Say why.", "/work", never_recurring("UTC")), NOW)
    schedules.set_webhook(1, "ci")
    return schedules


def call_webhook(
    book: ScheduleBook, proof: str, now: float = NOW, *, signed: float = 0.0
) -> object:
    """Return the number of the call, or why it is not taken."""
    call = book.call("ci", HookCalled(1, 0, now, signed or now, proof, f"body {proof}"))
    return call.number if isinstance(call, HookCalled) else call


def run_due(book: ScheduleBook, now: float) -> ScheduledRun | None:
    with book.claim_run(1, now) as run:
        if run is not None:
            book.end(1, "answered")
    return run


def test_a_schedule_without_times_runs_its_webhook_calls_in_order(
    book: ScheduleBook,
) -> None:
    before = (run_due(book, NOW + DAY), run_due(book, NOW - 2 * DAY), book.find(1).is_over)
    answers = [call_webhook(book, "a"), call_webhook(book, "b")]

    runs = [run_due(book, NOW + 5), run_due(book, NOW + 6), run_due(book, NOW + 7)]

    assert before == (None, None, False)
    assert answers == [1, 2]
    assert runs == [
        ScheduledRun(NOW, NOW + 5, call=1, body="body a"),
        ScheduledRun(NOW, NOW + 6, call=2, body="body b"),
        None,
    ]
    assert all(run.body == "" for run in book.find(1).runs)


def test_a_webhook_call_does_not_change_the_times_of_its_schedule(tmp_path: Path) -> None:
    book = ScheduleBook(tmp_path)
    book.add(NewSchedule("Say why.", "/work", parse_repeated("1h", NOW, "UTC")), NOW)
    book.set_webhook(1, "ci")
    call_webhook(book, "a", NOW + 60)

    runs = [run_due(book, NOW + 61), run_due(book, NOW + 62), run_due(book, NOW + 3_600)]

    assert [(run.call, run.due) if run else None for run in runs] == [
        (1, NOW + 60), None, (0, NOW + 3_600),
    ]  # fmt: skip


def test_a_signed_request_is_accepted_once_even_if_the_clock_is_set_back(
    tmp_path: Path,
) -> None:
    book = ScheduleBook(tmp_path)
    book.add(NewSchedule("Say why.", "/work", never_recurring("UTC")), NOW)
    book.set_webhook(1, "ci")
    first = call_webhook(book, "old")
    for day in range(1, 4):
        call_webhook(book, f"day {day}", NOW + day * DAY)
        run_due(book, NOW + day * DAY)

    replays = [
        call_webhook(ScheduleBook(tmp_path), p, NOW, signed=NOW) for p in ("old", "new")
    ]

    assert first == 1
    assert replays == ["too old", "too old"]


def test_at_most_sixty_webhook_calls_are_accepted_in_an_hour(book: ScheduleBook) -> None:
    answers = list[object]()
    for n in range(61):
        answers.append(call_webhook(book, str(n), NOW + n))
        run_due(book, NOW + n)

    assert answers == [*range(1, 61), "too many"]
    assert call_webhook(book, "later", NOW + 3_700) == 61


def test_renaming_a_webhook_resets_the_signature_times_it_has_seen(
    book: ScheduleBook,
) -> None:
    ahead = call_webhook(book, "a", NOW + 400 * DAY)
    late = call_webhook(book, "b", NOW)
    book.set_webhook(1, "build")
    book.set_webhook(1, "ci")

    assert (ahead, late, call_webhook(book, "c", NOW)) == (1, "too old", 2)


def test_a_webhook_name_belongs_to_one_schedule_until_it_is_stopped(
    book: ScheduleBook,
) -> None:
    second = book.add(NewSchedule("Do it.", "/work", never_recurring("UTC")), NOW)

    with pytest.raises(BadInput, match="'ci' is that of schedule 1"):
        book.set_webhook(second.id, "ci")
    call_webhook(book, "a")
    book.stop(1)
    after = (run_due(book, NOW + 1), call_webhook(book, "b"))
    moved: Schedule = book.set_webhook(second.id, "ci")

    assert after == (None, None)
    assert (moved.id, moved.webhook) == (2, "ci")
    assert book.find(1).waiting == (WaitingCall(1, NOW, "body a"),)
    with pytest.raises(BadInput, match="schedule 1 is stopped"):
        book.set_webhook(1, "other")
