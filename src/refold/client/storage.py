"""Cleans up what refold stores: old sessions, old caches, and files that belong to no session.

Containers and images that were made for sessions are included (`place.containers`).
`config.storage` lists the kinds of files. A plan is made, shown and then carried out.
Whatever is used again by then is skipped, and so is a session that a process has open, with
its checkpoints. Sessions and repositories are renamed before they are deleted, so that an
interrupted cleanup leaves none half deleted.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from refold.config.paths import Paths
from refold.config.storage import StoredFile, TreeSize, find_stored_files, tree_size
from refold.errors import BadInput, Held
from refold.journal.session_index import Progress, SessionIndex
from refold.place.containers.container_leftovers import (
    ContainerLeftover,
    ContainerLeftovers,
)
from refold.place.snapshot_deletion import delete_snapshots, find_unused_snapshots


class Leftover(Struct, frozen=True):
    """A directory that belongs to no session.

    `session` is its name below `sessions`, or "" for other directories.
    """

    path: Path
    size: TreeSize
    session: str = ""


class OldSession(Struct, frozen=True):
    id: str
    size: TreeSize


class CleanPlan(Struct, frozen=True):
    """What a cleanup deletes.

    `open_sessions` are old, too, but are left out, because a process has them open.
    """

    sessions: tuple[OldSession, ...]
    leftovers: tuple[Leftover, ...]
    cache_files: tuple[StoredFile, ...]
    containers: tuple[ContainerLeftover, ...] = ()
    open_sessions: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        trees = sum(part.size.bytes for part in (*self.sessions, *self.leftovers))
        containers = sum(leftover.bytes for leftover in self.containers)
        return trees + containers + sum(file.bytes for file in self.cache_files)

    @property
    def is_empty(self) -> bool:
        return not (self.sessions or self.leftovers or self.cache_files or self.containers)


class Storage:
    """The files that refold stores for a user.

    `models` is the directory of downloaded models; `tell` is called with the progress.
    """

    def __init__(
        self, index: SessionIndex, paths: Paths, models: Path, tell: Progress
    ) -> None:
        self._index = index
        self._paths = paths
        self._models = models
        self._tell = tell
        self.containers = ContainerLeftovers(paths.data, os.environ)

    def files(self) -> Iterator[StoredFile]:
        return find_stored_files(self._paths, self._models)

    def leftovers(
        self, deleted_sessions: frozenset[str] = frozenset()
    ) -> Iterator[Leftover]:
        """Yield the directories that belong to no session once `deleted_sessions` are
        deleted.
        """
        for path, name in self._leftover_paths(deleted_sessions):
            yield Leftover(path, tree_size(path), name)

    def _leftover_paths(
        self, deleted_sessions: frozenset[str]
    ) -> Iterator[tuple[Path, str]]:
        """Yield each directory that belongs to no session, with its name in the directory
        of sessions.

        The name is "" for a directory with the snapshots of a workspace. `deleted_sessions`
        count as deleted.
        """
        for name in self._index.leftovers():
            yield self._index.path(name), name
        indexed = set[str]()
        directories = set[str]()
        for card in self._index.catalogue(self._tell).cards(children=True):
            session, _, _ = card.id.partition("/")  # the rest names a subagent
            if session not in deleted_sessions:
                indexed.add(card.id)
                directories.add(card.about.directory)
        sessions = {session.id for session in self._index.sessions()} - deleted_sessions
        # A session whose journal is unreadable or not indexed may have snapshots anywhere.
        if not sessions <= indexed or "" in directories:
            return
        for path in find_unused_snapshots(self._paths.checkpoints, directories, sessions):
            yield path, ""

    def plan(self, before: float) -> CleanPlan:
        """Return what can be deleted because it was not used since the time `before`.

        Directories of no session and stray containers are included.
        """
        stored = self._index.sessions()
        old_ids = [session.id for session in stored if session.changed < before]
        open_ids = {id_ for id_ in old_ids if self._index.writer(id_)}
        sessions = list[OldSession]()
        for id_ in old_ids:
            if id_ in open_ids:
                continue
            size = tree_size(self._index.path(id_))
            # A subagent may have been written later than its parent.
            if size.changed < before:
                sessions.append(OldSession(id_, size))
        leftovers = self.leftovers(frozenset(session.id for session in sessions))
        cache_files = (file for file in self.files() if file.kind.is_cache)
        containers = (
            container
            for container in self.containers.find()
            if container.kind == "stray" or container.used < before
        )
        return CleanPlan(
            sessions=tuple(sessions),
            leftovers=tuple(item for item in leftovers if item.size.changed < before),
            cache_files=tuple(file for file in cache_files if file.changed < before),
            containers=tuple(containers),
            open_sessions=tuple(sorted(open_ids)),
        )

    def carry_out(self, plan: CleanPlan, before: float) -> CleanPlan:
        """Delete what is in the plan, unless it was written since `before` or is used now.

        Return what was deleted.
        """
        sessions = [old for old in plan.sessions if self._delete_session(old.id, before)]
        # The directories of the sessions that were just deleted are unused from now on.
        self._index.catalogue(self._tell).freshen()
        unused = {path for path, _ in self._leftover_paths(frozenset())}
        leftovers = list[Leftover]()
        for leftover in plan.leftovers:
            if leftover.path in unused and self._delete_leftover(leftover, before):
                leftovers.append(leftover)
        files = [file for file in plan.cache_files if _delete_file(file, before)]
        containers = [item for item in plan.containers if self.containers.remove(item)]
        return CleanPlan(
            sessions=tuple(sessions),
            leftovers=tuple(leftovers),
            cache_files=tuple(files),
            containers=tuple(containers),
        )

    def _delete_session(self, session: str, before: float) -> bool:
        """Delete a session. Return False if it was changed since `before`, or cannot be
        deleted.
        """
        if tree_size(self._index.path(session)).changed >= before:
            return False
        return self._delete(session)

    def _delete_leftover(self, leftover: Leftover, before: float) -> bool:
        """Delete a directory that belongs to no session.

        Return False if it was changed since `before`, or cannot be deleted.
        """
        if tree_size(leftover.path).changed >= before:
            return False
        if leftover.session:
            return self._delete(leftover.session)
        return delete_snapshots(self._paths.checkpoints, leftover.path)

    def _delete(self, session: str) -> bool:
        """Delete a session. Return False if a process has just opened it, or if it is a
        link.
        """
        with suppress(Held, BadInput):  # it has just been opened, or is a link
            self._index.delete(session)
            return True
        return False


def _delete_file(file: StoredFile, before: float) -> bool:
    """Delete a file. Return False if it was written since `before`, or cannot be deleted."""
    with suppress(OSError):
        if os.lstat(file.path).st_mtime < before:
            os.unlink(file.path)
            return True
    return False
