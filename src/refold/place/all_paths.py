"""All paths below a folder, ignored or not, for rules that forbid reading some."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress

# Of files of others, too many to examine before a command.
_SKIPPED_FOLDERS = frozenset(
    (".git", "node_modules", ".venv", "venv", "__pycache__", ".tox")
)


def paths_below(root: str) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS]
        for name in (*names, *folders):
            yield os.path.join(folder, name)


def near_paths(folder: str, without: Sequence[str]) -> Iterator[str]:
    """The paths below `folder`, level by level."""
    waiting = deque([folder])
    while waiting:
        with suppress(OSError), os.scandir(waiting.popleft()) as entries:
            for entry in entries:
                if entry.path in without:
                    continue
                yield entry.path
                skipped = entry.name in _SKIPPED_FOLDERS
                if not skipped and entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
