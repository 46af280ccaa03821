"""Makes a screen's blocks of tool calls, from the model's request to the result. Pure."""

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
from refold.journal.state.conversation import Stage as CallStage
from refold.journal.state.fold import View
from refold.views.screen.blocks import CallBlock, Open, Stage

EVENT_KINDS = frozenset((
    ModelAnswered, NestedCallMade, Judged, Answered, Started, Ended, Rewound, Imported,
))  # fmt: skip
_MAX_TAIL_CHARS = 1_000  # of a call's output; a client that joins late gets as much
_STAGE_NAMES: dict[CallStage, Stage] = {"asked": "asked", "started": "running"}


def calls_after(
    open_blocks: tuple[Open, ...], entry: Entry, view: View
) -> tuple[tuple[Open, ...], tuple[CallBlock, ...]]:
    """Return the open blocks after this event, and the calls that it ended."""
    match entry.event:
        case ModelAnswered(message):
            left, lost = _drop_lost_calls(open_blocks, view)
            new = (
                CallBlock(seq=entry.seq, at=entry.at, call=call) for call in message.calls
            )
            return (*left, *new), lost
        case NestedCallMade(call, within):
            block = CallBlock(seq=entry.seq, at=entry.at, call=call, within=within)
            return (*open_blocks, block), ()
        case Judged() | Answered() | Started():
            return _update_calls(open_blocks, entry, entry.event), ()
        case Ended() as end:
            return _end_call(open_blocks, entry, end)
        case Rewound() | Imported():
            return _drop_lost_calls(open_blocks, view)
        case _:
            return open_blocks, ()


def add_output(open_blocks: tuple[Open, ...], call_id: str, text: str) -> tuple[Open, ...]:
    """Return the open blocks, with `text` added to the output of the call `call_id`.

    Of the output, only the last `_MAX_TAIL_CHARS` characters are kept.
    """
    blocks = list[Open]()
    for block in open_blocks:
        if isinstance(block, CallBlock) and block.call.id == call_id:
            tail = block.tail + text[-_MAX_TAIL_CHARS:]
            blocks.append(replace(block, tail=tail[-_MAX_TAIL_CHARS:]))
        else:
            blocks.append(block)
    return tuple(blocks)


def open_calls(view: View) -> Iterator[CallBlock]:
    """Yield the calls that have not ended."""
    for call in (*view.conversation.calls, *view.conversation.nested):
        if call.result is None:
            yield _to_block(call)


def _to_block(call: OpenCall) -> CallBlock:
    """Return a call of the view as a block. The view does not have the time of the call."""
    return CallBlock(
        seq=call.called, at=0.0, call=call.call,
        stage=_STAGE_NAMES.get(call.stage, "called"),
        reason=call.reason if call.stage in ("asked", "denied") else "",
        within=call.nested.parent_call if call.nested else "",
        changes=call.changes,
    )  # fmt: skip


def _update_calls(
    open_blocks: tuple[Open, ...], entry: Entry, event: Judged | Answered | Started
) -> tuple[Open, ...]:
    """Return the open blocks, with the block of the call of `event` updated by it."""
    blocks = list[Open]()
    for block in open_blocks:
        if isinstance(block, CallBlock) and block.call.id == event.call_id:
            blocks.append(_update(block, entry, event))
        else:
            blocks.append(block)
    return tuple(blocks)


def _update(
    block: CallBlock, entry: Entry, event: Judged | Answered | Started
) -> CallBlock:
    """Return the block of a call after an event about it.

    The block's `reason` is why the user was asked or why the call was denied. Its `answered` is
    "" until the question was answered.
    """
    match event:
        case Judged(verdict="ask", reason=reason, changes=changes):
            return replace(
                block, stage="asked", reason=reason, answered="", changes=changes
            )
        # Without a question, the stage changes only when the call starts or ends.
        case Judged(verdict="deny", reason=reason):
            return replace(block, reason=reason, answered="")
        case Judged():
            return replace(block, reason="", answered="")
        case Answered(_, allowed, reason) if block.stage == "asked":
            answer = "yes"
            if not allowed:
                answer = f"no: {reason}" if reason else "no"
            return replace(block, stage="called", answered=answer)
        case Answered():  # only the first answer counts
            return block
        case Started():
            return replace(block, stage="running", began=entry.at)


def _end_call(
    open_blocks: tuple[Open, ...], entry: Entry, end: Ended
) -> tuple[tuple[Open, ...], tuple[CallBlock, ...]]:
    """Return the blocks that stay open, and those that end: the call, and calls that its code
    made.
    """
    ended = tuple(
        _end_block(block, entry, end)
        for block in open_blocks
        if isinstance(block, CallBlock) and end.call_id in (block.call.id, block.within)
    )
    if not ended:
        return open_blocks, ()
    left = (block for block in open_blocks if not _belongs_to_call(block, end.call_id))
    return tuple(left), ended


def _end_block(block: CallBlock, entry: Entry, end: Ended) -> CallBlock:
    """Return the block after the end of its call, or of the call whose code made it."""
    if block.call.id != end.call_id:
        # The call whose code made this one has ended, so it will get no result.
        return replace(block, stage="unknown", tail="", ended=entry.at)
    return replace(
        block, stage=end.outcome, tail="", ended=entry.at, text=end.text, shown=end.shown,
        whole=end.full_blob, images=end.images, control=end.control,
    )  # fmt: skip


def _belongs_to_call(block: Open, call_id: str) -> bool:
    """Whether the block is the call `call_id`, or a call that its code made."""
    return isinstance(block, CallBlock) and call_id in (block.call.id, block.within)


def _drop_lost_calls(
    open_blocks: tuple[Open, ...], view: View
) -> tuple[tuple[Open, ...], tuple[CallBlock, ...]]:
    """Return the blocks that stay open, and the calls that a rewind removed.

    These calls will get no result.
    """
    if not open_blocks:
        return (), ()
    known_calls = (*view.conversation.calls, *view.conversation.nested)
    known_ids = {known.call.id for known in known_calls}
    lost = [
        block
        for block in open_blocks
        if isinstance(block, CallBlock) and block.call.id not in known_ids
    ]
    if not lost:
        return open_blocks, ()
    left = tuple(block for block in open_blocks if block not in lost)
    return left, tuple(replace(block, stage="unknown", tail="") for block in lost)
