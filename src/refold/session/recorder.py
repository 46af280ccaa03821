"""The only writer of a session: redacts, numbers, writes, folds and publishes events.

The view is folded from the written lines, after redaction, so the live view equals what a
later reader folds. A caller that must check the view before it writes (the first verdict
wins, a stop only while a turn runs) passes a function to `append_if`: no other event is
written between its check and its events.

If a write fails, the content of the disk is unknown. The view is then discarded, and the
next append opens the journal and folds it again. After `Fenced` the next append fails, too:
another process has the session.

`fold_without_lock` reads a journal without its lock, and `follow` folds what others append to
it. The first append takes the lock, and first records the events of `record_first`. The first
append after `close` records events of `record_first` again if another process has written
meanwhile.
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
VIEW_EVENTS = 1_000  # that a view has more than the saved one when it is saved
_MAX_VIEWS = 3  # views of one session that the cache stores, for its history
_ACTING: ContextVar[str] = ContextVar("acting", default="")


@contextmanager
def acting_as(person: str) -> Generator[None]:
    """Within the block, record events of the author "person" under the name `person`.

    If `person` is "", the block changes nothing.
    """
    before = _ACTING.set(person or _ACTING.get())
    try:
        yield
    finally:
        _ACTING.reset(before)


def act_as_owner() -> None:
    """End `acting_as` for this task: events of "person" are recorded for the user of this
    process.
    """
    _ACTING.set("")


def acting_person() -> str:
    """Return the person that `acting_as` set for this task; "" if none is set."""
    return _ACTING.get()


class Recorder:
    """The recorder of one session: implements the engine's `Record`.

    Without `durable`, appending is faster, but a power failure may lose events. `fit` converts
    images for sending; None stores them as they are. `claim` is the number under which this
    process was given the session (`Store.lease`). `person` is the name of the user of this
    process: events by "person" are recorded under this name, or under the one that `acting_as`
    sets.
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
        self.view = View()
        self.hub = Hub()
        self.since = 0  # the events after this number are by this process
        self._store = store
        self._masks = masks or Redactor()
        self._stream_redactor = StreamRedactor(self._masks)
        self._clock = clock
        self._durable = durable
        self._fit = fit
        self._person = person
        self.claim = 0
        self.at_close: Callable[[], None] | None = None
        self._head = Head()  # the last line of the journal that the view has
        self._epoch = 0
        self._lock = anyio.Lock()
        # Functions that make the events to record when the lock of the journal is taken.
        self._make_first_events: Sequence[MakeEvents] = ()
        # The journal is not open for writing: never opened, closed, or a write has failed.
        self._must_open = True
        # Without the lock: whether the view is a correct beginning of the journal, so that
        # only later lines must be read.
        self._can_catch_up = False
        # The number of the last event at `close`; -1 if `record_first` must record again.
        self._seq_at_close = -1
        self._saved_seq = 0  # the event number of the newest view in the cache
        self._views: tuple[View, ...] = ()  # views that were loaded or saved, oldest first
        self._news: anyio.Event | None = None  # set while a task waits for an event
        self._failures = 0  # number of failed syncs
        # Open calls whose arguments were masked, by id.
        self._masked_calls: dict[str, ToolCall] = {}
        # Open calls of children that are unmasked for the user.
        self._children_calls: dict[str, ToolCall] = {}

    @property
    def head(self) -> tuple[int, str]:
        """The end of the journal: the seq and the hash of its last line."""
        return self._head.seq, self._head.h

    async def open(self) -> View:
        """Open the journal for writing and fold it, unless it is open already. Return the
        view.
        """
        async with self._lock:
            if self._must_open:
                await self._begin()
        return self.view

    def record_first(self, *make_events: MakeEvents) -> None:
        """Set the functions whose events are recorded first whenever the lock is taken."""
        self._make_first_events = make_events
        self._seq_at_close = -1

    @property
    def epoch(self) -> int:
        """The number of this writer; 0 before it has taken the lock."""
        return self._epoch if self.has_lease else 0

    @property
    def has_lease(self) -> bool:
        """Whether this process holds the lock of the journal."""
        return not self._must_open

    async def fold_without_lock(self) -> View:
        """Fold the journal without taking its lock, and return the view. Nothing is written."""
        async with self._lock:
            await self._read_all()
            self._can_catch_up = True
        return self.view

    async def follow(self) -> View:
        """Fold and publish the events that another process has appended. Return the view."""
        async with self._lock:
            if self._must_open and self._can_catch_up:
                await self._read_new_lines()
        return self.view

    async def close(self) -> None:
        """Release the journal. The next append opens it again."""
        for part in self._stream_redactor.end_all():
            self.hub.publish_live(part)
        with anyio.CancelScope(shield=True):
            async with self._lock:
                # After a failed write, the view may have events that were not stored.
                if not self._must_open:
                    self._can_catch_up = True
                    self._seq_at_close = self.view.seq
                self._must_open = True
                await self._store.release()
                if self.at_close is not None:
                    self.at_close()
                self.hub.release(self.view.seq)  # all events are durable

    async def __call__(
        self, *events: Event, kept: bool = False, author: str = "agent"
    ) -> View:
        await self.append_if(lambda _: events, kept=kept, author=author)
        return self.view

    async def append_if(
        self, make_events: MakeEvents, *, kept: bool = False, author: str = "agent"
    ) -> bool:
        """Record the events that `make_events` returns for the view.

        Return False if `make_events` returns no events. If `kept`, return once they are
        durable.
        """
        # The append is shielded from cancellation: an unrecorded effect is worse than a
        # late stop.
        events: Sequence[Event] = ()
        with anyio.CancelScope(shield=True):
            async with self._lock:
                if self._must_open and self._can_catch_up:
                    await self._read_new_lines()
                    if not make_events(self.view):
                        return False  # without events, do not take the lock
                if self._must_open:
                    await self._begin()
                events = make_events(self.view)
                waits_for_sync = kept and self._durable
                if events:
                    await self._write(events, author, waits_for_sync=waits_for_sync)
                seq = self.view.seq
            if events and waits_for_sync:
                # Outside of the lock, so that other tasks can write meanwhile.
                await self._sync()
                self.hub.release(seq)
        # A cancellation that arrived meanwhile takes effect.
        await anyio.lowlevel.checkpoint()
        return bool(events)

    async def entries(self, after: int = 0) -> Sequence[Entry]:
        """Return the entries of the journal after seq `after`, oldest first."""
        async with self._lock:
            lines = await self._store.read(max(after - 1, 0))
        return await anyio.to_thread.run_sync(codec.decode_after, after, lines)

    async def history(self) -> EventHistory:
        """Return the history of the session so far. Its events are decoded when they are
        read.
        """
        async with self._lock:
            lines = await self._store.read()
        return EventHistory(LineEntries(lines), self._views)

    async def wait_for_event(self, after: int) -> None:
        """Wait until the view has an event after number `after`."""
        while self.view.seq <= after:
            self._news = self._news or anyio.Event()
            await self._news.wait()

    def publish(self, live: Live) -> None:
        """Publish live news. The end of a text that could begin a secret is published later."""
        for part in self._stream_redactor.redact(live):
            self.hub.publish_live(part)

    async def put(self, blob: bytes) -> str:
        return await self._store.blobs.put(self._masks.mask(blob))

    async def put_bytes(self, blob: bytes) -> str:
        return await self._store.blobs.put(blob)  # masking would damage binary data

    async def put_image(self, image: ImageData) -> tuple[Image, str]:
        """Store an image in a form that providers accept, and return it with a note.

        The note, for the model, says what was changed; "" if nothing was.
        """
        fitted = FittedImage(image)
        if self._fit is not None:
            fitted = await anyio.to_thread.run_sync(self._fit, image)
        name = await self.put_bytes(fitted.image.content)
        return Image(name, fitted.image.kind, image.name), fitted.note

    async def get(self, name: str) -> bytes:
        return await self._store.blobs.get(name)

    def keep_unmasked(self, call: ToolCall) -> None:
        """Keep a subagent's call, unmasked, in memory for the user who is asked about the
        call.
        """
        self._children_calls[call.id] = call

    def unmask(self, call: ToolCall) -> ToolCall | None:
        """Return the call with its secrets; None if only the masks of the secrets are known."""
        if call.id in self._children_calls:
            return self._children_calls[call.id]
        if call.id in self._masked_calls:
            return self._masked_calls[call.id]
        open_call = self.view.conversation.call(call.id)
        is_own = open_call is not None and open_call.called > self.since
        return call if is_own or not has_mask(bytes(call.arguments)) else None

    async def _begin(self) -> None:
        """Lock the journal, check its chain, fold it, and record what was missing from its
        end.
        """
        lease = await self._store.lease(self.claim)
        try:
            if self._can_catch_up:
                await self._read_new_lines()
            else:
                await self._read_all()
        except Corrupt:
            if not self._can_catch_up:
                raise
            await self._read_all()  # the lines read before were never synced, and are lost
        self._epoch = lease.epoch
        self._can_catch_up = False
        self._must_open = False
        self._save_view()
        self._masked_calls.clear()
        self.hub.discard_lost(self.view.seq)
        if self.hub.holds_frames:  # a sync has failed before
            await self._sync()
            self.hub.release(self.view.seq)
        if lost := _describe_loss(lease, self._head):
            await self._write([JournalRepaired(lost)], "journal")
        # `record_first` was called, or another process has used the session since.
        if self.view.seq != self._seq_at_close:
            for make_events in self._make_first_events:
                if events := make_events(self.view):
                    await self._write(events, "journal")

    async def _read_all(self) -> None:
        """Fold the whole journal, beginning with the newest view in the cache."""
        cached = await self._store.views.load()
        head = Head(*cached.head) if cached else Head()
        self._saved_seq = head.seq
        self._views = (*cached.earlier, cached.view) if cached else ()
        lines = await self._store.read(head.seq)
        entries = list[Entry]()
        for entry, next_head in codec.decode(lines, head):
            entries.append(entry)
            head = next_head
        self.view = fold(entries, cached.view if cached else None)
        self._head = head
        self.since = self.view.seq

    def _save_view(self) -> None:
        """Save the view in the cache, if it is much newer than the view saved before.

        This process must hold the lock.
        """
        if self._head.seq - self._saved_seq >= VIEW_EVENTS:
            self._saved_seq = self._head.seq
            self._views = (*self._views, self.view)[-_MAX_VIEWS:]
            self._store.views.save_soon(self.view, self._head)

    async def _read_new_lines(self) -> None:
        """Fold the lines after the head, and publish them."""
        lines = await self._store.read(self._head.seq)
        for entry, head in codec.decode(lines, self._head):
            self.view = apply(self.view, entry)
            self._head = head
            self.since = self.view.seq
            self.hub.publish(entry)
        if lines:
            self._wake()

    def _wake(self) -> None:
        """Wake those who wait for an event."""
        if self._news is not None:
            self._news.set()
            self._news = None

    async def _write(
        self, events: Sequence[Event], author: str, *, waits_for_sync: bool = False
    ) -> None:
        """Mask, write, fold and publish these events.

        With `waits_for_sync`, watchers get acknowledgements only after `Hub.release`.
        """
        head = self._head
        view = self.view
        timestamp = self._clock()
        person = acting_person() or self._person
        if author == PERSON and person:
            author = f"{PERSON}:{person}"
        entries: list[Entry] = []
        lines: list[bytes] = []
        unmasked_calls: dict[str, ToolCall] = {}
        for original in events:
            event, data = self._mask(original, unmasked_calls)
            cause = cause_of(event, view)
            entry = Entry(
                seq=head.seq + 1,
                event=event,
                at=timestamp,
                epoch=self._epoch,
                turn=view.turn.seq,
                by=author,
                cause=cause,
            )
            line, head = codec.encode(entry, head, data)
            entries.append(entry)
            lines.append(line)
            view = apply(view, entry)
        failures_before = self._failures
        self._must_open = True  # until the append has succeeded
        await self._store.append(
            lines, expect=self._head.seq, epoch=self._epoch, head=(head.seq, head.h)
        )
        # The sync of another task may have failed meanwhile.
        self._must_open = self._failures != failures_before
        self._head = head
        self.view = view
        self._save_view()
        self._masked_calls |= unmasked_calls
        if self._masked_calls or self._children_calls:
            self._forget_calls()
        self._wake()
        for entry in entries:
            for part in self._stream_redactor.end_sources(entry.event):
                self.hub.publish_live(part)
            self.hub.publish(entry, kept=not waits_for_sync)

    def _forget_calls(self) -> None:
        """Forget the unmasked forms of calls that have ended."""
        conversation = self.view.conversation
        open_ids = {call.call.id for call in (*conversation.calls, *conversation.nested)}
        asked_ids = {ask.id for ask in self.view.children.asks}
        self._masked_calls = {
            id_: call for id_, call in self._masked_calls.items() if id_ in open_ids
        }
        self._children_calls = {
            id_: call for id_, call in self._children_calls.items() if id_ in asked_ids
        }

    async def _sync(self) -> None:
        """Sync the journal. If that fails, no more may be recorded until it is opened again."""
        try:
            await self._store.keep()
        except JournalError:
            self._failures += 1
            self._must_open = True
            raise

    def _mask(
        self, event: Event, unmasked_calls: dict[str, ToolCall]
    ) -> tuple[Event, bytes]:
        """Return the event as it is stored, and its encoded data.

        Calls in which a secret was masked are added to `unmasked_calls`.
        """
        try:
            data = codec.dump(event)
        except UnicodeEncodeError:  # a file name that is not UTF-8, or a lone surrogate
            event = clean_struct(event)
            data = codec.dump(event)
        if isinstance(event, HookRan) and bytes(event.arguments) != b"null":
            unmasked_calls |= self._call_by_hook(event)
        if self._masks.mask(data) == data:  # the usual case, which is cheap to check
            return event, data
        masked = self._masks.mask_event(event)
        if isinstance(event, ModelAnswered) and isinstance(masked, ModelAnswered):
            pairs = zip(event.message.calls, masked.message.calls, strict=True)
            unmasked_calls |= {call.id: call for call, stored in pairs if call != stored}
        if isinstance(event, NestedCallMade):
            unmasked_calls[event.call.id] = event.call
        return masked, codec.dump(masked)

    def _call_by_hook(self, event: HookRan) -> dict[str, ToolCall]:
        """Return the id of the call whose arguments a hook set, with the unmasked call.

        Return {} if the call is not open.
        """
        open_call = self.view.conversation.call(event.call_id)
        if open_call is None:
            return {}
        return {event.call_id: replace(open_call.call, arguments=event.arguments)}


def _describe_loss(lease: Lease, head: Head) -> str:
    """Describe what is missing from the end of the journal, after a crash or a
    truncation; "" if nothing is.
    """
    losses: list[str] = []
    if b"\0" in lease.cut:
        lost = f"the last {len(lease.cut):,} bytes, of which the disk had lost a part"
        losses.append(f"{lost} when the power failed; they were not synced")
    elif lease.cut:
        losses.append(f"half a line of {len(lease.cut)} bytes, written when it crashed")
    noted_seq, _ = lease.head  # the last event that was noted beside the journal
    if noted_seq > head.seq:
        lost = f"event {noted_seq}"
        if noted_seq > head.seq + 1:
            lost = f"events {head.seq + 1} to {noted_seq}"
        losses.append(f"{lost}, noted as written and not there any more")
    return "; ".join(losses)
