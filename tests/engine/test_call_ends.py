"""A call has one end, whichever writers record it."""

import anyio
from msgspec import Raw

from refold.engine.call_ends import record_end
from refold.journal.events import codec
from refold.journal.events.kinds import (
    Ended,
    ModelAnswered,
    ModelAsked,
    Said,
    SessionStarted,
    Started,
    TurnStarted,
)
from refold.journal.store.port import MemoryStore
from refold.session.recorder import Recorder
from refold.values.messages import Message, ToolCall

CALL = ToolCall("call-1", "look", Raw(b"{}"))


def test_a_call_that_another_writer_has_ended_is_not_ended_again() -> None:
    store = MemoryStore()

    async def end_twice() -> None:
        first, other = Recorder(store), Recorder(store.another_writer())
        await first.open()
        await first(
            SessionStarted("/work"), Said("Look."), TurnStarted(2), ModelAsked(),
            ModelAnswered(Message("assistant", (CALL,))), Started("call-1"),
        )  # fmt: skip
        await first.close()
        await other.open()
        await record_end(Ended("call-1", "unknown", "It may have had its effect."), other)
        await other.close()
        await record_end(Ended("call-1", "done", "Seen."), first)

    anyio.run(end_twice)
    ends = [e.event for e, _ in codec.decode(store.lines) if isinstance(e.event, Ended)]
    assert [end.outcome for end in ends] == ["unknown"]
