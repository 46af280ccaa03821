"""Many sessions on the disk, written at once and without a lock."""

import os
from collections.abc import Sequence
from pathlib import Path

from refold.journal.events.kinds import Event, Said, SessionStarted, TurnEnded, TurnStarted
from refold.journal.home import JournalDirectory
from tests.journal.journals import as_file, lines


def put(home: JournalDirectory, session: str, *events: Event, changed: float = 1.0) -> Path:
    """Write the journal of a session, whatever was there. Gives its file."""
    made, _ = lines(events)
    file = home.path(session) / "events.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(as_file(made))
    os.utime(file, (changed, changed))
    return file


def talk(*words: str, directory: str = "/work") -> Sequence[Event]:
    """A session with these messages, a turn each."""
    found: list[Event] = [SessionStarted(directory, "0.1")]
    for each in words:
        found += [Said(each), TurnStarted(len(found) + 1), TurnEnded("answered")]
    return found
