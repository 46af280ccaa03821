"""One lock, several processes: who holds it, who gets it, and when."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from refold.errors import Held
from refold.journal.store.file import FileStore
from refold.journal.store.writer_lock import Writer, is_alive
from tests.journal.journals import append_as_next_writer

PROGRAM = Path(__file__).with_name("writer_process.py")


@contextmanager
def writer(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has written two lines and keeps the lock."""
    command = [sys.executable, str(PROGRAM), str(directory), "2", "wait"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout
            for item in process.stdout:
                if item == "kept 2\n":
                    break
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True])
def test_a_second_writer_is_refused_while_the_lock_holder_is_alive(
    tmp_path: Path, stopped: bool
) -> None:
    with writer(tmp_path) as other:
        if stopped:
            other.send_signal(signal.SIGSTOP)

        with pytest.raises(Held, match=f"by process {other.pid} on "):
            anyio.run(FileStore(tmp_path).lease)
        chunks = anyio.run(FileStore(tmp_path).read)

    assert list(chunks) == [b"line 0", b"line 1"]


@pytest.mark.slow
def test_the_lock_is_released_when_its_holder_is_killed(tmp_path: Path) -> None:
    with writer(tmp_path) as other:
        other.kill()
        other.wait()

        cut, chunks = anyio.run(append_as_next_writer, tmp_path, b"on")

    assert (cut, chunks) == (b"", [b"line 0", b"line 1", b"on"])


@pytest.mark.slow
def test_a_lock_holder_that_exited_normally_is_no_longer_named(tmp_path: Path) -> None:
    with writer(tmp_path) as other:
        other.communicate("")

        _, chunks = anyio.run(append_as_next_writer, tmp_path, b"on")

    assert chunks == [b"line 0", b"line 1", b"on"]


def test_a_writer_whose_number_no_process_can_have_is_not_alive() -> None:
    assert not is_alive(Writer(pid=2**40, host=os.uname().nodename))
