"""Says what is a bare repository, and which paths in one decide what git runs.

A command could make a repository out of any directory, so its name says nothing. `guarded_paths`
searches for the paths of all repositories.
"""

import os
from collections.abc import Sequence

from refold.place.git_steps import STEP_FILES
from refold.place.guarded_paths import (
    HEAD_NAME,
    REPOSITORY_ENTRIES,
    REPOSITORY_PATHS,
    is_repository,
)

_DECISIVE_FILES = (
    *REPOSITORY_PATHS,
    *(f"{folder}/{name}" for folder, names in STEP_FILES.items() for name in names),
)
_DECISIVE_FOLDERS = {"info", *STEP_FILES}
NAMES_OF_GIT = {
    HEAD_NAME,
    *REPOSITORY_ENTRIES,
    *(name.split("/")[0] for name in _DECISIVE_FILES),
}


def is_git_directory(directory: str) -> bool:
    """Whether git takes this directory for a repository."""
    try:
        return is_repository(set(os.listdir(directory)))
    except OSError:
        return False


def bare_repository_part(paths: Sequence[str]) -> str:
    """Return the first path that decides what git runs in a bare repository; "" if none.

    The directory is a repository for git, or becomes one if all paths exist. If it becomes one,
    its first path is returned; otherwise the path that names programs there.
    """
    for directory, named in _entries_of_git(paths).items():
        present = {name for name in NAMES_OF_GIT if os.path.lexists(f"{directory}/{name}")}
        if os.path.lexists(f"{directory}/HEAD"):
            present.add(HEAD_NAME)
        if not is_repository(present | named.keys()):
            continue
        if not is_repository(present):  # it becomes one
            return next(iter(named.values()))
        for name in _DECISIVE_FILES:
            if name in named:
                return named[name]
    return ""


def _entries_of_git(paths: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return, for each directory, the entries in it that `paths` name as in a repository.

    With each entry, in lower case, comes the first of `paths` that names it. An entry of a
    folder such as `info` has the name of that folder, too.
    """
    named = dict[str, dict[str, str]]()
    for path in paths:
        parts = path.split("/")
        for index in range(1, len(parts)):
            name = parts[index].lower()
            if name not in NAMES_OF_GIT:
                continue
            directory = "/".join(parts[:index])
            part_count = 2 if name in _DECISIVE_FOLDERS else 1
            entry = "/".join(parts[index : index + part_count]).lower()
            named.setdefault(directory, {}).setdefault(entry, path)
    return named
