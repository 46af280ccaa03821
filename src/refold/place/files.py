"""Files on this machine's disk: the one module through which tools touch them.

It keeps the promises of `port.Files`. Text, encodings and line ends are the
tools' business; ignore rules are `walk`'s. Which paths may be touched at all
is judged before, by the rules, with `outside`.
"""

import errno
import os
import secrets
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from refold.errors import ToolFailed
from refold.place.names import escaped, unescaped
from refold.place.port import AT_MOST, Item, Kind, Real

# O_NONBLOCK: opening a pipe that nobody writes to must not wait.
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_TRIES = 10
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class DiskFiles:
    """Files below `root`, which relative paths start from, and `more_roots`."""

    def __init__(self, root: Path | str, more_roots: Sequence[Path | str] = ()) -> None:
        self._roots = tuple(os.path.realpath(r) for r in (root, *more_roots))

    def real(self, path: str) -> Real:
        if not _can_be(path):
            raise ToolFailed(
                f'"{escaped(path)}" cannot be a path: give the name of a file.'
            )
        full = self._full(path)
        if "\\" in path and not os.path.lexists(full):
            # The model writes a strange name as it was shown: escaped.
            meant = self._full(unescaped(path))
            full = meant if _can_be(meant) and os.path.lexists(meant) else full
        return _followed(full)

    def outside(self, path: str) -> Real | None:
        real = self.real(path)
        return None if any(_below(real, root) for root in self._roots) else real

    def called(self, real: Real) -> str:
        inside = _below(real, self._roots[0])
        return escaped(os.path.relpath(real, self._roots[0]) if inside else real)

    def kind(self, real: Real) -> Kind:
        with _told(f"look at {self.called(real)}"):
            try:
                return _kind(os.lstat(real).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                return "nothing"

    def items(self, real: Real) -> tuple[Item, ...]:
        with _told(f"list {self.called(real)}"):
            number = os.open(real, _LOOK | os.O_DIRECTORY)
            try:
                with os.scandir(number) as found:
                    return tuple(sorted(_items(found), key=lambda item: item.name))
            finally:
                os.close(number)

    def read(self, real: Real, at_most: int = AT_MOST) -> bytes:
        name = self.called(real)
        with _told(f"read {name}"):
            _refuse_odd(os.lstat(real), name)
            number = os.open(real, _LOOK)
            with open(number, "rb", buffering=0) as file:
                # Looked at again: another file may have come under this name.
                _refuse_odd(os.fstat(number), name)
                content = _all_of(file.fileno(), at_most + 1)
        if len(content) > at_most:
            raise ToolFailed(
                f"{name} is larger than {at_most // 2**20} MiB: too big to be read "
                "whole. Look at parts of it with grep, or with bash and sed."
            )
        return content

    def write(self, real: Real, content: bytes, *, expect: str) -> None:
        name = self.called(real)
        folder = os.path.dirname(real)
        with _told(f"write {name}"):
            os.makedirs(folder, exist_ok=True)
            before = _before(real, name)
            draft = os.path.join(folder, f".refold-{secrets.token_hex(8)}")
            try:
                _draft(draft, content, before)
                self._check(real, name, expect)
                _put(draft, real, new=before is None)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(draft)
            _sync(folder)

    def _full(self, path: str) -> str:
        return os.path.join(self._roots[0], os.path.expanduser(path))

    def _check(self, real: Real, name: str, expect: str) -> None:
        try:
            found = sha256(self.read(real)).hexdigest()
        except ToolFailed:
            if os.path.lexists(real):
                raise
            found = ""
        if found != expect:
            what = "changed" if found and expect else "came up" if found else "went away"
            raise ToolFailed(f"{name} {what} in the meantime. Nothing was written.")


def _can_be(path: str) -> bool:
    try:
        return bool(path) and b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:  # half a character, which no file name can hold
        return False


def _followed(full: str) -> Real:
    for _ in range(_TRIES):
        # It fails where a link becomes a file between its two looks at it.
        with suppress(OSError):
            return Real(os.path.realpath(full))
    raise ToolFailed(f"{escaped(full)} changes faster than it can be looked at.")


def _below(real: str, root: str) -> bool:
    return real == root or real.startswith(root.rstrip("/") + "/")


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"


def _items(found: Iterator[os.DirEntry[str]]) -> Iterator[Item]:
    for entry in found:
        with suppress(FileNotFoundError):  # gone since it was listed
            about = entry.stat(follow_symlinks=False)
            yield Item(entry.name, _kind(about.st_mode), about.st_size, about.st_mtime_ns)


def _refuse_odd(about: os.stat_result, name: str) -> None:
    kind = _kind(about.st_mode)
    if kind == "directory":
        raise ToolFailed(f"{name} is a directory: list_files shows what is in it.")
    if kind == "link":  # `real` had followed them all
        raise OSError(errno.ELOOP, "links")
    if kind != "file":
        raise ToolFailed(
            f"{name} is a device, pipe or socket, not a file to read or write."
        )


def _all_of(number: int, at_most: int) -> bytes:
    size = os.fstat(number).st_size
    pieces = list[bytes]()
    left = at_most
    while left > 0 and (piece := os.read(number, min(left, max(size + 1, 65536)))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _before(real: str, name: str) -> os.stat_result | None:
    try:
        about = os.lstat(real)
    except FileNotFoundError:
        return None
    _refuse_odd(about, name)
    if about.st_nlink > 1:
        raise ToolFailed(
            f"{name} has {about.st_nlink} names (hard links); writing would part them. "
            "Copy it to a file of its own first."
        )
    if not os.access(real, os.W_OK):
        raise ToolFailed(f"{name} is read-only.")
    return about


def _draft(draft: str, content: bytes, before: os.stat_result | None) -> None:
    number = os.open(draft, _MAKE, 0o666)
    with open(number, "wb", buffering=0) as file:
        view = memoryview(content)
        while view:
            view = view[file.write(view) :]
        if before is not None:
            with suppress(PermissionError):  # the owner of another's file stays who he is
                if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(number, before.st_uid, before.st_gid)
            os.fchmod(number, stat.S_IMODE(before.st_mode))
        os.fsync(number)


def _put(draft: str, real: str, *, new: bool) -> None:
    if new:
        # A link never replaces: what somebody else made here just now stays.
        try:
            os.link(draft, real, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:  # some file systems have no links
            os.rename(draft, real)
    else:
        os.rename(draft, real)


def _sync(folder: str) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    except OSError as error:  # not every file system syncs directories
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(number)


@contextmanager
def _told(doing: str) -> Generator[None]:
    """Turn the system's errors into one sentence for the model."""
    try:
        yield
    except OSError as error:
        why = _WHY.get(error.errno or 0) or os.strerror(error.errno or errno.EIO).lower()
        raise ToolFailed(f"Cannot {doing}: {why}.") from error


_WHY = {
    errno.ENOENT: "there is no such file or directory",
    errno.EEXIST: "a part of the path is a file, or somebody made it in the meantime",
    errno.ENOTDIR: "a part of the path is not a directory",
    errno.EACCES: "the system does not permit it",
    errno.EPERM: "the system does not permit it",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "the disk is full",
    errno.ELOOP: "its symbolic links go round in a circle, or change",
    errno.ENAMETOOLONG: "the name is too long",
}
