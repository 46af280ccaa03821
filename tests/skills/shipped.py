"""Runs a script of a shipped skill as a model would, by its path."""

import subprocess
import sys
from pathlib import Path

from refold.skills.directories import folder_of_shipped

SKILLS = Path(folder_of_shipped())


def run(skill: str, script: str, *arguments: str, cwd: Path) -> tuple[int, str]:
    """Run the script, which cannot import refold. Return its exit code and its output."""
    done = subprocess.run(
        [sys.executable, "-I", str(SKILLS / skill / "scripts" / script), *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def asset(skill: str, name: str) -> Path:
    return SKILLS / skill / "assets" / name
