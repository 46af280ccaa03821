"""Decides what is deleted together with a session: subagents, and snapshots of its files.

The session index deletes sessions; this module also deletes snapshots. The repository with
the snapshots of a workspace is deleted with the last session of the workspace.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from refold.errors import Held
from refold.journal.catalogue.session_card import Card
from refold.journal.session_index import SessionIndex
from refold.journal.store.delete import SessionSize
from refold.place.snapshot_deletion import deletable_snapshots, delete_snapshots, is_used_by
from refold.views.session_list import display_name

_FRESHEN_SECONDS = 1.0  # the next reader of the catalogue indexes what is left


class DeletionPlan(Struct, frozen=True):
    """What is deleted with one session.

    `extent` is the size of its journals, and `bytes` the size of journals and `snapshots`
    together.
    """

    session: str
    name: str
    extent: SessionSize
    snapshots: tuple[Path, ...]
    bytes: int


def delete_session(index: SessionIndex, checkpoints: Path, id_: str) -> None:
    """Delete a session for good. Raises `Held` while a process has it open."""
    if index.writer(id_):
        raise Held(f"the session {id_} is open in another process: leave it there first")
    cards = index.catalogue().cards(children=True)
    for deletion in plan_deletions(index, checkpoints, [id_], cards):
        index.delete(deletion.session)
        for place in deletion.snapshots:
            delete_snapshots(checkpoints, place)
    index.catalogue().freshen(_FRESHEN_SECONDS)


def delete_from_worker(index: SessionIndex, checkpoints: Path, id_: str) -> None:
    """Delete a session of a database for good, and its own snapshots on this machine.

    The repository with the snapshots of its workspace stays, because this worker does not
    know which sessions of other workers use it.
    """
    directories = set[str]()  # of the session and its subagents
    to_visit = [id_]
    while to_visit:
        session = to_visit.pop()
        directory = _real(index.directories(session).directory)
        if directory:
            directories.add(directory)
        to_visit += [f"{session}/{child}" for child in index.children(session)]
    index.delete(id_)
    for directory in directories:
        # `last` would return the whole repository of the workspace.
        own_snapshots = deletable_snapshots(checkpoints, directory, id_, last=False)
        if own_snapshots.is_dir():
            delete_snapshots(checkpoints, own_snapshots)


def plan_deletions(
    index: SessionIndex,
    store: Path,
    sessions: Sequence[str],
    cards: Sequence[Card],
) -> list[DeletionPlan]:
    """Return what is deleted with each session, in the order of `sessions`.

    `store` has all snapshots, and `cards` are those of all sessions. The sessions must be
    deleted in this order: snapshots that several sessions share are listed with the last of
    these sessions.
    """
    deleted_ids = set(sessions)
    others = [card for card in cards if _root_session(card) not in deleted_ids]
    used_directories = frozenset(map(_real, {card.about.directory for card in others}))
    names = frozenset(card.id for card in others)
    # If a journal cannot be read, the working directory of its session is unknown.
    any_directory_unknown = any(card.damage and not card.about.directory for card in others)

    def snapshots_to_delete(directory: str, session: str) -> Path:
        """Return the directory of the snapshots to delete.

        The directory has all snapshots of the workspace, or only those of the session if
        other sessions use the workspace.
        """
        is_shared = (
            any_directory_unknown
            or directory in used_directories
            or is_used_by(store, directory, names)
        )
        return deletable_snapshots(store, directory, session, last=not is_shared)

    planned = set[Path]()  # snapshots that are listed already
    plans = list[DeletionPlan]()
    for session in reversed(sessions):
        own_cards = [card for card in cards if _root_session(card) == session]
        directories = dict.fromkeys(_real(card.about.directory) for card in own_cards)
        snapshots = list[Path]()
        for directory in directories:
            if not directory:
                continue
            place = snapshots_to_delete(directory, session)
            if place.is_dir() and place not in planned:
                snapshots.append(place)
        planned |= set(snapshots)
        extent = index.size(session)
        # The cards with other ids are those of its subagents.
        name = next((display_name(card) for card in own_cards if card.id == session), "")
        total_bytes = extent.bytes + sum(map(_directory_bytes, snapshots))
        plans.append(DeletionPlan(session, name, extent, tuple(snapshots), total_bytes))
    plans.reverse()
    return plans


def _root_session(card: Card) -> str:
    """Return the id of the session whose card this is, or in which the subagent of the card
    ran.
    """
    return card.id.partition("/")[0]


def _real(directory: str) -> str:
    return os.path.realpath(directory) if directory else ""


def _directory_bytes(place: Path) -> int:
    return sum(_file_sizes(place))


def _file_sizes(place: Path) -> Iterator[int]:
    """Yield the size in bytes of each file below `place`. Links are not followed."""
    for folder, _, names in os.walk(place):
        for name in names:
            try:
                yield os.lstat(os.path.join(folder, name)).st_size
            except OSError:  # another process has just deleted it
                continue
