"""A fork: a session that begins as a copy of another one up to an event.

Lines are copied byte for byte, and blobs are hard links where the disk supports them. The
source is only read, and may be running; its subagents are not copied. A fork is built in a
temporary directory and renamed into place, so it is created completely or not at all.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from refold.errors import BadInput, Corrupt, WrongFormat
from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.events.kinds import Ended, Entry, Event, Forked, Imported
from refold.journal.state.fold import View, apply, cause_of, fold
from refold.journal.store import blobs, log_file
from refold.journal.store.blobs import blobs_of
from refold.journal.store.disk import Disk, as_journal_errors, make_directories
from refold.journal.store.reader import Reader
from refold.journal.store.session_files import SessionFiles, sweep

FORK_PREFIX = ".fork-"  # followed by the id of the forking process
UNKNOWN_END = (
    "Not known here: the session was forked while this was under way. It may have happened "
    "there: look first."
)


class Fork(Struct, frozen=True):
    """The session `id` is a copy of the first `seq` events of `source`."""

    id: str
    source: str
    seq: int


def fork(
    home: SessionFiles,
    source: str,
    up_to: int | None,
    now: float,
    disk: Disk | None = None,
) -> Fork:
    """Fork the session `source` up to the event `up_to`; None: up to its end.

    Raises `BadInput` for an unknown event, or if `source` is a subagent. It waits for the
    disk: call it in a thread.
    """
    if "/" in source:
        raise BadInput(
            f"{source} is a subagent, with the rights and the budget of its parent: "
            "fork the parent session"
        )
    disk = disk or Disk()
    directory = home.path(source)
    lines = Reader(directory / log_file.FILE_NAME).read(after=0)
    copied, entries, head = _lines_to_copy(lines, source, up_to)
    id_ = home.new_id(now)
    new_events: list[Event] = [Forked(source, head.seq, head.h, id_)]
    # A fork that ends within the imported part counts as imported, too.
    if imported := _last_imported(lines[len(copied) :]):
        new_events.append(replace(imported, id=id_))
    temporary = home.root / f"{FORK_PREFIX}{os.getpid()}-{id_}"
    with as_journal_errors("write", temporary):
        sweep(home.root, FORK_PREFIX)
        try:
            make_directories(temporary, disk)
            own_lines = _first_lines(entries, head, new_events, now)
            _write(temporary / log_file.FILE_NAME, [*copied, *own_lines], disk)
            _link_blobs(directory, temporary, entries, disk)
            disk.sync_directory(temporary)
            disk.rename(temporary, home.path(id_))
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        disk.sync_directory(home.root)
    return Fork(id_, source, head.seq)


def _lines_to_copy(
    lines: Sequence[bytes], source: str, up_to: int | None
) -> tuple[Sequence[bytes], Sequence[Entry], Head]:
    """Return the lines up to the event `up_to`, their entries, and the head."""
    if up_to is not None and not 0 < up_to <= len(lines):
        raise BadInput(
            f"the session {source} has no event {up_to}: give one from 1 to {len(lines)}"
        )
    copied = lines[:up_to]
    if not copied:
        raise BadInput(f"the session {source} is empty: there is nothing to fork")
    try:
        decoded = list(codec.decode(copied))
    except WrongFormat as error:
        raise BadInput(str(error)) from error
    except Corrupt as error:
        raise BadInput(
            f"the session {source} cannot be forked there: {error}; fork it at event "
            f"{error.line - 1} or before (--at)"
        ) from error
    _, head = decoded[-1]
    return copied, [entry for entry, _ in decoded], head


def _last_imported(lines: Sequence[bytes]) -> Imported | None:
    """Return the newest `Imported` in these lines, whose chain is not checked."""
    for line in reversed(lines):
        if b'"kind":"Imported"' not in line:
            continue
        event = codec.decode_unchecked(line)
        # The same text can be in the arguments of a call.
        if isinstance(event, Imported):
            return event
    return None


def _first_lines(
    entries: Sequence[Entry], head: Head, new_events: Sequence[Event], now: float
) -> Iterator[bytes]:
    """Yield the first lines of the fork itself: its source, and an end for each open call.

    A call that the source has started must not be executed a second time.
    """
    view = fold(entries)
    epoch = entries[-1].epoch + 1
    for event in _first_events(view, new_events):
        cause = cause_of(event, view)
        entry = Entry(
            seq=head.seq + 1,
            event=event,
            at=now,
            epoch=epoch,
            turn=view.turn.seq,
            by="person",
            cause=cause,
        )
        line, head = codec.encode(entry, head)
        view = apply(view, entry)
        yield line


def _first_events(view: View, new_events: Sequence[Event]) -> Iterator[Event]:
    """Yield the first of `new_events`, an end for each open call, and the other events."""
    yield new_events[0]
    for call in view.conversation.calls:
        if call.result is None:
            yield Ended(call.call.id, "unknown", UNKNOWN_END)
    yield from new_events[1:]


def _write(path: Path, copied: Sequence[bytes], disk: Disk) -> None:
    """Write the lines to the new file `path`, and sync it."""
    file = disk.open(path, new=True)
    try:
        disk.write(file, b"".join(line + b"\n" for line in copied), offset=0)
        disk.sync(file)
    finally:
        disk.close(file)


def _link_blobs(source: Path, target: Path, entries: Sequence[Entry], disk: Disk) -> None:
    """Link the blobs that the entries name into the fork.

    A blob that the source lacks is missing in the fork, too, and `check` reports it.
    """
    names = {name for entry in entries for name in blobs_of(entry.event)}
    if not names:
        return
    source_blobs = source / blobs.DIRECTORY_NAME
    target_blobs = target / blobs.DIRECTORY_NAME
    disk.mkdir(target_blobs)
    for name in sorted(names):
        with suppress(FileNotFoundError):
            _link_blob(source_blobs / name, target_blobs / name, disk)
    disk.sync_directory(target_blobs)


def _link_blob(source: Path, target: Path, disk: Disk) -> None:
    """Link a blob, or copy it on a disk without hard links.

    Raises `FileNotFoundError` if the blob is missing.
    """
    try:
        os.link(source, target, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:  # the file system has no hard links
        blob = source.read_bytes()
        file = disk.open(target, new=True)
        try:
            disk.write(file, blob, offset=0)
            disk.sync(file)
        finally:
            disk.close(file)
