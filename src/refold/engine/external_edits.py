"""Finds files that the model has read and that another program has changed or deleted
since.

The search runs once, when a turn begins, and has no state besides the journal.
`policies.reminders` informs the model.
"""

from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from itertools import islice

import anyio

from refold.engine.world import Record, World
from refold.errors import ToolFailed
from refold.journal.events.kinds import ExternalEditsFound
from refold.place.port import Files

_MAX_FILES = 100  # files that are compared: those read last
_MAX_UNSAVED_FILES = 10  # the newest of these files, about which the editor is asked
_MAX_FILE_BYTES = 1_000_000  # of one file
_MAX_TOTAL_BYTES = 8_000_000  # of all files: reading more would delay the turn


async def find_external_edits(world: World, record: Record) -> None:
    """Record which files another program has changed since the model read them."""
    view = record.view
    files = world.files
    if files is None or not world.watches or not view.file_hashes.files:
        return
    turn = view.turn
    is_beginning = turn.seq != 0 and not turn.steps and turn.open_request is None
    if not is_beginning:
        return
    find = partial(find_changes, view.file_hashes.files, files)
    if edits := await anyio.to_thread.run_sync(find):
        await record(ExternalEditsFound(edits), author="place")


def find_changes(
    known_hashes: Mapping[str, str], files: Files
) -> tuple[tuple[str, str], ...]:
    """Return the changed files among the newest of `known_hashes`, newest first.

    Each is a path with "changed" or "deleted". Files that are too large or cannot be read are
    skipped.
    """
    changes = list[tuple[str, str]]()
    bytes_left = _MAX_TOTAL_BYTES
    newest = islice(reversed(list(known_hashes)), _MAX_FILES)
    for index, path in enumerate(newest):
        # A file without a hash was reported in an earlier turn.
        if not known_hashes[path] or bytes_left <= 0:
            continue
        content = _content(path, files, unsaved=index < _MAX_UNSAVED_FILES)
        if content is None:
            if _is_deleted(path, files):
                changes.append((path, "deleted"))
            else:  # a file that is too large was read up to this limit
                bytes_left -= _MAX_FILE_BYTES
            continue
        bytes_left -= len(content)
        if sha256(content).hexdigest() != known_hashes[path]:
            changes.append((path, "changed"))
    return tuple(changes)


def _content(path: str, files: Files, *, unsaved: bool) -> bytes | None:
    """Return the content of a file; None if it cannot be read, or is too large.

    If `unsaved`, the content is that in the user's editor, with changes that are not saved.
    """
    try:
        real = files.real(path)
        # An editor is asked only about files that a call names, so `only` names this one.
        source = files.only([real]) if unsaved else files
        return source.read(real, _MAX_FILE_BYTES)
    except ToolFailed:
        return None


def _is_deleted(path: str, files: Files) -> bool:
    """Whether nothing is at this path; False if it cannot be determined."""
    try:
        return files.kind(files.real(path)) == "nothing"
    except ToolFailed:
        return False
