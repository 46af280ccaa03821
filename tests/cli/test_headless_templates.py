"""Templates and skills in `refold -p`, where missing arguments cannot be asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from refold.journal.events import codec
from refold.journal.events.kinds import Said

pytestmark = pytest.mark.slow


def print_template(
    directory: Path, text: str, piped: bytes = b""
) -> tuple[subprocess.CompletedProcess[bytes], list[Said]]:
    """Return the result of `refold -p TEXT`, and the message to the model."""
    (directory / ".refold").mkdir()
    (directory / ".refold" / "skills.md").write_text(
        "## /fix <file> <what>\nFix {what} in {file}, and nothing else.\n"
    )
    (directory / "script").write_text('{"text": "Done."}\n')
    home = directory / "home"
    done = subprocess.run(
        [sys.executable, "-m", "refold", "-p", text, "--script", "script", "--trust"],
        input=piped,
        cwd=directory,
        env={**os.environ, "REFOLD_HOME": str(home)},
        capture_output=True,
        check=False,
    )
    lines = [
        line
        for journal in home.glob("sessions/*/events.jsonl")
        for line in journal.read_bytes().splitlines()
    ]
    events = [entry.event for entry, _ in codec.decode(lines)]
    return done, [event for event in events if isinstance(event, Said)]


@pytest.mark.parametrize(
    ("text", "words", "typed"),
    [
        (
            "/fix a.py the bug",
            "Fix the bug in a.py, and nothing else.",
            "/fix a.py the bug",
        ),
        (
            '@fix what="the bug" file=a.py',
            "Fix the bug in a.py, and nothing else.",
            '@fix what="the bug" file=a.py',
        ),
        ("@fix the bug", "@fix the bug", None),
        ("/etc/hosts is wrong", "/etc/hosts is wrong", None),
        ("/nothing of the kind", "/nothing of the kind", None),
        ("/model x", "/model x", None),
    ],
)
def test_a_template_is_expanded_and_text_without_a_template_is_sent_unchanged(
    text: str, words: str, typed: str | None, tmp_path: Path
) -> None:
    done, result = print_template(tmp_path, text)

    assert done.stdout == b"Done.\n"
    assert [(item.text, item.typed) for item in result] == [(words, typed)]


def test_stdin_is_appended_to_the_expanded_template(tmp_path: Path) -> None:
    _, (result,) = print_template(tmp_path, "/fix a.py it", b"the log")

    assert result.text == "Fix it in a.py, and nothing else.\n\nthe log"
    assert result.typed == "/fix a.py it"


def test_a_missing_template_argument_is_an_error_and_starts_no_turn(tmp_path: Path) -> None:
    done, result = print_template(tmp_path, "/fix a.py")

    assert (done.returncode, result) == (1, [])
    assert b"/fix takes <file> <what>: what is missing" in done.stderr


def test_a_slash_skill_sends_the_text_of_the_skill(tmp_path: Path) -> None:
    _, (result,) = print_template(tmp_path, "/code-review src")

    assert result.text.startswith("Use the skill code-review: src\n\n")
    assert result.typed == "/code-review src"
