"""Rewind: restores the conversation, the files or both to their state before an event.

`plan_rewind` is pure: it says what can be restored at an event. `preview` reads and changes
nothing; `rewind` does it, and says how to undo that. The fold keeps the marks of the
conversation, `place.port.Snapshots` the snapshots; clients ask the user.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from functools import partial

import anyio
from msgspec.structs import asdict, replace

from refold.errors import BadInput, ToolFailed
from refold.journal.events.kinds import Checkpointed, Event, FilesRestored, Rewound
from refold.journal.state.checkpoints import Checkpoint, RewindTarget
from refold.journal.state.fold import View
from refold.place.port import Snapshots, SnapshotTaken, Trees
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.values.live import Waiting
from refold.values.path_names import below
from refold.views.escape import escape_to_one_line
from refold.views.rewind_points import (
    DriftRule,
    RewindPlan,
    RewindPoint,
    RewindPreview,
    RewindReport,
    RewindScope,
)

_MAX_NAMED_FILES = 10  # in one sentence


def plan_rewind(view: View, seq: int, scope: RewindScope) -> RewindPlan:
    """Return what a rewind to event `seq` restores.

    Raises `BadInput` if the session cannot be rewound to it.
    """
    if not 0 < seq <= view.seq:
        raise BadInput(f"there is no event {seq}: this session has {view.seq} events")
    mark = _mark(view, seq) if scope != "files" else 0
    if scope == "conversation":
        return RewindPlan(seq, scope, mark)
    stays = view.checkpoints.untouched_directories(seq)
    if scope == "files" and stays and view.checkpoints.at(seq) is None:
        raise BadInput(
            f"what was changed since event {seq} is in {_name_files(stays)}, and the session "
            "works elsewhere now: go there first (/cd)"
        )
    if scope == "files" and not view.checkpoints.checkpoints:
        raise BadInput(
            "this session has no checkpoint of files, so there is nothing to restore: "
            "only the conversation can be rewound"
        )
    return RewindPlan(seq, scope, mark, view.checkpoints.at(seq), stays)


async def preview(
    view: View, snapshots: Snapshots, seq: int, scope: RewindScope
) -> RewindPreview:
    """Return what `rewind` would do. Nothing is changed and nothing recorded."""
    result, _ = await _compare_files(view, snapshots, plan_rewind(view, seq, scope))
    return result


async def rewind(
    session: Session,
    snapshots: Snapshots,
    seq: int,
    scope: RewindScope,
    *,
    drift: DriftRule = "refuse",
    paths: Collection[str] = (),
) -> RewindReport:
    """Restore what was planned for event `seq`. Raises `BadInput`, with nothing done, if changes
    would be lost.

    Those are changes that other programs made since. With `force` they are checkpointed and then
    overwritten.
    """
    if session.running or session.view.turn.seq:
        raise BadInput("a turn of this session is running: end it, then rewind")
    planned = plan_rewind(session.view, seq, scope)
    result, snapshot = await _compare_files(session.view, snapshots, planned)
    result = _restrict(result, paths)
    if result.drift and drift == "keep":
        result = _keep_drift(result)
        paths = [change.path for change in result.changes]
    elif result.drift and drift == "refuse":
        raise BadInput(
            f"nothing was changed, because another program changed these files since: "
            f"{_name_files(result.drift)}. Give --keep-others to leave them as they are, or "
            "--force to undo that too: a checkpoint is made first, so it can be undone"
        )
    if not result.changes:
        return await _rewind_conversation(session, result)
    return await _rewind_with_files(session, snapshots, result, snapshot, tuple(paths))


def rewind_points(view: View, snapshots: Snapshots | None) -> tuple[RewindPoint, ...]:
    """The points of a session, oldest first. Reads the disk: call it from a thread."""
    gone = _messages_to_withdraw(view.checkpoints.points)
    marked = [
        candidate for candidate in view.checkpoints.points if view.mark_at(candidate.seq)
    ]
    # If both were rewound at once, the conversation's point stands for both.
    both = {candidate.seq + 1 for candidate in marked if candidate.kind == "rewound"}
    alone = (
        p for p in view.checkpoints.points if p.kind == "restored" and p.seq not in both
    )
    points = sorted((*marked, *alone), key=lambda each: each.seq)
    if not points:
        return ()
    after = [view.checkpoints.at(candidate.seq) for candidate in points[1:]] + [
        view.checkpoints.newest
    ]
    return tuple(
        RewindPoint(
            **asdict(point),
            files=_count_changed_files(view, snapshots, point, next_point),
            in_conversation=point.seq not in gone,
        )
        for point, next_point in zip(points, after, strict=True)
    )


async def _compare_files(
    view: View, snapshots: Snapshots, plan: RewindPlan
) -> tuple[RewindPreview, SnapshotTaken]:
    if plan.checkpoint is None:
        return RewindPreview(plan), SnapshotTaken(())
    try:
        snapshots.forget()  # other programs may have changed files since
        snapshot = await snapshots.take()
        changes = await anyio.to_thread.run_sync(
            snapshots.changes, snapshot.trees, plan.checkpoint.trees
        )
        drift = await anyio.to_thread.run_sync(
            _files_changed_since, view, snapshots, snapshot.trees
        )
    except ToolFailed as error:
        raise BadInput(f"the files cannot be read: {error}") from error
    alone = tuple(
        sorted(
            {root for root, _ in snapshot.trees}
            - {root for root, _ in plan.checkpoint.trees}
        )
    )
    lost = tuple(change.path for change in changes if change.path in drift)
    return RewindPreview(plan, changes, lost, alone), snapshot


def _restrict(result: RewindPreview, paths: Collection[str]) -> RewindPreview:
    """The preview for these `paths` only. Raises `BadInput` for one that has not changed."""
    if not paths:
        return result
    changed = {change.path for change in result.changes}
    for path in paths:
        for root in result.left_alone:
            if below(path.rstrip("/"), root):
                raise BadInput(
                    f"{escape_to_one_line(root)} is a git repository that is new since event "
                    f"{result.plan.seq}, and a rewind never deletes its history: "
                    "delete it yourself if you do not want it"
                )
        if path not in changed:
            raise BadInput(
                f"{escape_to_one_line(path)} is as it was before event {result.plan.seq}: "
                "there is nothing to restore"
            )
    return replace(
        result,
        changes=tuple(change for change in result.changes if change.path in paths),
        drift=tuple(path for path in result.drift if path in paths),
    )


def _keep_drift(result: RewindPreview) -> RewindPreview:
    """The preview without the files that other programs changed."""
    changes = tuple(c for c in result.changes if c.path not in result.drift)
    return replace(result, changes=changes)


def _files_changed_since(view: View, snapshots: Snapshots, trees: Trees) -> set[str]:
    if view.checkpoints.doubtful:  # interrupted: the changes may be our own
        return set()
    return {change.path for change in snapshots.changes(view.checkpoints.trees, trees)}


async def _rewind_conversation(session: Session, result: RewindPreview) -> RewindReport:
    if not result.plan.mark:
        return RewindReport(result)
    mark = result.plan.mark
    if not await session.record.append_if(
        lambda view: _events_if_idle(view, Rewound(mark)), kept=True, author="person"
    ):
        raise BadInput("a turn of this session has begun meanwhile: end it, then rewind")
    return RewindReport(result, undo=session.view.seq)


async def _rewind_with_files(
    session: Session,
    snapshots: Snapshots,
    result: RewindPreview,
    snapshot: SnapshotTaken,
    paths: tuple[str, ...],
) -> RewindReport:
    checkpoint, mark = result.plan.checkpoint, result.plan.mark
    assert checkpoint is not None  # there are changes
    record = session.record
    before = Checkpointed(snapshot.trees, snapshot.left_out)
    if not await record.append_if(
        lambda view: _events_if_idle(view, before), kept=True, author="person"
    ):
        raise BadInput("a turn of this session has begun meanwhile: end it, then rewind")
    undo = record.view.checkpoints.seq
    try:
        files = await snapshots.restore(
            snapshot.trees, checkpoint.trees, paths, partial(_show_progress, record)
        )
    except ToolFailed as error:
        await _save_checkpoint(record, snapshots)
        raise BadInput(str(error)) from error
    except anyio.get_cancelled_exc_class():
        await _save_checkpoint(record, snapshots)
        way = f"rewind to event {result.plan.seq} again to complete it"
        record.publish(
            Waiting(0, f"the rewind was interrupted: {way}, or to {undo} to undo it")
        )
        raise
    with anyio.CancelScope(shield=True):  # changes to files must be recorded
        restored = FilesRestored(checkpoint.seq, undo, files, paths)
        # The conversation first: just before that event, both are unchanged.
        events = (Rewound(mark), restored) if mark else (restored,)
        await record(*events, kept=True, author="person")
        undo = record.view.seq - 1 if mark else undo
        await _save_checkpoint(record, snapshots)
    return RewindReport(result, files, undo)


async def _save_checkpoint(record: Recorder, snapshots: Snapshots) -> None:
    """Record the files as they are now: the next rewind knows that these changes are ours."""
    with anyio.CancelScope(shield=True):
        snapshots.note_change()
        try:
            after = await snapshots.take()
            await record(Checkpointed(after.trees, after.left_out), author="place")
        except ToolFailed as error:
            snapshots.report_failure(str(error))


def _show_progress(record: Recorder, done: int, total: int) -> None:
    count = f"{done:,} of {total:,}" if total else "looking for changed files"
    record.publish(Waiting(0, f"Restoring files: {count}"))


def _events_if_idle(view: View, event: Event) -> Sequence[Event]:
    return () if view.turn.seq else (event,)


def _mark(view: View, seq: int) -> int:
    """The newest mark of the conversation that is not after `seq`."""
    index = bisect_right(view.marks, seq, key=lambda mark: mark.seq)
    if not index:
        raise BadInput(f"there was no message yet at event {seq}: choose a later one")
    return view.marks[index - 1].seq


def _count_changed_files(
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


def _messages_to_withdraw(points: Sequence[RewindTarget]) -> set[int]:
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


def _name_files(paths: Sequence[str]) -> str:
    ending = (
        f" and {len(paths) - _MAX_NAMED_FILES} more"
        if len(paths) > _MAX_NAMED_FILES
        else ""
    )
    return ", ".join(escape_to_one_line(path) for path in paths[:_MAX_NAMED_FILES]) + ending
