"""Lets a tool run without writing: its file changes stay in memory and are read back.

So a call can be tried before it is made, to get the diff that it would show or the reason why
it would fail. This works for tools that access the disk only through `Files`.
"""

from collections.abc import Collection, Sequence
from hashlib import sha256

from refold.errors import ToolFailed
from refold.place.file_secrets import check_masks
from refold.place.port import (
    MAX_FILE_BYTES,
    DirectoryEntry,
    Files,
    FileTree,
    FileWrite,
    Kind,
    Real,
    Secrets,
    Why,
)


class FilesOver:
    """Passes the calls of `port.Files` on to `files`. Subclasses override some methods."""

    def __init__(self, files: Files) -> None:
        self._files = files

    @property
    def tree(self) -> FileTree:
        return self._files.tree

    def real(self, path: str) -> Real:
        return self._files.real(path)

    def outside(self, path: str) -> Real | None:
        return self._files.outside(path)

    def display_name(self, real: Real) -> str:
        return self._files.display_name(real)

    def kind(self, real: Real) -> Kind:
        return self._files.kind(real)

    def why_unreadable(self, real: Real) -> str:
        return self._files.why_unreadable(real)

    def why_hidden(self, real: Real) -> str:
        return self._files.why_hidden(real)

    def items(self, real: Real) -> tuple[DirectoryEntry, ...]:
        return self._files.items(real)

    def write(self, real: Real, content: bytes, *, expect: str) -> None:
        self.put_all([FileWrite(real, content, expect)])

    def remove(self, real: Real, *, expect: str) -> None:
        self.put_all([FileWrite(real, content=None, expect=expect)])

    def put_all(self, puts: Sequence[FileWrite]) -> None:
        self._files.put_all(puts)

    def secrets(self, before: str, name: str) -> Secrets:
        return self._files.secrets(before, name)


class DryRunFiles(FilesOver):
    """The files of `files`, with changes that are stored in memory only.

    Directory listings do not show the changes.
    """

    def __init__(self, files: Files, changes: dict[Real, bytes | None] | None = None):
        super().__init__(files)
        # A copy for one call shares the changes with the object from which it was made.
        self._changes: dict[Real, bytes | None] = {} if changes is None else changes

    def only(self, reals: Collection[str]) -> "DryRunFiles":
        return DryRunFiles(self._files.only(reals), self._changes)

    def with_restrictions(self, why_unreadable: Why, why_hidden: Why) -> "DryRunFiles":
        return DryRunFiles(
            self._files.with_restrictions(why_unreadable, why_hidden), self._changes
        )

    def dry_run(self) -> "DryRunFiles":
        return DryRunFiles(self)

    def kind(self, real: Real) -> Kind:
        """Return what is at the path after the changes."""
        if real not in self._changes:
            return self._files.kind(real)
        return "nothing" if self._changes[real] is None else "file"

    def read(self, real: Real, at_most: int = MAX_FILE_BYTES) -> bytes:
        """Return the file's content after the changes. Raises `ToolFailed` if it is removed."""
        if real not in self._changes:
            return self._files.read(real, at_most)
        content = self._changes[real]
        if content is None:
            raise ToolFailed(f"There is no file {self.display_name(real)}.")
        return content

    def put_all(self, puts: Sequence[FileWrite]) -> None:
        """Store all changes in memory, or none if a file is not as expected."""
        check_masks(puts, self)
        for file_write in puts:
            exists = self.kind(file_write.real) != "nothing"
            digest = sha256(self.read(file_write.real)).hexdigest() if exists else ""
            if digest != file_write.expect:
                raise ToolFailed(
                    f"{self.display_name(file_write.real)} has changed. Nothing was written."
                )
        self._changes.update((file_write.real, file_write.content) for file_write in puts)

    async def save_first(self) -> bool:
        return False  # nothing is written here

    def remarks(self) -> Sequence[str]:
        return self._files.remarks()
