"""Finds and deletes snapshots, indexes and packs that are no longer needed.

`checkpoints` takes snapshots; `client.storage` and `client.deletion` decide when they are
deleted.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Generator, Iterable, Iterator, Set
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from refold.place.snapshot_repository import snapshot_directory
from refold.safe_open import open_checked

_UNFINISHED_SECONDS = 3600  # an older pack is not being written any longer
_UNUSED_INDEX_SECONDS = 14 * 24 * 3600  # then a session's index is deleted
_DELETE_PREFIX = ".deleted-"  # followed by the id of the deleting process


def deletable_snapshots(store: Path, root: str, session: str, *, last: bool) -> Path:
    """Return the directory to delete for a session of the workspace at `root`.

    It is the session's own directory, or the whole repository of the workspace if the session
    is the `last` one there.
    """
    repository = snapshot_directory(store, os.path.realpath(root))
    return repository if last else repository / "sessions" / session


def is_used_by(store: Path, root: str, sessions: Set[str]) -> bool:
    """Whether any of `sessions` has snapshots of the workspace at `root`."""
    session_directory = snapshot_directory(store, os.path.realpath(root)) / "sessions"
    return session_directory.is_dir() and any(
        entry.name in sessions for entry in session_directory.iterdir()
    )


def find_unused_snapshots(
    store: Path, roots: Iterable[str], sessions: Set[str]
) -> Iterator[Path]:
    """Yield the directories in `store` that the remaining `sessions` do not need.

    These are repositories of workspaces not in `roots` that no session uses, the directories of
    deleted sessions, and the rest of an interrupted deletion.
    """
    used = {snapshot_directory(store, os.path.realpath(root)) for root in roots}
    if not store.is_dir():
        return
    for repository in sorted(store.iterdir()):
        if repository.is_symlink() or not repository.is_dir():
            continue
        parts = sorted((repository / "sessions").glob("*"))
        unused = [part for part in parts if part.name not in sessions]
        is_still_used = repository in used or len(unused) < len(parts)
        if is_still_used:
            yield from unused
        else:
            yield repository


def delete_snapshots(store: Path, place: Path) -> bool:
    """Delete the directory `place` in `store`. Return False if that is not possible now.

    Deleting is not possible while a process scans or restores files. The directory is renamed
    first, so that no half deleted directory is left under its name.
    """
    renamed_place = store / f"{_DELETE_PREFIX}{os.getpid()}-{place.name}"
    sessions = place / "sessions"
    try:
        with ExitStack() as locks:
            # `place` is a repository with sessions, or the directory of one session.
            scan_locks = (sessions if sessions.is_dir() else place).rglob("lock")
            for file in filter(Path.is_file, (*scan_locks, place / "restoring")):
                if not locks.enter_context(_lock_if_free(file)):
                    return False
            os.rename(place, renamed_place)
    except OSError:
        return not place.exists()
    shutil.rmtree(renamed_place, ignore_errors=True)
    return True


@contextmanager
def _lock_if_free(file: Path) -> Generator[bool]:
    """Lock a file during the block. Yield False if another process holds the lock."""
    opened = open_checked(file, os.O_RDWR)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(opened)


def delete_old_indexes(folder: Path, own_folder: Path) -> None:
    """Delete the indexes of long unused sessions, but not their snapshots."""
    limit = time.time() - _UNUSED_INDEX_SECONDS
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry != own_folder and entry.stat().st_mtime < limit:
                shutil.rmtree(entry, ignore_errors=True)


def delete_partial_packs(folder: Path) -> None:
    """Delete old files that a full disk or a kill left incomplete: git does not do that."""
    limit = time.time() - _UNFINISHED_SECONDS
    with suppress(OSError):
        for pack in folder.glob("tmp_pack_*"):
            if pack.stat().st_mtime < limit:
                pack.unlink()
