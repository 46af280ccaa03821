"""The snapshots of a session that is deleted.

Sessions of one workspace keep their files in one store, where each file is there once,
however many of them saw it. So what goes with a session is its own index; the files go
with the last session of that workspace.
"""

import os
import shutil
from collections.abc import Iterator, Set
from pathlib import Path

from refold.place.checkpoints import kept_in


def snapshots_of(store: Path, root: str, session: str, *, last: bool) -> Path:
    """What goes: the whole store of the workspace at `root`, or what is this session's."""
    whole = kept_in(store, os.path.realpath(root))
    return whole if last else whole / "sessions" / session


def looked_at_by(store: Path, root: str, sessions: Set[str]) -> bool:
    """Has one of them kept files of the workspace at `root` lately?"""
    kept = kept_in(store, os.path.realpath(root)) / "sessions"
    return kept.is_dir() and any(each.name in sessions for each in kept.iterdir())


def forget(place: Path) -> None:
    """Delete it. What another process is just writing in there stays."""
    shutil.rmtree(place, ignore_errors=True)


def size_of(place: Path) -> int:
    return sum(_sizes(place))


def _sizes(place: Path) -> Iterator[int]:
    for folder, _, names in os.walk(place):
        for name in names:
            try:
                yield os.lstat(os.path.join(folder, name)).st_size
            except OSError:  # just gone
                continue
