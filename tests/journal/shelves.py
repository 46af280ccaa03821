"""Writes many sessions to the disk, without their locks."""

import os
from collections.abc import Sequence
from pathlib import Path

from refold.journal.events.kinds import Event, Said, SessionStarted, TurnEnded, TurnStarted
from refold.journal.journal_directory import JournalDirectory
from tests.journal.journals import as_file, lines


def put_journal(
    home: JournalDirectory, session: str, *events: Event, changed: float = 1.0
) -> Path:
    """Write the journal of a session over any earlier one. Return its file."""
    chunks, _ = lines(events)
    file = home.path(session) / "events.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(as_file(chunks))
    os.utime(file, (changed, changed))
    return file


def conversation_events(*text: str, directory: str = "/work") -> Sequence[Event]:
    """Return the events of a session with these messages, each with a turn of its own."""
    starteds: list[Event] = [SessionStarted(directory, "0.1")]
    for word in text:
        starteds += [Said(word), TurnStarted(len(starteds) + 1), TurnEnded("answered")]
    return starteds
