"""The smallest real model, in a real session. Skipped where there is no model file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from refold.provider.local.download import runtime_is_here
from refold.provider.local.models import LocalModel, Shelf, default_directory, find

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
REFOLD = Path(sys.executable).with_name("refold")
SHELF = Shelf(default_directory(os.environ)) if os.environ.get("HOME") else Shelf(Path("/"))
SMALLEST = find("qwen2.5-coder-0.5b")


@pytest.fixture(scope="module")
def model() -> LocalModel:
    if not runtime_is_here():
        pytest.skip("xllamacpp is not installed")
    if not SHELF.holds(SMALLEST):
        pytest.skip(
            f"optional: {SMALLEST.file} is not in {SHELF.directory} "
            "(refold local install, or REFOLD_MODELS)"
        )
    return SMALLEST


def do(model: LocalModel, asks: str, here: Path) -> dict[str, object]:
    """A turn of `refold -p`, and the result it prints."""
    done = subprocess.run(
        [
            *(REFOLD, "-p", asks, "--yolo", "-m", f"local/{model.name}"),
            *("--output-format", "json", "--timeout", "300"),
        ],
        cwd=here,
        env={**os.environ, "REFOLD_MODELS": str(SHELF.directory)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def left_behind() -> set[str]:
    """Servers of models whose refold is gone. Those of other tests have theirs."""
    found: set[str] = set()
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if "refold.provider.local.server" not in (directory / "cmdline").read_text():
                continue
            parent = (directory / "stat").read_text().rpartition(")")[2].split()[1]
            if "refold" not in Path("/proc", parent, "cmdline").read_text():
                found.add(directory.name)
        except OSError:
            continue
    return found


def test_it_makes_a_file(model: LocalModel, tmp_path: Path) -> None:
    found = do(model, "Create a file hello.txt with the text hello.", tmp_path)

    assert (tmp_path / "hello.txt").read_text().strip() == "hello"
    assert found["outcome"] == "final"


def test_it_reads_a_number_and_tells_it(model: LocalModel, tmp_path: Path) -> None:
    (tmp_path / "number.txt").write_text("4217\n")

    found = do(model, "Read the file number.txt and tell me the number in it.", tmp_path)

    assert "4217" in str(found["text"])
    assert (tmp_path / "number.txt").read_text() == "4217\n"


def test_its_server_ends_with_it(model: LocalModel, tmp_path: Path) -> None:
    before = left_behind()

    do(model, "Say hello.", tmp_path)

    assert left_behind() - before == set()
