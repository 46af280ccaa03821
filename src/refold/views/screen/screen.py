"""Folds events and live news into one value: what a screen shows. Pure.

Every screen is drawn from this value: the line terminal prints what is new in it, an export
writes all of it. A run that was watched live and the fold of its journal give the same
value. `conversation` has the messages, `tool_calls` the calls, `notices` the one-line
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
    """`done` blocks no longer change, and are in the order in which they were finished.

    The `open` ones follow them: calls that have not ended, messages that wait. After those
    comes the response in progress. `view` is the fold of the same events.
    """

    done: Log[Block] = field(default_factory=Log[Block])
    open: tuple[Open, ...] = ()
    coming: tuple[StreamingBlock, ...] = ()
    status: Status = Status()
    moved: tuple[ChildMoved, ...] = ()  # latest of each child, newest last
    ports: tuple[int, ...] = ()  # of a workspace elsewhere, new ones that listen
    earlier: float = 0.0  # seconds of this turn before another process took it up
    window: int = 32_000  # tokens, if the model's is unknown
    view: View = field(default_factory=View)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (*self.done, *self.open)


def apply_frame(screen: Screen, frame: Frame) -> Screen:
    """The screen after this event or live news."""
    match frame.item:
        case Entry() as entry:
            return _apply_entry(screen, entry)
        case live:
            return _apply_live(screen, live)


def screen_of(entries: Iterable[Entry], start: Screen | None = None) -> Screen:
    """The screen of a journal."""
    screen = start or Screen()
    for entry in entries:
        screen = apply_frame(screen, Frame(entry.seq, 0, entry))
    return screen


def screen_at(view: View, window: int = 32_000) -> Screen:
    """A screen that starts now, with only the open blocks."""
    waiting = (*tool_calls.open_calls(view), *conversation.waiting_messages(view))
    return Screen(
        open=waiting, status=status.initial_status(waiting), window=window, view=view
    )


def _apply_entry(screen: Screen, entry: Entry) -> Screen:
    before, view = screen.view, apply(screen.view, entry)
    kind = type(entry.event)
    earlier = view.turn.seconds(until=entry.at) if kind in _BEGIN_KINDS else screen.earlier
    open_, new = _blocks(screen.open, entry, view)
    if kind in notices.EVENT_KINDS:
        new += notices.notice_blocks(entry, screen.window, before, view)
    changed: dict[str, Any] = {"view": view, "earlier": earlier, "open": open_}
    if kind in status.EVENT_KINDS:
        changed["status"] = status.status_after(screen.status, entry, open_)
    if screen.coming and kind in conversation.END_KINDS:
        changed["coming"] = ()
    match entry.event:
        case TurnEnded() as end:
            new.append(notices.turn_end_block(entry, end, before.turn, earlier, view))
            changed["moved"] = ()
        case ChildEnded(child):
            changed["moved"] = tuple(m for m in screen.moved if not _is_below(m, child))
        case _:
            pass
    blocks = screen.done
    for block in new:
        blocks = blocks.plus(block)
    return replace(screen, done=blocks, **changed)


def _blocks(
    open_: tuple[Open, ...], entry: Entry, view: View
) -> tuple[tuple[Open, ...], list[Block]]:
    """The open blocks after this event, and those that no longer change."""
    kind, new = type(entry.event), list[Block]()
    if kind in conversation.EVENT_KINDS:
        new += conversation.answer_blocks(entry)
    if kind in tool_calls.EVENT_KINDS:
        open_, over = tool_calls.calls_after(open_, entry, view)
        new += over
    if kind in conversation.EVENT_KINDS:
        new += conversation.final_answer(entry, view)
        open_, delivered_blocks = conversation.message_blocks(open_, entry, view)
        new += delivered_blocks
    return open_, new


def _apply_live(screen: Screen, live: Live) -> Screen:
    match live:
        case TextCame() | ThinkingCame() | CallComing():
            if screen.view.turn.stopped:  # an event brings the text up to the stop
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
            others = (m for m in screen.moved if m.node != node)
            return replace(screen, moved=(*others, live))
        case PortsChanged(ports):
            return replace(screen, ports=ports)
        case SubagentDelta():
            return screen  # only a child's activity is shown, not its text


def _is_below(recent: ChildMoved, child: str) -> bool:
    return f"{recent.node}/".startswith(f"{child}/")
