"""Copies a session with its subagents from one session store to another.

Lines are copied byte for byte, so that their chain stays valid. Blobs keep their names. A copy
that was interrupted continues where it stopped.
"""

from collections.abc import Iterable, Sequence

from refold.errors import Conflict
from refold.journal.events import codec
from refold.journal.events.codec import Head, Line
from refold.journal.session_index import SessionIndex
from refold.journal.store.blobs import NAMING_KINDS, blobs_of
from refold.journal.store.port import Store

_MAX_LINES = 500  # of one append


async def copy_session(source: SessionIndex, target: SessionIndex, session: str) -> int:
    """Copy a session; return the number of its events.

    Subagents are copied before their parents, and the source must not be written meanwhile.
    Raises `Conflict` if the target has another session with this id, and `Corrupt` if the source
    is damaged.
    """
    count = 0
    for child in source.children(session):
        count += await copy_session(source, target, f"{session}/{child}")
    from_store, to_store = source.store(session), target.store(session)
    lines = await from_store.read()
    lease = await to_store.lease()
    try:
        await _copy_lines(lines, from_store, to_store, lease.epoch, session)
    finally:
        await to_store.release()
    return count + len(lines)


async def _copy_lines(
    lines: Sequence[bytes], from_store: Store, to_store: Store, epoch: int, session: str
) -> None:
    """Append to `to_store` the lines that it lacks, after their blobs."""
    copied = await to_store.read()
    if list(copied) != list(lines[: len(copied)]):
        raise Conflict(f"there is another session {session}: delete or rename one of them")
    decoded = list(codec.follow(lines, Head()))
    for start in range(len(copied), len(lines), _MAX_LINES):
        end = start + _MAX_LINES
        batch = decoded[start:end]
        for line, _ in batch:
            for name in _blobs_named_in(line):
                await to_store.blobs.put(await from_store.blobs.get(name))
        _, head = batch[-1]
        await to_store.append(
            lines[start:end], expect=start, epoch=epoch, head=(head.seq, head.h)
        )
    await to_store.keep()


def _blobs_named_in(line: Line) -> Iterable[str]:
    """Return the blobs that the event of a line names. Events of most kinds name none."""
    if line.kind not in NAMING_KINDS:
        return ()
    return blobs_of(codec.load(line.kind, line.data))
