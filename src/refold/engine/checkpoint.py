"""Takes a snapshot of the files before a call may change them, and at the end of a turn.

`place` stores the files; this module records the events about them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import anyio

from refold.engine.world import Record, World
from refold.errors import ToolFailed
from refold.journal.events.kinds import Checkpointed
from refold.place.port import FileChange, ReportProgress, Snapshots, Trees
from refold.tools.contract import Tool
from refold.values.live import Progress, Waiting
from refold.values.messages import ToolCall
from refold.values.printable_names import escape_name
from refold.values.tools import Effect

LOST_CONTENTS: Final = (
    "earlier contents of {} were in the objects of your git repository and were deleted there, "
    "so no rewind can restore them."
)
_MAX_NAMED_FILES: Final = 5


def begin_saving(tool: Tool | None, world: World) -> None:
    """Start the snapshot while the model is still writing a call that may change files."""
    if tool is None or tool.effect not in (Effect.CHANGE, Effect.RUN):
        return
    if world.snapshots is not None and not tool.is_confined():
        world.snapshots.begin()


def mark_files_changed(world: World) -> None:
    """Mark the last snapshot as outdated: files may have changed."""
    if world.snapshots is not None:
        world.snapshots.note_change()
        world.snapshots.begin()  # the snapshot is taken during the model call


async def save_if_changed(world: World, record: Record) -> None:
    """Save a checkpoint at the end of a turn, if files may have changed since the last one.

    A later rewind compares the files with that checkpoint.
    """
    if world.snapshots is not None and world.snapshots.is_behind:
        await save(world, record)


async def save_before(call: ToolCall, world: World, record: Record, *, answer: int) -> None:
    """Save a checkpoint before a call that may change files, and store all files that it
    may delete.

    `answer` is the event number of the response with the call: one checkpoint serves all calls
    of a response. With 0, a checkpoint is saved even if that response has one.
    """
    report = partial(_show_progress, record, call.id)
    await save(world, record, answer=answer, report=report)
    if world.snapshots is not None:
        try:
            await world.snapshots.secure(bytes(call.arguments), report)
        except ToolFailed as error:
            _show_failure(str(error), world, record)


async def save(
    world: World, record: Record, *, answer: int = 0, report: ReportProgress | None = None
) -> None:
    """Record a checkpoint of the files, unless the journal has one of their present state.

    Nothing is done if the journal has a checkpoint after event `answer` (unless that is 0). If
    the snapshot fails, the turn continues, and watchers get a note.
    """
    if world.snapshots is None:
        return
    if answer and record.view.checkpoints.seq > answer:
        return
    if record.view.background.running:  # a background command may change files at any time
        world.snapshots.forget()
    try:
        snapshot = await world.snapshots.take(report)
        _show_lost(snapshot.lost, world, record)
        saved = record.view.checkpoints
        is_changed = snapshot.trees != saved.trees
        if not is_changed and not saved.disturbed:
            return
        # Other programs made the changes that the first snapshot of a turn finds.
        is_first_of_turn = saved.seq <= record.view.turn.seq
        differences: Sequence[FileChange] = ()
        if is_changed and not is_first_of_turn:
            differences = await _changes(world.snapshots, saved.trees, snapshot.trees)
    except ToolFailed as error:
        _show_failure(str(error), world, record)
        return
    changes = tuple((change.path, change.kind) for change in differences)
    await record(Checkpointed(snapshot.trees, snapshot.left_out, changes), author="place")


async def _changes(
    snapshots: Snapshots, before: Trees, after: Trees
) -> Sequence[FileChange]:
    """Return the files that differ between two snapshots; () if the place has lost `before`."""
    try:
        return await anyio.to_thread.run_sync(snapshots.changes, before, after)
    except ToolFailed:
        return ()


def _show_progress(record: Record, call_id: str, done: int, total: int) -> None:
    count = f"{done:,} of {total:,} files" if total else "looking for changed files"
    record.publish(Progress(call_id, f"Saving a checkpoint: {count}\n"))


def _show_failure(reason: str, world: World, record: Record) -> None:
    """Tell watchers that no checkpoint was saved."""
    if world.snapshots is not None:
        world.snapshots.report_failure(reason)
    record.publish(Waiting(seconds=0, reason=f"no checkpoint: {reason}"))


def _show_lost(paths: Sequence[str], world: World, record: Record) -> None:
    """Report, once for each file, that it cannot be restored."""
    if not paths or world.snapshots is None:
        return
    why = LOST_CONTENTS.format(_name_files(paths))
    if world.snapshots.notice != why:  # otherwise it was reported already
        world.snapshots.report_failure(why)
        record.publish(Waiting(seconds=0, reason=why))


def _name_files(paths: Sequence[str]) -> str:
    """Return the names of the first files, and how many more there are."""
    unnamed = len(paths) - _MAX_NAMED_FILES
    more = f" and {unnamed} more" if unnamed > 0 else ""
    return ", ".join(map(escape_name, paths[:_MAX_NAMED_FILES])) + more
