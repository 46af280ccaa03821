"""Reads or follows a tree of sessions on the disk, without the writer lock.

The subagents of a session are below it: `children/child-1/events.jsonl`. A line that is
being written does not count yet. A damaged journal is read up to the damage, which its node
reports. Nothing outside of the session's directory is read.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from refold.errors import JournalError
from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.events.kinds import ChildBorn, ChildEnded, Entry
from refold.journal.state.children import CHILD_PATTERN, Child
from refold.journal.state.event_history import EventHistory, LineEntries
from refold.journal.state.fold import fold
from refold.journal.state.session_tree import ROOT_ADDRESS, Node
from refold.journal.store import log_file, writer_lock
from refold.journal.store.disk import Disk
from refold.journal.store.reader import Reader
from refold.journal.store.session_files import CHILDREN_DIRECTORY

_MAX_READS = 3  # attempts to read a note that a writer may be writing


class LineSource(Protocol):
    """The lines of a session that grows, and of its subagents. `name` names the session in
    messages.
    """

    name: str

    def read(self, after: int) -> Sequence[bytes]:
        """Return the lines after the first `after` ones."""
        ...

    def below(self, child: str) -> "LineSource":
        """Return the lines of a subagent."""
        ...


class TreeSource(LineSource, Protocol):
    """The lines of a session, the names of its stored subagents, and whether it has a writer."""

    def below(self, child: str) -> "TreeSource":
        """Return the source of a subagent."""
        ...

    def children(self) -> Iterable[str]:
        """Return the names of the stored subagents."""
        ...

    def is_written(self) -> bool:
        """Whether a running process writes the session."""
        ...


class JournalLines:
    """The lines of the session in this directory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        file = path / log_file.FILE_NAME
        self.name = str(file)
        self.read = Reader(file).read

    def below(self, child: str) -> "JournalLines":
        return JournalLines(self._path / CHILDREN_DIRECTORY / child)

    def children(self) -> Iterable[str]:
        return children_in(self._path)

    def is_written(self) -> bool:
        return is_written(self._path)


def tree(path: Path, session: str) -> Node:
    """Return the session in this directory, with all its subagents."""
    return tree_of(JournalLines(path), session)


def tree_of(source: TreeSource, session: str) -> Node:
    """Return the session of these lines, with all its subagents."""
    return _node(source, session, ROOT_ADDRESS, child=None, may_be_missing=False)


def entries_in(
    path: Path, known_head: tuple[int, str] = (0, ""), *, may_be_missing: bool = False
) -> tuple[list[Entry], str]:
    """Return the valid entries of the session in this directory, like `entries_of`."""
    return entries_of(JournalLines(path), known_head, may_be_missing=may_be_missing)


def entries_of(
    source: TreeSource,
    known_head: tuple[int, str] = (0, ""),
    *,
    may_be_missing: bool = False,
) -> tuple[list[Entry], str]:
    """Return the valid entries from the start of a session, and the damage after them, or
    "".

    `known_head` is an event that the parent recorded, as (seq, hash). If `may_be_missing`, a
    journal without events is not damage, because the session is only starting.
    """
    entries: list[Entry] = []
    name = source.name
    known_seq, known_hash = known_head
    try:
        for entry, head in codec.decode(source.read(0)):
            if head.seq == known_seq and head.h != known_hash:
                problem = f"event {known_seq} is not the one that its parent knows"
                return entries, f"{name}: {problem}"
            entries.append(entry)
        if len(entries) < known_seq:
            problem = f"it ends before event {known_seq}, which its parent knows"
            return entries, f"{name}: {problem}"
    except JournalError as error:
        return entries, f"{name}: {error}"
    except OSError as error:
        return entries, f"{name} cannot be read: {error.strerror}"
    if not entries and not may_be_missing and not source.is_written():
        return entries, f"{name}: no event is left in it (refold sessions check says more)"
    return entries, ""


def history_in(path: Path, key_file: Path, up_to: int | None) -> EventHistory:
    """Return the valid entries of a session, with cached views near event `up_to` or near the
    end.

    `key_file` has the key of the cache.
    """
    from refold.journal.store.view_cache import ViewCache

    lines = Reader(path / log_file.FILE_NAME).read(after=0)
    cached = ViewCache(path, key_file, Disk()).load(up_to)
    cached_head = Head(*cached.head) if cached else Head()
    last_head = codec.valid_head(lines[cached_head.seq :], cached_head)
    views = (*cached.earlier, cached.view) if cached else ()
    return EventHistory(LineEntries(lines[: last_head.seq]), views)


