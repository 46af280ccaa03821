"""Decides which files a tool call may use, wherever the workspace is.

`files` reads and writes files of this machine, and `elsewhere.place_files` those of a place.
Permission rules have judged the paths of a call before, and `only` restricts the call to them.
Masks, display names and reasons not to read are decided here, on this machine, and never by a
place.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from copy import copy
from typing import TYPE_CHECKING, Self

from refold.errors import ToolFailed
from refold.place.port import (
    MAX_FILE_BYTES,
    DirectoryEntry,
    Files,
    FileTree,
    FileWrite,
    Kind,
    Real,
    Why,
)
from refold.values.path_names import below
from refold.values.printable_names import escape_name
from refold.values.secret_mask import FindSecrets, without_secrets

if TYPE_CHECKING:
    from refold.place.file_secrets import FileSecrets


class JudgedFiles(ABC):
    """The files of a workspace, below `roots`. Subclasses read and write them.

    `find_secrets` finds secrets that are masked for a model. `why_unreadable` returns why a
    file may not be read, or "". `why_hidden` returns why a file's content is not shown to a
    call that named only a folder above it, or "".
    """

    def __init__(
        self,
        roots: Sequence[str],
        why_unreadable: Why | None = None,
        why_hidden: Why | None = None,
        find_secrets: FindSecrets = without_secrets,
    ) -> None:
        self.roots = tuple(roots)
        self._why_unreadable, self._why_hidden = why_unreadable, why_hidden
        self._find_secrets = find_secrets
        # The paths that a call may use. None: all; empty: all below the roots.
        self._judged: frozenset[str] | None = None

    @abstractmethod
    def _resolve(self, path: str) -> Real:
        """Return the absolute path with all links resolved. Raises `ToolFailed`."""

    @abstractmethod
    def _read(self, real: Real, at_most: int) -> bytes:
        """Return the content of a file. Raises `ToolFailed`.

        `at_most` is the number of bytes that the file may have.
        """

    @abstractmethod
    def _put_all(self, puts: Sequence[FileWrite]) -> None:
        """Apply all changes in `puts`, or none. Raises `ToolFailed`."""

    def only(self, reals: Collection[str]) -> Self:
        """Return a copy for one call that may only use the paths `reals`.

        If `reals` is empty, it may use all paths within the roots.
        """
        files = copy(self)
        files._judged = frozenset(reals)
        return files

    def with_restrictions(self, why_unreadable: Why, why_hidden: Why) -> Self:
        """Return a copy to which these rules are added."""
        files = copy(self)
        files._why_unreadable = _either_reason(self._why_unreadable, why_unreadable)
        files._why_hidden = _either_reason(self._why_hidden, why_hidden)
        return files

    @property
    @abstractmethod
    def tree(self) -> FileTree:
        """The object that lists what is below a directory."""

    @abstractmethod
    def kind(self, real: Real) -> Kind:
        """Return what is at a path, for example a file or nothing. Raises `ToolFailed`."""

    @abstractmethod
    def items(self, real: Real) -> tuple[DirectoryEntry, ...]:
        """Return the readable entries of a directory. Raises `ToolFailed`."""

    def dry_run(self) -> Files:
        from refold.place.dry_run import DryRunFiles  # used only when a person is asked

        return DryRunFiles(self)

    def real(self, path: str) -> Real:
        """Return the real path. Raises `ToolFailed` if this call must not use it.

        A call that was judged by certain paths may use only these paths. A call that was judged
        without paths may use all paths in the workspace.
        """
        real = self._resolve(path)
        if self._judged is None or real in self._judged:
            return real
        may_use_all_within = not self._judged
        if may_use_all_within and self.is_within_roots(real):
            return real
        leads = f"{escape_name(path)} leads to {self.display_name(real)}"
        if may_use_all_within:
            raise ToolFailed(
                f"{leads}, outside of {escape_name(self.roots[0])}. Nothing was done."
            )
        raise ToolFailed(
            f"{leads}, which is not what was allowed: a link has changed. Nothing was done."
        )

    def outside(self, path: str) -> Real | None:
        real = self._resolve(path)
        return None if self.is_within_roots(real) else real

    def display_name(self, real: Real) -> str:
        """Return the printable path, which is relative if it is below the first root."""
        root = self.roots[0]
        if not below(real, root):
            return escape_name(real)
        name = os.path.relpath(real, root)
        # A file named ~ must not look like the home directory.
        return escape_name(f"./{name}" if is_home(name) else name)

    def why_unreadable(self, real: Real) -> str:
        """Return why the file may not be read; "" if it may."""
        # The environment and the memory of our own process hold keys.
        if below(real, f"/proc/{os.getpid()}"):
            return f"{escape_name(real)} belongs to this program itself"
        return self._why_unreadable(real) if self._why_unreadable else ""

    def why_hidden(self, real: Real) -> str:
        """Return why a search does not show a file; "" if a search shows it.

        A file that the call names is shown if the file may be read.
        """
        if reason := self.why_unreadable(real):
            return reason
        is_named = self._judged is not None and real in self._judged
        if is_named or self._why_hidden is None:
            return ""
        return self._why_hidden(real)

    def read(self, real: Real, at_most: int = MAX_FILE_BYTES) -> bytes:
        """Return the content of a file. Raises `ToolFailed` if it may not or cannot be read."""
        if reason := self.why_unreadable(real):
            raise ToolFailed(f"{self.display_name(real)} may not be read: {reason}.")
        return self._read(real, at_most)

    def write(self, real: Real, content: bytes, *, expect: str) -> None:
        self.put_all([FileWrite(real, content, expect)])

    def remove(self, real: Real, *, expect: str) -> None:
        self.put_all([FileWrite(real, content=None, expect=expect)])

    def put_all(self, puts: Sequence[FileWrite]) -> None:
        """Make all changes or none. Raises `ToolFailed`, also for a new line with a mask."""
        from refold.place.file_secrets import check_masks  # most calls only read

        check_masks(puts, self)
        self._put_all(puts)

    async def save_first(self) -> bool:
        return False

    def remarks(self) -> Sequence[str]:
        return ()

    def secrets(self, before: str, name: str) -> "FileSecrets":
        from refold.place.file_secrets import FileSecrets  # only for what is written

        return FileSecrets(before, name, self._find_secrets)

    def is_within_roots(self, real: str) -> bool:
        """Whether `real` is a root or below one."""
        return any(below(real, root) for root in self.roots)


def is_home(path: str) -> bool:
    return path == "~" or path.startswith("~/")


def _either_reason(first: Why | None, second: Why) -> Why:
    if first is None:
        return second
    return lambda real: first(real) or second(real)
