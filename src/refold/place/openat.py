"""Opens files beneath a root, folder by folder, so that no link leads out of it; and what was opened.

With openat2 the kernel does it in one call; without, each folder is opened from the one before.
A path can lead elsewhere between a check and its use; a descriptor cannot.
"""

import errno
import os
import stat
import struct
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import TypeAlias

from refold.errors import ToolFailed
from refold.place.port import Kind, Real
from refold.place.syscalls import system_call
from refold.safe_open import read_regular
from refold.values.path_names import below

MAX_PATH_BYTES = 4095  # as the kernel counts
FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_OPENAT2_NUMBER = 437  # of the system call openat2, on every machine that has it
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_MAX_RACE_TRIES = 100  # other programs rename directories meanwhile
# O_NONBLOCK: opening a pipe without a writer must not wait.
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_ERROR_TEXTS = {
    errno.ENOENT: "there is no such file or directory",
    errno.EEXIST: "a part of the path is a file, or another program made it in the meantime",
    errno.ENOTDIR: "a part of the path is not a directory",
    errno.EACCES: "the system does not permit it",
    errno.EPERM: "the system does not permit it",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk is full",
    errno.ELOOP: "its symbolic links form a loop, or change",
    errno.EXDEV: "the path leaves the directory it began in",
    errno.ENAMETOOLONG: "the name is too long",
}
# Opens a path below a directory's descriptor. Raises `OSError`: ELOOP where a link is
# in the way, EXDEV where the path would leave the directory.
Opening: TypeAlias = Callable[[int, str, int], int]


def open_beneath(top: int, path: str, flags: int) -> int:
    """Open the relative `path` below the directory `top`, with openat2 if available."""
    return _best_opener()(top, path, flags)


def open_by_walking(top: int, path: str, flags: int) -> int:
    """Open a path with one call for each of its parts."""
    *way, last = _parts(path)
    descriptor = top
    try:
        for part in way:
            below = open_step(descriptor, part, FOLDER_FLAGS)
            descriptor, before = below, descriptor
            if before != top:
                os.close(before)
        return open_step(descriptor, last, flags)
    finally:
        if descriptor != top:
            os.close(descriptor)


def openat2_opener() -> Opening | None:
    """A function that opens a path with one system call; None if the kernel forbids it."""
    if not sys.platform.startswith("linux"):
        return None

    def open_path(top: int, path: str, flags: int) -> int:
        name = os.fsencode("/".join(_parts(path)))
        # With O_NOFOLLOW the error would not show that the last part is a link.
        open_how = (flags & ~os.O_NOFOLLOW, 0, _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH)
        packed = struct.pack("=QQQ", *open_how)
        for _ in range(_MAX_RACE_TRIES):
            try:
                return system_call(_OPENAT2_NUMBER, top, name, packed, len(packed))
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EINTR):
                    raise
        raise OSError(errno.ELOOP, "renamed too often")

    return open_path if _is_usable(open_path) else None


@cache
def _best_opener() -> Opening:
    return openat2_opener() or open_by_walking


def _is_usable(open_path: Opening) -> bool:
    # Old kernels lack the call, and some containers forbid it.
    top = os.open("/", FOLDER_FLAGS)
    try:
        os.close(open_path(top, ".", FOLDER_FLAGS))
    except OSError:
        return False
    finally:
        os.close(top)
    return True


def _parts(path: str) -> list[str]:
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, "path too long")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or path.startswith("/"):
        raise OSError(errno.EXDEV, "leaves its directory")
    return parts or ["."]


def open_step(descriptor: int, part: str, flags: int) -> int:
    """Open one name in the directory `descriptor`, without following a link."""
    try:
        return os.open(part, flags | os.O_NOFOLLOW, dir_fd=descriptor)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(part, dir_fd=descriptor, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, "a link") from None
        raise


