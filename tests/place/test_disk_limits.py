"""A command that fills a disk is killed while there is still space for the journal."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from refold.place.commands import ShellCommands
from refold.place.limits import Disks, Limits, free_bytes
from refold.place.port import Finished

MIB = 1024 * 1024


class FakeDisk:
    """Reports these numbers, one after the other, as the free bytes of any path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *left: int) -> None:
        self._left = [*left]
        monkeypatch.setattr("refold.place.limits.free_bytes", self._free)

    def _free(self, path: str) -> int:
        return self._left.pop(0) if len(self._left) > 1 else self._left[0]


def test_a_disk_that_gets_full_is_reported_by_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    FakeDisk(monkeypatch, 900 * MIB, 900 * MIB, 65 * MIB, 64 * MIB)
    disks = Disks([str(tmp_path)])

    assert disks.full_disk() == ""
    assert (
        disks.full_disk()
        == f"it filled the disk of {tmp_path}, on which 64 MiB must stay free"
    )


def test_a_disk_that_was_full_before_the_command_stops_no_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    FakeDisk(monkeypatch, 10 * MIB)

    assert Disks([str(tmp_path)]).full_disk() == ""


def test_each_disk_is_measured_once_and_a_missing_path_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    FakeDisk(monkeypatch, 900 * MIB, 900 * MIB, 64 * MIB, 10_000 * MIB)
    (tmp_path / "below").mkdir()

    disks = Disks([str(tmp_path), str(tmp_path / "below"), str(tmp_path / "gone")])

    assert disks.full_disk()  # a second look at the same disk would take the next number
    assert disks.full_disk() == ""


def test_a_nearly_full_disk_is_checked_more_often(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    FakeDisk(monkeypatch, 900 * MIB)
    near = Disks([str(tmp_path)])
    FakeDisk(monkeypatch, 9_000 * MIB)
    far = Disks([str(tmp_path)])

    assert near.next_check(float("inf")) < far.next_check(float("inf")) == float("inf")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.getuid() != 0:
        pytest.skip("a disk of its own takes the rights of root")
    there = tmp_path / "disk"
    there.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=150m", "tmpfs", str(there)]
    done = subprocess.run(mount, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.decode().strip()}")
    try:
        yield there
    finally:
        subprocess.run(["umount", "-l", str(there)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("directory", ["in the workspace", "on another disk"])
def test_a_command_that_fills_a_disk_is_killed_before_the_disk_is_full(
    small_disk: Path, tmp_path: Path, directory: str
) -> None:
    cwd = small_disk if directory == "in the workspace" else tmp_path
    commands = ShellCommands(limits=Limits(disks=(str(small_disk),)))

    async def main() -> Finished:
        some = (
            "head -c 1000000 /dev/zero; sleep 0.01"  # not faster than the disk is checked
        )
        fills = f"for i in $(seq 400); do {some}; done > {small_disk}/big; sleep 100"
        return await commands.run(fills, cwd=str(cwd), seconds=60)

    result = anyio.run(main)

    assert result.code is None
    assert result.stopped.startswith(f"it filled the disk of {small_disk}")
    assert free_bytes(str(small_disk)) > MIB  # some may be written while it is being ended
