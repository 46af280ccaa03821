"""The only writer of a session: redacts, numbers, writes, folds and publishes events.

The view is folded from what was written, after redaction, so the live view is what a later
reader will fold. A caller that must check the view before it writes (the first verdict
wins, a stop only while a turn runs) passes a function to `append_if`: nothing is written
between its check and its events.

If the disk fails, its content is unknown: the view is discarded, and the next append opens
the journal and folds it again. After `Fenced` that fails for good: another process
continues.

`fold_without_lock` reads a journal without its lock, and `follow` folds what others append to
it. The first append takes the lock, and records first what `record_first` was given; so does
one after `close`, where another process has written in between.
"""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import anyio
from msgspec.structs import replace

from refold.errors import Corrupt, JournalError
from refold.journal.events import codec
from refold.journal.events.child_events import HookRan, NestedCallMade
from refold.journal.events.codec import Head
from refold.journal.events.kinds import Entry, Event, JournalRepaired, ModelAnswered
from refold.journal.state.event_history import EventHistory, LineEntries
from refold.journal.state.fold import View, apply, cause_of, fold
from refold.journal.store.port import Lease, Store
from refold.session.hub import Hub
from refold.session.redactor import Redactor
from refold.session.stream_redactor import StreamRedactor
from refold.tools.contract import FittedImage, ImageData
from refold.values.live import Live
from refold.values.messages import Image, ToolCall
from refold.values.secret_mask import has_mask
from refold.values.text import clean_struct

MakeEvents = Callable[[View], Sequence[Event]]
PERSON = "person"
VIEW_EVENTS = 1_000  # after which a folded view is saved
_MAX_VIEWS = 3  # of a session that are at hand for its history
_ACTING: ContextVar[str] = ContextVar("acting", default="")


@contextmanager
def acting_as(person: str) -> Generator[None]:
    """Within the block, events by "person" are by `person`; "" changes nothing."""
    before = _ACTING.set(person or _ACTING.get())
    try:
        yield
    finally:
        _ACTING.reset(before)


def act_as_owner() -> None:
    """From here on in this task, events by "person" are by the user of this process again."""
    _ACTING.set("")


def acting_person() -> str:
    """The person that `acting_as` names here, or ""."""
    return _ACTING.get()


