"""Reads and writes files on this machine. Tools use no other module for that.

Implements `port.Files`. `openat` opens directories, `atomic_write` replaces files, and
`judged_files` restricts a call to the paths that were judged. Text and encodings are the tools'
task.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from refold.errors import ToolFailed
from refold.place.judged_files import JudgedFiles, is_home
from refold.place.openat import (
    READ_FLAGS,
    DirectoryDescriptors,
    Opening,
    as_tool_errors,
    kind_of,
    open_beneath,
    read_regular_file,
)
from refold.place.port import DirectoryEntry, FileWrite, Kind, Real, Why
from refold.values.printable_names import escape_name, unescape_name
from refold.values.secret_mask import FindSecrets, first_tag, without_secrets

if TYPE_CHECKING:
    from refold.place.disk_tree import DiskTree

_MAX_RESOLVE_TRIES = 10
_URL_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class DiskFiles(JudgedFiles):
    """The files below `root` and `more_roots`. A relative path starts from `root`."""

    def __init__(
        self,
        root: Path | str,
        more_roots: Sequence[Path | str] = (),
        why_unreadable: Why | None = None,
        why_hidden: Why | None = None,
        opening: Opening = open_beneath,
        find_secrets: FindSecrets = without_secrets,
    ) -> None:
        roots = [os.path.realpath(r) for r in (root, *more_roots)]
        super().__init__(roots, why_unreadable, why_hidden, find_secrets)
        self._folders = DirectoryDescriptors(roots, opening)

    @property
    def tree(self) -> "DiskTree":
        from refold.place.disk_tree import DiskTree  # most first requests list no directory

        return DiskTree()

    def kind(self, real: Real) -> Kind:
        """Return what is at a path; "nothing" if it does not exist. Links are not followed."""
        with as_tool_errors(f"look at {self.display_name(real)}"):
            try:
                with self._folders.open_parent(real) as (parent_fd, base_name):
                    status = os.stat(base_name, dir_fd=parent_fd, follow_symlinks=False)
                    return kind_of(status.st_mode)
            except (FileNotFoundError, NotADirectoryError):
                return "nothing"

    def items(self, real: Real) -> tuple[DirectoryEntry, ...]:
        """Return the entries of a directory by name, without unreadable files."""
        with as_tool_errors(f"list {self.display_name(real)}"):
            descriptor = self._folders.open(real, READ_FLAGS | os.O_DIRECTORY)
            try:
                with os.scandir(descriptor) as entries:
                    listed = [
                        item
                        for item in _items(entries)
                        if not self.why_unreadable(Real(os.path.join(real, item.name)))
                    ]
            finally:
                os.close(descriptor)
        return tuple(sorted(listed, key=lambda item: item.name))

    def _read(self, real: Real, at_most: int) -> bytes:
        """Return the content of a file. Raises `ToolFailed` if it is larger than `at_most`."""
        name = self.display_name(real)
        with (
            as_tool_errors(f"read {name}"),
            self._folders.open_parent(real) as (parent_fd, base_name),
        ):
            content = read_regular_file(parent_fd, base_name, name, at_most + 1)
        if len(content) > at_most:
            raise ToolFailed(
                f"{name} is larger than {at_most // 2**20} MiB: too big to be read "
                "whole. Look at parts of it with grep, or with bash and sed."
            )
        return content

    def _put_all(self, puts: Sequence[FileWrite]) -> None:
        from refold.place.atomic_write import put_all  # most calls only read

        put_all(puts, self._folders, self.display_name)

    def check_writable(self, real: Real) -> None:
        """Raise `ToolFailed` if `put_all` would refuse to replace this existing file."""
        from refold.place.atomic_write import check_writable

        name = self.display_name(real)
        with (
            as_tool_errors(f"write {name}"),
            self._folders.open_parent(real) as (parent_fd, base_name),
        ):
            check_writable(parent_fd, base_name, name)

    def path_stamps(self, real: Real) -> tuple[tuple[int, int, int], ...]:
        """Return the device, inode and change time (in nanoseconds) of a file's path.

        The first item is for the root, the last for the file. Raises `ToolFailed` if one of
        them is a link.
        """
        root = self._folders.root_of(real) or "/"
        parts = os.path.relpath(real, root).split("/")
        stamps = list[tuple[int, int, int]]()
        with as_tool_errors(f"look at {self.display_name(real)}"):
            for count in range(len(parts) + 1):
                status = os.lstat(os.path.join(root, *parts[:count]))
                if stat.S_ISLNK(status.st_mode):
                    raise OSError(errno.ELOOP, "a link")
                stamps.append((status.st_dev, status.st_ino, status.st_ctime_ns))
        return tuple(stamps)

    def _resolve(self, path: str) -> Real:
        """Return the real path of the file that a model calls `path`. Raises `ToolFailed`."""
        if not _is_possible_path(path):
            raise ToolFailed(
                f'"{escape_name(path)}" cannot be a path: give the name of a file.'
            )
        if is_home(path):
            raise ToolFailed(
                f"{escape_name(path)} begins with ~, which only a shell knows: write the path "
                f"out, or ./{escape_name(path)} for a file of that name."
            )
        if scheme := _URL_SCHEME.match(path):
            raise ToolFailed(
                f"{escape_name(path)} begins with {scheme[0]}, so it is an address and no path: "
                "give the path alone, as /home/me/notes.txt."
            )
        full = self._full_path(path)
        if (tag := first_tag(path)) and not os.path.lexists(full):
            raise ToolFailed(
                f"{tag} in the path stands for a secret value, and no file has that "
                "name: find the file by another part of its path."
            )
        if "\\" in path and not os.path.lexists(full):
            # The model writes an unusual name in the escaped form that it was shown.
            unescaped = self._full_path(unescape_name(path))
            if _is_possible_path(unescaped) and os.path.lexists(unescaped):
                full = unescaped
        return _resolve_links(full)

    def _full_path(self, path: str) -> str:
        return os.path.join(self.roots[0], path)


def _is_possible_path(path: str) -> bool:
    """Whether the system can take this path: it is not empty and can be encoded."""
    try:
        return bool(path) and b"\0" not in os.fsencode(path)
    # the path has a lone surrogate, which no file name can contain
    except UnicodeEncodeError:
        return False


def _resolve_links(full: str) -> Real:
    """Return the real path. Raises `ToolFailed` if it cannot be found in some tries."""
    for _ in range(_MAX_RESOLVE_TRIES):
        # `realpath` fails if a link becomes a file while it runs.
        with suppress(OSError):
            return Real(os.path.realpath(full))
    raise ToolFailed(f"{escape_name(full)} changes faster than it can be read.")


def _items(entries: Iterator[os.DirEntry[str]]) -> Iterator[DirectoryEntry]:
    """Yield the entries with kind, size and time, but none that is deleted meanwhile."""
    for entry in entries:
        with suppress(FileNotFoundError):  # deleted after it was listed
            status = entry.stat(follow_symlinks=False)
            yield DirectoryEntry(
                entry.name, kind_of(status.st_mode), status.st_size, status.st_mtime_ns
            )
