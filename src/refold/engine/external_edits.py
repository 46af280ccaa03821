"""Finds files that the model has read and that have been changed or deleted since.

It runs once, when a turn begins, and keeps no state besides the journal;
`policies.reminders` tells the model.
"""

from collections.abc import Mapping
from functools import partial
from hashlib import sha256

import anyio

from refold.engine.world import Record, World
from refold.errors import ToolFailed
from refold.journal.events.kinds import ExternalEditsFound
from refold.place.port import Files

_MAX_FILES = 100  # the newest that are looked at
_MAX_UNSAVED_FILES = 10  # of those, the newest for the editor, which may show each
_MAX_FILE_BYTES = 1_000_000  # of one
_MAX_TOTAL_BYTES = 8_000_000  # of all: reading more would delay the turn


async def find_external_edits(world: World, record: Record) -> None:
    """Record which files another program has changed, at the start of a turn."""
    view = record.view
    files = world.files
    begins = view.turn.seq and not view.turn.steps and view.turn.open_request is None
    if files is None or not world.watches or not begins or not view.file_hashes.files:
        return
    find = partial(find_changes, view.file_hashes.files, files)
    if edits := await anyio.to_thread.run_sync(find):
        await record(ExternalEditsFound(edits), author="place")


def find_changes(
    known_hashes: Mapping[str, str], files: Files
) -> tuple[tuple[str, str], ...]:
    """Which of the newest files of `known_hashes` are "changed" or "deleted", newest first.

    Files that are too large or cannot be read are skipped.
    """
    changes, left = list[tuple[str, str]](), _MAX_TOTAL_BYTES
    for index, path in enumerate(list(known_hashes)[: -_MAX_FILES - 1 : -1]):
        if (
            not known_hashes[path] or left <= 0
        ):  # of earlier reports; more would take too long
            continue
        content = _content(path, files, unsaved=index < _MAX_UNSAVED_FILES)
        left -= _MAX_FILE_BYTES if content is None else len(content)
        if content is not None:
            if sha256(content).hexdigest() != known_hashes[path]:
                changes.append((path, "changed"))
        elif _is_deleted(path, files):
            changes.append((path, "deleted"))
    return tuple(changes)


def _content(path: str, files: Files, *, unsaved: bool) -> bytes | None:
    try:
        real = files.real(path)
        return (files.only([real]) if unsaved else files).read(real, _MAX_FILE_BYTES)
    except ToolFailed:
        return None


def _is_deleted(path: str, files: Files) -> bool:
    try:
        return files.kind(files.real(path)) == "nothing"
    except ToolFailed:
        return False
