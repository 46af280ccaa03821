"""A real small model and `refold rlm`, flat and by code. Skipped if there is no model file.

The smallest model only has to come to a proper end; the one with 1.5 billion parameters has
to be right.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from refold.provider.local.download import is_runtime_installed
from refold.provider.local.models import ModelDirectory, default_directory, find

pytestmark = [pytest.mark.peer, pytest.mark.timeout(900)]
REFOLD = Path(sys.executable).with_name("refold")
SHELF = (
    ModelDirectory(default_directory(os.environ))
    if os.environ.get("HOME")
    else ModelDirectory(Path("/"))
)
SMALLEST, LARGER = "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"
ASKS = "What is the code of the new safe?"
FILLS = "The team met and went through the open points one after the other. " * 30
ENDED = {"final": 0, "answered": 0, "stuck": 2, "step_limit": 2}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for n in range(1, 7):
        text = "The code of the new safe is Quartz-77.\n" if n == 4 else ""
        (tmp_path / f"week-{n}.txt").write_text(f"Report of week {n}\n\n{FILLS}\n{text}")
    return tmp_path


def run_rlm(name: str, folder: Path, way: str) -> dict[str, Any]:
    """Return the document of `refold rlm --json`, whose session has to be sound."""
    model = find(name)
    if not is_runtime_installed():
        pytest.skip("xllamacpp is not installed")
    if not SHELF.is_installed(model):
        pytest.skip(
            f"optional: {model.file} is not in {SHELF.directory} "
            f"(refold local install --model {name}, or REFOLD_MODELS)"
        )
    environ = {**os.environ, "REFOLD_MODELS": str(SHELF.directory)}
    done = subprocess.run(
        [
            *(REFOLD, "rlm", ASKS, "--context", ".", way, "--json"),
            *("-m", f"local/{name}", "--timeout", "400"),
        ],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    data = json.loads(done.stdout)
    assert done.returncode == ENDED[data["outcome"]], done.stderr
    again = subprocess.run(
        [REFOLD, "replay", data["session_id"], "--run"],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (again.returncode, "all agree" in again.stdout) == (0, True), again
    return data


@pytest.mark.parametrize(
    ("model", "flag", "way"),
    [
        (SMALLEST, "--rlm", "recursive"),
        (LARGER, "--flat", "flat"),
    ],
)
def test_rlm_run_with_a_small_model_completes(
    folder: Path, model: str, flag: str, way: str
) -> None:
    data = run_rlm(model, folder, flag)

    assert data["route"]["way"] == way
    assert data["steps"] >= 1
    assert data["usage"]["output"] > 0
    assert data["text"].strip() or data["reason"]


def test_larger_model_finds_a_needle_by_code(folder: Path) -> None:
    data = run_rlm(LARGER, folder, "--rlm")

    assert "Quartz-77" in data["text"], data
