"""Rewind: restores the conversation, the files or both to their state before an event.

`plan_rewind` is pure: it returns what can be restored at an event. `preview` reads, and changes
nothing. `rewind` restores, and reports how to undo that. The fold stores the marks of the
conversation, and `place.port.Snapshots` stores the snapshots of files. Clients ask the user.
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
    """Return what a rewind to event `seq` restores: by `scope`, conversation, files or both.

    Raises `BadInput` if the session cannot be rewound to that event.
    """
    if not 0 < seq <= view.seq:
        raise BadInput(f"there is no event {seq}: this session has {view.seq} events")
    mark = _newest_mark(view, seq) if scope != "files" else 0
    if scope == "conversation":
        return RewindPlan(seq, scope, mark)
    untouched = view.checkpoints.untouched_directories(seq)
    if scope == "files" and untouched and view.checkpoints.at(seq) is None:
        raise BadInput(
            f"what was changed since event {seq} is in {_name_files(untouched)}, and the session "
            "works elsewhere now: go there first (/cd)"
        )
    if scope == "files" and not view.checkpoints.checkpoints:
        raise BadInput(
            "this session has no checkpoint of files, so there is nothing to restore: "
            "only the conversation can be rewound"
        )
    return RewindPlan(seq, scope, mark, view.checkpoints.at(seq), untouched)


async def preview(
    view: View, snapshots: Snapshots, seq: int, scope: RewindScope
) -> RewindPreview:
    """Return what `rewind` would do. Nothing is changed or recorded."""
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
    """Restore what `plan_rewind` returns for event `seq`; of the files, only `paths` if
    given.

    `drift` is for files that other programs have changed since the snapshot. With "refuse",
    `BadInput` is raised and nothing is restored. With "keep", these files are left as they
    are. With "overwrite", they are restored after a checkpoint of their content.
    """
    if session.running or session.view.turn.seq:
        raise BadInput("a turn of this session is running: end it, then rewind")
    planned = plan_rewind(session.view, seq, scope)
    result, snapshot = await _compare_files(session.view, snapshots, planned)
    result = _restrict(result, paths)
    paths_to_restore = tuple(paths)
    if result.drift and drift == "keep":
        result = _keep_drift(result)
        paths_to_restore = tuple(change.path for change in result.changes)
    elif result.drift and drift == "refuse":
        raise BadInput(
            f"nothing was changed, because another program changed these files since: "
            f"{_name_files(result.drift)}. Give --keep-others to leave them as they are, or "
            "--force to undo that too: a checkpoint is made first, so it can be undone"
        )
    if not result.changes:
        return await _rewind_conversation(session, result)
    return await _rewind_with_files(session, snapshots, result, snapshot, paths_to_restore)


def rewind_points(view: View, snapshots: Snapshots | None) -> tuple[RewindPoint, ...]:
    """Return the points to which a session can be rewound, oldest first.

    The function reads the disk: call it in a thread.
    """
    rewound = _rewound_messages(view.checkpoints.points)
    marked = [point for point in view.checkpoints.points if view.mark_at(point.seq)]
    # A rewind of both is two events in a row; only that of the conversation is listed.
    second_events = {point.seq + 1 for point in marked if point.kind == "rewound"}
    files_only = [
        point
        for point in view.checkpoints.points
        if point.kind == "restored" and point.seq not in second_events
    ]
    points = sorted((*marked, *files_only), key=lambda point: point.seq)
    if not points:
        return ()
    checkpoints_after = [view.checkpoints.at(next_point.seq) for next_point in points[1:]]
    checkpoints_after.append(view.checkpoints.newest)
    return tuple(
        RewindPoint(
            **asdict(point),
            files=_count_changed_files(view, snapshots, point, after),
            in_conversation=point.seq not in rewound,
        )
        for point, after in zip(points, checkpoints_after, strict=True)
    )


async def _compare_files(
    view: View, snapshots: Snapshots, plan: RewindPlan
) -> tuple[RewindPreview, SnapshotTaken]:
    """Return what the rewind would change, and a new snapshot of the present files."""
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
    present_roots = {root for root, _ in snapshot.trees}
    roots_then = {root for root, _ in plan.checkpoint.trees}
    new_roots = tuple(sorted(present_roots - roots_then))  # a rewind never deletes them
    drift_to_undo = tuple(change.path for change in changes if change.path in drift)
    return RewindPreview(plan, changes, drift_to_undo, new_roots), snapshot


def _restrict(result: RewindPreview, paths: Collection[str]) -> RewindPreview:
    """Return the preview, limited to these `paths`.

    Raises `BadInput` for a path that has not changed.
    """
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
    """Return the preview without the files that other programs changed."""
    changes = tuple(c for c in result.changes if c.path not in result.drift)
    return replace(result, changes=changes)


def _files_changed_since(view: View, snapshots: Snapshots, trees: Trees) -> set[str]:
    """Return the files that other programs changed between the last checkpoint and `trees`."""
    if view.checkpoints.doubtful:  # after an interruption, the changes may be refold's own
        return set()
    return {change.path for change in snapshots.changes(view.checkpoints.trees, trees)}


async def _rewind_conversation(session: Session, result: RewindPreview) -> RewindReport:
    """Record the rewind of the conversation, unless the plan leaves the conversation
    unchanged.
    """
    if not result.plan.mark:
        return RewindReport(result)
    rewound = Rewound(result.plan.mark)
    rewound_seq = 0  # `make_events` sets it

    def make_events(view: View) -> Sequence[Event]:
        nonlocal rewound_seq
        rewound_seq = view.seq + 1  # others may append events before `append_if` returns
        return _events_if_idle(view, rewound)

    if not await session.record.append_if(make_events, kept=True, author="person"):
        raise BadInput("a turn of this session has begun meanwhile: end it, then rewind")
    return RewindReport(result, undo=rewound_seq)


async def _rewind_with_files(
    session: Session,
    snapshots: Snapshots,
    result: RewindPreview,
    snapshot: SnapshotTaken,
    paths: tuple[str, ...],
) -> RewindReport:
    """Restore the files, and rewind the conversation, too, if the plan has a mark for it.

    `snapshot`, the state before the rewind, is recorded as a checkpoint to return to.
    """
    mark = result.plan.mark
    checkpoint = result.plan.checkpoint
    assert checkpoint is not None  # a file changed, so a checkpoint exists
    record = session.record
    before = Checkpointed(snapshot.trees, snapshot.left_out)
    is_recorded = await record.append_if(
        lambda view: _events_if_idle(view, before), kept=True, author="person"
    )
    if not is_recorded:
        raise BadInput("a turn of this session has begun meanwhile: end it, then rewind")
    before_seq = record.view.checkpoints.seq
    try:
        files = await snapshots.restore(
            snapshot.trees, checkpoint.trees, paths, partial(_show_progress, record)
        )
    except ToolFailed as error:
        await _save_checkpoint(record, snapshots)
        raise BadInput(str(error)) from error
    except anyio.get_cancelled_exc_class():
        await _save_checkpoint(record, snapshots)
        advice = f"rewind to event {result.plan.seq} again to complete it"
        reason = f"the rewind was interrupted: {advice}, or to {before_seq} to undo it"
        record.publish(Waiting(seconds=0, reason=reason))
        raise
    restored = FilesRestored(checkpoint.seq, before_seq, files, paths)
    first_seq = 0  # `make_events` sets it

    def make_events(view: View) -> Sequence[Event]:
        nonlocal first_seq
        first_seq = view.seq + 1
        # `rewind_points` expects `Rewound` first, and lists only this one of the two.
        return (Rewound(mark), restored) if mark else (restored,)

    with anyio.CancelScope(shield=True):  # changes to files must be recorded
        await record.append_if(make_events, kept=True, author="person")
        await _save_checkpoint(record, snapshots)
    return RewindReport(result, files, undo=first_seq if mark else before_seq)


async def _save_checkpoint(record: Recorder, snapshots: Snapshots) -> None:
    """Record a checkpoint of the present files.

    Otherwise the next rewind would take the changes of this rewind for changes by another
    program.
    """
    with anyio.CancelScope(shield=True):
        snapshots.note_change()
        try:
            after = await snapshots.take()
            await record(Checkpointed(after.trees, after.left_out), author="place")
        except ToolFailed as error:
            snapshots.report_failure(str(error))


def _show_progress(record: Recorder, done: int, total: int) -> None:
    count = f"{done:,} of {total:,}" if total else "looking for changed files"
    record.publish(Waiting(seconds=0, reason=f"Restoring files: {count}"))


def _events_if_idle(view: View, event: Event) -> Sequence[Event]:
    """Return the event; none while a turn runs."""
    return () if view.turn.seq else (event,)


def _newest_mark(view: View, seq: int) -> int:
    """Return the event of the newest mark at or before `seq`. Raises `BadInput` if there is
    none.
    """
    index = bisect_right(view.marks, seq, key=lambda mark: mark.seq)
    if not index:
        raise BadInput(f"there was no message yet at event {seq}: choose a later one")
    return view.marks[index - 1].seq


def _count_changed_files(
    view: View, snapshots: Snapshots | None, point: RewindTarget, after: Checkpoint | None
) -> int | None:
    """Return the number of files that changed between `point` and the checkpoint `after`.

    If `after` is None, the newest checkpoint is used. Return None if the number is unknown.
    """
    before = view.checkpoints.at(point.seq)
    after = after or view.checkpoints.newest
    if before is None or before.seq >= after.seq:
        return 0
    if snapshots is None:
        return None
    try:
        return len(snapshots.changes(before.trees, after.trees))
    except ToolFailed:  # the snapshot is lost; the conversation can still be rewound
        return None


def _rewound_messages(points: Sequence[RewindTarget]) -> set[int]:
    """Return the event numbers of the messages that a rewind removed from the conversation."""
    seqs = list[int]()
    conversations = list[tuple[int, ...]]()  # the messages after each point
    conversation: tuple[int, ...] = ()
    for point in points:
        if point.kind == "rewound":  # the conversation is as it was before event `to`
            before = bisect_left(seqs, point.to)
            conversation = conversations[before - 1] if before else ()
        elif point.kind == "said":
            conversation = (*conversation, point.seq)
        seqs.append(point.seq)
        conversations.append(conversation)
    return {point.seq for point in points if point.kind == "said"} - set(conversation)


def _name_files(paths: Sequence[str]) -> str:
    """Return the names of the first files, and how many more there are."""
    names = ", ".join(map(escape_to_one_line, paths[:_MAX_NAMED_FILES]))
    unnamed = len(paths) - _MAX_NAMED_FILES
    return f"{names} and {unnamed} more" if unnamed > 0 else names
