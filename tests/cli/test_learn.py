"""`refold learn`: the list, a lesson, a run with its diagram, checks with hints, starting over."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from refold.cli.main import main
from refold.cli.serve import SECRET_FILE
from refold.config.paths import paths
from refold.learn.course import lesson, lessons
from refold.learn.model_server import ModelReply
from refold.learn.sequence_diagram import draw_requests
from refold.learn.workshop import call
from refold.server.access import load_access

STREAMLESS = lesson(3).solution()


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_program(directory: Path, text: str) -> Path:
    main(["learn", "1"])
    program = directory / "refold-course" / "agent.py"
    program.write_text(text)
    return program


def test_learn_lists_the_lessons_and_names_the_next_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["learn"]) == 0

    out = capsys.readouterr().out
    assert "   1  Call a model " in out
    assert "  12  Delegate " in out
    assert out.endswith("Read the next one: refold learn 1\n")


def test_learn_list_as_json_has_the_finished_lessons(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_program(directory, lesson(1).solution())
    main(["learn", "check", "1"])
    capsys.readouterr()

    main(["learn", "list", "--json"])

    rows = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    assert len(rows) == len(lessons())
    assert rows[0]["done"] is True
    assert {row["done"] for row in rows[1:]} == {False}


def test_learn_with_a_number_prints_the_lesson_and_writes_its_first_program(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["learn", "4"]) == 0

    assert capsys.readouterr().out.startswith("# 4 Stream\n")
    assert (directory / "refold-course/agent.py").read_text() == STREAMLESS


def test_reading_a_lesson_does_not_overwrite_the_program_of_the_reader(
    directory: Path,
) -> None:
    program = write_program(directory, "print('mine')\n")

    main(["learn", "7"])

    assert program.read_text() == "print('mine')\n"


def test_learn_run_draws_the_requests_and_results(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_program(directory, lesson(2).solution())

    assert main(["learn", "run", "2"]) == 0

    out = capfd.readouterr().out
    assert "You still have to buy milk and bread." in out
    assert "request 2: 3 messages" in out
    assert "● result: milk" in out
    diagram = out.partition("\n   agent.py ")[2].splitlines()[1:]
    assert {len(row) for row in diagram if row.startswith("   ├")} == {60}
    assert max(len(row) for row in diagram) == 60


def test_the_diagram_of_a_subagent_draws_each_message_of_its_parent_once() -> None:
    system = {"role": "system", "content": "You help."}
    expected = [system, {"role": "user", "content": "Which is longer?"}]
    task = [system, {"role": "user", "content": "Compare them."}]
    answered = [
        *expected,
        {"role": "assistant", "content": ""},
        {"role": "tool", "content": "b"},
    ]
    requests = [{"messages": messages} for messages in (expected, task, answered)]

    replies = [call("delegate", task="Compare them."), ModelReply("b"), ModelReply("b.")]

    diagram = draw_requests("agent.py", requests, replies)

    arrows = [row.split("●")[1].strip(" │") for row in diagram.splitlines() if "●" in row]
    assert arrows == ["you: Which is longer?", "task: Compare them.", "result: b"]


@pytest.mark.slow
def test_a_second_learn_run_begins_without_the_files_of_the_first(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first run is that of a program without a hook, which leaves both files behind."""
    program = directory / "refold-course" / lesson(15).program_name
    main(["learn", "15"])
    main(["learn", "run", "15"])
    program.write_text(lesson(15).solution())
    capfd.readouterr()

    main(["learn", "run", "15"])

    results = [row for row in capfd.readouterr().out.splitlines() if "● result" in row]
    assert ["needs_tests" in row for row in results] == [True, False, False]
    assert ["Created" in row for row in results] == [False, True, True]


@pytest.mark.slow
def test_learn_run_keeps_a_file_that_the_reader_changed(directory: Path) -> None:
    main(["learn", "15"])
    own = directory / "refold-course" / "sums.py"
    own.write_text("mine = 1\n")

    main(["learn", "run", "15"])

    assert own.read_text() == "mine = 1\n"


