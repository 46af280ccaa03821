"""Runs due schedules. Each run is a separate session without a user.

A call that would ask is denied. `schedules.schedule_book` decides what is due and prevents that
two processes run the same schedule. `schedules.recurrence` computes the times.
"""

import time
from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

import anyio
from anyio import to_thread

from refold.app.session_schedules import prompt_of_run
from refold.client.launch import Launch
from refold.client.session import Session
from refold.errors import RefoldError, first
from refold.headless.task import close_launch
from refold.journal.schedules.recurrence import format_moment
from refold.journal.schedules.schedule_book import (
    CUT_OFF,
    Schedule,
    ScheduleBook,
    ScheduledRun,
)
from refold.views.escape import escape_to_one_line

StartOf: TypeAlias = Callable[[Schedule], Launch]
FAILED_OUTCOME = "failed"
_MAX_TEXT_CHARS = 500  # the part of an answer that is stored
_MAX_LINE_CHARS = 100  # the part of the stored text that is printed
_MAX_PROMPT_CHARS = 60  # the part of a prompt that is printed when its run begins
_MAX_RUN_SECONDS = 6 * 3_600.0  # for a run whose budget has no time limit
_MAX_POLL_SECONDS = 30.0  # between two checks for due schedules


class ScheduledRuns:
    """Runs due schedules in this process.

    `say` prints a line. Tests replace `now` and `sleep`.
    """

    def __init__(
        self,
        book: ScheduleBook,
        launch_for: StartOf,
        say: Callable[[str], None],
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._book, self._launch_for, self._say = book, launch_for, say
        self._now, self._sleep = now, sleep

    async def run_due(self, numbers: Collection[int] = ()) -> int:
        """Run all due schedules one after the other. Return how many runs had no answer.

        With `numbers`, only the schedules with these numbers run.
        """
        for item in await to_thread.run_sync(self._book.settle):
            self._say(f"schedule {item.id}: its last run was cut off, and is not repeated")
        failed_count = 0
        for item in await to_thread.run_sync(self._book.list_schedules):
            is_chosen = not numbers or item.id in numbers
            if not is_chosen or not item.may_be_due(self._now()):
                continue
            outcome = await self._run(item)
            if outcome not in ("", "answered", "final"):  # "": it was not due
                failed_count += 1
        return failed_count

    async def watch(self, numbers: Collection[int] = ()) -> None:
        """Run all due schedules, again and again, until this task is cancelled."""
        while True:
            await self.run_due(numbers)
            schedules = await to_thread.run_sync(self._book.list_schedules)
            now = self._now()
            waits = [
                schedule.next - now for schedule in schedules if schedule.next is not None
            ]
            # Sleep only for a limited time, because other processes may add schedules and
            # the clock may be set.
            wait = min(waits, default=_MAX_POLL_SECONDS)
            await self._sleep(min(max(wait, 1.0), _MAX_POLL_SECONDS))

    async def _run(self, schedule: Schedule) -> str:
        """Run a schedule, and return the outcome of its turn.

        Return "" if the schedule is not due, or if another process runs it.
        """
        id_ = schedule.id
        with self._book.claim_run(id_, self._now()) as run:
            if run is None:
                return ""
            self._say(_begin_line(schedule, run))
            outcome, text = CUT_OFF, ""  # recorded if this task is cancelled
            try:
                outcome, text = await self._run_turn(schedule, prompt_of_run(schedule, run))
            except RefoldError as error:
                outcome, text = FAILED_OUTCOME, str(error)
            except Exception as error:  # a failing run must not prevent others
                message = f"{type(error).__name__}: {first(error)}"
                outcome, text = FAILED_OUTCOME, f"refold itself failed: {message}"
            finally:
                self._book.end(id_, outcome, text[:_MAX_TEXT_CHARS])
            # a failure is printed in full
            max_chars = _MAX_LINE_CHARS if outcome == "answered" else _MAX_TEXT_CHARS
            ended = await to_thread.run_sync(self._book.find, id_)
            session = ended.runs[-1].session
            resume_hint = f" (refold -r {session})" if session else ""
            shown_text = _text_after_colon(text, max_chars)
            self._say(f"schedule {id_}: {outcome}{resume_hint}{shown_text}")
            return outcome

    async def _run_turn(self, schedule: Schedule, prompt: str) -> tuple[str, str]:
        """Run one turn. Return its outcome, and the answer or the reason why there is none."""
        launch = await to_thread.run_sync(self._launch_for, schedule)
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


def _begin_line(schedule: Schedule, run: ScheduledRun) -> str:
    """Return the line that is printed when a run begins."""
    zone = schedule.plan.recurrence.zone
    if run.call:  # a webhook caused it
        return f"schedule {schedule.id}: runs, called {format_moment(run.due, zone)}"
    missed = f", missed {times_text(run.missed)}" if run.missed else ""
    text = _text_after_colon(schedule.plan.prompt, _MAX_PROMPT_CHARS)
    return f"schedule {schedule.id}: runs, due {format_moment(run.due, zone)}{missed}{text}"


def times_text(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _text_after_colon(text: str, width: int) -> str:
    """Return ": " and the text in one line of at most `width` characters; "" if it is empty."""
    line = escape_to_one_line(" ".join(text.split()))
    if len(line) > width:
        line = f"{line[: width - 1]}…"
    return f": {line}" if line else ""
