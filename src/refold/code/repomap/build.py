"""Builds a whole map: at most two processes read files, and one of them ranks at the end.

Only one build of a repository runs at a time; a second one ends at once. The results of a
killed build are stored, and the next build continues from them.
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

_MIN_SHARED_FILES = 2_000  # from this number of unread files on, a second process helps
_PROCESS_COUNT = 2
_NICE_INCREMENT = 10  # for a build in the background


def build(
    repository: RepositoryMap,
    start_helper: Callable[[], "subprocess.Popen[bytes] | None"],
    on_progress: OnProgress | None = None,
) -> Coverage:
    """Read all files that the map does not know, and rank all files.

    `start_helper` starts `help_build` in another process; it may return None. Raises
    `MapUnwritable`.
    """
    coverage = repository.refresh(
        seconds=None, most=_MIN_SHARED_FILES, on_progress=on_progress
    )
    if coverage.is_whole and coverage.is_ranked:
        return coverage
    helper = None
    if coverage.listed - coverage.known >= _MIN_SHARED_FILES and repository.can_be_kept:
        helper = start_helper()
    if helper is not None:
        repository.refresh(seconds=None, share=(0, _PROCESS_COUNT), on_progress=on_progress)
        helper.wait()
    # Read files that the helper has left, and files that changed meanwhile.
    return repository.refresh(seconds=None, on_progress=on_progress)


def help_build(repository: RepositoryMap) -> None:
    """Read the second half of the files. Call this in another process than `build`."""
    os.nice(_NICE_INCREMENT)
    repository.refresh(seconds=None, share=(1, _PROCESS_COUNT))


def build_in_background(
    repository: RepositoryMap, start_helper: Callable[[], "subprocess.Popen[bytes] | None"]
) -> None:
    """Build the map at a low priority. Stop silently if the map cannot be written."""
    os.nice(_NICE_INCREMENT)
    try:
        build(repository, start_helper)
    except MapUnwritable:
        return  # the next question reports it


@contextmanager
def building(maps: Path, root: str) -> Generator[bool]:
    """Yield whether this process may build the map of `root`.

    If so, no other process may do so within the block.
    """
    path = map_path(maps, root)
    try:
        lock = open_lock(path.with_name(f"{path.name}.lock"))
    except OSError:
        yield True  # nothing can be stored anyway
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(lock)


def is_building(maps: Path, root: str) -> bool:
    """Whether any process is building the map of `root`."""
    if not map_path(maps, root).parent.is_dir():
        return False
    with building(maps, root) as is_free:
        return not is_free
