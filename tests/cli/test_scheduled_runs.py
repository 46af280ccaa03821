"""A process that stays and runs what becomes due, with a clock that a test moves."""

import os
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import anyio
import pytest

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.cli.scheduled_run import ScheduledRuns
from refold.client.launch import Launch
from refold.config.paths import paths
from refold.config.settings import Settings
from refold.journal.schedules.recurrence import every
from refold.journal.schedules.schedule_book import NewSchedule, Schedule, ScheduleBook
from refold.testing.clock import Clock
from tests.cli.running import script

ZONE = "Europe/Berlin"


class Until:
    """Ends a watch after that time. `wakes`: the machine sleeps, and when it wakes."""

    def __init__(
        self, clock: Clock, end: float, scope: anyio.CancelScope, wakes: float
    ) -> None:
        self._clock, self._end, self._scope, self._wakes = clock, end, scope, wakes

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        if self._wakes and self._clock() > self._wakes - 12 * 3_600:
            self._clock.now, self._wakes = self._wakes, 0.0
        if self._clock() >= self._end:
            self._scope.cancel()


async def watched(
    directory: Path, text: str, start: float, end: float, *, wakes: float = 0.0
) -> tuple[list[str], Schedule]:
    """What is printed from the one time to the other, and the schedule then."""
    clock, book, said = Clock(start), ScheduleBook(directory / "data"), list[str]()
    book.add(NewSchedule("Do it.", str(directory), every(text, start, ZONE)), start)
    answers = Path(script(directory, {"text": "Done."}))

    def start_of(schedule: Schedule) -> Launch:
        options = LaunchOptions(
            directory=Path(schedule.plan.workspace), attended=False, script=answers
        )
        return Launch(App(Settings(), paths(os.environ), os.environ, options))

    with anyio.CancelScope() as scope:
        until = Until(clock, end, scope, wakes)
        await ScheduledRuns(book, start_of, said.append, clock, until.sleep).watch()
    return [line for line in said if " runs, " in line], book.find(1)


def at(*moment: int) -> float:
    year, month, day, hour, minute = moment
    return datetime(year, month, day, hour, minute, tzinfo=ZoneInfo(ZONE)).timestamp()


@pytest.mark.anyio
@pytest.mark.slow
async def test_each_day_has_its_run_though_the_clock_changes(tmp_path: Path) -> None:
    said, schedule = await watched(
        tmp_path, "02:30", at(2026, 3, 27, 20, 0), at(2026, 3, 30, 3, 0)
    )

    assert said == [
        "schedule 1: runs, due Sat 2026-03-28 02:30 CET: Do it.",
        "schedule 1: runs, due Sun 2026-03-29 03:30 CEST: Do it.",
        "schedule 1: runs, due Mon 2026-03-30 02:30 CEST: Do it.",
    ]
    assert [run.outcome for run in schedule.runs] == ["answered"] * 3


@pytest.mark.anyio
async def test_nights_that_the_machine_slept_through_have_one_run(tmp_path: Path) -> None:
    said, schedule = await watched(
        tmp_path, "every 2h", at(2026, 11, 23, 20, 0), at(2026, 11, 24, 8, 16),
        wakes=at(2026, 11, 24, 8, 15),
    )  # fmt: skip

    assert said == [
        "schedule 1: runs, due Tue 2026-11-24 08:00 CET, missed 6 times: Do it."
    ]
    assert schedule.runs[0].missed == 6
