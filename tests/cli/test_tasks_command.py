"""`refold tasks`, and the board from several sessions."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from refold.cli.main import main
from refold.journal.events.kinds import ChildBorn, Said, SessionStarted
from refold.journal.journal_directory import JournalDirectory
from refold.session.recorder import Recorder
from tests.cli.running import call, command, script

Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Runs `refold` in a directory of its own: code, output, errors."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        output = capsys.readouterr()
        return code, output.out, output.err

    return run


def test_tasks_without_a_subcommand_lists_the_open_tasks(shell: Shell) -> None:
    shell("tasks", "add", "write it")

    result = shell("tasks")

    assert result == shell("tasks", "list")
    assert result[:2] == (0, "[ ] #1  write it\n")


def test_a_task_is_added_claimed_done_and_listed(shell: Shell) -> None:
    shell("tasks", "add", "write it", "--description", "All of it.")
    added = shell("tasks", "add", "test it", "--blocked-by", "1", "--owner", "ann")
    claimed = shell("tasks", "claim")
    done = shell("tasks", "done", "#1")
    result = shell("tasks", "list")

    assert added == (0, "[ ] #2  test it  (ann; waits for #1)\n", "")
    assert claimed[1] == "[>] #1  write it  (person; blocks #2)\n"
    assert done[1] == "[x] #1  write it  (person)\n"
    assert result == (0, "[ ] #2  test it  (ann)\n", "1 open, 1 done\n")
    assert shell("tasks", "list", "--all")[1] == done[1] + result[1]
    assert shell("tasks", "show", "1")[1] == done[1] + "All of it.\n"


def test_tasks_list_json_has_one_task_on_each_line(shell: Shell) -> None:
    shell("tasks", "add", "a")
    shell("tasks", "add", "b", "--blocked-by", "1")

    _, out, err = shell("tasks", "list", "--json")

    assert err == ""
    assert [json.loads(line) for line in out.splitlines()] == [
        {"id": 1, "subject": "a", "description": "", "status": "pending", "blocked_by": [],
         "blocks": [2], "owner": "", "metadata": {}, "waits_for": []},
        {"id": 2, "subject": "b", "description": "", "status": "pending", "blocked_by": [1],
         "blocks": [], "owner": "", "metadata": {}, "waits_for": [1]},
    ]  # fmt: skip


def test_tasks_reports_blocked_unknown_and_invalid_tasks_in_one_sentence(
    shell: Shell,
) -> None:
    shell("tasks", "add", "a")
    shell("tasks", "add", "b", "--blocked-by", "1")

    assert shell("tasks", "claim", "2") == (
        1, "", "refold: task 2 waits for task 1\n",
    )  # fmt: skip
    assert shell("tasks", "show", "7")[2] == (
        "refold: there is no task 7 on the board: it has 1 to 2\n"
    )
    assert "'x' is not the number of a task" in shell("tasks", "done", "x")[2]


def test_tasks_free_removes_the_owner_of_a_claimed_task(shell: Shell) -> None:
    shell("tasks", "add", "a")
    shell("tasks", "claim", "--as", "ann")

    assert shell("tasks", "free", "1")[1] == "[ ] #1  a\n"
    assert shell("tasks", "cancel", "1")[1] == "[-] #1  a\n"


def test_tasks_escapes_control_characters(shell: Shell) -> None:
    evil = "a\x1b[2J\u202eb\x9b1m"
    shell("tasks", "add", evil, "--description", evil, "--owner", evil)

    texts = [shell("tasks", *how)[1] for how in (("list",), ("show", "1"))]

    for text in texts:
        assert all(line.isprintable() for line in text.splitlines())
        assert r"a\x1b[2J" in text


def test_an_owner_is_shown_by_its_name_and_the_title_of_its_session(shell: Shell) -> None:
    leader = "20261125-080000-abcd"

    async def write_owner() -> None:
        record = Recorder(
            JournalDirectory(Path(os.environ["REFOLD_HOME"]) / "sessions").store(leader)
        )
        await record.open()
        mate = ChildBorn("child-1", "c1", "code", "Work.", teammate="ann")
        other = ChildBorn("child-2", "c2", "code", "Work.")
        await record(SessionStarted("/", leader), Said("Build the importer"), mate, other)
        await record.close()

    anyio.run(write_owner)
    owners = (
        f"{leader}/child-1",
        f"{leader}/child-2",
        leader,
        "20261125-080000-none",
        "bob",
    )
    for owner in owners:
        shell("tasks", "add", "x")
        shell("tasks", "claim", "--as", owner)

    lines = shell("tasks", "list")[1].splitlines()

    assert [line.partition("  (")[2].rstrip(")") for line in lines] == [
        'ann of "Build the importer"', 'child-2 of "Build the importer"',
        '"Build the importer"', "20261125-080000-none", "bob",
    ]  # fmt: skip
    assert shell("tasks", "show", "1")[1] == f"{lines[0]}\n"
    assert json.loads(shell("tasks", "show", "1", "--json")[1])["owner"] == owners[0]


def test_each_repository_has_its_own_task_board(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one/.git", "one/src", "other"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "one")
    shell("tasks", "add", "a")

    monkeypatch.chdir(tmp_path / "one/src")
    below = shell("tasks", "list")
    monkeypatch.chdir(tmp_path / "other")
    beside = shell("tasks", "list")

    assert below[1] == "[ ] #1  a\n"
    assert beside == (0, "", "there are no tasks on the board of this project\n")


def tasks(directory: Path) -> list[tuple[int, str, str]]:
    out = subprocess.run(
        command("tasks", "list", "--all", "--json"), cwd=directory, capture_output=True,
        check=True, timeout=60,
    ).stdout  # fmt: skip
    tasks = [json.loads(line) for line in out.splitlines()]
    return [(item["id"], item["subject"], item["status"]) for item in tasks]


@pytest.mark.slow
def test_the_task_board_works_in_plan_mode_and_sends_task_update_documents(
    tmp_path: Path,
) -> None:
    script_path = script(
        tmp_path,
        call("tool_call", name="task_create", arguments={"subject": "build"}),
        call("tool_call", name="task_claim", arguments={}),
        {"text": "It is planned."},
    )
    done = subprocess.run(
        command("-p", "plan it", "--script", script_path, "--permission-mode", "plan",
                "--output-format", "stream-json"),
        cwd=tmp_path, capture_output=True, check=False, timeout=60,
    )  # fmt: skip

    documents = [json.loads(line) for line in done.stdout.splitlines()]
    updates = [item["tasks"][0] for item in documents if item["type"] == "task_update"]
    session = documents[0]["session_id"]
    assert [(update["id"], update["status"], update["owner"]) for update in updates] == [
        (1, "pending", ""), (1, "in_progress", session),
    ]  # fmt: skip
    assert tasks(tmp_path) == [(1, "build", "in_progress")]


@pytest.mark.slow
def test_tasks_watch_prints_each_change_by_another_process(tmp_path: Path) -> None:
    subprocess.run(command("tasks", "add", "a"), cwd=tmp_path, check=True, timeout=60)
    with subprocess.Popen(
        command("tasks", "watch", "--json"), cwd=tmp_path, stdout=subprocess.PIPE
    ) as watching:
        assert watching.stdout is not None
        states = [json.loads(watching.stdout.readline())["status"]]
        for verb in ("claim", "done"):
            subprocess.run(
                command("tasks", verb, "1"), cwd=tmp_path, check=True, timeout=60
            )
            states.append(json.loads(watching.stdout.readline())["status"])
        os.kill(watching.pid, signal.SIGINT)
        watching.communicate(timeout=60)

    assert states == ["pending", "in_progress", "done"]
