"""Publishes events and live news to the watchers of a session.

Watchers get an event when it is written, and an acknowledgement when it is kept: the
end of a turn, a message, an answer to a question, the start of a call that has effects. What
comes after an acknowledgement waits with it. Listeners in this process get all events at
once.

Events are what was written; live news (pieces of text, progress) may be missed and is never
recorded. Each frame is numbered (seq, n): the n-th piece of live news after event `seq`. A
watcher that joins late first gets what open responses and calls have produced, so it sees
what all others see. One that does not keep up is disconnected, and joins again from the
journal. One that wants every event may be sent no live news until the next model call.
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

Kinds: TypeAlias = tuple[type, ...]  # of events and of live news

_TEXT_TYPES = TextCame | ThinkingCame | Progress
_MAX_PIECES = 2_000  # of one call's live output that are kept for late joiners


class Subscription:
    """A watcher's subscription: iterate over it, or `close` it. It ends when the hub
    closes.
    """

    def __init__(self, hub: "Hub", limit: float, live: float, kinds: Kinds) -> None:
        self._hub, self._limit, self._live = hub, limit, live
        self._only = kinds
        self._behind = False
        self._frames: deque[Frame] = deque()
        self._news = anyio.Event()
        self.closed = self.cut_off = False

    def put(self, frame: Frame) -> None:
        news = frame.item.event if isinstance(frame.item, Entry) else frame.item
        if self._only and not isinstance(news, self._only):
            return
        if len(self._frames) >= self._limit:
            self.cut_off = True
            self.close()
            return
        # A watcher that missed live news gets no more until the next model call.
        if not isinstance(frame.item, Entry):
            self._behind = self._behind or len(self._frames) >= self._live
            if self._behind:
                return
        elif isinstance(news, ModelAsked):
            self._behind = False
        self._frames.append(frame)
        self._news.set()

    @property
    def waiting(self) -> int:
        """The number of frames that have not been taken yet."""
        return len(self._frames)

    @property
    def outstanding(self) -> int:
        """Like `waiting`, with the frames that follow once they are kept."""
        return self.waiting + self._hub.unkept_count(self)

    def close(self) -> None:
        self.closed = True
        self._hub.leave(self)
        self._news.set()

    def frames(self) -> AsyncGenerator[Frame, None]:
        """All frames since this watcher joined."""
        return self._follow(self._frames.popleft)

    def merge_frames(self) -> AsyncGenerator[Frame, None]:
        """Like `frames`, but merges waiting pieces of one text under the last number."""
        return self._follow(self._gather)

    async def _follow(self, take: Callable[[], Frame]) -> AsyncGenerator[Frame, None]:
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


class _Unkept(Struct, frozen=True):
    """A waiting frame and its watchers; `kept`: it waits only for the frames before it."""

    frame: Frame
    kept: bool
    watches: tuple[Subscription, ...]


class Hub:
    def __init__(self) -> None:
        self._watches: list[Subscription] = []
        self._listeners: list[Callable[[Entry], None]] = []
        self._seq = self._n = 0
        self._open: dict[Hashable, list[Live]] = {}  # pieces so far, by `speaker`
        self._unkept = deque[_Unkept]()  # an acknowledgement, and the frames behind it

    def watch(
        self, limit: float = inf, *, live: float = inf, kinds: Kinds = ()
    ) -> Subscription:
        """Follow the session from now on. With over `limit` frames waiting, it is cut off.

        While `live` frames wait, live news is left out. `kinds` lists the kinds of events
        and news to send; empty means all.
        """
        watch = Subscription(self, limit, live, kinds)
        for n, so_far in enumerate(self._open.values(), start=1):
            watch.put(Frame(self._seq, n, _join(so_far)))
        self._n = max(self._n, len(self._open))  # later frames get higher numbers
        self._watches.append(watch)
        return watch

    def subscribe(self, listener: Callable[[Entry], None]) -> Callable[[], None]:
        """Call `listener` at each event, at once, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def leave(self, watch: Subscription) -> None:
        if watch in self._watches:
            self._watches.remove(watch)

    def close(self) -> None:
        for watch in tuple(self._watches):
            watch.close()

    def publish(self, entry: Entry, *, kept: bool = True) -> None:
        self._seq, self._n = entry.seq, 0
        match entry.event:
            case Ended(call_id=call_id):
                self._open.pop((Progress, call_id), None)
            case ModelAnswered() | ModelFailed() | Stopped():
                self._open.pop(TextCame, None)
                self._open.pop(ThinkingCame, None)
            case ChildEnded(child):
                gone = f"{child}/"
                open_texts = {
                    n: pieces
                    for n, pieces in self._open.items()
                    if not _is_about(pieces, gone)
                }
                self._open = open_texts
            case TurnEnded():
                ports = self._open.get(PortsChanged)  # they still listen
                self._open = {PortsChanged: ports} if ports else {}
            case _:
                pass
        for listener in tuple(self._listeners):
            listener(entry)
        self._send(Frame(entry.seq, 0, entry), kept=kept)

    @property
    def has_unkept(self) -> bool:
        """Whether an acknowledgement is not kept yet."""
        return bool(self._unkept)

    def unkept_count(self, watch: Subscription) -> int:
        """The number of frames that this watcher gets once they are kept."""
        return sum(watch in item.watches for item in self._unkept)

    def release(self, seq: int) -> None:
        """Send the frames that waited for events up to `seq` to be kept."""
        while self._unkept and (self._unkept[0].kept or self._unkept[0].frame.seq <= seq):
            unkept = self._unkept.popleft()
            for watch in unkept.watches:
                if not watch.closed:
                    watch.put(unkept.frame)

    def publish_live(self, live: Live) -> None:
        self._n += 1
        key = stream_key(live)
        if isinstance(
            live, ChildMoved | PortsChanged
        ):  # only the newest is kept, as the last
            self._open.pop(key, None)
        if key is not None:  # a child's output is published by its own hub
            so_far = self._open.setdefault(key, [])
            so_far.append(live)
            if isinstance(live, Progress) and len(so_far) > _MAX_PIECES:
                del so_far[: _MAX_PIECES // 2]
        self._send(Frame(self._seq, self._n, live))

    def _send(self, frame: Frame, *, kept: bool = True) -> None:
        if self._unkept or not kept:
            # Watchers that join later have these from the view.
            self._unkept.append(_Unkept(frame, kept, tuple(self._watches)))
            return
        for watch in tuple(self._watches):
            watch.put(frame)


def _is_about(pieces: Sequence[Live], child: str) -> bool:
    """Whether the news is about the child, or a subagent below it. `child` ends in a slash."""
    return isinstance(pieces[0], ChildMoved) and f"{pieces[0].node}/".startswith(child)


def _continues(live: Live, next_live: Live) -> bool:
    """Whether this is the next piece of the same text."""
    return isinstance(live, _TEXT_TYPES) and stream_key(live) == stream_key(next_live)


def _join(pieces: Sequence[Live]) -> Live:
    """Everything one speaker said so far, as one piece."""
    first, texts = pieces[0], [p.text for p in pieces if isinstance(p, _TEXT_TYPES)]
    return replace(first, text="".join(texts)) if isinstance(first, _TEXT_TYPES) else first
