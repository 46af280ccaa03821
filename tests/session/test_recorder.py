"""The recorder: what is written, when watchers see it, and bad disks."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from msgspec import Raw

from refold.errors import Corrupt, Fenced, Held, JournalError
from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.events.kinds import (
    Answered,
    Entry,
    Event,
    JournalRepaired,
    Judged,
    ModelAnswered,
    ModelAsked,
    Said,
    SessionStarted,
    TurnStarted,
    Unknown,
)
from refold.journal.state.fold import View, fold
from refold.journal.store.file import FileStore
from refold.journal.store.port import Lease, MemoryStore
from refold.journal.store.writer_threads import Writers
from refold.session.inbox import Inbox
from refold.session.recorder import Recorder
from refold.values.messages import Message, ToolCall

START = SessionStarted("/work")


def entries(store: MemoryStore) -> list[Entry]:
    return [entry for entry, _ in codec.decode(store.lines)]


def words(store: MemoryStore) -> list[str]:
    return [e.event.text for e in entries(store) if isinstance(e.event, Said)]


class SlowStore(MemoryStore):
    """Writes and syncs when the test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write, self.may_keep = anyio.Event(), anyio.Event()
        self.keeps = 0

    async def append(
        self, lines: Sequence[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        await self.may_write.wait()
        await super().append(lines, expect=expect, epoch=epoch, head=head)

    async def keep(self) -> None:
        self.keeps += 1
        await self.may_keep.wait()
        await super().keep()


class BadDisk(MemoryStore):
    """Fails at the n-th append or keep. A failing append may have written a part."""

    def __init__(self, append: int = 0, keep: int = 0, *, half: int = 0) -> None:
        super().__init__()
        self._left = {"append": append, "keep": keep}
        self._half = half
        self.leases = self.releases = 0

    async def lease(self, claim: int = 0) -> Lease:
        self.leases += 1
        return await super().lease(claim)

    async def release(self) -> None:
        self.releases += 1

    async def append(
        self, lines: Sequence[bytes], *, expect: int, epoch: int, head: tuple[int, str]
    ) -> None:
        try:
            self._count("append")
        except JournalError:
            self.lines += lines[: self._half]
            raise
        await super().append(lines, expect=expect, epoch=epoch, head=head)

    async def keep(self) -> None:
        self._count("keep")
        await super().keep()

    def _count(self, operation: str) -> None:
        self._left[operation] -= 1
        if self._left[operation] == 0:
            raise JournalError("cannot write the journal: No space left on device")


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(9):
        await anyio.lowlevel.checkpoint()


def test_a_message_is_acknowledged_to_sender_and_watchers_after_its_sync() -> None:
    async def main() -> list[tuple[int, bool]]:
        store = SlowStore()
        record = Recorder(store)
        watch, event = record.hub.watch(), anyio.Event()
        seqs = list[int]()
        result = list[tuple[int, bool]]()

        async def speak() -> None:
            await Inbox(record).say("Hi.")
            event.set()

        async def listen() -> None:
            async for frame in watch.frames():
                seqs.append(frame.seq)

        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            group.start_soon(speak)
            for let in (anyio.Event(), store.may_write, store.may_keep):
                let.set()
                await settle()
                result.append((len(seqs), event.is_set()))
            watch.close()
        return result

    assert anyio.run(main) == [(0, False), (0, False), (1, True)]


def test_an_event_is_written_while_another_waits_for_its_sync() -> None:
    async def main() -> list[str]:
        store = SlowStore()
        store.may_write.set()
        record = Recorder(store)
        async with anyio.create_task_group() as group:
            group.start_soon(Inbox(record).say, "Wait for me.")
            await settle()
            await record(Said("I do not wait."))
            texts = words(store)
            store.may_keep.set()
        return texts

    assert anyio.run(main) == ["Wait for me.", "I do not wait."]


@pytest.mark.parametrize(("durable", "keeps"), [(True, 1), (False, 0)])
def test_the_option_durable_decides_whether_a_message_is_synced(
    durable: bool, keeps: int
) -> None:
    async def main() -> int:
        store = SlowStore()
        store.may_write.set()
        store.may_keep.set()
        await Inbox(Recorder(store, durable=durable)).say("Hi.")
        return store.keeps

    assert anyio.run(main) == keeps


ASKED: tuple[Event, ...] = (
    START,
    TurnStarted(1),
    ModelAsked(),
    ModelAnswered(Message("assistant", (ToolCall("call-0", "bash", Raw(b"{}"), "t"),))),
    Judged("call-0", "ask"),
)


def test_of_two_concurrent_answers_to_a_question_only_the_first_is_recorded() -> None:
    async def main() -> tuple[list[bool], list[Event]]:
        store = MemoryStore()
        record = Recorder(store)
        await record(*ASKED)
        inbox, won = Inbox(record), list[bool]()

        async def answer(allowed: bool) -> None:
            won.append(await inbox.answer("call-0", allowed=allowed))

        async with anyio.create_task_group() as group:
            for allowed in (False, True):
                group.start_soon(answer, allowed)
        return won, [e.event for e in entries(store) if isinstance(e.event, Answered)]

    won, events = anyio.run(main)

    assert sorted(won) == [False, True]
    assert len(events) == 1


def test_a_message_sent_twice_with_one_client_key_is_recorded_once() -> None:
    async def main() -> tuple[list[bool], list[str]]:
        store = MemoryStore()
        inbox = Inbox(Recorder(store))
        seqs = [await inbox.say(text, client_key="k-1") for text in ("Hi.", "Hi.")]
        return seqs, words(store)

    assert anyio.run(main) == ([True, False], ["Hi."])


@pytest.mark.parametrize("half", [0, 1])
def test_a_message_can_be_sent_again_after_a_failed_write(
    half: int,
) -> None:
    """A failed write may have stored the message. In both cases it is stored once in the
    end.
    """

    async def main() -> tuple[BadDisk, View]:
        store = BadDisk(append=3, half=half)
        record = Recorder(store)
        await record(START)
        inbox = Inbox(record)
        await inbox.say("One.")
        with pytest.raises(JournalError, match="No space left"):
            await inbox.say("Two.", client_key="two")
        assert record.view.seq == 2
        await inbox.say("Two.", client_key="two")
        return store, record.view

    store, view = anyio.run(main)

    assert words(store) == ["One.", "Two."]
    assert fold(entries(store)) == view


def test_a_failed_sync_is_not_acknowledged_and_the_lease_is_acquired_again() -> None:
    async def main() -> tuple[int, list[str]]:
        store = BadDisk(keep=1)
        record = Recorder(store)
        inbox = Inbox(record)
        with pytest.raises(JournalError, match="No space left"):
            await inbox.say("One.", client_key="1")
        again = await inbox.say("One.", client_key="1")  # it is there, after all
        await inbox.say("Two.")
        assert not again
        return store.leases, words(store)

    assert anyio.run(main) == (2, ["One.", "Two."])


def test_close_releases_the_lease_and_the_next_event_acquires_it_again() -> None:
    async def main() -> tuple[int, int, list[int]]:
        store = BadDisk()
        record = Recorder(store)
        await record(START)
        await record.close()
        await record(Said("Still there?"))
        await record.close()
        return store.leases, store.releases, [e.epoch for e in entries(store)]

    assert anyio.run(main) == (2, 2, [1, 2])


def test_a_released_lease_can_be_acquired_by_another_recorder(tmp_path: Path) -> None:
    async def main() -> str:
        threads = Writers(threads=1)
        one, two = (Recorder(FileStore(tmp_path / "s", threads)) for _ in range(2))
        await one(START)
        with pytest.raises(Held) as caught:
            await two.open()
        await one.close()
        await two(Said("My turn."))
        await two.close()
        await one(Said("And mine."))
        assert [type(e).__name__ for e in (one.view, two.view)] == ["View", "View"]
        assert (one.view.seq, one.view.session.title) == (3, "My turn.")
        await one.close()
        return str(caught.value)

    assert "process" in anyio.run(main)


def test_a_recorder_that_lost_its_lease_stays_fenced() -> None:
    """It belongs to a paused process, which continues after a second process took the
    session.
    """

    async def main() -> tuple[list[str], list[Entry]]:
        store = MemoryStore()
        old, new = Recorder(store), Recorder(store.another_writer())
        old.claim, new.claim = 1, 2
        await old(START, Said("One."))
        await new(Said("Two."))
        outcomes = list[str]()
        for record, text in ((old, "Late."), (old, "Late again."), (new, "Three.")):
            try:
                await record(Said(text))
                outcomes.append(text)
            except Fenced:
                outcomes.append("fenced")
        return outcomes, entries(store)

    outcomes, lines = anyio.run(main)

    assert outcomes == ["fenced", "fenced", "Three."]
    assert [e.event.text for e in lines if isinstance(e.event, Said)] == [
        "One.",
        "Two.",
        "Three.",
    ]


@pytest.mark.parametrize("seq", [1, 2, 3])
def test_opening_a_damaged_journal_fails_with_the_damaged_line(seq: int) -> None:
    async def main() -> tuple[int, list[bytes], list[bytes]]:
        store = MemoryStore()
        await Recorder(store)(START, Said("One."), Said("Two."))
        store.lines[seq - 1] = store.lines[seq - 1].replace(b'"at"', b'"AT"')
        before = list(store.lines)
        record = Recorder(store)
        with pytest.raises(Corrupt) as caught:
            await record.open()
        with pytest.raises(Corrupt):
            await record(Said("Me too."))
        return caught.value.line, before, store.lines

    line, before, after = anyio.run(main)

    assert (line, after) == (seq, before)


def test_missing_lines_at_the_end_of_a_journal_are_detected_and_recorded() -> None:
    async def main() -> Event:
        store = MemoryStore()
        await Recorder(store)(START, Said("One."), Said("Two."))
        del store.lines[-2:]
        await Recorder(store).open()
        return entries(store)[-1].event

    assert anyio.run(main) == JournalRepaired(
        "events 2 to 3, noted as written and not there any more"
    )


def test_an_unknown_event_is_stored_unchanged_and_does_not_affect_the_view() -> None:
    later = Unknown("Teleported", Raw(b'{"to":[1,null,"\\u00e9"],"deep":{"a":1.50}}'))

    async def main() -> tuple[View, View, list[Entry]]:
        with_it, without = MemoryStore(), MemoryStore()
        clock = iter(range(100)).__next__
        await Recorder(with_it, clock=lambda: 0.0)(START, later, Said("Hi."))
        await Recorder(without, clock=lambda: clock() * 0.0)(START, Said("Hi."))
        again = Recorder(with_it)
        await again.open()
        await again(Said("Go on."))
        return fold(entries(with_it)[:3]), fold(entries(without)), entries(with_it)

    with_it, without, result = anyio.run(main)

    assert result[1].event == later
    assert (with_it.session, with_it.turn) == (without.session, without.turn)
    assert [s.said.text for s in with_it.conversation.undelivered] == ["Hi."]


def test_a_known_event_kind_with_invalid_data_is_decoded_as_unknown() -> None:
    line, head = codec.encode(Entry(1, Unknown("Said", Raw(b'{"loud":true}'))), Head())

    (result,) = codec.decode([line])

    assert result == (Entry(1, Unknown("Said", Raw(b'{"loud":true}'))), head)
