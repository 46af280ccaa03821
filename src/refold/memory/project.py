"""Finds the project of a directory and the directory of its notes; queues sessions for notes.

A project is a repository with all its working trees. A directory outside of any repository is a
project itself.
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
_HASH_CHARS = 12


def project_of(directory: str | Path) -> Path:
    """Return the real path of the repository that contains `directory`.

    For a linked working tree, that is its main repository. Outside of any repository, return
    `directory` itself.
    """
    start = Path(os.path.realpath(directory))
    for folder in (start, *start.parents):
        git = folder / ".git"
        if git.is_dir():
            return folder
        if git.is_file():
            return _main_repository(git) or folder
    return start


def directory_name(project: Path) -> str:
    """Return a readable and unique name for the directory with the project's notes."""
    safe_name = re.sub(r"[^A-Za-z0-9._-]+", "-", project.name).strip("-.")
    name = safe_name[:_MAX_NAME_CHARS] or "root"
    # Projects with the same name differ in the hash of their paths.
    path_hash = sha256(os.fsencode(project)).hexdigest()[:_HASH_CHARS]
    return f"{name}-{path_hash}"


def notes_directory(data: Path, project: Path) -> Path:
    """Return the directory, below the data directory `data`, with the notes about this project."""
    return data / "projects" / directory_name(project)


def has_notes(data: Path, directory: str | Path, project: Path) -> bool:
    """Whether any file of notes exists that a session in `directory` would read."""
    folders = (Path(os.path.realpath(directory)), project)
    places = (
        profile_in(data),
        notes_directory(data, project) / NOTES_FILE,
        *(folder / ".agent" / NOTES_FILE for folder in folders),
    )
    return any(os.path.lexists(place) for place in places)


def profile_in(data: Path) -> Path:
    """Return the file in the data directory `data` with the notes about the user."""
    return data / "profile.md"


def _main_repository(git_file: Path) -> Path | None:
    """Return the main repository of a linked working tree, whose `.git` is the file `git_file`.

    Return None if the repository does not refer back to the working tree: any directory can
    contain a file that points to another repository.
    """
    from refold.place.guarded_paths import gitdir_target, read_start

    git_directory = Path(gitdir_target(str(git_file)))
    # It is REPOSITORY/.git/worktrees/NAME.
    worktrees, repository_git = git_directory.parent, git_directory.parent.parent
    if worktrees.name != "worktrees" or repository_git.name != ".git":
        return None
    working_tree_git = read_start(str(git_directory / "gitdir"))
    if not working_tree_git:
        return None
    # A relative path starts at the git directory.
    referred_file = os.path.realpath(git_directory / working_tree_git)
    return repository_git.parent if referred_file == os.path.realpath(git_file) else None


MAX_TRIES = 3
MAX_AGE_SECONDS = 30 * 24 * 3600.0  # older entries are dropped


class PendingSessions:
    """The sessions of a project that still need notes: one file for each session.

    A session is added when it begins, so that it is not lost if its process is killed, and
    removed when its notes are made. A failure to write is ignored, because only the notes of
    that session are then missing.
    """

    def __init__(self, project: Path) -> None:
        self._folder = project / "pending"

    def put(self, session: str) -> None:
        """Queue a session for notes."""
        with suppress(OSError):
            make_directories(self._folder)
            check_no_links(self._folder)
            os.close(open_checked(self._folder / session, os.O_WRONLY | os.O_CREAT))

    def remove(self, session: str) -> None:
        with suppress(OSError):
            (self._folder / session).unlink()

    def sessions(self) -> list[str]:
        """Return the ids of the sessions, oldest first.

        Sessions that have waited for longer than `MAX_AGE_SECONDS` are removed.
        """
        try:
            with os.scandir(self._folder) as entries:
                files = [(entry.name, entry.stat().st_mtime) for entry in entries]
        except OSError:
            return []
        earliest = time.time() - MAX_AGE_SECONDS
        ids = list[str]()
        for name, modified in files:
            if modified < earliest:
                self.remove(name)
            elif not name.startswith("."):  # not the lock file
                ids.append(name)
        return sorted(ids)

    def count_try(self, session: str) -> bool:
        """Count an attempt to make notes of a session, and return whether it is permitted.

        After `MAX_TRIES` attempts the session is removed. If the disk is full, attempts are not
        counted, and all are permitted.
        """
        tries = 0  # the file of a session has one byte for each try
        path = self._folder / session
        with (
            suppress(OSError),
            open(path, "a", encoding="ascii", opener=open_checked) as file,
        ):
            tries = file.tell()
            file.write(".")
        if tries >= MAX_TRIES:
            self.remove(session)
        return tries < MAX_TRIES

    @contextmanager
    def try_lock(self) -> Generator[bool]:
        """Lock the pending sessions of the project without waiting, and yield whether that
        succeeded.
        """
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
