"""Describes the current activity of a session in a few words. Pure.

The client has the clock, and shows for how long the activity has lasted.
"""

from collections.abc import Sequence
from math import ceil

from msgspec import Struct

from refold.journal.events.kinds import (
    Answered,
    Compacted,
    Ended,
    Entry,
    FilesRestored,
    Imported,
    Judged,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Reserved,
    Rewound,
    Settled,
    Started,
    TurnEnded,
)
from refold.values.live import CallComing, Live, TextCame, ThinkingCame, Waiting
from refold.views.escape import escape_to_one_line
from refold.views.screen.blocks import CallBlock, Open

EVENT_KINDS = frozenset((
    ModelAsked, Reserved, Settled, ModelAnswered, ModelFailed, Judged, Answered, Started, Ended,
    Compacted, Rewound, FilesRestored, TurnEnded, Imported,
))  # fmt: skip
_MAX_NAMED_PORTS = 3
_SIDE_CALL_PREFIX = "requesting a"


class Status(Struct, frozen=True):
    """The current activity. `since` is the time of the event that began it."""

    doing: str = ""  # "thinking", "running"; "": idle, or visible from the blocks
    since: float = 0.0
    reason: str = ""  # why it waits
    seconds: float = 0.0  # until the next attempt; 0: unknown
    tries: int = 0  # number of waits for this response
    attempt: int = 0  # the number of the next attempt; 0: not counted
    attempts: int = 0  # the maximum; 0: no limit


def status_after(status: Status, entry: Entry, open_blocks: Sequence[Open]) -> Status:
    """Return the status after an event. `open_blocks` are those after the event.

    A side call is a model call outside of the conversation. Its end changes the status only
    if the status is about a side call. If the activity is the same as before, the status
    keeps its time.
    """
    match entry.event:
        case ModelAsked():
            return Status("thinking", entry.at)
        case Reserved(purpose):
            return Status(f"{_SIDE_CALL_PREFIX} {escape_to_one_line(purpose)}", entry.at)
        case Settled() if not status.doing.startswith(_SIDE_CALL_PREFIX):
            return status
        case (
            ModelAnswered() | ModelFailed() | Judged() | Answered() | Started() | Ended()
            | Compacted() | Settled() | Rewound() | FilesRestored()
        ):  # fmt: skip
            doing = call_activity(open_blocks)
            if doing == status.doing:
                return status
            return Status(doing, entry.at)
        case TurnEnded() | Imported():
            return Status()
        case _:
            return status


def call_activity(open_blocks: Sequence[Open]) -> str:
    """Return "running" if one of these blocks is a running call; otherwise ""."""
    is_running = any(
        isinstance(block, CallBlock) and block.stage == "running" for block in open_blocks
    )
    return "running" if is_running else ""


def status_with_live(status: Status, live: Live, since: float) -> Status:
    """Return the status after live news. A new activity counts as begun at the time `since`."""
    match live:
        case TextCame(text):
            return Status("", since) if status.doing and text.strip() else status
        case ThinkingCame() if status.doing == "waiting":
            return Status("thinking", since, tries=status.tries)
        case CallComing(name):
            return Status(f"writing a call of {escape_to_one_line(name)}", since)
        case Waiting(seconds, reason, attempt, attempts):
            tries = status.tries + 1
            return Status("waiting", since, reason, seconds, tries, attempt, attempts)
        case _:
            return status


def attempt_text(status: Status, seconds: float) -> str:
    """Return a text with the number of the next attempt at a model call, and the seconds until
    it.
    """
    total = f" of {status.attempts}" if status.attempts else ""
    return (
        f"attempt {status.attempt}{total}, next in {ceil(max(seconds, 0.0))} s, Esc stops"
    )


def ports_text(ports: Sequence[int]) -> str:
    """Return a text with the new ports of a workspace on another machine; "" without any."""
    if not ports:
        return ""
    numbers = [str(port) for port in ports[:_MAX_NAMED_PORTS]]
    if len(ports) > _MAX_NAMED_PORTS:
        numbers.append("…")
    noun = "port" if len(ports) == 1 else "ports"
    return f"{noun} {', '.join(numbers)}"


def initial_status(open_blocks: Sequence[Open]) -> Status:
    """Return the status for a client that joins now. The session may be running."""
    return Status(call_activity(open_blocks))
