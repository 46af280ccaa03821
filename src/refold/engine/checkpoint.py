"""A snapshot of the files before something may change them, and at the end of a turn.

`place` stores the files; this module records the events about them.
"""

import anyio

from refold.engine.world import Record, World
from refold.errors import ToolFailed
from refold.journal.events.kinds import Checkpointed
from refold.tools.contract import Tool
from refold.values.live import Waiting
from refold.values.tools import Effect


def begin_saving(tool: Tool | None, world: World) -> None:
    """Start the snapshot while the model still writes a call that may change files."""
    writes = tool is not None and tool.effect in (Effect.CHANGE, Effect.RUN)
    if writes and world.snapshots is not None:
        world.snapshots.begin()


def files_changed(world: World) -> None:
    """Mark the last snapshot as stale: files may have changed."""
    if world.snapshots is not None:
        world.snapshots.note_change()
        world.snapshots.begin()  # at the same time as the model call


async def save_if_changed(world: World, record: Record) -> None:
    """Save a checkpoint at the end of a turn; a later rewind compares the files with it."""
    if world.snapshots is not None and world.snapshots.is_behind:
        await save(world, record)


async def save(world: World, record: Record, *, answer: int = 0) -> None:
    """Record a checkpoint of the files, unless the journal has one of this state.

    `answer` is the response whose calls are about to change something; its first call saves
    for all. A snapshot that fails does not stop the work: watchers get a note.
    """
    if world.snapshots is None or (answer and record.view.checkpoints.seq > answer):
        return
    if record.view.background.running:  # they may have changed files at any time
        world.snapshots.forget()
    try:
        taken = await world.snapshots.take()
        saved = record.view.checkpoints
        if taken.trees == saved.trees and not saved.disturbed:
            return
        # Changes seen by the first snapshot of a turn were made by other programs.
        ours = saved.seq > record.view.turn.seq and taken.trees != saved.trees
        different = (
            await anyio.to_thread.run_sync(
                world.snapshots.changes, saved.trees, taken.trees
            )
            if ours
            else ()
        )
    except ToolFailed as error:
        world.snapshots.report_failure(str(error))
        record.publish(Waiting(0, f"no checkpoint: {error}"))
        return
    news = tuple((change.path, change.kind) for change in different)
    await record(Checkpointed(taken.trees, taken.left_out, news), by="place")
