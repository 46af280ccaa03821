"""The file of the task board: shared by processes, and whole after a crash."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from refold.errors import BadInput, JournalError
from refold.journal.board.board_file import FILE_NAME, TaskBoard
from refold.session.redactor import Redactor
from refold.values.control import BoardTask, NewTask, TaskChange

WORKER = """
import sys
from pathlib import Path
from refold.errors import BadInput
from refold.journal.board.board_file import TaskBoard
from refold.values.control import TaskChange
board = TaskBoard(Path(sys.argv[1]))
sys.stdin.readline()
while True:
    try:
        task = board.claim(0, sys.argv[2])
    except BadInput:
        break
    board.change(task.id, TaskChange(status="done"), sys.argv[2])
    print(task.id, flush=True)
"""
# Dies at the nth call of the disk; run again with 0, it does the rest.
DYING = """
import os, signal, sys
from pathlib import Path
from refold.journal.board.board_file import TaskBoard
from refold.journal.store.disk import Disk
from refold.values.control import NewTask, TaskChange
left = int(sys.argv[2])
def step(name):
    real = getattr(Disk, name)
    def do(self, *given, **named):
        global left
        left -= 1
        if left == 0:
            if name == "write":  # in the middle of it
                file, data, at = given
                real(self, file, data[: len(data) // 2], at)
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, *given, **named)
    return do
Dying = type("Dying", (Disk,), {n: step(n) for n in (
    "open", "close", "mkdir", "write", "truncate", "sync", "sync_directory")})
board = TaskBoard(Path(sys.argv[1]), disk=Dying())
for n in (1, 2):
    task = board.add(NewTask(f"task {n}", blocked_by=(1,) if n == 2 else ()), "ann", f"add-{n}")
    print("added", task.id, flush=True)
for n in (1, 2):
    task = board.claim(0, "ann", f"claim-{n}")
    print("claimed", task.id, flush=True)
    board.change(task.id, TaskChange(status="done"), "ann")
    print("done", task.id, flush=True)
"""


def test_two_users_of_a_board_file_see_the_changes_of_each_other(tmp_path: Path) -> None:
    one, other = (
        TaskBoard(tmp_path / "new" / "place"),
        TaskBoard(tmp_path / "new" / "place"),
    )
    one.add(NewTask("a", "how", metadata={"n": 1}))
    other.add(NewTask("b", blocked_by=(1,)))
    one.claim(0, "ann")
    other.change(1, TaskChange(status="done"), "ann")

    expected = (
        BoardTask(1, "a", "how", "done", (), (2,), "ann", {"n": 1}, ()),
        BoardTask(2, "b", "", "pending", (1,), (), "", {}, ()),
    )
    assert one.read().tasks == other.read().tasks == expected
    assert TaskBoard(tmp_path / "new" / "place").read().tasks == expected


def test_refused_change_leaves_the_board_file_unchanged(tmp_path: Path) -> None:
    board = TaskBoard(tmp_path)
    board.add(NewTask("a"))
    before = board.path.read_bytes()

    with pytest.raises(BadInput, match="cannot wait for itself"):
        board.change(1, TaskChange(blocked_by=(1,)))

    assert board.path.read_bytes() == before


def test_an_incomplete_last_line_is_cut_off_wherever_it_was_torn(tmp_path: Path) -> None:
    board = TaskBoard(tmp_path)
    board.add(NewTask("a"))
    whole = board.path.read_bytes()
    board.add(NewTask("b"))
    line = board.path.read_bytes()[len(whole) :]

    for index in range(len(line)):
        board.path.write_bytes(whole + line[:index])
        task_board = TaskBoard(tmp_path)
        assert [task.subject for task in task_board.read().tasks] == ["a"]
        task_board.add(NewTask("c"))
        assert [task.subject for task in TaskBoard(tmp_path).read().tasks] == ["a", "c"]


def test_a_damaged_line_is_reported_and_nothing_is_appended(tmp_path: Path) -> None:
    board = TaskBoard(tmp_path)
    board.add(NewTask("first"))
    board.add(NewTask("second"))
    damaged = board.path.read_bytes().replace(b"first", b"other")
    board.path.write_bytes(damaged)

    for action in (TaskBoard(tmp_path).read, lambda: TaskBoard(tmp_path).add(NewTask("c"))):
        with pytest.raises(JournalError, match=r"tasks\.jsonl: line 1 .* is damaged"):
            action()
    assert board.path.read_bytes() == damaged


def test_a_board_whose_file_was_moved_away_starts_empty(tmp_path: Path) -> None:
    board = TaskBoard(tmp_path)
    board.add(NewTask("a"))
    board.path.rename(tmp_path / "old")

    assert board.read().tasks == ()
    assert board.add(NewTask("b")).id == 1
    assert [task.subject for task in TaskBoard(tmp_path).read().tasks] == ["b"]


def test_a_link_instead_of_the_board_file_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("")
    (tmp_path / FILE_NAME).symlink_to(target)

    with pytest.raises(JournalError, match="a link stands in its place"):
        TaskBoard(tmp_path).add(NewTask("a"))

    assert target.read_text() == ""


def test_secrets_are_masked_in_the_board_file(tmp_path: Path) -> None:
    masks = Redactor(["a-very-secret-value"])

    TaskBoard(tmp_path, masks.mask_event).add(NewTask("a", "use a-very-secret-value"))

    assert TaskBoard(tmp_path).read().task(1).description == "use [secret]"


def test_only_the_owner_can_read_the_board_file(tmp_path: Path) -> None:
    board = TaskBoard(tmp_path / "project")
    board.add(NewTask("a"))

    modes = [path.stat().st_mode & 0o777 for path in (board.path.parent, board.path)]
    assert modes == [0o700, 0o600]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 5])
def test_processes_racing_for_twenty_tasks_do_each_task_once(
    workers: int, tmp_path: Path
) -> None:
    board = TaskBoard(tmp_path)
    for n in range(20):
        board.add(NewTask(f"task {n}"))
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), f"worker-{n}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for n in range(workers)
    ]  # fmt: skip
    for popen in racing:
        assert popen.stdin is not None
        popen.stdin.write("go\n")
        popen.stdin.flush()

    done = [item.communicate(timeout=60)[0].split() for item in racing]

    assert sorted(int(id_) for ids in done for id_ in ids) == list(range(1, 21))
    owners = {task.owner for task in board.read().tasks}
    assert {task.status for task in board.read().tasks} == {"done"}
    assert owners == {f"worker-{n}" for n, ids in enumerate(done) if ids}


def run_until_crash(directory: Path, at: int) -> tuple[int, Sequence[str]]:
    completed_process = subprocess.run(
        [sys.executable, "-c", DYING, str(directory), str(at)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return completed_process.returncode, completed_process.stdout.splitlines()


@pytest.mark.slow
def test_a_kill_at_any_disk_call_loses_no_task_and_repeats_none(
    tmp_path: Path,
) -> None:
    """Acknowledged tasks are stored; the same calls, made again, do the rest."""
    position, killed = 1, True
    while killed:
        place = tmp_path / str(position)
        code, texts = run_until_crash(place, position)
        killed = code != 0
        data = {task.id: task for task in TaskBoard(place).read().tasks}
        for word, id_ in (line.split() for line in texts):
            assert int(id_) in data
            assert word != "done" or data[int(id_)].status == "done"
            assert word != "claimed" or data[int(id_)].owner == "ann"

        assert run_until_crash(place, 0)[0] == 0

        tasks = TaskBoard(place).read().tasks
        assert [(t.id, t.subject, t.status, t.owner) for t in tasks] == [
            (1, "task 1", "done", "ann"), (2, "task 2", "done", "ann"),
        ]  # fmt: skip
        kinds = [
            json.loads(line)["kind"]
            for line in (place / FILE_NAME).read_text().splitlines()
        ]
        assert (
            sorted(kinds) == ["TaskAdded"] * 2 + ["TaskClaimed"] * 2 + ["TaskUpdated"] * 2
        )
        position += 1
    assert position > 20
