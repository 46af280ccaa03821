"""What is deleted together with a session: its subagents, and the snapshots of its files.

The session index deletes the session; this module decides which snapshots are deleted,
too. The repository of a workspace is deleted with its last session.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from refold.errors import Held
from refold.journal.catalogue.session_card import Card
from refold.journal.session_index import SessionIndex
from refold.journal.store.delete import SessionSize
from refold.place.checkpoints import (
    deletable_snapshots,
    delete_snapshots,
    is_used_by,
)
from refold.views.session_list import display_name


class DeletionPlan(Struct, frozen=True):
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
    index.catalogue().freshen(1.0)


def plan_deletions(
    index: SessionIndex,
    store: Path,
    sessions: Sequence[str],
    cards: Sequence[Card],
) -> list[DeletionPlan]:
    """Return what is deleted with each session. The last session of a workspace takes the
    snapshots of the workspace with it."""
    ids = set(sessions)
    stays = [card for card in cards if card.id.partition("/")[0] not in ids]
    places = frozenset(map(_real, {card.about.directory for card in stays}))
    names = frozenset(card.id for card in stays)
    # If the journal cannot be read, the working directory is unknown.
    unknown = any(card.damage and not card.about.directory for card in stays)

    def snapshots_to_delete(place: str, session: str) -> Path:
        shared = unknown or place in places or is_used_by(store, place, names)
        return deletable_snapshots(store, place, session, last=not shared)

    counted = set[Path]()
    plans = list[DeletionPlan]()
    for session in reversed(sessions):
        own = [card for card in cards if card.id.partition("/")[0] == session]
        worked_in = dict.fromkeys(_real(card.about.directory) for card in own)
        folders = [snapshots_to_delete(place, session) for place in worked_in if place]
        existing = tuple(
            folder for folder in folders if folder.is_dir() and folder not in counted
        )
        counted |= set(existing)
        much = index.size(session)
        name = next((display_name(card) for card in own if card.id == session), "")
        whole = much.bytes + sum(map(_directory_bytes, existing))
        plans.append(DeletionPlan(session, name, much, existing, whole))
    return plans[::-1]


def _real(directory: str) -> str:
    return os.path.realpath(directory) if directory else ""


def _directory_bytes(place: Path) -> int:
    return sum(_file_sizes(place))


def _file_sizes(place: Path) -> Iterator[int]:
    for folder, _, names in os.walk(place):
        for name in names:
            try:
                yield os.lstat(os.path.join(folder, name)).st_size
            except OSError:  # just gone
                continue
