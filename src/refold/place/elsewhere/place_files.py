"""Reads and writes files of a place. Implements `port.Files` and `port.FileTree`.

The place resolves paths, reads and writes. This module decides which paths a call may use and
what is masked, as for files of this machine. The answer about a small file includes its
content, which a call usually needs next. So reading takes one round trip, and editing takes
two.
"""

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Self

from msgspec import Struct

from refold.errors import ToolFailed
from refold.place.bare_repository import NAMES_OF_GIT
from refold.place.elsewhere.greeting import check_path
from refold.place.elsewhere.pipe import Pipe, PlaceAnswer
from refold.place.judged_files import JudgedFiles
from refold.place.port import (
    DirectoryEntry,
    FileWrite,
    Ignores,
    Kind,
    Real,
    SearchScope,
    WalkedFiles,
    Why,
)
from refold.values.path_names import below
from refold.values.secret_mask import FindSecrets, without_secrets

# Each step of a call resolves its path again, so answers are reused for this long. That is
# safe, because nothing is opened by the unresolved path: the resolved one is opened without
# following links.
_RESOLVED_SECONDS = 1.0
_CHECK_SECONDS = 0.25  # between two checks whether a search was stopped
_MAX_INFOS = 200
_MAX_PATHS = 200_000


class _PathAnswer(Struct, frozen=True):
    real: str
    path_kind: Kind
    size: int  # the size of the content in the answer; -1: none
    in_repository: bool
    top: str
    excludes: str
    named_by_git: bool


class _GitPart(Struct, frozen=True):
    path: str


class _PathInfo(Struct, frozen=True):
    """What a place reported about a path, and when (in monotonic seconds).

    `content` is None if the file is too large or may not be read.
    """

    real: Real
    kind: Kind
    content: bytes | None
    scope: SearchScope
    named_by_git: bool
    reported_at: float


class _Items(Struct, frozen=True):
    items: list[tuple[str, Kind, int, int, bool]]
    ignored: bool


class _Walked(Struct, frozen=True):
    paths: list[str]
    modified: list[int]
    unread: dict[str, str]


class _Paths(Struct, frozen=True):
    paths: list[str]


