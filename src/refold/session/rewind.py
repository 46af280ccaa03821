"""Rewind: restores the conversation, the files or both to their state before an event.

`plan` is pure: it says what can be restored at an event. `preview` reads and changes
nothing; `rewind` does it, and says how to undo that. The fold keeps the marks of the
conversation, `place.port.Snapshots` the snapshots; clients ask the user.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import anyio
from msgspec.structs import asdict

from refold.errors import BadInput, ToolFailed
from refold.journal.events.kinds import Checkpointed, Event, FilesRestored, Rewound
from refold.journal.state.checkpoints import Checkpoint, RewindTarget
from refold.journal.state.fold import View
from refold.place.port import Snapshots, SnapshotTaken, Trees
from refold.session.session import Session
from refold.views.escape import on_one_line
from refold.views.rewind_points import (
    RewindPlan,
    RewindPoint,
    RewindPreview,
    RewindReport,
    What,
)

_NAMED = 10  # files that a sentence names


def plan(view: View, seq: int, what: What) -> RewindPlan:
    """Raises `BadInput` for an event that cannot be rewound to."""
    if not 0 < seq <= view.seq:
        raise BadInput(f"there is no event {seq}: this session has {view.seq} events")
    mark = _mark(view, seq) if what != "files" else 0
    if what == "conversation":
        return RewindPlan(seq, what, mark)
    stays = view.checkpoints.stays(seq)
    if what == "files" and stays and view.checkpoints.at(seq) is None:
        raise BadInput(
            f"what was changed since event {seq} is in {_named(stays)}, and the session "
            "works elsewhere now: go there first (/cd)"
        )
    if what == "files" and not view.checkpoints.checkpoints:
        raise BadInput(
            "this session has no checkpoint of files, so there is nothing to restore: "
            "only the conversation can be rewound"
        )
    return RewindPlan(seq, what, mark, view.checkpoints.at(seq), stays)


async def preview(view: View, snapshots: Snapshots, seq: int, what: What) -> RewindPreview:
    """Look at what `rewind` would do. Nothing is changed and nothing recorded."""
    found, _ = await _looked(view, snapshots, plan(view, seq, what))
    return found


async def rewind(
    session: Session, snapshots: Snapshots, seq: int, what: What, *, force: bool = False
) -> RewindReport:
    """Go back. Raises `BadInput`, with nothing done, where that would lose anything.

    Files that another program changed since are such a loss; with `force` they are taken
    down, and changed all the same.
    """
    if session.running or session.view.turn.seq:
        raise BadInput("a turn of this session is running: end it, then rewind")
    planned = plan(session.view, seq, what)
    found, now = await _looked(session.view, snapshots, planned)
    if found.drift and not force:
        raise BadInput(
            f"nothing was changed, because another program changed these files since: "
            f"{_named(found.drift)}. Give --force to undo that too: a checkpoint is "
            "made first, so it can be undone"
        )
    if not found.changes:
        return await _talk_alone(session, found)
    return await _with_files(session, snapshots, found, now)


def steps(view: View, snapshots: Snapshots | None) -> tuple[RewindPoint, ...]:
    """The points of a session, oldest first. Waits for a disk: call it from a thread."""
    gone = _taken_back(view.checkpoints.points)
    marked = [each for each in view.checkpoints.points if view.mark_at(each.seq)]
    # If both were rewound at once, the conversation's point is the place of both.
    both = {each.seq + 1 for each in marked if each.kind == "rewound"}
    alone = (
        p for p in view.checkpoints.points if p.kind == "restored" and p.seq not in both
    )
    points = sorted((*marked, *alone), key=lambda each: each.seq)
    if not points:
        return ()
    after = [view.checkpoints.at(each.seq) for each in points[1:]] + [
        view.checkpoints.newest
    ]
    return tuple(
        RewindPoint(
            **asdict(point),
            files=_count(view, snapshots, point, then),
            in_conversation=point.seq not in gone,
        )
        for point, then in zip(points, after, strict=True)
    )


async def _looked(
    view: View, snapshots: Snapshots, found: RewindPlan
) -> tuple[RewindPreview, SnapshotTaken]:
    if found.checkpoint is None:
        return RewindPreview(found), SnapshotTaken(())
    try:
        snapshots.forget()  # somebody may have done anything since
        now = await snapshots.take()
        changes = await anyio.to_thread.run_sync(
            snapshots.changes, now.trees, found.checkpoint.trees
        )
        drift = await anyio.to_thread.run_sync(_drift, view, snapshots, now.trees)
    except ToolFailed as error:
        raise BadInput(f"the files cannot be read: {error}") from error
    alone = tuple(
        sorted(
            {root for root, _ in now.trees} - {root for root, _ in found.checkpoint.trees}
        )
    )
    lost = tuple(change.path for change in changes if change.path in drift)
    return RewindPreview(found, changes, lost, alone), now


def _drift(view: View, snapshots: Snapshots, now: Trees) -> set[str]:
    if view.checkpoints.doubtful:  # broken off: what has changed since may be our own doing
        return set()
    return {change.path for change in snapshots.changes(view.checkpoints.trees, now)}


async def _talk_alone(session: Session, found: RewindPreview) -> RewindReport:
    if not found.plan.mark:
        return RewindReport(found)
    mark = found.plan.mark
    if not await session.record.append_if(
        lambda view: _if_idle(view, Rewound(mark)), kept=True, by="person"
    ):
        raise BadInput("a turn of this session has begun meanwhile: end it, then rewind")
    return RewindReport(found, undo=session.view.seq)


async def _with_files(
    session: Session, snapshots: Snapshots, found: RewindPreview, now: SnapshotTaken
) -> RewindReport:
    checkpoint, mark = found.plan.checkpoint, found.plan.mark
    assert checkpoint is not None  # there are changes
    record = session.record
    before = Checkpointed(now.trees, now.left_out)
    if not await record.append_if(
        lambda view: _if_idle(view, before), kept=True, by="person"
    ):
        raise BadInput("a turn of this session has begun meanwhile: end it, then rewind")
    undo = record.view.checkpoints.seq
    files = 0
    with anyio.CancelScope(shield=True):  # what was done to files has to be told
        try:
            files = await snapshots.restore(now.trees, checkpoint.trees)
        except ToolFailed as error:
            raise BadInput(str(error)) from error
        restored = FilesRestored(checkpoint.seq, undo, files)
        # The conversation first: just before that, both are as they were.
        events = (Rewound(mark), restored) if mark else (restored,)
        await record(*events, kept=True, by="person")
        undo = record.view.seq - 1 if mark else undo
        snapshots.dirty()
        try:
            after = await snapshots.take()
            await record(Checkpointed(after.trees, after.left_out), by="place")
        except ToolFailed as error:
            snapshots.report_failure(str(error))
    return RewindReport(found, files, undo)


def _if_idle(view: View, event: Event) -> Sequence[Event]:
    return () if view.turn.seq else (event,)


def _mark(view: View, seq: int) -> int:
    """The newest mark of the conversation that is not after `seq`."""
    at = bisect_right(view.marks, seq, key=lambda mark: mark.seq)
    if not at:
        raise BadInput(f"there was no message yet at event {seq}: choose a later one")
    return view.marks[at - 1].seq


def _count(
    view: View, snapshots: Snapshots | None, point: RewindTarget, after: Checkpoint | None
) -> int | None:
    before = view.checkpoints.at(point.seq)
    after = after or view.checkpoints.newest
    if before is None or before.seq >= after.seq:
        return 0
    if snapshots is None:
        return None
    try:
        return len(snapshots.changes(before.trees, after.trees))
    except ToolFailed:  # that snapshot is lost; the conversation can still be rewound
        return None


def _taken_back(points: Sequence[RewindTarget]) -> set[int]:
    """The messages that are no longer part of the conversation."""
    seqs = list[int]()
    conversations = list[tuple[int, ...]]()  # after each point
    conversation: tuple[int, ...] = ()
    for point in points:
        if point.kind == "rewound":
            before = bisect_left(seqs, point.to)
            conversation = conversations[before - 1] if before else ()
        elif point.kind == "said":
            conversation = (*conversation, point.seq)
        seqs.append(point.seq)
        conversations.append(conversation)
    return {point.seq for point in points if point.kind == "said"} - set(conversation)


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(on_one_line(path) for path in paths[:_NAMED]) + more
