"""A writer is killed, or its disk fails, at each of its system calls in turn.

The kernel does it, by strace: our code does not know of it.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.journal.journals import append_as_next_writer

PROGRAM = Path(__file__).with_name("writer_process.py")
LINES = 4
CALLS = ["pwrite64", "fdatasync", "fsync", "ftruncate", "mkdir", "flock", "fchmod"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed"),
]


@pytest.mark.parametrize("call", CALLS)
def test_acknowledged_events_survive_kill_9_at_any_system_call(
    tmp_path: Path, call: str
) -> None:
    for when in range(1, 100):
        directory = tmp_path / f"{when}" / "one"
        texts, struck = run(directory, f"{call}:signal=SIGKILL:when={when}")
        assert_there(directory, texts)
        if not struck:
            break

    assert 2 <= when < 99
    assert texts[-1] == "done"


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("call", CALLS)
def test_acknowledged_events_survive_a_fault_at_any_system_call(
    tmp_path: Path, call: str, error: str
) -> None:
    for when in range(1, 100):
        directory = tmp_path / f"{when}" / "one"
        texts, struck = run(directory, f"{call}:error={error}:when={when}")
        assert_there(directory, texts)
        assert f"kept {LINES}" in texts
        if not struck:
            break

    assert 2 <= when < 99


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("call", CALLS)
def test_acknowledged_events_survive_a_disk_that_fails_permanently(
    tmp_path: Path, call: str, error: str
) -> None:
    for when in range(1, 100):
        directory = tmp_path / f"{when}" / "one"
        texts, struck = run(directory, f"{call}:error={error}:when={when}+1")
        assert_there(directory, texts)
        if not struck:
            break

    assert 2 <= when < 99


def run(directory: Path, inject: str) -> tuple[list[str], bool]:
    """Return what the writer printed, one item for each line, and whether it was killed."""
    log = directory.parent / "strace.txt"
    log.parent.mkdir()
    command = ["strace", "-f", "-qq", "-o", str(log), "-e", f"trace={inject.split(':')[0]}"]
    command += ["-e", f"inject={inject}", sys.executable, str(PROGRAM)]
    done = subprocess.run(
        [*command, str(directory), str(LINES)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    traced = log.read_text()
    return done.stdout.splitlines(), "INJECTED" in traced or "SIGKILL" in traced


def assert_there(directory: Path, text: list[str]) -> None:
    numbers = [int(words.split()[1]) for words in text if words[:4] in ("writ", "kept")]
    sure = max(numbers, default=0)
    cut, chunks = anyio.run(append_as_next_writer, directory, b"on")
    assert cut == b""
    assert chunks[:-1] == [b"line %d" % n for n in range(len(chunks) - 1)]
    assert sure <= len(chunks) - 1 <= LINES
    assert chunks[-1] == b"on"
