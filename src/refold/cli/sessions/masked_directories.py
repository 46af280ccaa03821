"""Finds sessions whose directory was stored with the mask of a secret, and repairs them.

Earlier versions of refold could mistake a part of a path for a secret, and mask it. This module
searches for an existing directory that fits. If exactly one fits, an event is appended to the
journal: that the session was resumed in this directory. Earlier lines of the journal are not
changed.
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
    """A session whose journal has a masked directory, and the result of the repair.

    `stored` is the masked directory. `directory` is the real one; "" if it is unknown.
    `problem` says why the journal could not be repaired; "" if it was.
    """

    session: str
    stored: str
    directory: str = ""
    problem: str = ""


def repair(
    index: SessionIndex, environ: Mapping[str, str], here: Path
) -> tuple[MaskedDirectory, ...]:
    """Repair all sessions with a masked directory, and return them with the results."""
    sessions = {entry.id: index.directories(entry.id) for entry in index.sessions()}
    masked = {
        id_: directories
        for id_, directories in sessions.items()
        if any(map(has_mask, (directories.directory, *directories.roots)))
    }
    if not masked:
        return ()
    stored = (directories.directory for directories in sessions.values())
    candidates = _Candidates((str(here), *stored), home_directory(environ), environ)
    return tuple(
        _repair_session(index, id_, directories.directory, directories.roots, candidates)
        for id_, directories in masked.items()
    )


def _repair_session(
    index: SessionIndex,
    id_: str,
    masked: str,
    roots: Sequence[str],
    candidates: "_Candidates",
) -> MaskedDirectory:
    """Record the real directories of a session if they are known. Return the result."""
    real_directory = candidates.find_directory(masked)
    real_roots = [candidates.find_directory(path) for path in roots]
    if not real_directory or not all(real_roots):
        return MaskedDirectory(id_, masked)

    def resume(record: Recorder) -> Awaitable[object]:
        event = SessionResumed(directory=real_directory, roots=tuple(real_roots))
        return record(event, kept=True, author="reindex")

    try:
        anyio.run(write_without_touching, index, id_, resume)
    except RefoldError as error:
        return MaskedDirectory(id_, masked, real_directory, str(error))
    return MaskedDirectory(id_, masked, real_directory)


class _Candidates:
    """The existing directories for which a masked directory may stand.

    The candidates are known directories, directories in the home directory, and directories
    below a parent of a known directory or below the value of an environment variable.
    """

    def __init__(
        self, directories: Sequence[str], home: str, environ: Mapping[str, str]
    ) -> None:
        self._known = {
            path for path in directories if os.path.isabs(path) and not has_mask(path)
        }
        parents = {str(parent) for path in self._known for parent in Path(path).parents}
        environ_paths = {value for value in environ.values() if os.path.isabs(value)}
        self._home = home
        self._parents = (parents | environ_paths) - {"/"}

    def find_directory(self, masked: str) -> str:
        """Return the directory that fits best; "" if none fits, or if several fit equally well."""
        if not has_mask(masked):
            return masked
        if not re.sub(MASK_PATTERN, "", masked).strip("/"):
            return ""  # every directory would fit
        for fitting in self._fitting(masked):
            paths = {os.path.realpath(path) for path in fitting if os.path.isdir(path)}
            if paths:
                return paths.pop() if len(paths) == 1 else ""
        return ""

    def _fitting(self, masked: str) -> Iterator[Iterable[str]]:
        """Yield groups of directories that fit `masked`, the most probable group first."""
        parts = re.split(MASK_PATTERN, masked)
        pattern = "(.+)".join(map(re.escape, parts))
        yield (path for path in self._known if re.fullmatch(pattern, path))
        if not parts[0]:
            # `masked` begins with a mask, which may stand for a complete path: the home,
            # or one of the parents. `path.join(parts)` puts `path` in place of each mask.
            yield (self._home.join(parts),)
            yield (path.join(parts) for path in self._parents)
