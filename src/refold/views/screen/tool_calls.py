"""Tool calls on a screen, from the model's call to the result. Pure."""

from collections.abc import Iterator

from msgspec.structs import replace

from refold.journal.events.kinds import (
    Answered,
    Ended,
    Entry,
    Imported,
    Judged,
    ModelAnswered,
    NestedCallMade,
    Rewound,
    Started,
)
from refold.journal.state.conversation import OpenCall
from refold.journal.state.conversation import Stage as Stood
from refold.journal.state.fold import View
from refold.views.screen.blocks import CallBlock, Open, Stage

EVENT_KINDS = frozenset((
    ModelAnswered, NestedCallMade, Judged, Answered, Started, Ended, Rewound, Imported,
))  # fmt: skip
_MAX_TAIL_CHARS = 1_000  # of a call's output; as many as a client that joins late gets
_STAGE_NAMES: dict[Stood, Stage] = {"asked": "asked", "started": "running"}


def calls_after(
    open_: tuple[Open, ...], entry: Entry, view: View
) -> tuple[tuple[Open, ...], tuple[CallBlock, ...]]:
    """The open calls after this event, and the calls that it ended."""
    match entry.event:
        case ModelAnswered(message):
            left, lost = _drop_lost_calls(open_, view)
            new = (
                CallBlock(seq=entry.seq, at=entry.at, call=call) for call in message.calls
            )
            return (*left, *new), lost
        case NestedCallMade(call, within):
            block = CallBlock(seq=entry.seq, at=entry.at, call=call, within=within)
            return (*open_, block), ()
        case Judged() | Answered() | Started():
            return _update_calls(open_, entry, entry.event), ()
        case Ended() as end:
            return _end_call(open_, entry, end)
        case Rewound() | Imported():
            return _drop_lost_calls(open_, view)
        case _:
            return open_, ()


def add_output(open_: tuple[Open, ...], call_id: str, text: str) -> tuple[Open, ...]:
    """Add output to the block of its call."""
    return tuple(
        replace(b, tail=(b.tail + text[-_MAX_TAIL_CHARS:])[-_MAX_TAIL_CHARS:])
        if isinstance(b, CallBlock) and b.call.id == call_id
        else b
        for b in open_
    )


def open_calls(view: View) -> Iterator[CallBlock]:
    """The calls that have not ended."""
    for call in (*view.conversation.calls, *view.conversation.nested):
        if call.result is None:
            yield _to_block(call)


def _to_block(call: OpenCall) -> CallBlock:
    return CallBlock(
        seq=call.called, at=0.0, call=call.call,
        stage=_STAGE_NAMES.get(call.stage, "called"),
        reason=call.reason if call.stage in ("asked", "denied") else "",
        within=call.nested.parent_call if call.nested else "",
        changes=call.changes,
    )  # fmt: skip


def _update_calls(
    open_: tuple[Open, ...], entry: Entry, event: Judged | Answered | Started
) -> tuple[Open, ...]:
    return tuple(
        _update(b, entry, event)
        if isinstance(b, CallBlock) and b.call.id == event.call_id
        else b
        for b in open_
    )


def _update(
    block: CallBlock, entry: Entry, event: Judged | Answered | Started
) -> CallBlock:
    match event:
        case Judged(verdict="ask", reason=reason, changes=changes):
            return replace(
                block, stage="asked", reason=reason, answered="", changes=changes
            )
        case Judged(_, verdict, reason=reason):
            denied = reason if verdict == "deny" else ""
            return replace(block, reason=denied, answered="")
        case Answered(_, allowed, reason) if block.stage == "asked":  # the first wins
            answer = "yes" if allowed else f"no: {reason}" if reason else "no"
            return replace(block, stage="called", answered=answer)
        case Answered():
            return block
        case Started():
            return replace(block, stage="running", began=entry.at)


def _end_call(
    open_: tuple[Open, ...], entry: Entry, end: Ended
) -> tuple[tuple[Open, ...], tuple[CallBlock, ...]]:
    over = tuple(
        _end_block(b, entry, end)
        for b in open_
        if isinstance(b, CallBlock) and end.call_id in (b.call.id, b.within)
    )
    if not over:
        return open_, ()
    left = (b for b in open_ if not _is_call(b, end.call_id))
    return tuple(left), over


def _end_block(block: CallBlock, entry: Entry, end: Ended) -> CallBlock:
    if block.call.id != end.call_id:  # its code has ended and cannot get the result
        return replace(block, stage="unknown", tail="", ended=entry.at)
    return replace(
        block, stage=end.outcome, tail="", ended=entry.at, text=end.text, shown=end.shown,
        whole=end.full_blob, images=end.images, control=end.control,
    )  # fmt: skip


def _is_call(block: Open, call_id: str) -> bool:
    return isinstance(block, CallBlock) and call_id in (block.call.id, block.within)


def _drop_lost_calls(
    open_: tuple[Open, ...], view: View
) -> tuple[tuple[Open, ...], tuple[CallBlock, ...]]:
    """Separate calls that can no longer end because the conversation was rewound."""
    if not open_:
        return (), ()
    known = {c.call.id for c in (*view.conversation.calls, *view.conversation.nested)}
    lost = [b for b in open_ if isinstance(b, CallBlock) and b.call.id not in known]
    left = tuple(b for b in open_ if b not in lost) if lost else open_
    return left, tuple(replace(b, stage="unknown", tail="") for b in lost)
