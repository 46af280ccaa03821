"""Lists the files below a directory of this machine. Implements `port.FileTree`."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from refold.place.port import Ignores, Real, SearchScope, WalkedFiles

if TYPE_CHECKING:
    from refold.place.file_walk import DirectoryIgnores


class DiskTree:
    """The directory tree of this machine. See `port.FileTree`."""

    def rules(self, real: Real, parent_rules: Ignores | None = None) -> "DirectoryIgnores":
        """Return what git ignores in `real`.

        `parent_rules` are the rules of the directory above; with them, fewer files are read.
        """
        from refold.place.file_walk import (
            DirectoryIgnores,
            directory_ignores,
            subdirectory_ignores,
        )

        if isinstance(parent_rules, DirectoryIgnores):
            return subdirectory_ignores(real, parent_rules)
        return directory_ignores(real)

    def walk(self, real: Real, check: Callable[[], None]) -> WalkedFiles:
        """Return the files below `real` that git does not ignore, and unreadable folders."""
        from refold.place.file_walk import walk

        unread = dict[str, str]()

        def on_unread(directory: str, reason: str) -> None:
            unread[os.path.relpath(directory, real)] = reason

        paths = walk(real, check, on_unread=on_unread)
        prefix = real.rstrip("/") + "/"
        return WalkedFiles([path.removeprefix(prefix) for path in paths], unread)

    def times(self, real: Real, paths: Sequence[str]) -> Sequence[float]:
        return [_modified(os.path.join(real, path)) for path in paths]

    def with_ignored(self, real: Real) -> Iterator[str]:
        """Yield the files and links below `real`, including ignored ones, up to a limit."""
        from refold.place.file_walk import files_with_ignored

        return files_with_ignored(real)

    def scope(self, real: Real) -> SearchScope:
        from refold.place.file_walk import is_in_repository, repository_top, user_excludes

        return SearchScope(is_in_repository(real), repository_top(real), user_excludes())


def _modified(path: str) -> float:
    """Return the modification time of a file; 0.0 if it does not exist."""
    try:
        return os.lstat(path).st_mtime
    except OSError:  # deleted in the meantime
        return 0.0
