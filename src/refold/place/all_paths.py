"""Lists all paths below a folder, including those that git ignores.

Rules that forbid reading some files are applied to this list.
"""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress

# Folders of installed packages have too many files to examine before each command.
_SKIPPED_FOLDERS = frozenset(
    (".git", "node_modules", ".venv", "venv", "__pycache__", ".tox")
)


def paths_below(root: str) -> Iterator[str]:
    """Yield all paths below `root`, but not `_SKIPPED_FOLDERS` and what is in them."""
    for folder, folders, names in os.walk(root):
        # `os.walk` does not enter a folder that is removed from this list.
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS]
        for name in (*names, *folders):
            yield os.path.join(folder, name)


def near_paths(folder: str, without: Sequence[str]) -> Iterator[str]:
    """Yield the paths below `folder`, level by level. Links are not followed.

    The paths in `without` are left out, with everything below them. Folders like `.git` and
    `node_modules` are yielded without their content.
    """
    folders_to_list = deque([folder])
    while folders_to_list:
        with suppress(OSError), os.scandir(folders_to_list.popleft()) as entries:
            for entry in entries:
                if entry.path in without:
                    continue
                yield entry.path
                if entry.name in _SKIPPED_FOLDERS:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders_to_list.append(entry.path)
