"""What is due is run by a session or a server that is open, once, in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from refold.client.due_schedules import DueSchedules
from refold.journal.schedules.recurrence import Recurrence, parse_repeated
from refold.journal.schedules.schedule_book import NewSchedule, Schedule, ScheduleBook
from tests.cli.running import LONG, command, script, start_refold

AGO = 90.0  # seconds since the schedules of this test began: each is due once
# As `refold schedule run` does it, in a moment: claim, print, end.
RUNS = """\
import sys, time
from pathlib import Path
from refold.journal.schedules.schedule_book import ScheduleBook
book, id_ = ScheduleBook(Path(sys.argv[1])), int(sys.argv[2])
with book.claim_run(id_, time.time()) as run:
    if run is not None:
        print(f"schedule {id_}: begins", flush=True)
        book.end(id_, "answered")
        print(f"schedule {id_}: ends", flush=True)
"""


def book() -> ScheduleBook:
    return ScheduleBook(Path(os.environ["REFOLD_HOME"]))


def due(directory: Path) -> Schedule:
    """Return a schedule of that directory that is due now."""
    began = time.time() - AGO
    new = NewSchedule("Do it.", str(directory), parse_repeated("1h", began - 3_540, "UTC"))
    return book().add(new, began)


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REFOLD_NO_BACKGROUND")


def wait_for_run(id_: int = 1) -> Schedule:
    """Return the schedule, when its first run has ended."""
    until = time.monotonic() + LONG
    while not (runs := book().find(id_).runs) or not runs[0].outcome:
        assert time.monotonic() < until, "it never ended"
    return book().find(id_)


class Watching:
    """Replaces the sleeps of a process that watches schedules; a test acts in each."""

    def __init__(self, scope: anyio.CancelScope, *steps: str) -> None:
        self._scope, self._steps = scope, list(steps)
        self.slept = list[float]()

    async def sleep(self, seconds: float) -> None:
        await anyio.lowlevel.checkpoint()
        if seconds <= 1.0:
            return
        self.slept.append(seconds)
        if not self._steps:
            self._scope.cancel()
        elif self._steps.pop(0):
            now = time.time()
            soon = Recurrence("soon", now + 45, "UTC", once=True)
            book().add(NewSchedule("Do it.", "/", soon), now)


async def run_watcher(*steps: str) -> tuple[list[str], list[float]]:
    """Run a process that watches schedules for these steps. Return its output, and how long
    it slept.
    """
    texts = list[str]()
    with anyio.CancelScope() as scope:
        watching = Watching(scope, *steps)
        await DueSchedules(book(), (), os.environ, texts.append, watching.sleep).run()
    return texts, watching.slept


async def output_until(word: str, *program: str) -> list[str]:
    """Run this program as the runs of a process. Return the output up to a line with that
    word.
    """
    texts = list[str]()
    with anyio.fail_after(LONG):
        async with anyio.create_task_group() as group:

            def add_line(line: str) -> None:
                texts.append(line)
                if word in line:
                    group.cancel_scope.cancel()

            group.start_soon(DueSchedules(book(), program, os.environ, add_line).run)
    return texts


@pytest.mark.anyio
async def test_a_process_without_schedules_polls_once_a_minute_and_creates_no_file(
    tmp_path: Path,
) -> None:
    assert await run_watcher("", "") == ([], [60.0, 60.0, 60.0])
    assert not (Path(os.environ["REFOLD_HOME"]) / "schedules").exists()


@pytest.mark.anyio
async def test_a_schedule_that_another_process_adds_is_noticed(tmp_path: Path) -> None:
    texts, slept = await run_watcher("", "add soon", "")

    assert texts == []
    assert slept[:2] == [60.0, 60.0]
    assert 30.0 < slept[2] <= 45.0


@pytest.mark.anyio
async def test_a_damaged_schedules_file_is_reported_once(tmp_path: Path) -> None:
    due(tmp_path)
    file = Path(os.environ["REFOLD_HOME"]) / "schedules" / "schedules.jsonl"
    file.write_bytes(file.read_bytes().replace(b"Do it.", b"Do this."))

    texts, slept = await run_watcher("", "")

    assert slept == [60.0, 60.0, 60.0]
    assert len(texts) == 1
    assert texts[0].startswith("schedules: ")
    assert "move the file away" in texts[0]


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_due_schedule_starts_once_and_its_output_is_forwarded(
    tmp_path: Path,
) -> None:
    due(tmp_path)
    program = (sys.executable, "-c", RUNS, os.environ["REFOLD_HOME"])

    texts = await output_until("ends", *program)

    assert texts == ["schedule 1: begins", "schedule 1: ends"]
    assert [run.outcome for run in book().find(1).runs] == ["answered"]


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_run_process_that_exits_without_output_is_reported(tmp_path: Path) -> None:
    due(tmp_path)
    program = (sys.executable, "-c", "raise SystemExit(3)")

    texts = await output_until("exited", *program)

    assert texts == ["schedule 1: its process exited with 3"]
    assert book().find(1).runs == ()


@pytest.mark.slow
def test_two_servers_and_a_timer_run_each_due_schedule_once(
    tmp_path: Path, background: None
) -> None:
    for _ in range(3):
        due(tmp_path)
    answers = script(tmp_path, {"text": "Done."})
    serve = ("serve", "--port", "0", "--script", answers)

    with (
        start_refold(*serve, cwd=tmp_path) as one,
        start_refold(*serve, cwd=tmp_path) as other,
    ):
        with start_refold("schedule", "run", "--script", answers, cwd=tmp_path) as timer:
            schedules = [wait_for_run(id_) for id_ in (1, 2, 3)]
            out = timer.communicate(timeout=LONG)[0].decode()
        for server in (one, other):
            server.send_signal(signal.SIGTERM)
            out += server.communicate(timeout=LONG)[1].decode()

    assert [[run.outcome for run in item.runs] for item in schedules] == [["answered"]] * 3
    for schedule in schedules:
        assert out.count(f"schedule {schedule.id}: runs, due ") == 1
        opens = f"(refold -r {schedule.runs[0].session})"
        assert out.count(f"schedule {schedule.id}: answered {opens}: Done.") == 1


@pytest.mark.slow
def test_a_scheduled_run_continues_when_its_server_is_killed(
    tmp_path: Path, background: None
) -> None:
    due(tmp_path)
    answers = script(tmp_path, {"text": "Done at last.", "pause": 2.0})

    with start_refold("serve", "--port", "0", "--script", answers, cwd=tmp_path) as server:
        until = time.monotonic() + LONG
        while not (runs := book().find(1).runs) or not runs[0].session:
            assert time.monotonic() < until, "it never began"
        os.kill(server.pid, signal.SIGKILL)
        server.wait()

    assert [(run.outcome, run.text) for run in wait_for_run().runs] == [
        ("answered", "Done at last.")
    ]
    again = subprocess.run(command("schedule", "run"), capture_output=True, check=False)
    assert again.stdout == b""
