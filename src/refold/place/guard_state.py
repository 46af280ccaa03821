"""A state of the guarded paths: what lies there, so that a change is seen and undone.

A mount, a name or a time can be forged by a command that is not held by the sandbox; the content
cannot. So a state has the content of every guarded file, and of every file in a guarded
directory. A file is read again only if its device, inode, times, mode or size differ: the kernel
sets the time of a change, and no command can set it back. `quarantine` compares two states and
undoes what differs; `guard_watch` decides when.
"""

import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from refold.place.guarded_paths import GuardedPaths
from refold.safe_open import read_regular

_RACY_NANOSECONDS = 50_000_000  # a later change may leave the same time
_MAX_FILE_BYTES = 1024 * 1024  # a larger file is compared by its metadata
_MAX_STATE_BYTES = 16 * 1024 * 1024  # of content; what exceeds it cannot be restored
_MAX_ENTRIES = 1000  # of one guarded directory; one with more is compared as a whole
_SAMPLE_SUFFIX = ".sample"  # hooks that git creates and never runs


class Fingerprint(Struct, frozen=True, array_like=True):
    """What lies at one path. `looked` is when it was read, `changed` when it changed.

    `digest` is of a file's content, and `content` is that content where it is small enough to
    be restored. `target` is that of a link. `names` are the entries of a directory; None for one
    that has too many.
    """

    kind: Literal["file", "directory", "link", "other"]
    device: int
    inode: int
    changed: int
    looked: int
    mode: int
    links: int
    size: int
    owner: tuple[int, int]
    digest: bytes = b""
    content: bytes | None = None
    target: str = ""
    names: tuple[str, ...] | None = None

    def is_of(self, status: os.stat_result) -> bool:
        """Whether `status` is unchanged and the file cannot have changed since it was read."""
        same = (self.device, self.inode, self.changed, self.mode, self.links, self.size) == (
            status.st_dev, status.st_ino, status.st_ctime_ns, status.st_mode,
            status.st_nlink, status.st_size,
        )  # fmt: skip
        return same and self.looked > self.changed + _RACY_NANOSECONDS

    def equals(self, other: "Fingerprint") -> bool:
        """Whether a program would find the same, and no other command could write it.

        A second name of the file would let another command write it under that name.
        """
        if "directory" in (self.kind, other.kind):
            crowded = (self.names is None, other.names is None)
            return self.kind == other.kind and crowded[0] == crowded[1]
        if (self.kind, self.mode, self.target) != (other.kind, other.mode, other.target):
            return False
        if self.digest and other.digest:
            return self.digest == other.digest and other.links <= max(1, self.links)
        return (self.device, self.inode, self.changed, self.size) == (
            other.device, other.inode, other.changed, other.size,
        )  # fmt: skip


class GuardState(Struct, frozen=True):
    """Fingerprints of what is at the guarded paths, and at the `steps`.

    The other fields are as in `GuardedPaths`.
    """

    prints: dict[str, Fingerprint] = {}
    repositories: dict[str, str] = {}
    targets: dict[str, str] = {}
    beyond: frozenset[str] = frozenset()
    steps: dict[str, Fingerprint] = {}

    def fingerprint(self, path: str) -> Fingerprint | None:
        return self.prints.get(path) or self.steps.get(path)


class AllowedPaths(Struct, frozen=True):
    """The guarded paths that a command may change, with all that is in them.

    The user saw those in `named`. `of_git` are files in which git keeps its settings, for a git
    command that ran without asking: no program may run by what it changes there.
    """

    named: tuple[str, ...] = ()
    of_git: tuple[str, ...] = ()


def read_state(
    guards: GuardedPaths,
    earlier: GuardState,
    targets: Iterable[str] = (),
) -> GuardState:
    """Read what is at the guarded paths. Unchanged files are taken from `earlier`.

    `targets` that a setting named before are read too, even if none names them now.
    """
    prints, bytes_left = dict[str, Fingerprint](), _MAX_STATE_BYTES
    paths = guards.paths.union(targets)
    for path in sorted(paths, key=lambda path: (path.count("/"), path)):
        for inner, fingerprint in _fingerprints(path, earlier.prints, guards.repositories):
            if fingerprint.content is not None:
                bytes_left -= len(fingerprint.content)
                fingerprint = (
                    fingerprint if bytes_left >= 0 else replace(fingerprint, content=None)
                )
            prints[inner] = fingerprint
    steps = {
        path: fingerprint
        for path in sorted(guards.steps)
        if (fingerprint := _fingerprint(path, earlier.steps.get(path))) is not None
    }
    return GuardState(prints, guards.repositories, guards.targets, guards.beyond, steps)


def _fingerprints(
    path: str, earlier: Mapping[str, Fingerprint], repositories: Mapping[str, str]
) -> Iterator[tuple[str, Fingerprint]]:
    """The fingerprints of a guarded path and of all that is in it."""
    top = _fingerprint(path, earlier.get(path))
    if top is None:
        return
    if top.kind != "directory":
        yield path, top
        return
    without = _SAMPLE_SUFFIX if path in repositories else ""
    inside = dict[str, Fingerprint]()
    waiting = [(path, top)]
    while waiting:
        directory, fingerprint = waiting.pop()
        for name in fingerprint.names or ():
            if without and name.endswith(without):
                continue
            inner = f"{directory}/{name}"
            if (current := _fingerprint(inner, earlier.get(inner))) is None:
                continue
            inside[inner] = current
            if current.kind == "directory":
                waiting.append((inner, current))
        if fingerprint.names is None or len(inside) > _MAX_ENTRIES:
            yield path, replace(top, names=None)
            return
    yield path, top
    yield from sorted(inside.items())


def _fingerprint(path: str, earlier: Fingerprint | None) -> Fingerprint | None:
    looked = time.time_ns()
    try:
        about = os.lstat(path)
    except OSError:
        return None
    if earlier is not None and earlier.is_of(about):
        return earlier
    mode, kind = about.st_mode, _kind(about.st_mode)
    digest, content, target, names = b"", None, "", None
    with suppress(OSError):  # deleted or not readable: compare by metadata
        if kind == "link":
            target = os.readlink(path)
        elif kind == "directory":
            names = _list_names(path)
        elif kind == "file" and about.st_size <= _MAX_FILE_BYTES:
            data, size = read_regular(path, _MAX_FILE_BYTES, follow=False)
            if size <= _MAX_FILE_BYTES:
                digest, content = sha256(data).digest(), data
    return Fingerprint(
        kind, about.st_dev, about.st_ino, about.st_ctime_ns, looked, mode,
        about.st_nlink, about.st_size, (about.st_uid, about.st_gid),
        digest, content, target, names,
    )  # fmt: skip


def _kind(mode: int) -> Literal["file", "directory", "link", "other"]:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"


def _list_names(directory: str) -> tuple[str, ...] | None:
    with os.scandir(directory) as entries:
        names = list[str]()
        for entry in entries:
            names.append(entry.name)
            if len(names) > _MAX_ENTRIES:
                return None
    return tuple(sorted(names))
