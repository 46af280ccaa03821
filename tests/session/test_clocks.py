"""Clocks jump; the order of a journal is that of its numbers."""

import anyio

from refold.errors import Overloaded
from refold.journal.events import codec
from refold.journal.store.port import MemoryStore
from refold.provider.port import Done, Request, Retrying
from refold.provider.retry import RetryingProvider
from refold.session.inbox import Inbox
from refold.session.recorder import Recorder
from refold.testing.clock import Clock
from refold.testing.providers import ScriptedProvider
from refold.values.growing import Log


def test_events_keep_their_order_when_the_clock_is_set_back() -> None:
    store, clock = MemoryStore(), Clock(1_000.0)

    async def send_at_odd_times() -> None:
        record = Recorder(store, clock=clock)
        await record.open()
        for words, jump in (("one", -3_600.0), ("two", 31_536_000.0), ("three", -0.001)):
            await Inbox(record).say(words)
            clock.jump(jump)

    anyio.run(send_at_odd_times)

    entries = [entry for entry, _ in codec.decode(store.lines)]
    assert [(e.seq, e.at) for e in entries] == [
        (1, 1_000.0),
        (2, -2_600.0),
        (3, 31_533_400.0),
    ]


def test_a_retry_of_a_busy_provider_waits_on_the_injected_clock() -> None:
    clock = Clock()
    inner = ScriptedProvider(Overloaded("busy", retry_after=5.0), "")

    async def ask() -> list[object]:
        patient = RetryingProvider(inner, sleep=clock.sleep, dice=lambda: 0.0)
        return [delta async for delta in patient.stream(Request(Log()))]

    result = anyio.run(ask)

    assert [type(delta) for delta in result] == [Retrying, Done]
    assert [5.0 <= slept < 6.0 for slept in clock.slept] == [True]
