"""The project of a directory, where its notes are, and which sessions to make notes of.

A project is a repository with all its working trees; outside of one it is the directory.
"""

import fcntl
import os
import re
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from refold.place.private_files import make_directories
from refold.safe_open import check_no_links, open_checked

NOTES_FILE = "memory.md"
_MAX_NAME_CHARS = 40  # of the readable part of a name


def project_of(directory: str | Path) -> Path:
    """The real path of the repository's root, or of the directory itself."""
    start = Path(os.path.realpath(directory))
    for folder in (start, *start.parents):
        mark = folder / ".git"
        if mark.is_dir():
            return folder
        if mark.is_file():
            return _main_repository(mark) or folder
    return start


def directory_name(project: Path) -> str:
    """A name for its directory: readable, and no other project's."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", project.name).strip("-.")[:_MAX_NAME_CHARS]
    key = sha256(os.fsencode(project)).hexdigest()[:12]
    return f"{name or 'root'}-{key}"


def notes_directory(data: Path, project: Path) -> Path:
    """The directory with the notes of this project."""
    return data / "projects" / directory_name(project)


def has_notes(data: Path, directory: str | Path, project: Path) -> bool:
    """Whether there are any notes for a session in `directory`."""
    folders = (Path(os.path.realpath(directory)), project)
    places = (
        profile_in(data),
        notes_directory(data, project) / NOTES_FILE,
        *(folder / ".agent" / NOTES_FILE for folder in folders),
    )
    return any(os.path.lexists(place) for place in places)


def profile_in(data: Path) -> Path:
    """The file with notes about the user, for all projects."""
    return data / "profile.md"


def _main_repository(git_file: Path) -> Path | None:
    """The repository that a working tree belongs to, if the repository confirms it."""
    from refold.place.guarded_paths import gitdir_target, read_start

    git_directory = Path(gitdir_target(str(git_file)))
    back = read_start(str(git_directory / "gitdir"))
    kept_in = git_directory.parent.parent
    # Any directory can contain a file that points to another repository.
    ours = back and os.path.realpath(git_directory / back) == os.path.realpath(git_file)
    if ours and git_directory.parent.name == "worktrees" and kept_in.name == ".git":
        return kept_in.parent
    return None


MAX_TRIES = 3
MAX_AGE_SECONDS = 30 * 24 * 3600.0  # older entries are dropped


class PendingSessions:
    """The sessions of a project of which notes are still to be made: one file each.

    A session is added when it begins, so that it is not lost if its process dies, and removed
    when notes were made. A failure to write is ignored: only some notes depend on it.
    """

    def __init__(self, project: Path) -> None:
        self._folder = project / "pending"

    def put(self, session: str) -> None:
        with suppress(OSError):
            make_directories(self._folder)
            check_no_links(self._folder)
            os.close(open_checked(self._folder / session, os.O_WRONLY | os.O_CREAT))

    def remove(self, session: str) -> None:
        with suppress(OSError):
            (self._folder / session).unlink()

    def sessions(self) -> list[str]:
        """The session ids, oldest first: a later wish must replace an earlier one."""
        try:
            with os.scandir(self._folder) as entries:
                files = [(entry.name, entry.stat().st_mtime) for entry in entries]
        except OSError:
            return []
        young = time.time() - MAX_AGE_SECONDS
        for name, changed in files:
            if changed < young:
                self.remove(name)
        return sorted(n for n, modified in files if modified >= young and n[:1] != ".")

    def count_try(self, session: str) -> bool:
        """Count another try. False if the maximum is reached.

        If the disk is full, tries are not counted and no session is given up.
        """
        tries = 0
        with (
            suppress(OSError),
            open(
                self._folder / session, "a", encoding="ascii", opener=open_checked
            ) as file,
        ):
            tries = file.tell()
            file.write(".")
        if tries >= MAX_TRIES:
            self.remove(session)
        return tries < MAX_TRIES

    @contextmanager
    def try_lock(self) -> Generator[bool]:
        """Yield True if no other process works on these sessions, which are locked then. Does not wait."""
        try:
            lock = open_checked(self._folder / ".lock", os.O_RDWR | os.O_CREAT)
        except OSError:
            yield False
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
        finally:
            os.close(lock)
