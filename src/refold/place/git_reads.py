"""Did git read the files of a folder, or what a link led it to meanwhile?

git opens files by path. Who exchanges a directory and a link while it does so makes it
read what lies elsewhere. To exchange a name changes the directory that holds it, and the
kernel notes when: so the directories on the way to each file are looked at before and
after, and the files whose way may have changed are read again here, by descriptors that
follow no link. What git read instead is replaced.
"""

import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from refold.place.openat import FOLDER, beneath
from refold.place.snapshot_repository import Shadow

_MOMENT = 50_000_000  # ns: the kernel's clock of directories may be so coarse,
_SECOND = 1_000_000_000  # or, on some disks, have whole seconds only
_AT_ONCE = 200  # files that git is handed in one call
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_NOWHERE = "0" * 40


class Ways:
    """The ways to `paths`, relative to `root`, which lies in `base` or is it. As of now."""

    def __init__(self, base: str, root: str, paths: Sequence[str]) -> None:
        self._base, self._root, self._paths = base, root, paths
        self._began = time.time_ns()
        self._before = {each: _changed(each) for each in self._directories()}

    def doubtful(self) -> list[str]:
        """Those whose way changed since, or may have a moment before."""
        moved = {
            each
            for each, at in self._before.items()
            if _fresh(at, self._began) or _changed(each) != at
        }
        return [p for p in self._paths if any(d in moved for d in self._above(p))]

    def _directories(self) -> set[str]:
        found = set[str]()
        for path in self._paths:
            for each in self._above(path):
                if each in found:
                    break
                found.add(each)
        return found

    def _above(self, path: str) -> Iterator[str]:
        """From the directory that holds it up to the base."""
        here = os.path.dirname(os.path.join(self._root, path))
        while len(here) > len(self._base):
            yield here
            here = os.path.dirname(here)
        yield self._base


def lines_of(
    shadow: Shadow, base: str, root: str, prefix: str, paths: Sequence[str]
) -> Iterable[bytes]:
    """What the index has to say of these: as they are read without following any link."""
    way = os.path.relpath(root, base)
    top = os.open(base, FOLDER)
    try:
        for start in range(0, len(paths), _AT_ONCE):
            some = paths[start : start + _AT_ONCE]
            for path, (mode, name) in _kept(shadow, top, way, some).items():
                whole = os.fsencode(prefix + path)
                yield f"{mode} {name}\t".encode() + whole + b"\0"
    finally:
        os.close(top)


def _kept(
    shadow: Shadow, top: int, way: str, paths: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """The mode and the name of each file's content, which git has by then."""
    found = dict[str, tuple[str, str]]()
    opened = dict[str, tuple[str, int]]()
    try:
        for path in paths:
            found[path] = ("0", _NOWHERE)
            with suppress(OSError):  # gone, or a link is in the way: then it is not there
                here = beneath(top, os.path.join(way, os.path.dirname(path)), FOLDER)
                try:
                    last = os.path.basename(path)
                    mode = os.stat(last, dir_fd=here, follow_symlinks=False).st_mode
                    if stat.S_ISLNK(mode):
                        target = os.readlink(os.fsencode(last), dir_fd=here)
                        found[path] = ("120000", shadow.hashed(target))
                    elif stat.S_ISREG(mode):
                        number = os.open(last, _READ, dir_fd=here)
                        mode = os.fstat(number).st_mode
                        opened[path] = ("100755" if mode & 0o100 else "100644", number)
                finally:
                    os.close(here)
        numbers = [number for _, number in opened.values()]
        names = shadow.hashed_files(numbers) if numbers else ()
        for (path, (how, _)), name in zip(opened.items(), names, strict=True):
            found[path] = (how, name)
    finally:
        for _, number in opened.values():
            os.close(number)
    return found


def _changed(directory: str) -> tuple[int, int, int]:
    try:
        about = os.lstat(directory)
    except OSError:
        return (0, 0, 0)
    real = stat.S_ISDIR(about.st_mode)
    return (about.st_dev, about.st_ino, about.st_ctime_ns if real else 0)


def _fresh(at: tuple[int, int, int], began: int) -> bool:
    """Could it have changed again within the same tick of its clock?"""
    when = at[2]
    coarse = when % _SECOND == 0
    return began - when < (2 * _SECOND if coarse else _MOMENT)
