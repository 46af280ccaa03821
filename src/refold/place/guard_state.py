"""Records the state of the guarded paths, so that changes can be detected and undone.

A command that escapes the sandbox can forge a mount, a name or a time, but not the content. So
a state has a hash of each guarded file and of each file in a guarded directory, and also the
content, up to a limit. A file is read again only if its device, inode, change time, mode or
size differ: the kernel sets the change time, and no command can set it back.

`guard_changes` compares two states and undoes the differences, and `guard_watch` decides when.
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
# the content stored in one state; further content cannot be restored
_MAX_STATE_BYTES = 16 * 1024 * 1024
_MAX_ENTRIES = 1000  # a directory with more entries is compared as a whole
_SAMPLE_SUFFIX = ".sample"  # hooks that git creates and never runs


class Fingerprint(Struct, frozen=True, array_like=True):
    """The state of one path.

    `changed` is the change time of the path, and `read_ns` is when the path was read. `digest`
    is the hash of a file's content, and `content` the content itself, if it is small enough to
    be stored. `target` is where a link leads. `names` are the entries of a directory; None if
    there are too many, or if the directory cannot be read.
    """

    kind: Literal["file", "directory", "link", "other"]
    device: int
    inode: int
    changed: int
    read_ns: int
    mode: int
    links: int
    size: int
    owner: tuple[int, int]
    digest: bytes = b""
    content: bytes | None = None
    target: str = ""
    names: tuple[str, ...] | None = None

    def is_of(self, status: os.stat_result) -> bool:
        """Whether the path is certainly unchanged. `status` is its status on the disk now."""
        is_same = (self.device, self.inode, self.changed, self.mode, self.links, self.size) == (
            status.st_dev, status.st_ino, status.st_ctime_ns, status.st_mode,
            status.st_nlink, status.st_size,
        )  # fmt: skip
        # Soon after a change, a second one may leave the same time.
        return is_same and self.read_ns > self.changed + _RACY_NANOSECONDS

    def equals(self, other: "Fingerprint") -> bool:
        """Whether the path looks the same to programs in `other`, the later state.

        A file with an additional hard link is not equal, because commands could write to the
        file by that name.
        """
        if "directory" in (self.kind, other.kind):
            # The files in the directory have fingerprints of their own, unless there are
            # too many.
            has_same_form = (self.names is None) == (other.names is None)
            return self.kind == other.kind and has_same_form
        if (self.kind, self.mode, self.target) != (other.kind, other.mode, other.target):
            return False
        if self.digest and other.digest:
            return self.digest == other.digest and other.links <= max(1, self.links)
        return (self.device, self.inode, self.changed, self.size) == (
            other.device, other.inode, other.changed, other.size,
        )  # fmt: skip


class GuardState(Struct, frozen=True):
    """The state of all guarded paths (`prints`) and of the files of `git_steps` (`steps`).

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
    """The guarded paths that a command may change, with everything in them.

    The user approved the paths in `named`. `of_git` are git's settings files, for a git command
    that ran without asking: a change of these must not make git run a program.
    """

    named: tuple[str, ...] = ()
    of_git: tuple[str, ...] = ()


def read_state(
    guards: GuardedPaths,
    earlier: GuardState,
    targets: Iterable[str] = (),
) -> GuardState:
    """Return the state of the guarded paths. Unchanged files are not read again.

    Their state is taken from `earlier`. `targets` are more paths to read, which a git setting
    named before.
    """
    prints = dict[str, Fingerprint]()
    bytes_left = _MAX_STATE_BYTES
    paths = guards.paths.union(targets)
    # Those near the root come first, because the contents of the last may not be stored.
    for path in sorted(paths, key=lambda path: (path.count("/"), path)):
        for inner, fingerprint in _fingerprints(path, earlier.prints, guards.repositories):
            if fingerprint.content is not None:
                bytes_left -= len(fingerprint.content)
                if bytes_left < 0:
                    fingerprint = replace(fingerprint, content=None)
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
    """Yield a guarded path and all paths below it, each with its state.

    If there are too many paths below it, only the path itself is yielded.
    """
    top = _fingerprint(path, earlier.get(path))
    if top is None:
        return
    if top.kind != "directory":
        yield path, top
        return
    ignored_suffix = _SAMPLE_SUFFIX if path in repositories else ""
    inside = dict[str, Fingerprint]()
    directories_to_read = [(path, top)]
    while directories_to_read:
        directory, fingerprint = directories_to_read.pop()
        for name in fingerprint.names or ():
            if ignored_suffix and name.endswith(ignored_suffix):
                continue
            inner = f"{directory}/{name}"
            if (current := _fingerprint(inner, earlier.get(inner))) is None:
                continue
            inside[inner] = current
            if current.kind == "directory":
                directories_to_read.append((inner, current))
        if fingerprint.names is None or len(inside) > _MAX_ENTRIES:
            yield path, replace(top, names=None)
            return
    yield path, top
    yield from sorted(inside.items())


def _fingerprint(path: str, earlier: Fingerprint | None) -> Fingerprint | None:
    """Return the state of a path; None if it does not exist.

    `earlier`, if given, is returned if the path is certainly unchanged.
    """
    read_ns = time.time_ns()
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if earlier is not None and earlier.is_of(status):
        return earlier
    kind = _kind(status.st_mode)
    digest, content, target, names = b"", None, "", None
    with suppress(OSError):  # deleted or not readable: compare by metadata
        if kind == "link":
            target = os.readlink(path)
        elif kind == "directory":
            names = _list_names(path)
        elif kind == "file" and status.st_size <= _MAX_FILE_BYTES:
            data, size = read_regular(path, _MAX_FILE_BYTES, follow=False)
            if size <= _MAX_FILE_BYTES:
                digest, content = sha256(data).digest(), data
    return Fingerprint(
        kind=kind,
        device=status.st_dev,
        inode=status.st_ino,
        changed=status.st_ctime_ns,
        read_ns=read_ns,
        mode=status.st_mode,
        links=status.st_nlink,
        size=status.st_size,
        owner=(status.st_uid, status.st_gid),
        digest=digest,
        content=content,
        target=target,
        names=names,
    )


def _kind(mode: int) -> Literal["file", "directory", "link", "other"]:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"


def _list_names(directory: str) -> tuple[str, ...] | None:
    """Return the sorted names in a directory; None if there are too many."""
    with os.scandir(directory) as entries:
        names = list[str]()
        for entry in entries:
            names.append(entry.name)
            if len(names) > _MAX_ENTRIES:
                return None
    return tuple(sorted(names))
