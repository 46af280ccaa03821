"""Input from stdin in addition to a prompt on the command line, and waiting for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.contract import documents
from tests.cli.running import LONG, command, script

pytestmark = pytest.mark.slow


def shell(directory: Path, pipeline: str) -> "subprocess.CompletedProcess[str]":
    """`refold` stands for it in the words."""
    script(directory, {"text": "Well."})
    place = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", pipeline], cwd=directory, env=place,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip


STREAM = "refold -p review --script script.jsonl --output-format stream-json"


def test_print_mode_waits_for_a_slow_program_on_stdin(tmp_path: Path) -> None:
    done = shell(tmp_path, f"(sleep 1.5; echo a diff) | {STREAM}")

    assert (done.returncode, done.stderr) == (0, "")
    assert documents(done.stdout)[1]["text"] == "review\n\na diff\n"


def test_print_mode_with_a_prompt_does_not_wait_for_stdin_without_data(
    tmp_path: Path,
) -> None:
    reading, writing = os.pipe()
    arguments = ("Hi", "--script", script(tmp_path, {"text": "Hello."}))
    try:
        done = subprocess.run(
            command("-p", *arguments), stdin=reading, capture_output=True, text=True,
            cwd=tmp_path, timeout=LONG, check=False,
        )  # fmt: skip
    finally:
        os.close(reading)
        os.close(writing)

    assert (done.returncode, done.stdout) == (0, "Hello.\n")
    assert "stdin had no data" in done.stderr


@pytest.mark.parametrize("words", ["", "sum it up"])
def test_a_file_on_stdin_is_read_to_its_end_and_appended_to_the_prompt(
    tmp_path: Path, words: str
) -> None:
    (tmp_path / "task").write_text("one\ntwo\n")

    flags = f"refold -p '{words}'" if words else "refold -p"
    done = shell(
        tmp_path, f"{flags} --script script.jsonl --output-format stream-json < task"
    )

    text = documents(done.stdout)[1]["text"]
    assert text == (f"{words}\n\none\ntwo\n" if words else "one\ntwo\n")


def test_print_mode_without_prompt_and_stdin_is_an_error(tmp_path: Path) -> None:
    done = shell(tmp_path, "refold -p --script script.jsonl")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("refold: the task is missing: give it as refold -p")


def test_json_output_of_a_task_can_be_piped_into_jq(tmp_path: Path) -> None:
    if not shutil.which("jq"):
        pytest.skip("jq is not installed (optional)")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "a.txt").write_text("one\n")
    subprocess.run(["git", "add", "a.txt"], cwd=tmp_path, check=True)
    (tmp_path / "a.txt").write_text("two\n")

    done = shell(
        tmp_path,
        "git diff | refold -p review --script script.jsonl --output-format json"
        " | jq -r '.outcome, .text'",
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "answered\nWell.\n", "")
