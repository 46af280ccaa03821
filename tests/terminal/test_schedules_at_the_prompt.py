"""Scheduled runs at the prompt of an open session: a line when one begins and ends."""

import os
import time
from pathlib import Path

import pytest

from refold.journal.schedules.recurrence import parse_repeated
from refold.journal.schedules.schedule_book import NewSchedule, ScheduleBook
from tests.cli.running import script
from tests.terminal.pty_terminal import ENTER, STAGE, Terminal

PROGRAM = STAGE.with_name("stage_program.py")


@pytest.mark.slow
def test_start_and_end_of_a_scheduled_run_are_printed_above_the_typed_text(
    tmp_path: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REFOLD_NO_BACKGROUND")
    book = ScheduleBook(Path(os.environ["REFOLD_HOME"]))
    began = time.time() - 90
    new = NewSchedule("Do it.", str(tmp_path), parse_repeated("1m", began, "UTC"))
    book.add(new, began)
    answers = script(tmp_path, {"text": "All is well."})

    terminal = Terminal(
        PROGRAM, "--script", answers, directory=tmp_path, size=(40, 120), compiled=compiled
    )
    terminal.until("›")
    terminal.type("half a wor")
    terminal.until("half a wor")
    terminal.until("All is well.")
    terminal.until("› half a wor")
    terminal.type("\x15/quit" + ENTER)

    assert terminal.end() == 0
    (run,) = book.find(1).runs
    lines = [row for row in terminal.rows if row.startswith("schedule 1:")]
    assert len(lines) == 2
    assert lines[0].startswith("schedule 1: runs, due ")
    assert lines[1] == f"schedule 1: answered (refold -r {run.session}): All is well."