class _PathInfos:
    """The newest reports about paths, which all calls share. They expire after `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._lock = seconds, threading.Lock()
        self._infos = dict[str, _PathInfo]()
        self._reals = dict[Real, _PathInfo]()

    def add(self, path: str, info: _PathInfo) -> None:
        """Store a report. If there are too many, drop all earlier ones first."""
        with self._lock:
            if len(self._infos) >= _MAX_INFOS:
                self._infos.clear()
                self._reals.clear()
            self._infos[path] = self._reals[info.real] = info

    def of_path(self, path: str) -> _PathInfo | None:
        return self._fresh(self._infos.get(path))

    def of_real(self, real: Real) -> _PathInfo | None:
        return self._fresh(self._reals.get(real))

    def clear(self) -> None:
        """Drop all reports, because files may have changed."""
        with self._lock:
            self._infos.clear()
            self._reals.clear()

    def _fresh(self, info: _PathInfo | None) -> _PathInfo | None:
        fresh = info is not None and time.monotonic() - info.reported_at < self._seconds
        return info if fresh else None


class PlaceFiles(JudgedFiles):
    """The files of a place below `root`, the workspace's real path there.

    Reports about paths are reused for `resolved_seconds`; with 0, each one is requested.
    """

    def __init__(
        self,
        pipe: Pipe,
        root: str,
        why_unreadable: Why | None = None,
        why_hidden: Why | None = None,
        find_secrets: FindSecrets = without_secrets,
        resolved_seconds: float = _RESOLVED_SECONDS,
    ) -> None:
        super().__init__((root,), why_unreadable, why_hidden, find_secrets)
        self._pipe, self._infos = pipe, _PathInfos(resolved_seconds)
        # The reports of one call; None if these files are not for one call.
        self._own: dict[Real, _PathInfo] | None = None
        self._is_greeting_current = True
        self._tree = PlaceTree(self)

    @property
    def tree(self) -> "PlaceTree":
        return self._tree

    @property
    def pipe(self) -> Pipe:
        return self._pipe

    def only(self, reals: Collection[str]) -> Self:
        """Return the files for one call, with the present reports about `reals`."""
        files = super().only(reals)
        infos = ((Real(real), self._infos.of_real(Real(real))) for real in reals)
        files._own = {real: info for real, info in infos if info is not None}
        return files

    def kind(self, real: Real) -> Kind:
        # If the directory does not exist, each operation in it fails with its own error.
        return "directory" if real == self.roots[0] else self.path_info(real).kind

    def items(self, real: Real) -> tuple[DirectoryEntry, ...]:
        """Return the entries of a directory by name, without unreadable files."""
        listed = self._tree.list_directory(real)
        return tuple(
            DirectoryEntry(name, kind, size, modified)
            for name, kind, size, modified, _ in sorted(listed.items)
            if not self.why_unreadable(Real(os.path.join(real, name)))
        )

    def path_info(self, real: Real) -> _PathInfo:
        """Return a report about a real path: one that this call has already, or else a new one.

        Raises `ToolFailed` if the path now leads elsewhere, because a link has changed.
        """
        info = None if self._own is None else self._own.get(real)
        if info is not None:
            return info
        info = self._ask_info(real)
        if info.real != real:
            raise ToolFailed(
                f"{self.display_name(real)} leads to {self.display_name(info.real)}: a link "
                "has changed. Nothing was done."
            )
        return info

    def git_part(self, paths: Sequence[str]) -> str:
        """Return the first of `paths` that decides what git runs; "" if none does. See `Facts`."""
        for path in paths:
            info = self._infos.of_real(Real(path)) or self._infos.of_path(path)
            if info is None:
                info = self._ask_info(path)
            if info.named_by_git:
                return path
        names = (name for path in paths for name in path.lower().split("/"))
        # without such a name the path cannot be in a repository
        if NAMES_OF_GIT.isdisjoint(names):
            return ""
        return self._pipe.ask("git_part", paths=tuple(paths)).read(_GitPart).path

    def forget(self) -> None:
        """Drop all reports about paths, because files may have changed."""
        self._is_greeting_current = False
        self._forget_infos()

    def scope(self, real: Real) -> SearchScope:
        """Return the settings that decide what a search in `real` ignores.

        The settings for the root are part of the place's description. After `forget`, they are
        requested, too.
        """
        greeting = self._pipe.greeting
        if self._is_greeting_current and greeting.scope and real == self.roots[0]:
            return SearchScope(*greeting.scope)
        return self.path_info(real).scope

    def _forget_infos(self) -> None:
        """Drop all reports about paths, also those of this call."""
        self._infos.clear()
        if self._own is not None:
            self._own.clear()

    def check_writable(self, real: Real) -> None:
        """Do nothing: a write to a protected file fails anyway, and a check costs a round trip."""

    def _resolve(self, path: str) -> Real:
        """Return the real path. It is requested if no report about the path is stored."""
        if path in (".", self.roots[0], f"{self.roots[0]}/."):
            return Real(self.roots[0])  # the greeting contains this path
        info = self._infos.of_path(path)
        return info.real if info is not None else self._ask_info(path).real

    def _ask_info(self, path: str) -> _PathInfo:
        """Request a report about a path, and remember it."""
        answer = self._pipe.ask("look", path=path, content=True)
        report = answer.read(_PathAnswer)
        content = answer.raw if report.size == len(answer.raw) else None
        real = check_path(report.real)
        if content is not None and self.why_unreadable(real):
            content = None  # a rule forbids reading it
        scope = SearchScope(report.in_repository, report.top, report.excludes)
        info = _PathInfo(
            real, report.path_kind, content, scope, report.named_by_git, time.monotonic()
        )
        self._infos.add(path, info)
        return info

    def _read(self, real: Real, at_most: int) -> bytes:
        """Return the content of a file: from this call's report, or else requested."""
        info = None if self._own is None else self._own.get(real)
        if info is not None and info.content is not None and len(info.content) <= at_most:
            return info.content
        raw = self._pipe.ask("read", real=real, at_most=at_most).raw
        if len(raw) > at_most:
            raise ToolFailed("The place sent more bytes than were requested.")
        return raw

    def _put_all(self, puts: Sequence[FileWrite]) -> None:
        """Request all changes at once. A deletion has the size None, and no content."""
        records = [
            {
                "real": file_write.real,
                "expect": file_write.expect,
                "like": file_write.like,
                "executable": file_write.executable,
                "size": None if file_write.content is None else len(file_write.content),
            }
            for file_write in puts
        ]
        self._forget_infos()
        try:
            self._pipe.ask(
                "put_all",
                b"".join(file_write.content or b"" for file_write in puts),
                puts=records,
            )
        finally:
            self._forget_infos()


