"""A power failure takes any subset of the blocks that were not synced.

What was kept is there afterwards, what opens is a prefix of what was written, and damage in
the part that was synced is reported and not cut off.
"""

from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.errors import Corrupt
from refold.journal.events.kinds import Event, JournalRepaired, Said, TurnEnded, TurnStarted
from refold.journal.store import log_file, writer_lock
from refold.journal.store.file import FileStore
from refold.journal.store.log_file import end_of_lines
from refold.session.recorder import Recorder
from tests.journal.disks import Careless, Unpowered
from tests.journal.journals import THREADS, as_file, lines


def message_events(numbers: range) -> list[Event]:
    return [Said(f"{number} " + "x" * (37 * number % 700)) for number in numbers]


@given(
    byte_count=st.integers(0, 12),
    more=st.integers(0, 24),
    block=st.sampled_from([512, 4096]),
    lost=st.sets(st.integers(0, 40)),
    end=st.integers(0, 20_000),
    pen=st.sampled_from(["newest", "missing", "zeros"]),
)
def test_with_any_subset_of_unsynced_blocks_a_journal_opens_as_a_prefix(
    tmp_path_factory: pytest.TempPathFactory,
    byte_count: int,
    more: int,
    block: int,
    lost: set[int],
    end: int,
    pen: str,
) -> None:
    base = tmp_path_factory.mktemp("disk")
    directory, disk = base / "sessions" / "one", Unpowered(base)
    events = message_events(range(byte_count + more))

    async def write() -> list[Event]:
        record = Recorder(FileStore(directory, THREADS, disk))
        for number, event in enumerate(events):
            await record(event, kept=number == byte_count - 1)
        return [entry.event for entry in await record.entries()]

    async def resume() -> list[Event]:
        record = Recorder(FileStore(directory, THREADS, Careless()))
        await record.open()
        entries = [entry.event for entry in await record.entries()]
        await record.close()
        return entries

    before = anyio.run(write)
    if before:
        disk.lose_blocks(directory / log_file.FILE_NAME, block, lost, end)
        note = directory / writer_lock.FILE_NAME
        if pen == "missing":
            note.unlink()
        elif pen == "zeros":
            note.write_bytes(bytes(note.stat().st_size))

    after = anyio.run(resume)

    left = [event for event in after if not isinstance(event, JournalRepaired)]
    assert left == before[: len(left)]
    assert len(left) >= byte_count


def test_bytes_lost_to_a_hole_are_recorded_as_a_repair(tmp_path: Path) -> None:
    directory = tmp_path / "one"
    chunks, _ = lines(message_events(range(6)))
    data = as_file(chunks)
    hole = len(as_file(chunks[:3])) + 5
    directory.mkdir()
    (directory / log_file.FILE_NAME).write_bytes(data[:hole] + bytes(9) + data[hole + 9 :])

    async def resume() -> list[Event]:
        record = Recorder(FileStore(directory, THREADS, Careless()))
        await record.open()
        return [entry.event for entry in await record.entries()]

    *left, repaired = anyio.run(resume)

    assert left == message_events(range(3))
    cut = len(data) - len(as_file(chunks[:3]))
    assert repaired == JournalRepaired(
        f"the last {cut:,} bytes, of which the disk had lost a part when the power failed; "
        "they were not synced"
    )


def test_a_hole_in_the_synced_part_of_a_journal_is_reported_as_damage(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "one"

    async def write() -> None:
        record = Recorder(FileStore(directory, THREADS))
        await record(*message_events(range(6)), kept=True)
        await record.close()

    anyio.run(write)
    path = directory / log_file.FILE_NAME
    data = path.read_bytes()
    path.write_bytes(data[:300] + bytes(9) + data[309:])

    with pytest.raises(Corrupt):
        anyio.run(Recorder(FileStore(directory, THREADS, Careless())).open)

    assert len(path.read_bytes()) == len(data)


def test_a_hole_before_a_complete_turn_is_damage_whatever_the_lock_file_states() -> None:
    """The end of a turn is synced, and with it every earlier line."""
    events = [
        *message_events(range(2)),
        TurnStarted(1),
        TurnEnded("answered"),
        TurnStarted(2),
    ]
    chunks, _ = lines(events)
    data = b"\0" * 9 + as_file(chunks)[9:]

    assert end_of_lines(data, 0) == len(data)
    assert end_of_lines(b"\0" * 9 + as_file(chunks[:4])[9:], 0) == 0


@pytest.mark.parametrize(
    ("data", "byte_count", "end"),
    [
        (b"one\ntwo\n", 0, 8),
        (b"one\ntw", 0, 4),
        (b"one\n\0\0\0\nfour\n", 4, 4),
        (b"one\nt\0\0\0our\n", 4, 4),
        (b"one\nt\0\0\0our\n", 8, 12),  # it was synced: damage
        (b"one\ntwo\n\0\0\0", 4, 8),
        (b"\0\0\0\0two\n", 0, 0),
        (b"\0\0\0\0two\n", 4, 8),
    ],
)
def test_the_lines_of_a_journal_end_before_a_hole_in_its_unsynced_part(
    data: bytes, byte_count: int, end: int
) -> None:
    assert end_of_lines(data, byte_count) == end
