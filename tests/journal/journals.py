"""Encodes journals as they are on the disk, and writes them with stores."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Raw

from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.events.kinds import (
    Ended,
    Entry,
    Event,
    Noted,
    Said,
    SessionStarted,
    SystemPromptSet,
)
from refold.journal.store.file import FileStore
from refold.journal.store.port import Store
from refold.journal.store.writer_threads import Writers
from tests.journal.disks import Careless

THREADS = Writers()  # the writer threads of all stores of the tests

EVENTS: list[Event] = [
    SessionStarted("/work", "0.1"),
    Said("Umbrella, é?"),
    Noted("plan", Raw(b'{"deep":[1,null]}')),
    Ended("call-1", "done", "wet"),
    Said("so"),
]


def lines(events: Sequence[Event]) -> tuple[list[bytes], Head]:
    """Return the lines of a journal with these events, and its head at the end."""
    head, chunks = Head(), list[bytes]()
    for event in events:
        line, head = codec.encode(Entry(head.seq + 1, event, at=1.0), head)
        chunks.append(line)
    return chunks, head


def prompts_in(journal: Path) -> list[SystemPromptSet]:
    """Return the system prompts in this file, the oldest first."""
    events = (entry.event for entry, _ in codec.decode(journal.read_bytes().splitlines()))
    return [event for event in events if isinstance(event, SystemPromptSet)]


def text_in(journal: Path) -> str:
    """Return the events in this file as JSON, none of it packed."""
    entries = codec.decode(journal.read_bytes().splitlines())
    return "\n".join(codec.dump(entry.event).decode() for entry, _ in entries)


def as_file(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


async def write(store: Store, events: Sequence[Event]) -> list[bytes]:
    """Write a whole journal as its only writer, and leave."""
    chunks, head = lines(events)
    epoch = (await store.lease()).epoch
    await store.append(chunks, expect=0, epoch=epoch, head=(head.seq, head.h))
    await store.release()
    return chunks


async def add(store: Store, epoch: int, line: bytes, expect: int) -> None:
    await store.append([line], expect=expect, epoch=epoch, head=(expect + 1, "h"))


async def append_as_next_writer(directory: Path, line: bytes) -> tuple[bytes, list[bytes]]:
    """Take the lock as the next process would, add a line and release the lock.

    Return the damaged end that was cut off, and the lines after that.
    """
    store = FileStore(directory, THREADS, Careless())
    lease = await store.lease()
    before = list(await store.read())
    await add(store, lease.epoch, line, len(before))
    await store.release()
    return lease.cut, list(await store.read())