class Recorder:
    """Implements the engine's `Record`.

    Without `durable`, it is faster, but a power failure may lose events. `fit` converts
    images for sending; None stores them as they are. `claim` is the number under which this
    process was given the session (`Store.lease`). `person` is the name of the user of this
    process: events by "person" are recorded under this name, or under the one that
    `acting_as` sets.
    """

    def __init__(
        self,
        store: Store,
        *,
        masks: Redactor | None = None,
        clock: Callable[[], float] = time.time,
        durable: bool = True,
        fit: Callable[[ImageData], FittedImage] | None = None,
        person: str = "",
    ) -> None:
        self.view, self.since, self.hub = View(), 0, Hub()
        self._store, self._masks, self._clock = store, masks or Redactor(), clock
        self._durable, self._telling = durable, StreamRedactor(self._masks)
        self._fit, self._person = fit, person
        self.claim = 0
        self.at_close: Callable[[], None] | None = None
        self._head, self._epoch = Head(), 0
        self._lock = anyio.Lock()
        self._first: Sequence[MakeEvents] = ()  # what is recorded when the lock is taken
        self._broken = True  # until the journal is opened again
        # The view is that of the lines up to the head, of which this process wrote the last.
        self._known, self._own_end = False, -1
        self._saved_seq = 0  # of the newest view in the cache
        self._views: tuple[View, ...] = ()  # some that were loaded or saved, oldest first
        self._news: anyio.Event | None = None  # set while a task waits for an event
        self._failures = 0  # of syncs
        self._calls: dict[str, ToolCall] = {}  # open calls whose arguments were masked
        self._lent: dict[str, ToolCall] = {}  # the same of children, for the user

    @property
    def head(self) -> tuple[int, str]:
        """The end of the journal: the seq and the hash of its last line."""
        return self._head.seq, self._head.h

    async def open(self) -> View:
        """Open the journal for writing and fold it, unless it is open already."""
        async with self._lock:
            if self._broken:
                await self._begin()
        return self.view

    def record_first(self, *make_events: MakeEvents) -> None:
        """Record what these functions return, in order, when the lock is taken."""
        self._first, self._own_end = make_events, -1

    @property
    def epoch(self) -> int:
        """The number of this writer; 0 before it is one."""
        return self._epoch if self.has_lease else 0

    @property
    def has_lease(self) -> bool:
        """Whether this process holds the lock of the journal."""
        return not self._broken

    async def fold_without_lock(self) -> View:
        """Fold the journal without its lock: nothing is written."""
        async with self._lock:
            await self._read_all()
            self._known = True
        return self.view

    async def follow(self) -> View:
        """Fold what another process has appended, and publish it."""
        async with self._lock:
            if self._broken and self._known:
                await self._read_new_lines()
        return self.view

    async def close(self) -> None:
        """Release the journal. The next append opens it again."""
        for part in self._telling.end_all():
            self.hub.publish_live(part)
        with anyio.CancelScope(shield=True):
            async with self._lock:
                if not self._broken:
                    self._known, self._own_end = True, self.view.seq
                self._broken = True
                await self._store.release()
                if self.at_close is not None:
                    self.at_close()
                self.hub.release(self.view.seq)  # all of it is kept

    async def __call__(
        self, *events: Event, kept: bool = False, author: str = "agent"
    ) -> View:
        await self.append_if(lambda _: events, kept=kept, author=author)
        return self.view

    async def append_if(
        self, make_events: MakeEvents, *, kept: bool = False, author: str = "agent"
    ) -> bool:
        """Record what `make_events` returns for the view. False if that is nothing."""
        # Shielded, because an unrecorded effect is worse than a late stop.
        events: Sequence[Event] = ()
        with anyio.CancelScope(shield=True):
            async with self._lock:
                if self._broken and self._known:
                    await self._read_new_lines()
                    if not make_events(self.view):
                        return False  # nothing to write: no reason to take the lock
                if self._broken:
                    await self._begin()
                events = make_events(self.view)
                waits = kept and self._durable
                if events:
                    await self._write(events, author, kept=not waits)
                seq = self.view.seq
            if events and waits:
                await self._sync()  # outside the lock: others write meanwhile
                self.hub.release(seq)
        await anyio.lowlevel.checkpoint()  # a cancellation from meanwhile takes effect here
        return bool(events)

    async def entries(self, after: int = 0) -> Sequence[Entry]:
        """The entries of the journal so far, oldest first; only those after seq `after`."""
        async with self._lock:
            lines = await self._store.read(max(after - 1, 0))
        return await anyio.to_thread.run_sync(codec.decode_after, after, lines)

    async def history(self) -> EventHistory:
        """The journal so far. Its events are decoded when they are read."""
        async with self._lock:
            lines = await self._store.read()
        return EventHistory(LineEntries(lines), self._views)

    async def wait_for_event(self, after: int) -> None:
        while self.view.seq <= after:
            self._news = self._news or anyio.Event()
            await self._news.wait()

    def publish(self, live: Live) -> None:
        """Publish live news, but hold back an end that could begin a secret."""
        for part in self._telling.redact(live):
            self.hub.publish_live(part)

    async def put(self, blob: bytes) -> str:
        return await self._store.blobs.put(self._masks.mask(blob))

    async def put_bytes(self, blob: bytes) -> str:
        return await self._store.blobs.put(blob)  # a mask would only break it

    async def put_image(self, image: ImageData) -> tuple[Image, str]:
        fitted = FittedImage(image)
        if self._fit is not None:
            fitted = await anyio.to_thread.run_sync(self._fit, image)
        name = await self.put_bytes(fitted.image.content)
        return Image(name, fitted.image.kind, image.name), fitted.note

    async def get(self, name: str) -> bytes:
        return await self._store.blobs.get(name)

    def keep_unmasked(self, call: ToolCall) -> None:
        """Keep a subagent's call unmasked, for the user who is asked about it here."""
        self._lent[call.id] = call

    def unmask(self, call: ToolCall) -> ToolCall | None:
        if call.id in self._lent:
            return self._lent[call.id]
        if call.id in self._calls:
            return self._calls[call.id]
        open_call = self.view.conversation.call(call.id)
        is_own = open_call is not None and open_call.called > self.since
        return call if is_own or not has_mask(bytes(call.arguments)) else None

    async def _begin(self) -> None:
        """Open the journal for writing, check the chain, fold, and record what was lost."""
        lease = await self._store.lease(self.claim)
        try:
            if self._known:
                await self._read_new_lines()
            else:
                await self._read_all()
        except Corrupt:
            if not self._known:
                raise
            await self._read_all()  # lines read before are gone: they were never synced
        self._epoch, self._known, self._broken = lease.epoch, False, False
        self._save_view()
        self._calls.clear()
        if self.hub.has_unkept:  # a sync had failed
            await self._sync()
            self.hub.release(self.view.seq)
        if lost := _describe_loss(lease, self._head):
            await self._write([JournalRepaired(lost)], "journal")
        if self.view.seq != self._own_end:
            for make_events in self._first:
                if events := make_events(self.view):
                    await self._write(events, "journal")

    async def _read_all(self) -> None:
        folded = await self._store.views.load()
        head, entries = Head(*folded.head) if folded else Head(), list[Entry]()
        self._saved_seq = head.seq
        self._views = (*folded.earlier, folded.view) if folded else ()
        lines = await self._store.read(head.seq)
        for entry, after in codec.decode(lines, head):
            entries.append(entry)
            head = after
        self.view, self._head = fold(entries, folded and folded.view), head
        self.since = self.view.seq

    def _save_view(self) -> None:
        """Save the view if it is much newer than the saved one. This process has the lock."""
        if self._head.seq - self._saved_seq >= VIEW_EVENTS:
            self._saved_seq = self._head.seq
            self._views = (*self._views, self.view)[-_MAX_VIEWS:]
            self._store.views.save_soon(self.view, self._head)

    async def _read_new_lines(self) -> None:
        """Fold the lines after the head, and publish them."""
        lines = await self._store.read(self._head.seq)
        for entry, head in codec.decode(lines, self._head):
            self.view, self._head = apply(self.view, entry), head
            self.since = self.view.seq
            self.hub.publish(entry)
        if lines:
            self._wake()

    def _wake(self) -> None:
        woken, self._news = self._news, None
        if woken:
            woken.set()

    async def _write(
        self, events: Sequence[Event], author: str, *, kept: bool = True
    ) -> None:
        """Write events. If not `kept`, watchers get them once they are kept."""
        head, view, timestamp = self._head, self.view, self._clock()
        if author == PERSON and (person := acting_person() or self._person):
            author = f"{PERSON}:{person}"
        entries: list[Entry] = []
        lines: list[bytes] = []
        whole: dict[str, ToolCall] = {}
        for original in events:
            event, data = self._mask(original, whole)
            cause = cause_of(event, view)
            entry = Entry(
                head.seq + 1, event, timestamp, self._epoch, view.turn.seq, author, cause
            )
            line, head = codec.encode(entry, head, data)
            entries.append(entry)
            lines.append(line)
            view = apply(view, entry)
        self._broken = True  # until the append has succeeded
        expect, position, failures = self._head.seq, (head.seq, head.h), self._failures
        await self._store.append(lines, expect=expect, epoch=self._epoch, head=position)
        self._broken = self._failures != failures
        self._head, self.view = head, view
        self._save_view()
        self._calls |= whole
        if self._calls or self._lent:
            self._forget_calls()
        self._wake()
        for entry in entries:
            for part in self._telling.end_sources(entry.event):
                self.hub.publish_live(part)
            self.hub.publish(entry, kept=kept)

    def _forget_calls(self) -> None:
        """Forget the calls that have ended."""
        conversation = self.view.conversation
        asks = {ask.id for ask in self.view.children.asks}
        still = {call.call.id for call in (*conversation.calls, *conversation.nested)}
        self._lent = {n: c for n, c in self._lent.items() if n in asks}
        self._calls = {n: c for n, c in self._calls.items() if n in still}

    async def _sync(self) -> None:
        try:
            await self._store.keep()
        except JournalError:
            self._failures += 1
            self._broken = True
            raise

    def _mask(
        self, event: Event, unmasked_calls: dict[str, ToolCall]
    ) -> tuple[Event, bytes]:
        """The event as it is stored. Calls that lost a secret are added to `unmasked_calls`."""
        try:
            data = codec.dump(event)
        except UnicodeEncodeError:  # from a file name that is not UTF-8, or half an emoji
            event = clean_struct(event)
            data = codec.dump(event)
        if isinstance(event, HookRan) and bytes(event.arguments) != b"null":
            unmasked_calls |= self._call_by_hook(event)
        if self._masks.mask(data) == data:  # the usual case, and cheap to check
            return event, data
        masked = self._masks.mask_event(event)
        if isinstance(event, ModelAnswered) and isinstance(masked, ModelAnswered):
            pairs = zip(event.message.calls, masked.message.calls, strict=True)
            unmasked_calls |= {ours.id: ours for ours, theirs in pairs if ours != theirs}
        if isinstance(event, NestedCallMade):
            unmasked_calls[event.call.id] = event.call
        return masked, codec.dump(masked)

    def _call_by_hook(self, event: HookRan) -> dict[str, ToolCall]:
        """The call with the arguments that a hook gave it, unmasked."""
        open_call = self.view.conversation.call(event.call_id)
        call = open_call and replace(open_call.call, arguments=event.arguments)
        return {event.call_id: call} if call else {}


def _describe_loss(lease: Lease, head: Head) -> str:
    """Describe what a crash or a cut removed from the end of the journal."""
    losses: list[str] = []
    if b"\0" in lease.cut:
        lost = f"the last {len(lease.cut):,} bytes, of which the disk had lost a part"
        losses.append(f"{lost} when the power failed; they were not synced")
    elif lease.cut:
        losses.append(f"half a line of {len(lease.cut)} bytes, written when it crashed")
    noted = lease.head[0]
    if noted > head.seq:
        lost = (
            f"events {head.seq + 1} to {noted}"
            if noted > head.seq + 1
            else f"event {noted}"
        )
        losses.append(f"{lost}, noted as written and not there any more")
    return "; ".join(losses)
