"""Where a session goes on: read from its lines, without following the chain or folding.

Whoever opens one has to know this before: settings, trust and the workspace depend on it.
"""

import mmap
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from refold.journal.events import codec
from refold.journal.events.kinds import Event, Imported, SessionResumed, SessionStarted
from refold.journal.state.session_info import SessionDirectories
from refold.journal.store import log_file

# They stand in the lines of these kinds, and may stand in the arguments of a call.
_MARKS = re.compile(rb'"kind":"(?:SessionResumed|Imported)"')


def whereabouts(session: Path) -> SessionDirectories:
    """As the newest event says that speaks of it. Nothing, where none can be read."""
    try:
        with (
            (session / log_file.NAME).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return _told(_newest_first(data))
    except (OSError, ValueError):  # not there, or empty
        return SessionDirectories()


def _told(news: Iterable[Event]) -> SessionDirectories:
    directory, roots = "", None
    for event in news:
        match event:
            case SessionResumed():
                directory = directory or event.directory
                roots = event.roots if roots is None else roots
            case SessionStarted():
                return SessionDirectories(
                    directory or event.directory, event.roots if roots is None else roots
                )
            case Imported():
                return SessionDirectories(directory or event.directory, roots or ())
            case _:
                pass
    return SessionDirectories(directory, roots or ())


def _newest_first(data: mmap.mmap) -> Iterator[Event]:
    begins = sorted(
        {0, *(data.rfind(b"\n", 0, m.start()) + 1 for m in _MARKS.finditer(data))}
    )
    for first in reversed(begins):
        last = data.find(b"\n", first)
        if last >= 0 and (event := codec.unchecked(data[first:last])) is not None:
            yield event
