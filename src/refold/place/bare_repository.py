"""Recognizes bare repositories, and the paths in them that decide what git runs.

A command could make a repository out of any directory, so the name of a directory says nothing.
`guarded_paths` searches for the paths of all repositories.
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
    """Return one of `paths` that decides what git runs in a bare repository; "" if none does.

    If `paths` make a new repository out of a directory, the result is the first of `paths` in
    that directory. In an existing repository, the result is a path that can name programs, such
    as `config`.
    """
    for directory, path_by_entry in _entries_of_git(paths).items():
        present = {name for name in NAMES_OF_GIT if os.path.lexists(f"{directory}/{name}")}
        if os.path.lexists(f"{directory}/HEAD"):  # `NAMES_OF_GIT` are in lower case
            present.add(HEAD_NAME)
        if not is_repository(present | path_by_entry.keys()):
            continue
        if not is_repository(present):  # it becomes one
            return next(iter(path_by_entry.values()))
        for name in _DECISIVE_FILES:
            if name in path_by_entry:
                return path_by_entry[name]
    return ""


def _entries_of_git(paths: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return, for each directory, the entries of a repository that `paths` name in it.

    For example, the path `x/info/attributes` gives
    {"x": {"info/attributes": "x/info/attributes"}}. Entries are in lower case. With each entry
    comes the first of `paths` that names it.
    """
    entries = dict[str, dict[str, str]]()
    for path in paths:
        parts = path.split("/")
        for index in range(1, len(parts)):
            name = parts[index].lower()
            if name not in NAMES_OF_GIT:
                continue
            directory = "/".join(parts[:index])
            part_count = 2 if name in _DECISIVE_FOLDERS else 1
            entry = "/".join(parts[index : index + part_count]).lower()
            entries.setdefault(directory, {}).setdefault(entry, path)
    return entries
