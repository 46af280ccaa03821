"""A fork: a session that begins as a copy of another one up to an event.

Lines are copied byte for byte, and blobs are hard links where the disk supports them.
The source is only read and may be running; its subagents stay with it. A fork is built in
a temporary directory and renamed into place, so it exists whole or not at all.
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

ASIDE = ".fork-"  # before the process id of who makes it
UNKNOWN = (
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
    at: int | None,
    now: float,
    disk: Disk | None = None,
) -> Fork:
    """Fork the session `source` at the event `at`; None: at its end.

    Raises `BadInput` if there is no such event, or `source` is a subagent. Waits for the
    disk: call it in a thread.
    """
    if "/" in source:
        raise BadInput(
            f"{source} is a subagent, with the rights and the budget of its parent: "
            "fork the parent session"
        )
    disk = disk or Disk()
    directory = home.path(source)
    found = Reader(directory / log_file.NAME).read(0)
    whole, entries, head = _copied(found, source, at)
    id_ = home.new_id(now)
    news: list[Event] = [Forked(source, head.seq, head.h, id_)]
    # A copy of a part of what came from a file has come from there, too.
    if imported := _last_imported(found[len(whole) :]):
        news.append(replace(imported, id=id_))
    aside = home.root / f"{ASIDE}{os.getpid()}-{id_}"
    with as_journal_errors("write", aside):
        sweep(home.root, ASIDE)
        try:
            make_directories(aside, disk)
            own = _own(entries, head, news, now)
            _write(aside / log_file.NAME, [*whole, *own], disk)
            _link(directory, aside, entries, disk)
            disk.sync_directory(aside)
            disk.rename(aside, home.path(id_))
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        disk.sync_directory(home.root)
    return Fork(id_, source, head.seq)


def _copied(
    found: Sequence[bytes], source: str, at: int | None
) -> tuple[Sequence[bytes], Sequence[Entry], Head]:
    """The lines up to that event, their entries, and the head."""
    if at is not None and not 0 < at <= len(found):
        raise BadInput(
            f"the session {source} has no event {at}: give one from 1 to {len(found)}"
        )
    whole = found[:at]
    if not whole:
        raise BadInput(f"the session {source} is empty: there is nothing to fork")
    try:
        decoded = list(codec.decode(whole))
    except WrongFormat as error:
        raise BadInput(str(error)) from error
    except Corrupt as error:
        raise BadInput(
            f"the session {source} cannot be forked there: {error}; fork it at event "
            f"{error.line - 1} or before (--at)"
        ) from error
    return whole, [entry for entry, _ in decoded], decoded[-1][1]


def _last_imported(found: Sequence[bytes]) -> Imported | None:
    """The newest `Imported` in these lines. Their chain is not checked."""
    for line in reversed(found):
        event = codec.unchecked(line) if b'"kind":"Imported"' in line else None
        if isinstance(event, Imported):  # the words may stand in the arguments of a call
            return event
    return None


def _own(
    entries: Sequence[Entry], head: Head, news: Sequence[Event], now: float
) -> Iterator[bytes]:
    """The first lines of the fork itself: its source, and an end for each open call.

    A call that the source has started must not be done a second time.
    """
    view = fold(entries)
    epoch = entries[-1].epoch + 1
    for event in _settling(view, news):
        cause = cause_of(event, view)
        entry = Entry(head.seq + 1, event, now, epoch, view.turn.seq, "person", cause)
        line, head = codec.encode(entry, head)
        view = apply(view, entry)
        yield line


def _settling(view: View, news: Sequence[Event]) -> Iterator[Event]:
    yield news[0]
    for call in view.conversation.calls:
        if call.result is None:
            yield Ended(call.call.id, "unknown", UNKNOWN)
    yield from news[1:]


def _write(path: Path, whole: Sequence[bytes], disk: Disk) -> None:
    file = disk.open(path, new=True)
    try:
        disk.write(file, b"".join(line + b"\n" for line in whole), 0)
        disk.sync(file)
    finally:
        disk.close(file)


def _link(source: Path, target: Path, entries: Sequence[Entry], disk: Disk) -> None:
    """Link the blobs. A blob that is missing in the source is missing here; `check` says so."""
    names = {name for entry in entries for name in blobs_of(entry.event)}
    if not names:
        return
    theirs, ours = source / blobs.NAME, target / blobs.NAME
    disk.mkdir(ours)
    for name in sorted(names):
        with suppress(FileNotFoundError):
            _one(theirs / name, ours / name, disk)
    disk.sync_directory(ours)


def _one(theirs: Path, ours: Path, disk: Disk) -> None:
    try:
        os.link(theirs, ours, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:  # a disk that knows no links
        blob = theirs.read_bytes()
        file = disk.open(ours, new=True)
        try:
            disk.write(file, blob, 0)
            disk.sync(file)
        finally:
            disk.close(file)
