"""`refold schedule`, the tool `schedule`, and runs in real processes."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from refold.cli.main import main
from refold.journal.schedules.recurrence import never_recurring, parse_repeated
from refold.journal.schedules.schedule_book import (
    NewSchedule,
    SavedRights,
    Schedule,
    ScheduleBook,
)
from refold.journal.schedules.webhook_calls import HookCalled
from tests.cli.running import call, command, script, start_refold

Shell = Callable[..., tuple[int, str, str]]
AGO = 90.0  # seconds since the schedules of this test began: each is due once


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Runs `refold` in a directory of its own: code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")

    def run(*arguments: str) -> tuple[int, str, str]:
        with Path(os.devnull).open() as nothing:
            monkeypatch.setattr("sys.stdin", nothing)
            code = main(list(arguments))
        output = capsys.readouterr()
        return code, output.out, output.err

    return run


def book() -> ScheduleBook:
    return ScheduleBook(Path(os.environ["REFOLD_HOME"]))


def due(directory: Path, rights: SavedRights | None = None) -> Schedule:
    """Return a schedule of that directory that is due now."""
    began = time.time() - AGO
    new = NewSchedule(
        "Do it.",
        str(directory),
        parse_repeated("1m", began, "UTC"),
        rights or SavedRights(),
    )
    return book().add(new, began)


def test_a_schedule_is_added_listed_and_stopped(shell: Shell, tmp_path: Path) -> None:
    added = shell(
        "schedule", "add", "Write the report", "--every", "mon-fri 08:00",
        "--permission-mode", "accept-edits", "--allow", "bash(make report)",
    )  # fmt: skip
    result = shell("schedule", "list")
    asjson = json.loads(shell("schedule", "list", "--json")[1])
    stopped = shell("schedule", "stop", "1")

    assert added[0] == 0
    assert added[1].startswith("schedule 1 is due ")
    first, second, third, last = result[1].splitlines()
    assert first == "1  Write the report"
    assert second == f"   every mon-fri 08:00 in {tmp_path}"
    assert third == "   mode accept-edits; allowed: bash(make report)"
    assert last.endswith(" 08:00 UTC")
    assert asjson["schedule"]["plan"]["rights"]["mode"] == "accept-edits"
    assert stopped == (0, "schedule 1 is stopped\n", "")
    assert shell("schedule", "list")[1] == ""
    assert shell("schedule", "list", "--all")[1].splitlines()[-1] == "   stopped"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--every", "99"], "'99' is not a time of a schedule"),
        (["--at", "2020-01-01"], "in the past"),
        (["--every", "1h", "--permission-mode", "bypass"], "cannot have the mode bypass"),
        (["--every", "1h", "--zone", "Nowhere"], "time zone 'Nowhere'"),
        (["--every", "1h", "--allow", "bash("], "is not a permission rule"),
        ([], "needs --at, --every or --webhook"),
        (["--every", "1h", "--webhook", "a/b"], "'a/b' cannot be the name of a webhook"),
    ],
)
def test_an_invalid_schedule_is_refused(
    arguments: list[str], message: str, shell: Shell
) -> None:
    code, _, err = shell("schedule", "add", "Do it", *arguments)

    assert code != 0
    assert message in err
    assert book().list_schedules() == ()


def test_a_webhook_is_created_listed_renewed_and_removed(
    shell: Shell, tmp_path: Path
) -> None:
    secrets = Path(os.environ["REFOLD_HOME"], "webhooks.toml")
    result = shell("schedule", "add", "Say why", "--webhook", "ci")
    lines = shell("schedule", "list")[1].splitlines()
    first = secrets.read_text()
    again = shell("schedule", "webhook", "1")
    second = secrets.read_text()
    off = shell("schedule", "webhook", "1", "--off")

    text, _, secret = result[1].splitlines()
    assert (result[0], text) == (
        0, "schedule 1 runs on signed requests to POST /hooks/ci of refold serve",
    )  # fmt: skip
    assert first == f'"ci" = "{secret}"\n'
    assert len(bytes.fromhex(secret)) == 32
    assert lines == [
        "1  Say why", f"   called in {tmp_path}", "   webhook /hooks/ci",
        "   mode default; allowed: only what runs without asking",
    ]  # fmt: skip
    assert second == f'"ci" = "{again[1].splitlines()[2]}"\n' != first
    assert off == (0, "schedule 1 has no webhook\n", "")
    assert secrets.read_text() == ""
    assert shell("schedule", "list")[1] == ""
    assert shell("schedule", "webhook", "1")[2].count("has no webhook yet") == 1


def test_schedule_add_with_a_used_webhook_name_is_refused_and_adds_no_schedule(
    shell: Shell,
) -> None:
    shell("schedule", "add", "Say why", "--webhook", "ci")

    code, _, err = shell("schedule", "add", "Do it", "--every", "1h", "--webhook", "ci")

    assert code == 1
    assert "'ci' is that of schedule 1" in err
    assert [schedule.plan.prompt for schedule in book().list_schedules()] == ["Say why"]


def test_a_scheduled_run_records_the_id_of_its_session(
    shell: Shell, tmp_path: Path
) -> None:
    due(tmp_path)
    answers = script(tmp_path, {"text": "All is well."})

    code, out, _ = shell("schedule", "run", "--script", answers)
    again = shell("schedule", "run", "--script", answers)

    (run,) = book().find(1).runs
    assert code == 0
    opens = f"(refold -r {run.session})"
    assert out.splitlines()[-1] == f"schedule 1: answered {opens}: All is well."
    assert again[:2] == (0, "")
    assert (run.outcome, run.text, run.missed) == ("answered", "All is well.", 0)
    assert f"session {run.session}" in shell("schedule", "list")[1]
    assert run.session in shell("sessions", "list")[1]


@pytest.mark.slow
def test_a_scheduled_call_beyond_the_saved_rights_is_denied(
    shell: Shell, tmp_path: Path
) -> None:
    due(tmp_path)
    due(tmp_path, SavedRights("accept-edits"))
    answers = script(
        tmp_path,
        call("write_file", path="a.txt", content="1"),
        {"text": "First."},
        call("write_file", path="b.txt", content="2"),
        {"text": "Second."},
    )

    shell("config", "set", "permission_mode", "bypass")
    shell("schedule", "run", "--script", answers)

    # Each run reads the file from its start.
    assert [path.name for path in tmp_path.glob("?.txt")] == ["a.txt"]
    assert [schedule.runs[0].outcome for schedule in book().list_schedules()] == [
        "answered",
        "answered",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "written"), [("true", []), ("false", ["a.txt"])])
def test_ask_after_outside_text_denies_writes_in_a_run_called_by_webhook(
    setting: str, written: list[str], shell: Shell, tmp_path: Path
) -> None:
    new = NewSchedule(
        "Do it.", str(tmp_path), never_recurring("UTC"), SavedRights("accept-edits")
    )
    now = time.time()
    book().add(new, now)
    book().set_webhook(1, "ci")
    book().call("ci", HookCalled(1, 0, now, now, "a", "Write a.txt!"))
    answers = script(
        tmp_path, call("write_file", path="a.txt", content="1"), {"text": "Done."}
    )

    shell("config", "set", "ask_after_outside_text", setting)
    shell("schedule", "run", "--script", answers)

    assert [path.name for path in tmp_path.glob("?.txt")] == written
    assert book().find(1).runs[0].outcome == "answered"


def test_a_scheduled_run_gets_no_rights_from_an_untrusted_folder(
    shell: Shell, tmp_path: Path
) -> None:
    folder = tmp_path / ".refold"
    folder.mkdir()
    (folder / "config.toml").write_text(
        'permission_mode = "accept-edits"\n[permissions]\nallow = ["write_file"]\n'
    )
    added = shell("schedule", "add", "Do it", "--every", "1h")
    due(tmp_path)
    answers = script(
        tmp_path, call("write_file", path="a.txt", content="1"), {"text": "Done."}
    )

    _, out, _ = shell("schedule", "run", "--script", answers)

    assert "not trusted, so these settings are ignored" in added[2]
    saved = book().find(1).plan.rights
    assert saved == SavedRights(budget=saved.budget)
    assert "not trusted, so these settings are ignored" in out
    assert not (tmp_path / "a.txt").exists()


def test_a_scheduled_run_fails_when_its_directory_no_longer_exists(
    shell: Shell, tmp_path: Path
) -> None:
    due(tmp_path / "gone")
    due(tmp_path)

    code, out, _ = shell("schedule", "run", "--script", script(tmp_path, {"text": "Done."}))

    assert code == 1
    assert [schedule.runs[0].outcome for schedule in book().list_schedules()] == [
        "failed",
        "answered",
    ]
    assert "is not there any more" in out


@pytest.mark.slow
def test_the_schedule_tool_is_denied_without_an_allow_rule(
    shell: Shell, tmp_path: Path
) -> None:
    answers = script(
        tmp_path,
        call("schedule", prompt="Write the report", every="mon-fri 08:00"),
        {"text": "Planned."},
    )
    task = ("-p", "Plan it", "--script", answers)

    shell(*task)
    shell(*task, "--allow", "schedule", "--permission-mode", "plan")
    none = book().list_schedules()
    shell(
        *task, "--allow", "schedule", "--allow", "bash(ls)", "--max-budget-usd", "2",
        "--deny", "bash(rm *)",
    )  # fmt: skip

    assert none == ()
    (schedule,) = book().list_schedules()
    rights = schedule.plan.rights
    assert (schedule.plan.prompt, schedule.plan.workspace) == (
        "Write the report",
        str(tmp_path),
    )
    assert schedule.plan.session in shell("sessions", "list")[1]
    assert (rights.mode, rights.allow) == ("default", ("bash(ls)",))
    assert (rights.deny, rights.budget.dollars) == (("bash(rm *)",), 2.0)


@pytest.mark.slow
def test_trust_for_one_start_is_not_saved_with_a_schedule(
    shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / ".refold").mkdir()
    (tmp_path / ".refold" / "config.toml").write_text(
        'permission_mode = "accept-edits"\n[permissions]\nallow = ["bash(make *)"]\n'
    )
    answers = script(
        tmp_path, call("schedule", prompt="Do it", every="1h"), {"text": "Planned."}
    )

    shell("-p", "Plan it", "--script", answers, "--trust", "--allow", "schedule")

    rights = book().find(1).plan.rights
    assert (rights.mode, rights.allow) == ("default", ())


@pytest.mark.slow
def test_a_schedule_added_in_mode_bypass_is_saved_with_mode_default(
    shell: Shell, tmp_path: Path
) -> None:
    answers = script(
        tmp_path, call("schedule", prompt="Do it", every="1h"), {"text": "Planned."}
    )

    shell("-p", "Plan it", "--script", answers, "--yolo")

    (schedule,) = book().list_schedules()
    assert schedule.plan.rights.mode == "default"


def test_a_scheduled_run_cannot_add_a_schedule(shell: Shell, tmp_path: Path) -> None:
    due(tmp_path, SavedRights(allow=("schedule",)))
    answers = script(
        tmp_path, call("schedule", prompt="More", every="1m"), {"text": "Done."}
    )

    shell("schedule", "run", "--script", answers)

    assert len(book().list_schedules()) == 1


@pytest.mark.slow
def test_two_concurrent_schedule_run_processes_run_each_due_schedule_once(
    tmp_path: Path,
) -> None:
    for _ in range(3):
        due(tmp_path)
    run = command("schedule", "run", "--script", script(tmp_path, {"text": "Done."}))

    both = [subprocess.Popen(run, stdout=subprocess.PIPE) for _ in range(2)]
    out = b"".join(popen.communicate()[0] for popen in both).decode()

    assert [popen.returncode for popen in both] == [0, 0]
    assert out.count("answered") == 3
    assert [len(schedule.runs) for schedule in book().list_schedules()] == [1, 1, 1]


@pytest.mark.slow
def test_a_killed_scheduled_run_is_recorded_as_cut_off_and_not_repeated(
    tmp_path: Path,
) -> None:
    due(tmp_path, SavedRights(allow=("bash(sleep *)",)))
    slow = script(tmp_path, call("bash", command="sleep 300"), {"text": "Done."})
    with start_refold("schedule", "run", "--script", slow, cwd=tmp_path) as process:
        while not (runs := book().find(1).runs) or not runs[0].session:
            assert process.poll() is None
        running = subprocess.run(
            command("schedule", "run"), capture_output=True, text=True, check=False
        )
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    after = subprocess.run(
        command("schedule", "run", "--script", slow), capture_output=True, text=True,
        check=False,
    )  # fmt: skip

    assert running.stdout == ""
    assert "schedule 1: its last run was cut off, and is not repeated" in after.stdout
    assert book().find(1).runs[0].outcome == "cut off"


def test_schedule_install_without_systemd_prints_the_crontab_line(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    code, out, err = shell("schedule", "install")

    assert code == 0
    assert out.startswith("* * * * * REFOLD_HOME=")
    assert out.endswith("-m refold schedule run\n")
    assert "crontab -e" in err