class PlaceTree:
    """Lists what is below a directory of the place."""

    def __init__(self, files: PlaceFiles) -> None:
        self._files = files
        self._listed: tuple[Real, _Items] | None = None
        self._times: tuple[Real, Mapping[str, int]] | None = None

    def rules(self, real: Real, parent_rules: Ignores | None = None) -> Ignores:
        return _ListedIgnores(self._ask_items(real))

    def walk(self, real: Real, check: Callable[[], None]) -> WalkedFiles:
        """Return the files that git does not ignore. If `check` raises, stop the request."""
        call = self._files.pipe.begin("walk", real=real)
        _wait(call.done, check, call.stop)
        walked = call.result().read(_Walked)
        if len(walked.paths) > _MAX_PATHS or len(walked.modified) != len(walked.paths):
            raise ToolFailed("The place sent a list that is too long.")
        paths = [path for path in walked.paths if _is_below(path)]
        self._times = real, dict(zip(walked.paths, walked.modified, strict=True))
        return WalkedFiles(paths, walked.unread)

    def times(self, real: Real, paths: Sequence[str]) -> Sequence[float]:
        """Return times in seconds, as the last `walk` of `real` reported them; 0 if unknown."""
        times: Mapping[str, int] = {}
        if self._times is not None:
            walked_directory, walked_times = self._times
            if walked_directory == real:
                times = walked_times
        return [times.get(path, 0) / 1e9 for path in paths]

    def with_ignored(self, real: Real) -> Iterator[str]:
        """Yield the paths below `real`, including ignored ones. Raises `ToolFailed`."""
        answer = self._files.pipe.ask("ignored", real=real, at_most=_MAX_PATHS)
        paths = answer.read(_Paths).paths[:_MAX_PATHS]
        return (path for path in paths if below(check_path(path), real))

    def scope(self, real: Real) -> SearchScope:
        return self._files.scope(real)

    def list_directory(self, real: Real) -> _Items:
        """Return the names in a directory.

        A listing that `rules` has requested just before is used once; otherwise a new one is
        requested.
        """
        listed, self._listed = self._listed, None
        if listed is not None:
            listed_directory, items = listed
            if listed_directory == real:
                return items
        return self._ask_items(real)

    def _ask_items(self, real: Real) -> _Items:
        """Request the entries of a directory, and remember the answer.

        Raises `ToolFailed` if an entry has an impossible name, for example one with a slash.
        """
        items = self._files.pipe.ask("items", real=real).read(_Items)
        if not all(_is_name(name) for name, *_ in items.items):
            raise ToolFailed("The place sent a name that cannot be one.")
        self._listed = real, items
        return items


class _ListedIgnores:
    """The ignored names in a directory, taken from the place's listing of it."""

    def __init__(self, items: _Items) -> None:
        self.ignored = items.ignored
        self._names = frozenset(
            name for name, _, _, _, is_ignored in items.items if is_ignored
        )

    def ignores(self, name: str, *, directory: bool) -> bool:
        return name in self._names


def paths_below(pipe: Pipe, folder: str, at_most: int) -> Sequence[str]:
    """Return up to `at_most` paths below a folder of the place, ignored ones included.

    Rules that forbid reading some files are applied to this list.
    """
    answer: PlaceAnswer = pipe.ask("paths", folder=folder, at_most=at_most)
    return answer.read(_Paths).paths[:at_most]


def _is_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _is_below(path: str) -> bool:
    return not os.path.isabs(path) and ".." not in path.split("/") and "\0" not in path


def _wait(
    end: threading.Event, check: Callable[[], None], stop: Callable[[], None]
) -> None:
    """Wait until `end` is set. If `check` raises, call `stop` and raise its exception."""
    while not end.wait(_CHECK_SECONDS):
        try:
            check()
        except BaseException:
            stop()
            raise
