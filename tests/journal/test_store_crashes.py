"""Whatever happens to a store, acknowledged lines are there afterwards, in order."""

import re
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from refold.errors import Held
from refold.journal.store.blobs import BlobFiles
from refold.journal.store.disk import Disk
from refold.journal.store.file import FileStore
from tests.journal.disks import Unpowered
from tests.journal.journals import THREADS


class StoreThroughCrashes(RuleBasedStateMachine):
    """`lines` are the acknowledged lines of `append`, `kept` is the number of those that
    `keep` acknowledged.
    """

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp())
        self.directory = self.base / "sessions" / "one"
        self.disk = Unpowered(self.base)
        self.lines, self.kept, self.blobs = list[bytes](), 0, set[str]()
        self.used = 0  # the highest number a line was written under
        self.begin()

    def begin(self) -> None:
        self.store = FileStore(self.directory, THREADS, self.disk)
        self.lease()

    @rule()
    def lease(self) -> None:
        self.epoch = self.run_operation(self.store.lease).epoch
        assert list(self.run_operation(self.store.read)) == self.lines
        assert self.epoch > self.used

    @rule(
        new=st.lists(
            st.binary(max_size=40).map(lambda b: re.sub(rb"[\n\0]", b"", b)), min_size=1
        )
    )
    def append(self, new: list[bytes]) -> None:
        async def append() -> None:
            seq = len(self.lines)
            head = (seq + len(new), "h")
            await self.store.append(new, expect=seq, epoch=self.epoch, head=head)

        self.run_operation(append)
        self.lines += new
        self.used = self.epoch

    @rule()
    def keep(self) -> None:
        self.run_operation(self.store.keep)
        self.kept = len(self.lines)

    @rule(blob=st.binary(max_size=10))
    def put(self, blob: bytes) -> None:
        async def put() -> str:
            return await self.store.blobs.put(blob)

        self.blobs.add(self.run_operation(put))

    @rule()
    def leave_and_come_back(self) -> None:
        self.run_operation(self.store.release)
        self.kept = len(self.lines)
        self.lease()

    @precondition(lambda self: self.lines)
    @rule()
    def a_second_writer_is_refused(self) -> None:
        async def second() -> None:
            with pytest.raises(Held):
                await FileStore(self.directory, THREADS).lease()

        self.run_operation(second)

    @rule()
    def the_program_is_killed(self) -> None:
        self.disk.die()
        self.begin()

    @rule(tail=st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    def the_power_is_cut(self, tail: float) -> None:
        self.disk.cut_power(tail)
        left = list(self.run_operation(FileStore(self.directory, THREADS).read))
        assert left == self.lines[: len(left)]
        assert len(left) >= self.kept
        self.lines, self.used = left, 0  # the number in an unsynced lock file may be gone
        self.begin()
        self.kept = len(self.lines)

    @invariant()
    def every_blob_is_there(self) -> None:
        blobs = BlobFiles(self.directory, Disk())
        assert all(blobs.get(name) is not None for name in self.blobs)

    def teardown(self) -> None:
        self.disk.die()
        shutil.rmtree(self.base)

    def run_operation(self, deed: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return anyio.run(deed)


class TestShort(StoreThroughCrashes.TestCase):
    settings = settings(max_examples=4, stateful_step_count=10, deadline=None)


@pytest.mark.slow
class TestLong(StoreThroughCrashes.TestCase):
    settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
