"""The smallest real model, in a real session. Skipped if there is no model file."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from refold.config.paths import paths
from refold.provider.local.download import is_runtime_installed
from refold.provider.local.models import LocalModel, ModelDirectory, default_directory, find
from refold.provider.local.server import ServerStatus, running_servers

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
REFOLD = Path(sys.executable).with_name("refold")
SHELF = (
    ModelDirectory(default_directory(os.environ))
    if os.environ.get("HOME")
    else ModelDirectory(Path("/"))
)
SMALLEST = find("qwen2.5-coder-0.5b")


@pytest.fixture(scope="module")
def model() -> LocalModel:
    if not is_runtime_installed():
        pytest.skip("xllamacpp is not installed")
    if not SHELF.is_installed(SMALLEST):
        pytest.skip(
            f"optional: {SMALLEST.file} is not in {SHELF.directory} "
            "(refold local install, or REFOLD_MODELS)"
        )
    return SMALLEST


def run_turn(model: LocalModel, prompt: str, directory: Path) -> dict[str, object]:
    """Return a turn of `refold -p`, and the result it prints."""
    done = subprocess.run(
        [
            *(REFOLD, "-p", prompt, "--yolo", "-m", f"local/{model.name}"),
            *("--output-format", "json", "--timeout", "300"),
        ],
        cwd=directory,
        env={**os.environ, "REFOLD_MODELS": str(SHELF.directory)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def serving() -> list[ServerStatus]:
    """Return the servers that run for this test's home."""
    return list(running_servers(paths(os.environ).state / "local", time.time()))


def test_real_model_creates_a_file(model: LocalModel, tmp_path: Path) -> None:
    data = run_turn(model, "Create a file hello.txt with the text hello.", tmp_path)

    assert (tmp_path / "hello.txt").read_text().strip() == "hello"
    assert data["outcome"] == "final"


def test_real_model_reads_a_number_from_a_file_and_answers_with_it(
    model: LocalModel, tmp_path: Path
) -> None:
    (tmp_path / "number.txt").write_text("4217\n")

    data = run_turn(model, "Read number.txt and tell me the number in it.", tmp_path)

    assert "4217" in str(data["text"])
    assert (tmp_path / "number.txt").read_text() == "4217\n"


def test_sessions_that_start_together_compute_the_prompt_prefix_once(
    model: LocalModel, tmp_path: Path
) -> None:
    def start(name: str) -> subprocess.Popen[str]:
        (tmp_path / name).mkdir()
        return subprocess.Popen(
            [
                *(REFOLD, "-p", "Say hello.", "-m", f"local/{model.name}"),
                *("--output-format", "json", "--timeout", "300"),
            ],
            cwd=tmp_path / name,
            env={**os.environ, "REFOLD_MODELS": str(SHELF.directory)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    together = [start(str(n)) for n in range(4)]
    used = [json.loads(popen.communicate()[0])["usage"] for popen in together]

    assert [item["cached"] > item["fresh"] for item in used] == [True] * 4, used


def test_model_server_exits_soon_after_the_session(
    model: LocalModel, tmp_path: Path
) -> None:
    run_turn(model, "Say hello.", tmp_path)

    last = time.monotonic() + 15  # without anything in the background it waits one second
    while serving() and time.monotonic() < last:
        time.sleep(0.2)
    assert serving() == []
    assert list((paths(os.environ).state / "local").glob("*.log"))  # there was one
