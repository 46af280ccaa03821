"""Events of many tasks at the same moment are one batch, and none is lost."""

import anyio
from msgspec import Raw

from refold.journal.events.kinds import Noted
from refold.journal.store.port import MemoryStore
from refold.rlm.batch_recorder import BatchRecorder
from refold.session.recorder import Recorder


def test_batch_recorder_writes_all_events_despite_cancellation() -> None:
    async def stop_recorder() -> int:
        record = Recorder(MemoryStore())
        await record.open()
        joined, began = BatchRecorder(record, "code"), record.view.seq

        async def tell() -> None:
            await joined(Noted("settled", Raw(b"1")))

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(tell)
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        return record.view.seq - began

    assert anyio.run(stop_recorder) == 20
