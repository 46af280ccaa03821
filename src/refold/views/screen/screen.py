"""Computes the content of a screen from events and live news, as one value. Pure.

Every screen is drawn from this value: the line terminal prints its new blocks, an export writes
all of them. Its value is the same whether the session was watched live or read from its
journal. `conversation` makes the messages, `tool_calls` the calls, `notices` the one-line
notices, `status` the current activity.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from refold.journal.events.kinds import (
    ChildEnded,
    Entry,
    Frame,
    SessionResumed,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state.fold import View, apply
from refold.values.growing import Log
from refold.values.live import (
    CallComing,
    ChildMoved,
    Live,
    PortsChanged,
    Progress,
    SubagentDelta,
    TextCame,
    ThinkingCame,
    Waiting,
)
from refold.views.screen import conversation, notices, status, tool_calls
from refold.views.screen.blocks import Block, Open, StreamingBlock
from refold.views.screen.status import Status

_BEGIN_KINDS = frozenset((TurnStarted, SessionResumed))


class Screen(Struct, frozen=True):
    """The content of a screen.

    The blocks in `done` no longer change; they are in the order in which they ended. Then come
    the blocks in `open`: running calls and waiting messages. The response in progress,
    `coming`, is last. `view` is the view of the session after the same events.
    """

    done: Log[Block] = field(default_factory=Log[Block])
    open: tuple[Open, ...] = ()
    coming: tuple[StreamingBlock, ...] = ()
    status: Status = Status()
    moved: tuple[ChildMoved, ...] = ()  # the latest progress of each child, newest last
    ports: tuple[int, ...] = ()  # new open ports of a workspace elsewhere
    earlier: float = 0.0  # seconds of this turn in an earlier process
    window: int = 32_000  # tokens, if the model's is unknown
    view: View = field(default_factory=View)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (*self.done, *self.open)


def apply_frame(screen: Screen, frame: Frame) -> Screen:
    """Return the screen after the event or the live news in `frame`."""
    match frame.item:
        case Entry() as entry:
            return _apply_entry(screen, entry)
        case live:
            return _apply_live(screen, live)


def screen_of(entries: Iterable[Entry], start: Screen | None = None) -> Screen:
    """Return the screen after these entries. It begins as `start`, or else empty."""
    screen = start or Screen()
    for entry in entries:
        screen = apply_frame(screen, Frame(entry.seq, 0, entry))
    return screen


def screen_at(view: View, window: int = 32_000) -> Screen:
    """Return a screen for a client that joins now: only running calls and waiting messages."""
    open_blocks = (*tool_calls.open_calls(view), *conversation.waiting_messages(view))
    return Screen(
        open=open_blocks, status=status.initial_status(open_blocks), window=window,
        view=view,
    )  # fmt: skip


def _apply_entry(screen: Screen, entry: Entry) -> Screen:
    """Return the screen after an event. Blocks that end in it move from `open` to `done`."""
    before = screen.view
    view = apply(before, entry)
    kind = type(entry.event)
    # A turn that continues here may have taken some seconds in an earlier process.
    earlier = view.turn.seconds(until=entry.at) if kind in _BEGIN_KINDS else screen.earlier
    open_blocks, new = _blocks_after(screen.open, entry, view)
    if kind in notices.EVENT_KINDS:
        new += notices.notice_blocks(entry, screen.window, before, view)
    changed: dict[str, Any] = {"view": view, "earlier": earlier, "open": open_blocks}
    if kind in status.EVENT_KINDS:
        changed["status"] = status.status_after(screen.status, entry, open_blocks)
    if screen.coming and kind in conversation.END_KINDS:
        changed["coming"] = ()
    match entry.event:
        case TurnEnded() as end:
            new.append(notices.turn_end_block(entry, end, before.turn, earlier, view))
            changed["moved"] = ()
        case ChildEnded(child):
            changed["moved"] = tuple(
                progress for progress in screen.moved if not _is_below(progress, child)
            )
        case _:
            pass
    blocks = screen.done
    for block in new:
        blocks = blocks.plus(block)
    return replace(screen, done=blocks, **changed)


def _blocks_after(
    open_blocks: tuple[Open, ...], entry: Entry, view: View
) -> tuple[tuple[Open, ...], list[Block]]:
    """Return the open blocks after this event, and the blocks that it finishes."""
    kind = type(entry.event)
    new = list[Block]()
    if kind in conversation.EVENT_KINDS:
        new += conversation.answer_blocks(entry)
    if kind in tool_calls.EVENT_KINDS:
        open_blocks, over = tool_calls.calls_after(open_blocks, entry, view)
        new += over
    if kind in conversation.EVENT_KINDS:
        new += conversation.final_answer(entry, view)
        open_blocks, delivered_blocks = conversation.message_blocks(
            open_blocks, entry, view
        )
        new += delivered_blocks
    return open_blocks, new


def _apply_live(screen: Screen, live: Live) -> Screen:
    """Return the screen after live news, which is not stored in the journal."""
    match live:
        case TextCame() | ThinkingCame() | CallComing():
            if screen.view.turn.stopped:  # an event has the text up to the stop
                return screen
            new_status = status.status_with_live(screen.status, live, screen.status.since)
            return replace(
                screen,
                coming=conversation.add_to_response(screen.coming, live),
                status=new_status,
            )
        case Progress(call_id, text):
            return replace(screen, open=tool_calls.add_output(screen.open, call_id, text))
        case Waiting():
            new_status = status.status_with_live(screen.status, live, screen.status.since)
            return replace(screen, status=new_status)
        case ChildMoved(node):
            others = (progress for progress in screen.moved if progress.node != node)
            return replace(screen, moved=(*others, live))
        case PortsChanged(ports):
            return replace(screen, ports=ports)
        case SubagentDelta():
            return screen  # the text of a subagent is not shown, only its activity


def _is_below(progress: ChildMoved, child: str) -> bool:
    """Whether the progress is that of the subagent `child` or of a subagent below it."""
    return f"{progress.node}/".startswith(f"{child}/")
