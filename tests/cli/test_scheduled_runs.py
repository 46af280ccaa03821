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
from refold.config.settings import Http, Provider, Roles, Settings
from refold.journal.schedules.recurrence import parse_repeated
from refold.journal.schedules.schedule_book import (
    NewSchedule,
    Schedule,
    ScheduleBook,
    ScheduledRun,
)
from refold.testing.clock import Clock
from refold.testing.deviation_table import cut_in_the_middle
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, wire_server
from tests.cli.running import script

ZONE = "Europe/Berlin"


class Until:
    """Ends a watch after that time. `wakes` are the times at which the sleeping machine
    wakes.
    """

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


async def run_schedule(
    directory: Path, text: str, start: float, end: float, *, wakes: float = 0.0
) -> tuple[list[str], Schedule]:
    """Run the schedule from one time to the other, and return the output and the schedule."""
    clock, book, texts = Clock(start), ScheduleBook(directory / "data"), list[str]()
    book.add(
        NewSchedule("Do it.", str(directory), parse_repeated(text, start, ZONE)), start
    )
    answers = Path(script(directory, {"text": "Done."}))

    def start_of(schedule: Schedule) -> Launch:
        options = LaunchOptions(
            directory=Path(schedule.plan.workspace), attended=False, script=answers
        )
        return Launch(App(Settings(), paths(os.environ), os.environ, options))

    with anyio.CancelScope() as scope:
        until = Until(clock, end, scope, wakes)
        await ScheduledRuns(book, start_of, texts.append, clock, until.sleep).watch()
    return [line for line in texts if " runs, " in line], book.find(1)


def timestamp(*moment: int) -> float:
    year, month, day, hour, minute = moment
    return datetime(year, month, day, hour, minute, tzinfo=ZoneInfo(ZONE)).timestamp()


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_daily_schedule_runs_once_each_day_across_a_clock_change(
    tmp_path: Path,
) -> None:
    texts, schedule = await run_schedule(
        tmp_path, "02:30", timestamp(2026, 3, 27, 20, 0), timestamp(2026, 3, 30, 3, 0)
    )

    assert texts == [
        "schedule 1: runs, due Sat 2026-03-28 02:30 CET: Do it.",
        "schedule 1: runs, due Sun 2026-03-29 03:30 CEST: Do it.",
        "schedule 1: runs, due Mon 2026-03-30 02:30 CEST: Do it.",
    ]
    assert [run.outcome for run in schedule.runs] == ["answered"] * 3


@pytest.mark.anyio
async def test_runs_missed_during_sleep_are_replaced_by_one_run(tmp_path: Path) -> None:
    texts, schedule = await run_schedule(
        tmp_path, "every 2h", timestamp(2026, 11, 23, 20, 0), timestamp(2026, 11, 24, 8, 16),
        wakes=timestamp(2026, 11, 24, 8, 15),
    )  # fmt: skip

    assert texts == [
        "schedule 1: runs, due Tue 2026-11-24 08:00 CET, missed 6 times: Do it."
    ]
    assert schedule.runs[0].missed == 6


def provider_of(url: str) -> Settings:
    return Settings(
        models=Roles(main="mine/main"),
        permission_mode="bypass",
        http=Http(max_retry_wait_seconds=0.001),
        providers={"mine": Provider(wire="openai-chat", base_url=url)},
    )


async def run_of(directory: Path, settings: Settings, answers: Path | None) -> ScheduledRun:
    """Return one run of a schedule that is due."""
    start = timestamp(2026, 3, 27, 20, 0)
    clock, book, texts = Clock(start), ScheduleBook(directory / "data"), list[str]()
    book.add(
        NewSchedule("Do it.", str(directory), parse_repeated("21:00", start, ZONE)), start
    )
    clock.now = timestamp(2026, 3, 27, 21, 0)

    def start_of(schedule: Schedule) -> Launch:
        workspace = Path(schedule.plan.workspace)
        options = LaunchOptions(directory=workspace, attended=False, script=answers)
        return Launch(App(settings, paths(os.environ), os.environ, options))

    await ScheduledRuns(book, start_of, texts.append, clock).run_due()
    return book.find(1).runs[-1]


@pytest.mark.anyio
async def test_a_scheduled_run_retries_after_overloads_and_a_cut_off_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    write = Reply("I write.", (("bash", '{"command": "echo x >> a.txt"}'),))
    answers = [
        Answer(b"{}", 529),
        Answer(b"{}", 503),
        answer("openai-chat", write),
        Answer(b"{}", 429),
        cut_in_the_middle("openai-chat", Reply("Half an answer that is cut off")),
        answer("openai-chat", Reply("Written.")),
    ]

    async with wire_server(*answers) as server:
        run = await run_of(tmp_path, provider_of(server.url), None)

    assert (run.outcome, run.text) == ("answered", "Written.")
    assert (tmp_path / "a.txt").read_text() == "x\n"
    (journal,) = home.glob(f"refold/**/{run.session}/events.jsonl")
    assert journal.read_bytes().count(b'"dropped":true') == 1


@pytest.mark.anyio
async def test_a_scheduled_run_waits_for_a_background_command_with_notify(
    tmp_path: Path,
) -> None:
    build = {"command": "sleep 0.1; echo built", "notify": True}
    call = {
        "tool": "tool_call",
        "arguments": {"name": "background_run", "arguments": build},
    }
    answers = script(tmp_path, {"calls": [call]}, {"text": "I wait."}, {"text": "Built."})

    run = await run_of(tmp_path, Settings(permission_mode="bypass"), Path(answers))

    assert (run.outcome, run.text) == ("answered", "Built.")
