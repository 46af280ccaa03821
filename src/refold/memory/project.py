"""Which project a directory belongs to, and what its notes are filed under.

A project is a repository, with all its work trees; outside of one it is the directory.
Looks at the disk, changes nothing.
"""

import os
import re
from hashlib import sha256
from pathlib import Path

from refold.place.guarded_paths import pointed_to, start_of

NOTES = "memory.md"
_LONGEST = 40  # letters of a name that a person can read


def project_of(directory: str | Path) -> Path:
    """The real path of the repository's root, or of the directory itself."""
    start = Path(os.path.realpath(directory))
    for folder in (start, *start.parents):
        mark = folder / ".git"
        if mark.is_dir():
            return folder
        if mark.is_file():
            return _main_tree(mark) or folder
    return start


def filed_under(project: Path) -> str:
    """A name for its directory: readable, and no other project's."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", project.name).strip("-.")[:_LONGEST]
    key = sha256(os.fsencode(project)).hexdigest()[:12]
    return f"{name or 'root'}-{key}"


def kept_in(data: Path, project: Path) -> Path:
    """The directory of what is remembered of this project."""
    return data / "projects" / filed_under(project)


def written(data: Path, directory: str | Path, project: Path) -> bool:
    """Are there any notes that a session in `directory` could be told?"""
    folders = (Path(os.path.realpath(directory)), project)
    places = (
        profile_in(data),
        kept_in(data, project) / NOTES,
        *(folder / ".agent" / NOTES for folder in folders),
    )
    return any(os.path.lexists(place) for place in places)


def profile_in(data: Path) -> Path:
    """The file of what is remembered of the person, whatever the project."""
    return data / "profile.md"


def _main_tree(mark: Path) -> Path | None:
    """The repository that a work tree belongs to, if that one says so too."""
    where = Path(pointed_to(str(mark)))
    back = start_of(str(where / "gitdir"))
    kept_in = where.parent.parent
    # Anybody can write a file that points at somebody else's repository.
    ours = back and os.path.realpath(where / back) == os.path.realpath(mark)
    if ours and where.parent.name == "worktrees" and kept_in.name == ".git":
        return kept_in.parent
    return None
