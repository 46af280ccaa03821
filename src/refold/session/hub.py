"""Publishes events and live news to the watchers of a session.

Live news is text or progress that is never recorded. Most events are published as soon as they
are written. An acknowledgement (the end of a turn, a message, an answer to a question, the
start of a call that has effects) is published once it would survive a power failure, and
everything that follows it waits, too. Listeners in this process get all events at once.

A watcher gets every event, but may miss live news. Each frame is numbered (seq, n): the n-th
piece of live news after event `seq`. A watcher that joins late first gets the output of open
responses and calls, so it sees what all other watchers see. A watcher that does not keep up is
disconnected, and joins again from the journal. A watcher can also set a lower limit for live
news: if more frames wait, live news is left out until the next model call, while events still
arrive.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from math import inf
from typing import TypeAlias

import anyio
from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.kinds import (
    ChildEnded,
    Ended,
    Entry,
    Frame,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Stopped,
    TurnEnded,
)
from refold.values.live import (
    ChildMoved,
    Live,
    PortsChanged,
    Progress,
    TextCame,
    ThinkingCame,
    stream_key,
)

Kinds: TypeAlias = tuple[type, ...]  # kinds of events and of live news

_TEXT_TYPES = TextCame | ThinkingCame | Progress
_MAX_PIECES = 2_000  # pieces of one call's live output that are stored for late joiners


class Subscription:
    """A watcher's subscription: iterate over `frames`, and `close` it. It ends when the
    hub closes.
    """

    def __init__(
        self, hub: "Hub", limit: float, limit_for_live: float, kinds: Kinds
    ) -> None:
        self._hub = hub
        self._kinds = kinds
        self._max_frames = limit  # frames that may wait before the watcher is disconnected
        # Frames that may wait before live news is left out.
        self._max_frames_for_live = limit_for_live
        self._skips_live = False
        self._frames: deque[Frame] = deque()
        self._news = anyio.Event()  # set when a frame is queued, or at `close`
        self.closed = False
        self.cut_off = False  # closed because the watcher was too slow

    def put(self, frame: Frame) -> None:
        """Queue a frame for the watcher, if its kind is wanted.

        If many frames wait, live news is left out until the next model call. If even more wait,
        the watcher is disconnected.
        """
        is_live = not isinstance(frame.item, Entry)
        content = frame.item.event if isinstance(frame.item, Entry) else frame.item
        if self._kinds and not isinstance(content, self._kinds):
            return
        if len(self._frames) >= self._max_frames:
            self.cut_off = True
            self.close()
            return
        if isinstance(content, ModelAsked):
            self._skips_live = False
        elif is_live and len(self._frames) >= self._max_frames_for_live:
            self._skips_live = True
        if is_live and self._skips_live:
            return
        self._frames.append(frame)
        self._news.set()

    @property
    def waiting(self) -> int:
        """The number of frames that have not been taken yet."""
        return len(self._frames)

    @property
    def outstanding(self) -> int:
        """The number of frames not taken yet, including those that wait until an event
        is durable.
        """
        return self.waiting + self._hub.count_held(self)

    def close(self) -> None:
        """End the subscription. Frames that wait can still be taken."""
        self.closed = True
        self._hub.leave(self)
        self._news.set()

    def frames(self) -> AsyncGenerator[Frame, None]:
        """Yield all frames since this watcher joined."""
        return self._follow(self._frames.popleft)

    def merge_frames(self) -> AsyncGenerator[Frame, None]:
        """Yield the frames. Waiting pieces of the same text are joined into one frame.

        The joined frame has the number of the last piece.
        """
        return self._follow(self._gather)

    async def _follow(self, take: Callable[[], Frame]) -> AsyncGenerator[Frame, None]:
        """Yield the frames that `take` returns, until the subscription is closed.

        `take` is called while frames wait, and removes the frames that it returns.
        """
        try:
            while True:
                while self._frames:
                    yield take()
                if self.closed:
                    return
                self._news = anyio.Event()
                await self._news.wait()
        finally:
            self.close()

    def _gather(self) -> Frame:
        """Return the next frame, joined with the waiting pieces that continue its text."""
        frame = self._frames.popleft()
        if isinstance(frame.item, Entry):
            return frame
        pieces: list[Live] = [frame.item]
        while self._frames:
            next_item = self._frames[0].item
            if isinstance(next_item, Entry) or not _continues(pieces[0], next_item):
                break
            pieces.append(next_item)
            frame = self._frames.popleft()
        return Frame(frame.seq, frame.n, _join(pieces))


class _HeldFrame(Struct, frozen=True):
    """A frame that waits until its event is durable, and the watchers that will get the frame.

    If `is_durable`, the frame only waits for an earlier one.
    """

    frame: Frame
    is_durable: bool
    watches: tuple[Subscription, ...]


class Hub:
    def __init__(self) -> None:
        self._watches: list[Subscription] = []
        self._listeners: list[Callable[[Entry], None]] = []
        self._seq = 0  # of the last event
        self._n = 0  # the number of the last live news after that event
        # The live news of each open response and call, by `stream_key`.
        self._open: dict[Hashable, list[Live]] = {}
        # An acknowledgement that is not durable yet, and the frames after it.
        self._held = deque[_HeldFrame]()

    def watch(
        self, limit: float = inf, *, live: float = inf, kinds: Kinds = ()
    ) -> Subscription:
        """Subscribe to the session from now on.

        If more than `limit` frames wait, the subscription is closed. If `live` frames or
        more wait, live news is left out until the next model call. `kinds` lists the kinds
        of events and news to send; empty means all.
        """
        watch = Subscription(self, limit, live, kinds)
        for n, so_far in enumerate(self._open.values(), start=1):
            watch.put(Frame(self._seq, n, _join(so_far)))
        self._n = max(self._n, len(self._open))  # later frames get higher numbers
        self._watches.append(watch)
        return watch

    def subscribe(self, listener: Callable[[Entry], None]) -> Callable[[], None]:
        """Call `listener` synchronously at each event, until the returned function is
        called.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def leave(self, watch: Subscription) -> None:
        if watch in self._watches:
            self._watches.remove(watch)

    def close(self) -> None:
        for watch in tuple(self._watches):
            watch.close()

    def publish(self, entry: Entry, *, kept: bool = True) -> None:
        """Send an event to the listeners at once, and to the watchers.

        `kept` says that the event is durable. If it is not durable, and is an
        acknowledgement, watchers get the event and all later frames only after `release`.
        """
        self._seq = entry.seq
        self._n = 0
        match entry.event:
            case Ended(call_id=call_id):
                self._open.pop((Progress, call_id), None)
            case ModelAnswered() | ModelFailed() | Stopped():
                self._open.pop(TextCame, None)
                self._open.pop(ThinkingCame, None)
            case ChildEnded(child):
                self._open = {
                    key: pieces
                    for key, pieces in self._open.items()
                    if not _is_about(pieces, child)
                }
            case TurnEnded():
                # The programs still listen on these ports.
                ports = self._open.get(PortsChanged)
                self._open = {PortsChanged: ports} if ports else {}
            case _:
                pass
        for listener in tuple(self._listeners):
            listener(entry)
        self._send(Frame(entry.seq, 0, entry), kept=kept)

    @property
    def holds_frames(self) -> bool:
        """Whether an acknowledgement still waits until it is durable."""
        return bool(self._held)

    def count_held(self, watch: Subscription) -> int:
        """Return the number of frames that this watcher gets once they are durable."""
        return sum(watch in item.watches for item in self._held)

    def release(self, seq: int) -> None:
        """Send the frames that waited for events up to `seq` to be durable."""
        while self._held:
            oldest = self._held[0]
            if not oldest.is_durable and oldest.frame.seq > seq:
                return
            self._held.popleft()
            for watch in oldest.watches:
                if not watch.closed:
                    watch.put(oldest.frame)

    def discard_lost(self, end: int) -> None:
        """Discard the waiting frames of events that were lost: the journal now ends with event
        `end`.
        """
        self._held = deque(item for item in self._held if item.frame.seq <= end)
        self._seq = min(self._seq, end)

    def publish_live(self, live: Live) -> None:
        """Send live news to the watchers, and store it for watchers that join later."""
        self._n += 1
        key = stream_key(live)
        # Of these kinds, only the newest news is stored. It moves to the end.
        if isinstance(live, ChildMoved | PortsChanged):
            self._open.pop(key, None)
        if key is not None:  # None: output of a child, which its own hub stores
            so_far = self._open.setdefault(key, [])
            so_far.append(live)
            if isinstance(live, Progress) and len(so_far) > _MAX_PIECES:
                del so_far[: _MAX_PIECES // 2]
        self._send(Frame(self._seq, self._n, live))

    def _send(self, frame: Frame, *, kept: bool = True) -> None:
        """Send a frame to the watchers: now, or once all frames up to it are durable."""
        if self._held or not kept:
            # A watcher that joins later gets the content of this frame from the view.
            watches = tuple(self._watches)
            self._held.append(_HeldFrame(frame, is_durable=kept, watches=watches))
            return
        for watch in tuple(self._watches):
            watch.put(frame)


def _is_about(pieces: Sequence[Live], child: str) -> bool:
    """Whether the news is about this child, or about a subagent below the child."""
    first = pieces[0]
    # The slashes keep child-1 apart from child-10.
    return isinstance(first, ChildMoved) and f"{first.node}/".startswith(f"{child}/")


def _continues(live: Live, next_live: Live) -> bool:
    """Whether `next_live` is the next piece of the text to which `live` belongs."""
    return isinstance(live, _TEXT_TYPES) and stream_key(live) == stream_key(next_live)


def _join(pieces: Sequence[Live]) -> Live:
    """Join the pieces of one stream. News that is not text has one piece."""
    first = pieces[0]
    if not isinstance(first, _TEXT_TYPES):
        return first
    texts = (piece.text for piece in pieces if isinstance(piece, _TEXT_TYPES))
    return replace(first, text="".join(texts))
