"""The event loop appends to an open journal, unless the disk was slow."""

import threading
import time
from pathlib import Path

import anyio
import pytest

from refold.journal.store import file
from refold.journal.store.disk import Disk
from refold.journal.store.file import FileStore
from tests.journal.journals import add


class Watched(Disk):
    """Records whether the event loop writes the lines; each takes `seconds`."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.writers, self._seconds = list[bool](), seconds

    def write(self, file: int, data: bytes, offset: int) -> None:
        if data == b"line\n":  # and not the note of who writes
            self.writers.append(threading.current_thread() is threading.main_thread())
            time.sleep(self._seconds)
        super().write(file, data, offset)


def write_by_loop(directory: Path, disk: Watched, lines: int = 4) -> list[bool]:
    async def main() -> None:
        store = FileStore(directory, disk=disk)
        epoch = (await store.lease()).epoch
        for n in range(lines):
            await add(store, epoch, b"line", n)
        assert list(await store.read()) == [b"line"] * lines
        await store.release()

    anyio.run(main)
    return disk.writers


def test_only_the_append_that_creates_the_file_needs_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "SLOW_WRITE_SECONDS", 60.0)  # however busy the machine is

    assert write_by_loop(tmp_path / "one", Watched()) == [False, True, True, True]


def test_after_a_slow_append_later_appends_run_in_threads(tmp_path: Path) -> None:
    disk = Watched(file.SLOW_WRITE_SECONDS * 2)

    assert write_by_loop(tmp_path / "one", disk) == [False, True, False, False]


def test_large_appends_are_done_by_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "MAX_DIRECT_BYTES", 3)

    assert write_by_loop(tmp_path / "one", Watched()) == [False] * 4
