"""Runs what is scheduled: each run a session of its own, without a person.

A call that would ask is denied. `schedules.schedule_book` decides what is due and keeps two
processes apart, `schedules.recurrence` has the times. The command line gives the start of a run.
"""

import time
from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

import anyio
from anyio import to_thread

from refold.client.launch import Launch
from refold.client.session import Session
from refold.errors import RefoldError, first
from refold.headless.task import close_launch
from refold.journal.schedules.hook_calls import MAX_BODY_CHARS
from refold.journal.schedules.recurrence import format_moment
from refold.journal.schedules.schedule_book import (
    CUT_OFF,
    Schedule,
    ScheduleBook,
    ScheduledRun,
)
from refold.values.text import mark_as_outside, mark_invisible
from refold.views.escape import escape_to_one_line

StartOf: TypeAlias = Callable[[Schedule], Launch]
FAILED_OUTCOME = "failed"
_MAX_TEXT_CHARS = 500  # characters of an answer that are kept
_MAX_LINE_CHARS = 100  # of the part of them that is printed
_MAX_PROMPT_CHARS = 60  # characters of a prompt, when it begins
_MAX_RUN_SECONDS = 6 * 3_600.0  # seconds of a run whose budget has no limit of time
_MAX_POLL_SECONDS = 30.0  # seconds, at most, between two looks at what is due


class ScheduledRuns:
    """The runs of one process. `say` prints a line; `now` and `sleep` are a clock's."""

    def __init__(
        self,
        book: ScheduleBook,
        start_of: StartOf,
        say: Callable[[str], None],
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._book, self._start_of, self._say = book, start_of, say
        self._now, self._sleep = now, sleep

    async def run_due(self, numbers: Collection[int] = ()) -> int:
        """Run all that is due, one after the other. Return how many were not answered.

        With `numbers`, only the schedules with these numbers run.
        """
        for item in await to_thread.run_sync(self._book.settle):
            self._say(f"schedule {item.id}: its last run was cut off, and is not repeated")
        bad = 0
        for item in await to_thread.run_sync(self._book.list_schedules):
            if (numbers and item.id not in numbers) or not item.may_be_due(self._now()):
                continue
            bad += await self._run(item) not in ("", "answered", "final")
        return bad

    async def watch(self, numbers: Collection[int] = ()) -> None:
        """Run what is due, again and again."""
        while True:
            await self.run_due(numbers)
            every, now = await to_thread.run_sync(self._book.list_schedules), self._now()
            due = [schedule.next - now for schedule in every if schedule.next is not None]
            # Others may add schedules, and a clock may be set: it never sleeps for long.
            await self._sleep(
                min(max(min(due, default=_MAX_POLL_SECONDS), 1.0), _MAX_POLL_SECONDS)
            )

    async def _run(self, schedule: Schedule) -> str:
        """Run a schedule. Return the outcome; "" if it is not due, or runs elsewhere."""
        id_ = schedule.id
        with self._book.claim_run(id_, self._now()) as run:
            if run is None:
                return ""
            self._say(_begin_line(schedule, run))
            outcome, text = CUT_OFF, ""
            try:
                outcome, text = await self._run_turn(schedule, _prompt(schedule, run))
            except RefoldError as error:
                outcome, text = FAILED_OUTCOME, str(error)
            except Exception as error:  # a failing run must not keep others from running
                message = f"{type(error).__name__}: {first(error)}"
                outcome, text = FAILED_OUTCOME, f"refold itself failed: {message}"
            finally:
                self._book.end(id_, outcome, text[:_MAX_TEXT_CHARS])
            max_chars = _MAX_LINE_CHARS if outcome == "answered" else _MAX_TEXT_CHARS
            session = (await to_thread.run_sync(self._book.find, id_)).runs[-1].session
            opens = f" (refold -r {session})" if session else ""
            self._say(f"schedule {id_}: {outcome}{opens}{_line(text, max_chars)}")
            return outcome

    async def _run_turn(self, schedule: Schedule, prompt: str) -> tuple[str, str]:
        launch = await to_thread.run_sync(self._start_of, schedule)
        try:
            launch.check_model()
            session = Session(launch, await launch.start())
            await to_thread.run_sync(self._book.record_session, schedule.id, session.id)
            for notice in session.notices():
                self._say(f"schedule {schedule.id}: {escape_to_one_line(notice)}")
            session.check_model()
            seconds = schedule.plan.rights.budget.seconds or _MAX_RUN_SECONDS
            with anyio.move_on_after(seconds):
                await session.run(prompt)
                result = await session.run_woken()
                return result.outcome, result.text or result.reason
            await session.interrupt(reason="out of time")
            return FAILED_OUTCOME, f"it took longer than {seconds:g} s"
        finally:
            await close_launch(launch)


def _prompt(schedule: Schedule, run: ScheduledRun) -> str:
    """Return the user's prompt, and a caller's data, marked as from outside."""
    prompt = schedule.plan.prompt
    if not run.body:
        return prompt
    cut = f", its first {MAX_BODY_CHARS:,} characters"
    source = f"a call of the webhook {schedule.webhook}"
    source += cut if len(run.body) >= MAX_BODY_CHARS else ""
    return f"{prompt}\n\n{mark_as_outside(mark_invisible(run.body)[0], source)}"


def _begin_line(schedule: Schedule, run: ScheduledRun) -> str:
    zone = schedule.plan.recurrence.zone
    if run.call:
        return f"schedule {schedule.id}: runs, called {format_moment(run.due, zone)}"
    missed = f", missed {times_text(run.missed)}" if run.missed else ""
    text = _line(schedule.plan.prompt, _MAX_PROMPT_CHARS)
    return f"schedule {schedule.id}: runs, due {format_moment(run.due, zone)}{missed}{text}"


def times_text(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _line(text: str, width: int) -> str:
    line = escape_to_one_line(" ".join(text.split()))
    return f": {line[: width - 1]}…" if len(line) > width else f": {line}" if line else ""
