"""Builds a whole map: at most two processes read, one of them ranks at the end.

One build of a repository runs at a time; a second one ends at once. What was read by a build that is
killed stays, and the next one continues from there.
"""

import fcntl
import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from refold.code.repomap.map_file import MapUnwritable, map_path
from refold.code.repomap.refresh import Coverage, OnProgress
from refold.code.repomap.repository_map import RepositoryMap
from refold.place.private_files import open_lock

_SHARED_FILES = 2_000  # unread files from which a second process helps
_HELPED_BY = 2  # processes
_NICE_INCREMENT = 10  # of a build in the background


def build(
    repository: RepositoryMap,
    start_helper: Callable[[], "subprocess.Popen[bytes] | None"],
    on_progress: OnProgress | None = None,
) -> Coverage:
    """Read all that is not known, and rank. `start_helper` starts `help_build` elsewhere.

    Raises `MapUnwritable`.
    """
    coverage = repository.refresh(None, most=_SHARED_FILES, on_progress=on_progress)
    if coverage.is_whole and coverage.is_ranked:
        return coverage
    helper = None
    if coverage.listed - coverage.known >= _SHARED_FILES and repository.can_be_kept:
        helper = start_helper()
    if helper is not None:
        repository.refresh(None, share=(0, _HELPED_BY), on_progress=on_progress)
        helper.wait()
    # Whatever the helper has left, and what has changed meanwhile.
    return repository.refresh(None, on_progress=on_progress)


def help_build(repository: RepositoryMap) -> None:
    """Read the second half of the files, in another process."""
    os.nice(_NICE_INCREMENT)
    repository.refresh(None, share=(1, _HELPED_BY))


def build_in_background(
    repository: RepositoryMap, start_helper: Callable[[], "subprocess.Popen[bytes] | None"]
) -> None:
    os.nice(_NICE_INCREMENT)
    try:
        build(repository, start_helper)
    except MapUnwritable:
        return  # the next question reports it


@contextmanager
def building(maps: Path, root: str) -> Generator[bool]:
    """Whether this process may build the map of `root` now; and is then the only one."""
    path = map_path(maps, root)
    try:
        number = open_lock(path.with_name(f"{path.name}.lock"))
    except OSError:
        yield True  # nothing can be kept anyway
        return
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(number)


def is_building(maps: Path, root: str) -> bool:
    """Whether some process builds the map of `root`."""
    if not map_path(maps, root).parent.is_dir():
        return False
    with building(maps, root) as is_free:
        return not is_free