def is_written(path: Path) -> bool:
    """Whether a running process holds the writer lock of this session."""
    with suppress(OSError):
        for _ in range(_MAX_READS):
            note = writer_lock.read(path)
            if note.state != "damaged":  # otherwise a writer may be writing the note
                return writer_lock.is_alive(note.writer)
    return False


def _node(
    source: TreeSource,
    session: str,
    address: str,
    child: Child | None,
    *,
    may_be_missing: bool,
) -> Node:
    """Return a session with all its subagents. `child` is what its parent has recorded
    of it.
    """
    # This is read before the lines, so that they include what the writer wrote last.
    has_writer = source.is_written()
    entries, damage = entries_of(source, may_be_missing=may_be_missing)
    view = fold(entries)
    known = {known_child.name: known_child for known_child in view.children.children}
    children = tuple(
        _node(
            source.below(name),
            f"{session}/{name}",
            f"{address}/{name}",
            child=known.get(name),
            may_be_missing=has_writer,  # a running parent may have a child that has not written yet
        )
        for name in _child_names(source, known)
    )
    return Node(
        address,
        session,
        entries,
        view,
        child=child,
        damage=damage,
        written=has_writer,
        children=children,
    )


def _child_names(source: TreeSource, children: dict[str, Child]) -> list[str]:
    """Return the names of the subagents that the journal names or that are stored, by number."""
    born = {name for name in children if re.fullmatch(CHILD_PATTERN, name)}
    return sorted(
        born.union(source.children()), key=lambda name: int(name.rpartition("-")[2])
    )


def children_in(path: Path) -> Iterator[str]:
    """Return the names of the subagents that have a directory below this session."""
    with suppress(OSError), os.scandir(path / CHILDREN_DIRECTORY) as entries:
        for entry in entries:
            if re.fullmatch(CHILD_PATTERN, entry.name) and entry.is_dir(
                follow_symlinks=False
            ):
                yield entry.name


class TreeFollower:
    """Follows a tree: `new_entries` returns the entries since the last call.

    A subagent is followed from its start to its end. A damaged journal is reported once, in
    `damages`, and not followed any more.
    """

    def __init__(self, source: LineSource, address: str) -> None:
        self._followed = {address: _Followed(source)}
        self.damages = list[str]()

    def new_entries(self) -> list[tuple[str, Entry]]:
        """Return the entries since the last call, each with the address of its node, oldest
        first.
        """
        entries = list[tuple[float, str, Entry]]()
        waiting = list(self._followed)
        while waiting:  # new subagents come after their parents
            address = waiting.pop(0)
            for time, entry in self._read_node(address):
                entries.append((time, address, entry))
                new_child = self._follow_child(address, entry)
                if new_child:
                    waiting.append(new_child)
        for _, address, entry in entries:
            if isinstance(entry.event, ChildEnded):
                self._stop_following(f"{address}/{entry.event.child}")
        # By time. Entries of one time keep their order.
        entries.sort(key=lambda item: item[0])
        return [(address, entry) for _, address, entry in entries]

    def _read_node(self, address: str) -> Iterator[tuple[float, Entry]]:
        """Yield the new entries of a session, with their times.

        If the journal of the session is damaged, stop following the session.
        """
        followed = self._followed[address]
        try:
            yield from followed.new_entries()
        except (JournalError, OSError) as error:
            self.damages.append(f"{followed.source.name}: {error}")
            del self._followed[address]

    def _follow_child(self, address: str, entry: Entry) -> str:
        """Follow the subagent that `entry` starts. Return its address; "" if there is none."""
        if not isinstance(entry.event, ChildBorn):
            return ""
        name = entry.event.child
        parent = self._followed.get(address)
        if not re.fullmatch(CHILD_PATTERN, name) or parent is None:
            return ""
        child_address = f"{address}/{name}"
        self._followed[child_address] = _Followed(parent.source.below(name))
        return child_address

    def _stop_following(self, address: str) -> None:
        for node in list(self._followed):
            if node == address or node.startswith(f"{address}/"):
                del self._followed[node]


class _Followed:
    def __init__(self, source: LineSource) -> None:
        self.source, self._head = source, Head()
        self._latest = 0.0

    def new_entries(self) -> Iterator[tuple[float, Entry]]:
        """Yield new entries, with times that never decrease even if the writer's clock
        did.
        """
        for entry, head in codec.decode(self.source.read(self._head.seq), self._head):
            self._head = head
            self._latest = max(self._latest, entry.at)
            yield self._latest, entry