class DirectoryDescriptors:
    """Paths below `roots` are opened from the root, which is never created; others from "/"."""

    def __init__(self, roots: Sequence[str], opening: Opening) -> None:
        self.roots, self._opening = tuple(roots), opening

    def open(self, real: Real, flags: int) -> int:
        """A descriptor of `real` itself; the caller closes it."""
        with self._open_root(real) as (top, way):
            return self._opening(top, way, flags)

    @contextmanager
    def open_parent(self, real: Real) -> Generator[tuple[int, str]]:
        """The directory of `real`, and the last part of its name."""
        check_length(real)
        folder, last = os.path.split(real)
        with closing(self.open(Real(folder), FOLDER_FLAGS)) as number:
            yield number, last or "."

    def make_folder(self, folder: Real, new_folders: list[Real]) -> None:
        """Create `folder` if it is missing. `new_folders` gets the new ones, outermost first."""
        try:
            os.close(self.open(folder, FOLDER_FLAGS))
        except FileNotFoundError:
            with self._open_root(folder) as (top, way):
                above = folder.removesuffix(way)
                for directory in _make_folders(top, above, way.split("/")):
                    new_folders.append(directory)

    def remove_empty(self, folders: Iterable[Real]) -> None:
        """Remove the directories in `folders` that are empty."""
        for folder in reversed(list(folders)):
            with suppress(OSError), self.open_parent(folder) as (above, last):
                os.rmdir(last, dir_fd=above)

    def root_of(self, real: str) -> str | None:
        """The root above `real`."""
        return next((root for root in self.roots if below(real, root)), None)

    @contextmanager
    def _open_root(self, real: Real) -> Generator[tuple[int, str]]:
        """A descriptor of the root of `real`, and the path from there."""
        root = self.root_of(real) or "/"
        with (
            closing(os.open("/", FOLDER_FLAGS)) as slash,
            closing(self._opening(slash, root.strip("/") or ".", FOLDER_FLAGS)) as top,
        ):
            yield top, real.removeprefix(root).strip("/") or "."


def check_length(real: str) -> None:
    """Raise if the path is too long for the system."""
    if len(os.fsencode(real)) > MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, "path too long")


def _make_folders(top: int, parent: str, parts: Sequence[str]) -> Generator[Real]:
    descriptor = os.dup(top)
    try:
        for part in parts:
            parent = os.path.join(parent, part)
            try:
                inner = open_step(descriptor, part, FOLDER_FLAGS)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o777, dir_fd=descriptor)
                    yield Real(parent)
                inner = open_step(descriptor, part, FOLDER_FLAGS)
            os.close(descriptor)
            descriptor = inner
    finally:
        os.close(descriptor)


@contextmanager
def closing(number: int) -> Generator[int]:
    """A descriptor that is closed at the end of the block."""
    try:
        yield number
    finally:
        os.close(number)


def kind_of(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"


def refuse_irregular(status: os.stat_result, name: str) -> None:
    """Raise for all but regular files."""
    kind = kind_of(status.st_mode)
    if kind == "directory":
        raise ToolFailed(f"{name} is a directory: list_files shows what is in it.")
    if kind == "link":  # `Files.real` had followed all links
        raise OSError(errno.ELOOP, "links")
    if kind != "file":
        raise ToolFailed(
            f"{name} is a device, pipe or socket, not a file to read or write."
        )


def read_regular_file(folder: int, last: str, name: str, at_most: int) -> bytes:
    """The file `last` in a directory, up to `at_most` bytes. Anything else raises."""
    refuse = partial(refuse_irregular, name=name)
    return read_regular(last, at_most, follow=False, directory=folder, check=refuse)[0]


@contextmanager
def as_tool_errors(doing: str) -> Generator[None]:
    """Turn the system's errors into one sentence for the model."""
    try:
        yield
    except OSError as error:
        raise ToolFailed(f"Cannot {doing}: {error_text(error)}.") from error


def error_text(error: OSError) -> str:
    number = error.errno or errno.EIO
    return _ERROR_TEXTS.get(number) or os.strerror(number).lower()