def test_learn_run_sends_the_words_of_the_command_line_as_the_message(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_program(directory, lesson(1).solution())

    main(["learn", "run", "1", "Who", "are", "you?"])

    assert "● you: Who are you?" in capfd.readouterr().out


def test_learn_run_of_a_failing_program_exits_with_1(directory: Path) -> None:
    write_program(directory, "raise SystemExit(3)")

    assert main(["learn", "run", "1"]) == 1


def test_ctrl_c_ends_learn_run_without_a_traceback_and_draws_the_requests(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    interrupt = "\nimport os, signal\nfor pid in (os.getppid(), os.getpid()):\n    os.kill(pid, signal.SIGINT)\n"
    write_program(directory, lesson(1).solution() + interrupt)
    capfd.readouterr()

    assert main(["learn", "run", "1"]) == 130

    out, err = capfd.readouterr()
    assert "request 1: 1 message" in out
    assert err == "your program was interrupted\n"


def test_learn_run_shows_the_errors_of_the_program(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_program(directory, "print(unknown)")

    assert main(["learn", "run", "1"]) == 1

    assert "NameError: name 'unknown' is not defined" in capfd.readouterr().err


def test_learn_run_shows_the_prompt_of_input_before_the_answer_is_typed(
    directory: Path,
) -> None:
    write_program(directory, 'print("hello,", input("name? "))\n')
    terminal, end = os.openpty()
    command = [sys.executable, "-m", "refold", "learn", "run", "1"]
    run = subprocess.Popen(command, stdin=end, stdout=end, stderr=end)
    os.close(end)
    output = b""
    while b"name? " not in output:
        output += os.read(terminal, 1000)
    os.write(terminal, b"Ada\n")
    while b"hello, Ada" not in output:
        output += os.read(terminal, 1000)

    assert run.wait() == 0
    os.close(terminal)


def test_learn_check_gives_three_hints_in_turn_and_then_repeats_the_last(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_program(directory, STREAMLESS)
    hints = list[str]()
    for _ in range(4):
        capsys.readouterr()
        assert main(["learn", "check", "4"]) == 1
        hints += [row for row in capsys.readouterr().out.splitlines() if "Hint" in row]

    assert [hint[:11] for hint in hints] == [
        "Hint 1 of 3",
        "Hint 2 of 3",
        "Hint 3 of 3",
        "Hint 3 of 3",
    ]
    assert len(set(hints)) == 3


def test_each_learn_check_of_a_program_that_crashes_gives_the_next_hint(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_program(directory, "def broken(:\n")
    outputs = list[str]()
    for _ in range(2):
        main(["learn", "check", "1"])
        outputs.append(capsys.readouterr().out)

    assert 'File "agent.py", line 1' in outputs[0]
    assert "Hint 1 of 3" in outputs[0]
    assert "Hint 2 of 3" in outputs[1]


def test_learn_check_begins_with_the_first_hint_of_a_new_problem(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = write_program(directory, STREAMLESS)
    main(["learn", "check", "4"])
    main(["learn", "check", "4"])
    program.write_text(lesson(4).solution().replace(", flush=True", ""))
    capsys.readouterr()

    main(["learn", "check", "4"])

    assert "Hint 1 of 3: Print each piece" in capsys.readouterr().out


def test_a_passed_learn_check_is_recorded_and_names_the_next_lesson(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_program(directory, lesson(1).solution())

    assert main(["learn", "check", "1"]) == 0

    assert "Next: refold learn 2 (Call a tool)" in capsys.readouterr().out
    main(["learn"])
    assert "✓  1  Call a model" in capsys.readouterr().out


def test_learn_check_leaves_the_files_of_the_reader_unchanged(directory: Path) -> None:
    program = write_program(directory, lesson(3).solution())
    notes = program.parent / "notes.txt"
    notes.write_text("mine")

    main(["learn", "check", "3"])

    assert notes.read_text() == "mine"
    assert {path.name for path in program.parent.iterdir()} == {
        "agent.py",
        "notes.txt",
        ".progress.json",
    }


def test_learn_reset_renames_the_old_program_and_deletes_its_journal(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = write_program(directory, "print('mine')\n")
    (program.parent / "journal.jsonl").write_text("{}\n")

    assert main(["learn", "reset", "3"]) == 0

    assert program.read_text() == lesson(2).solution()
    assert (program.parent / "agent-1.py").read_text() == "print('mine')\n"
    assert not (program.parent / "journal.jsonl").exists()


def test_learn_inside_the_course_folder_makes_no_second_course_folder(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(directory, lesson(1).solution())
    monkeypatch.chdir(directory / "refold-course")

    assert main(["learn", "check", "1"]) == 0

    assert not (directory / "refold-course/refold-course").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["99"], "there is no lesson 99: they are numbered from 1 to "),
        (["check", "two"], "refold learn has no 'two': name a lesson by its number"),
        (["cheese"], "refold learn has no 'cheese': name a lesson by its number"),
        (["check", "1"], "Begin the lesson first: refold learn 1"),
    ],
)
def test_learn_refuses_unknown_words_and_a_check_without_a_program(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["learn", *words]) == 1

    assert problem in capsys.readouterr().err


def test_unreadable_progress_of_the_course_is_an_error_that_names_its_file(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = write_program(directory, "")
    (program.parent / ".progress.json").write_text("[")

    assert main(["learn"]) == 1

    assert ".progress.json" in capsys.readouterr().err


def test_a_course_folder_that_cannot_be_made_is_an_error_that_names_its_path(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "refold-course").write_text("in the way")

    assert main(["learn", "1"]) == 1

    assert "refold-course/agent.py' cannot be written" in capsys.readouterr().err


@pytest.mark.slow
def test_the_page_of_a_lesson_shows_the_requests_of_its_programs(directory: Path) -> None:
    """Conversations that begin on this page use the model of the lesson."""
    with start_page_of(directory, 19) as address:
        main(["learn", "run", "19"])
        (session,) = ask(address, "/api/conversations")
        requests = ask(address, f"/api/conversations/{session['id']}/requests")
        model = ask(address, "/api/settings/model")["model"]

    targets = [request["target"].rpartition("/v1")[2] for request in requests]
    assert targets == ["/chat/completions"] * 3
    assert model == "lesson/scripted"


@contextmanager
def start_page_of(directory: Path, number: int) -> Generator[str]:
    command = [sys.executable, "-m", "refold", "learn", "page", str(number)]
    with subprocess.Popen(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, start_new_session=True,
    ) as page:  # fmt: skip
        assert page.stdout
        try:
            yield page.stdout.readline().split()[-1].partition("/#")[0]
        finally:
            os.killpg(page.pid, signal.SIGINT)


def ask(address: str, path: str) -> Any:
    places = paths({**os.environ, "REFOLD_HOME": "refold-course/.refold"})
    token = load_access(places.state / SECRET_FILE).bearer
    with urlopen(
        Request(address + path, headers={"Authorization": f"Bearer {token}"})
    ) as answer:
        return json.load(answer)
