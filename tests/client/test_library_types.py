"""The public names are typed: a strict type checker accepts a user's program."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("typed_program.py")
ROOT = Path(__file__).parents[2]


def check_types(path: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "basedpyright", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.slow
def test_a_program_with_correct_use_of_the_public_names_type_checks() -> None:
    code, text = check_types(PROGRAM)

    assert (code, text.strip()) == (0, "0 errors, 0 warnings, 0 notes")


@pytest.mark.slow
def test_a_program_with_wrong_use_of_the_public_names_gets_type_errors(
    tmp_path: Path,
) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from refold import Agent\n"
        'Agent(mode="yolo")\n'
        'Agent().run("x").txet\n'
        "Agent().run(3)\n"
    )

    code, text = check_types(wrong)

    assert code == 1
    for line in (2, 3, 4):
        assert f"wrong.py:{line}:" in text
