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

KINDS = frozenset((
    ModelAnswered, NestedCallMade, Judged, Answered, Started, Ended, Rewound, Imported,
))  # fmt: skip
_TAIL = 1_000  # characters of what a call prints: no fewer come to whoever joins late
_STAGES: dict[Stood, Stage] = {"asked": "asked", "started": "running"}


def after(
    open_: tuple[Open, ...], entry: Entry, view: View
) -> tuple[tuple[Open, ...], tuple[CallBlock, ...]]:
    """The open calls after this event, and those that ended with it."""
    match entry.event:
        case ModelAnswered(message):
            left, lost = _lost(open_, view)
            new = (
                CallBlock(seq=entry.seq, at=entry.at, call=call) for call in message.calls
            )
            return (*left, *new), lost
        case NestedCallMade(call, within):
            made = CallBlock(seq=entry.seq, at=entry.at, call=call, within=within)
            return (*open_, made), ()
        case Judged() | Answered() | Started():
            return _moved(open_, entry, entry.event), ()
        case Ended() as end:
            return _ended(open_, entry, end)
        case Rewound() | Imported():
            return _lost(open_, view)
        case _:
            return open_, ()


def printed(open_: tuple[Open, ...], call_id: str, text: str) -> tuple[Open, ...]:
    """The open blocks after a call has printed this."""
    return tuple(
        replace(b, tail=(b.tail + text[-_TAIL:])[-_TAIL:])
        if isinstance(b, CallBlock) and b.call.id == call_id
        else b
        for b in open_
    )


def standing(view: View) -> Iterator[CallBlock]:
    """The calls that have not ended."""
    for found in (*view.conversation.calls, *view.conversation.nested):
        if found.result is None:
            yield _as_it_stands(found)


def _as_it_stands(found: OpenCall) -> CallBlock:
    return CallBlock(
        seq=found.called, at=0.0, call=found.call,
        stage=_STAGES.get(found.stage, "called"),
        reason=found.reason if found.stage in ("asked", "denied") else "",
        within=found.nested.parent_call if found.nested else "",
        changes=found.changes,
    )  # fmt: skip


def _moved(
    open_: tuple[Open, ...], entry: Entry, event: Judged | Answered | Started
) -> tuple[Open, ...]:
    return tuple(
        _on(b, entry, event)
        if isinstance(b, CallBlock) and b.call.id == event.call_id
        else b
        for b in open_
    )


def _on(block: CallBlock, entry: Entry, event: Judged | Answered | Started) -> CallBlock:
    match event:
        case Judged(verdict="ask", reason=reason, changes=changes):
            return replace(
                block, stage="asked", reason=reason, answered="", changes=changes
            )
        case Judged(_, verdict, reason=reason):
            denied = reason if verdict == "deny" else ""
            return replace(block, reason=denied, answered="")
        case Answered(_, allowed, reason) if block.stage == "asked":  # the first wins
            said = "yes" if allowed else f"no: {reason}" if reason else "no"
            return replace(block, stage="called", answered=said)
        case Answered():
            return block
        case Started():
            return replace(block, stage="running", began=entry.at)


def _ended(
    open_: tuple[Open, ...], entry: Entry, end: Ended
) -> tuple[tuple[Open, ...], tuple[CallBlock, ...]]:
    over = tuple(
        _over(b, entry, end)
        for b in open_
        if isinstance(b, CallBlock) and end.call_id in (b.call.id, b.within)
    )
    if not over:
        return open_, ()
    left = (b for b in open_ if not _is_of(b, end.call_id))
    return tuple(left), over


def _over(block: CallBlock, entry: Entry, end: Ended) -> CallBlock:
    if block.call.id != end.call_id:  # its code is no more there to hear of it
        return replace(block, stage="unknown", tail="", ended=entry.at)
    return replace(
        block, stage=end.outcome, tail="", ended=entry.at, text=end.text, shown=end.shown,
        whole=end.full_blob, images=end.images, control=end.control,
    )  # fmt: skip


def _is_of(block: Open, call_id: str) -> bool:
    return isinstance(block, CallBlock) and call_id in (block.call.id, block.within)


def _lost(
    open_: tuple[Open, ...], view: View
) -> tuple[tuple[Open, ...], tuple[CallBlock, ...]]:
    """Calls that cannot end any more, because the conversation was rewound past them."""
    if not open_:
        return (), ()
    known = {c.call.id for c in (*view.conversation.calls, *view.conversation.nested)}
    lost = [b for b in open_ if isinstance(b, CallBlock) and b.call.id not in known]
    left = tuple(b for b in open_ if b not in lost) if lost else open_
    return left, tuple(replace(b, stage="unknown", tail="") for b in lost)
