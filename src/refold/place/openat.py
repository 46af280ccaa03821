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
from refold.place.syscalls import call
from refold.safe_open import read_regular
from refold.values.path_names import below

LONGEST = 4095  # bytes of a path, as the kernel counts
FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_NUMBER = 437  # of the system call openat2, on every machine that has it
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_TRIES = 100  # somebody renames directories while we look
# O_NONBLOCK: opening a pipe that nobody writes to must not wait.
LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WHY = {
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


def beneath(top: int, path: str, flags: int) -> int:
    """Open `path`, relative, below the directory `top`, as this machine does it best."""
    return _best()(top, path, flags)


def by_walking(top: int, path: str, flags: int) -> int:
    """The same with one call for each part of the path."""
    *way, last = _parts(path)
    here = top
    try:
        for part in way:
            below = step(here, part, FOLDER)
            here, before = below, here
            if before != top:
                os.close(before)
        return step(here, last, flags)
    finally:
        if here != top:
            os.close(here)


def by_openat2() -> Opening | None:
    """The same with one call of the kernel's; None where the kernel has none for us."""
    if not sys.platform.startswith("linux"):
        return None

    def opened(top: int, path: str, flags: int) -> int:
        name = os.fsencode("/".join(_parts(path)))
        # O_NOFOLLOW would hide that the last part is a link.
        how = (flags & ~os.O_NOFOLLOW, 0, _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH)
        packed = struct.pack("=QQQ", *how)
        for _ in range(_TRIES):
            try:
                return call(_NUMBER, top, name, packed, len(packed))
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EINTR):
                    raise
        raise OSError(errno.ELOOP, "renamed too often")

    return opened if _works(opened) else None


@cache
def _best() -> Opening:
    return by_openat2() or by_walking


def _works(opened: Opening) -> bool:
    # Old kernels have no such call, and some containers forbid it.
    top = os.open("/", FOLDER)
    try:
        os.close(opened(top, ".", FOLDER))
    except OSError:
        return False
    finally:
        os.close(top)
    return True


def _parts(path: str) -> list[str]:
    if len(os.fsencode(path)) > LONGEST:
        raise OSError(errno.ENAMETOOLONG, "path too long")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or path.startswith("/"):
        raise OSError(errno.EXDEV, "leaves its directory")
    return parts or ["."]


def step(here: int, part: str, flags: int) -> int:
    """Open one name in the directory `here`, and nothing that it links to."""
    try:
        return os.open(part, flags | os.O_NOFOLLOW, dir_fd=here)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(part, dir_fd=here, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, "a link") from None
        raise


class DirectoryDescriptors:
    """Below `roots` a way begins at the root, which is never made; elsewhere at "/"."""

    def __init__(self, roots: Sequence[str], opening: Opening) -> None:
        self.roots, self._opening = tuple(roots), opening

    def opened(self, real: Real, flags: int) -> int:
        """A descriptor of `real` itself; the caller closes it."""
        with self._top(real) as (top, way):
            return self._opening(top, way, flags)

    @contextmanager
    def of(self, real: Real) -> Generator[tuple[int, str]]:
        """The directory of `real`, and the last part of its name."""
        check_length(real)
        folder, last = os.path.split(real)
        with closing(self.opened(Real(folder), FOLDER)) as number:
            yield number, last or "."

    def make(self, folder: Real, made: list[Real]) -> None:
        """Make `folder` if it is missing. `made` gets what was made, the outermost first."""
        try:
            os.close(self.opened(folder, FOLDER))
        except FileNotFoundError:
            with self._top(folder) as (top, way):
                above = folder.removesuffix(way)
                for each in _made(top, above, way.split("/")):
                    made.append(each)

    def unmake(self, made: Iterable[Real]) -> None:
        """Take away directories that were made, the innermost last, where they are empty."""
        for folder in reversed(list(made)):
            with suppress(OSError), self.of(folder) as (above, last):
                os.rmdir(last, dir_fd=above)

    def root_of(self, real: str) -> str | None:
        """The root above `real`."""
        return next((root for root in self.roots if below(real, root)), None)

    @contextmanager
    def _top(self, real: Real) -> Generator[tuple[int, str]]:
        """Where the way to `real` begins, and the rest of it."""
        root = self.root_of(real) or "/"
        with (
            closing(os.open("/", FOLDER)) as slash,
            closing(self._opening(slash, root.strip("/") or ".", FOLDER)) as top,
        ):
            yield top, real.removeprefix(root).strip("/") or "."


def check_length(real: str) -> None:
    """Raise where no program could name it."""
    if len(os.fsencode(real)) > LONGEST:
        raise OSError(errno.ENAMETOOLONG, "path too long")


def _made(top: int, above: str, way: Sequence[str]) -> Generator[Real]:
    here = os.dup(top)
    try:
        for part in way:
            above = os.path.join(above, part)
            try:
                inner = step(here, part, FOLDER)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o777, dir_fd=here)
                    yield Real(above)
                inner = step(here, part, FOLDER)
            os.close(here)
            here = inner
    finally:
        os.close(here)


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


def refuse_irregular(about: os.stat_result, name: str) -> None:
    """Raise for all but regular files."""
    kind = kind_of(about.st_mode)
    if kind == "directory":
        raise ToolFailed(f"{name} is a directory: list_files shows what is in it.")
    if kind == "link":  # `real` had followed them all
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
    return _WHY.get(number) or os.strerror(number).lower()
