"""Finds sessions whose directory was stored with the mask of a secret, and repairs them.

Earlier versions could take a part of a path for a secret. What it was is looked for among the
directories that exist: a journal is only continued, with the event of a resumed session that
names the directory, and only if one directory fits.
"""

import os
import re
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import anyio
from msgspec import Struct

from refold.cli.sessions.changes import write_without_touching
from refold.config.paths import home as home_directory
from refold.errors import RefoldError
from refold.journal.events.kinds import SessionResumed
from refold.journal.session_index import SessionIndex
from refold.session.recorder import Recorder
from refold.values.secret_mask import MASK_PATTERN, has_mask


class MaskedDirectory(Struct, frozen=True):
    """A session, the masked directory in its journal, and the real one.

    `directory` is "" if that is not known; `problem` says why it could not be repaired.
    """

    session: str
    stored: str
    directory: str = ""
    problem: str = ""


def repair(
    index: SessionIndex, environ: Mapping[str, str], here: Path
) -> tuple[MaskedDirectory, ...]:
    """Repair every session with a masked directory, and sync to the disk."""
    sessions = {entry.id: index.directories(entry.id) for entry in index.sessions()}
    masked = {
        id_: dirs
        for id_, dirs in sessions.items()
        if any(map(has_mask, (dirs.directory, *dirs.roots)))
    }
    if not masked:
        return ()
    known = (str(here), *(dirs.directory for dirs in sessions.values()))
    places = _Places(known, home_directory(environ), environ)
    return tuple(
        _repair_session(index, id_, dirs.directory, dirs.roots, places)
        for id_, dirs in masked.items()
    )


def _repair_session(
    index: SessionIndex, id_: str, masked: str, roots: Sequence[str], places: "_Places"
) -> MaskedDirectory:
    real_directory = places.find_directory(masked)
    more = [places.find_directory(path) for path in roots]
    if not real_directory or not all(more):
        return MaskedDirectory(id_, masked)

    def resume(record: Recorder) -> Awaitable[object]:
        event = SessionResumed(directory=real_directory, roots=tuple(more))
        return record(event, kept=True, author="reindex")

    try:
        anyio.run(write_without_touching, index, id_, resume)
    except RefoldError as error:
        return MaskedDirectory(id_, masked, real_directory, str(error))
    return MaskedDirectory(id_, masked, real_directory)


class _Places:
    """What a masked directory may be: one that is known, one in the home, or one below a
    directory that is above a known one or the value of a variable.
    """

    def __init__(
        self, directories: Sequence[str], home: str, environ: Mapping[str, str]
    ) -> None:
        self._known = {
            path for path in directories if os.path.isabs(path) and not has_mask(path)
        }
        above = {str(parent) for path in self._known for parent in Path(path).parents}
        named = {value for value in environ.values() if os.path.isabs(value)}
        self._home, self._above = home, (above | named) - {"/"}

    def find_directory(self, masked: str) -> str:
        """The directory that fits best, or "" if none does, or several do."""
        if not has_mask(masked):
            return masked
        if not re.sub(MASK_PATTERN, "", masked).strip("/"):
            return ""  # any directory would fit
        for fitting in self._fitting(masked):
            paths = {os.path.realpath(path) for path in fitting if os.path.isdir(path)}
            if paths:
                return paths.pop() if len(paths) == 1 else ""
        return ""

    def _fitting(self, masked: str) -> Iterator[Iterable[str]]:
        first, *rest = re.split(MASK_PATTERN, masked)
        pattern = "(.+)".join(map(re.escape, (first, *rest)))
        yield (path for path in self._known if re.fullmatch(pattern, path))
        if not first:
            yield (self._home.join(("", *rest)),)
            yield (value.join(("", *rest)) for value in self._above)
