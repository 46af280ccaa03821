"""Opens files below a root without following links, so that no path leads out of it.

With openat2 the kernel does this in one call; without it, each folder is opened from the folder
above. Descriptors are used because a path can lead elsewhere between a check and its use, but a
descriptor cannot.
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
_OPENAT2_NUMBER = 437  # the number of the system call openat2 on all architectures
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_MAX_RACE_TRIES = 100  # when other programs rename directories at the same time
# O_NONBLOCK: opening a pipe without a writer must not block.
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
# Opens a path below a directory's descriptor. Raises `OSError`: ELOOP for a link on the
# path, EXDEV if the path would leave the directory.
Opening: TypeAlias = Callable[[int, str, int], int]


def open_beneath(top: int, path: str, flags: int) -> int:
    """Open the relative `path` below the directory `top`, without following links.

    This uses openat2 if the kernel has it. Return a descriptor. Raises `OSError`.
    """
    return _best_opener()(top, path, flags)


def open_by_walking(top: int, path: str, flags: int) -> int:
    """Open the relative `path` below the directory `top`, one part after another.

    Links are not followed. Return a descriptor. Raises `OSError`.
    """
    *folders, last = _parts(path)
    descriptor = top
    try:
        for folder in folders:
            outer = descriptor
            descriptor = open_step(outer, folder, FOLDER_FLAGS)
            if outer != top:
                os.close(outer)
        return open_step(descriptor, last, flags)
    finally:
        if descriptor != top:
            os.close(descriptor)


def openat2_opener() -> Opening | None:
    """Return a function that opens with openat2; None if that does not work here."""
    if not sys.platform.startswith("linux"):
        return None

    def open_path(top: int, path: str, flags: int) -> int:
        """Return a descriptor of `path` below the directory `top`. No part may be a link."""
        name = os.fsencode("/".join(_parts(path)))
        # With O_NOFOLLOW, the error would not reveal that the last part is a link.
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
    """Whether `open_path` works: old kernels lack its call, and some containers forbid it."""
    top = os.open("/", FOLDER_FLAGS)
    try:
        os.close(open_path(top, ".", FOLDER_FLAGS))
    except OSError:
        return False
    finally:
        os.close(top)
    return True


def _parts(path: str) -> list[str]:
    """Return the parts of a relative path; "." for the directory itself. Raises `OSError`."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, "path too long")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or path.startswith("/"):
        raise OSError(errno.EXDEV, "leaves its directory")
    return parts or ["."]


def open_step(descriptor: int, part: str, flags: int) -> int:
    """Open the entry `part` of the directory `descriptor`. A link raises `OSError`."""
    try:
        return os.open(part, flags | os.O_NOFOLLOW, dir_fd=descriptor)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(part, dir_fd=descriptor, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, "a link") from None
        raise


class DirectoryDescriptors:
    """Opens real paths without following links.

    Each path is opened from the root in `roots` that contains the path, or else from "/".
    """

    def __init__(self, roots: Sequence[str], opening: Opening) -> None:
        self.roots, self._opening = tuple(roots), opening

    def open(self, real: Real, flags: int) -> int:
        """Open `real` itself and return the descriptor, which the caller must close."""
        with self._open_root(real) as (top, inner_path):
            return self._opening(top, inner_path, flags)

    @contextmanager
    def open_parent(self, real: Real) -> Generator[tuple[int, str]]:
        """Open the directory that contains `real`, and close it after the block.

        Yield its descriptor and the last part of the path.
        """
        check_length(real)
        parent, base_name = os.path.split(real)
        with closing(self.open(Real(parent), FOLDER_FLAGS)) as parent_fd:
            yield parent_fd, base_name or "."

    def make_folder(self, folder: Real, new_folders: list[Real]) -> None:
        """Create `folder` and the folders above it that are missing, but no root.

        Append each created folder to `new_folders`, the outermost first.
        """
        try:
            os.close(self.open(folder, FOLDER_FLAGS))
        except FileNotFoundError:
            with self._open_root(folder) as (top, inner_path):
                above = folder.removesuffix(inner_path)
                for directory in _make_folders(top, above, inner_path.split("/")):
                    new_folders.append(directory)

    def remove_empty(self, folders: Iterable[Real]) -> None:
        """Remove each of `folders` that is empty, starting with the last."""
        for folder in reversed(list(folders)):
            with suppress(OSError), self.open_parent(folder) as (parent_fd, base_name):
                os.rmdir(base_name, dir_fd=parent_fd)

    def root_of(self, real: str) -> str | None:
        """Return the root that contains `real`; None if none does."""
        return next((root for root in self.roots if below(real, root)), None)

    @contextmanager
    def _open_root(self, real: Real) -> Generator[tuple[int, str]]:
        """Open the root that contains `real`. Yield its descriptor and the rest of the path."""
        root = self.root_of(real) or "/"
        with (
            closing(os.open("/", FOLDER_FLAGS)) as disk_fd,
            closing(
                self._opening(disk_fd, root.strip("/") or ".", FOLDER_FLAGS)
            ) as root_fd,
        ):
            yield root_fd, real.removeprefix(root).strip("/") or "."


def check_length(real: str) -> None:
    """Raise `OSError` if the path is too long for the system."""
    if len(os.fsencode(real)) > MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, "path too long")


def _make_folders(top: int, parent: str, parts: Sequence[str]) -> Generator[Real]:
    """Create each missing folder of the path `parts` below `top`, and yield its full path.

    `top` is the open directory `parent`.
    """
    descriptor = os.dup(top)
    path = parent
    try:
        for part in parts:
            path = os.path.join(path, part)
            try:
                inner = open_step(descriptor, part, FOLDER_FLAGS)
            except FileNotFoundError:
                try:
                    os.mkdir(part, 0o777, dir_fd=descriptor)
                except FileExistsError:
                    pass  # another program was first
                else:
                    yield Real(path)
                inner = open_step(descriptor, part, FOLDER_FLAGS)
            os.close(descriptor)
            descriptor = inner
    finally:
        os.close(descriptor)


@contextmanager
def closing(number: int) -> Generator[int]:
    """Yield the descriptor, and close it at the end of the block."""
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
    """Raise `ToolFailed` unless `status` is of a regular file; `OSError` for a link.

    `name` is the file's name for the message.
    """
    kind = kind_of(status.st_mode)
    if kind == "directory":
        raise ToolFailed(f"{name} is a directory: list_files shows what is in it.")
    if kind == "link":  # the caller had resolved all links with `Files.real`
        raise OSError(errno.ELOOP, "links")
    if kind != "file":
        raise ToolFailed(
            f"{name} is a device, pipe or socket, not a file to read or write."
        )


def read_regular_file(parent_fd: int, base_name: str, name: str, at_most: int) -> bytes:
    """Return the first `at_most` bytes of the file `base_name` in the open directory `parent_fd`.

    Raises an error if it is not a regular file. `name` is its name for the message.
    """
    refuse = partial(refuse_irregular, name=name)
    content, _ = read_regular(
        base_name, at_most, follow=False, directory=parent_fd, check=refuse
    )
    return content


@contextmanager
def as_tool_errors(doing: str) -> Generator[None]:
    """Convert an `OSError` in the block to `ToolFailed`: "Cannot", `doing` and the reason."""
    try:
        yield
    except OSError as error:
        raise ToolFailed(f"Cannot {doing}: {error_text(error)}.") from error


def error_text(error: OSError) -> str:
    number = error.errno or errno.EIO
    return _ERROR_TEXTS.get(number) or os.strerror(number).lower()
