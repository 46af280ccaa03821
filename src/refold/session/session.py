"""A session: one journal, its writer and its inbox, and one turn at a time.

Opening a session locks its journal, checks the chain and folds it. `look` folds it without
the lock: the first thing that is done in the session takes it. The caller chose the store, tools and provider: `world_for` returns the
dependencies of each turn, so a model that was chosen between two turns applies to the
second.

Resuming settles a model call that a crash interrupted at its reservation, by an event: the
provider bills it even if the response was not read, and a fold must not invent usage that no
event has.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from types import TracebackType
from typing import Protocol, Self

import anyio
from msgspec import Struct

from refold.engine.decide import ASKED_FOR, CompactConversation, decide
from refold.engine.external_edits import find_external_edits
from refold.engine.loop import run_turn
from refold.engine.world import World
from refold.errors import BadInput, JournalError, first
from refold.journal.events.kinds import (
    BackgroundEnded,
    Entry,
    Event,
    ModeChanged,
    Rewound,
    SessionResumed,
    SessionStarted,
    Settled,
    Stopped,
    TurnStarted,
)
from refold.journal.state.fold import View
from refold.journal.state.session_info import SessionDirectories
from refold.session.hub import Hub
from refold.session.inbox import Inbox
from refold.session.question_timeout import QuestionTimeout
from refold.session.recorder import MakeEvents, Recorder
from refold.values.control import CompactionKind
from refold.values.messages import ToolCall
from refold.values.modes import Mode
from refold.values.usage import NO_RUN_LIMITS, RunLimits, Usage

WorldFor = Callable[[View], World]


class RunningBackground(Protocol):
    """The background commands of a session: they end with it."""

    async def stop(self, name: str) -> bool: ...
    def move(self, call_id: str = "") -> bool:
        """Move the command of this call here, or of all (""). False if none runs."""
        ...

    async def read_tail(self, name: str, max_bytes: int) -> str:
        """The end of a command's output; the model's read position stays."""
        ...

    async def close(self) -> None: ...


class SessionOptions(Struct, frozen=True):
    """Options of a session, from the settings."""

    mode: Mode = "default"  # until the user chooses another
    question: float | None = None  # seconds a question may be on a screen; None: no limit
    remember: bool = True  # whether notes may be made of the conversation
    given: RunLimits = NO_RUN_LIMITS  # what of the settings stands in none, for the journal
    checks: str = ""  # the session whose claims it checks
    schedule: int = 0  # the schedule that it is a run of


DEFAULT_OPTIONS = SessionOptions()


class Opening(Struct, frozen=True):
    """Where a session works from now on, the version that opens it, and the id of a new session.

    With `resume_hooks`, hooks run when it is resumed.
    """

    place: SessionDirectories
    version: str = ""
    id: str = ""
    resume_hooks: bool = False


class Session:
    """Open it with `Session.open`; leave it with `close`, or use it in `async with`."""

    def __init__(
        self,
        record: Recorder,
        world_for: WorldFor,
        session_options: SessionOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.record, self.inbox = record, Inbox(record, mode=session_options.mode)
        patience = Inbox(record, author="question_timeout", mode=session_options.mode)
        self.question_timeout = QuestionTimeout(patience, session_options.question)
        self._world_for, self._options = world_for, session_options
        self._one_turn = anyio.Lock()
        self._step = anyio.CancelScope()
        self.background: RunningBackground | None = None  # its background commands
        self.beside = False  # whether something is done between two turns
        self.at_end: Callable[[], Awaitable[None]] | None = None  # if a turn was run here
        self._worked = False
        self.left_bypass = False  # whether it was in bypass mode before
        # Asked before each step: whether another process is to continue the turn.
        self.leaves_turn: Callable[[], bool] = lambda: False

    @classmethod
    async def open(
        cls,
        record: Recorder,
        world_for: WorldFor,
        *,
        directory: str | SessionDirectories = "",
        version: str = "",
        id_: str = "",
        session_options: SessionOptions = DEFAULT_OPTIONS,
    ) -> Self:
        """Lock and open a session. `directory` is where it works now, `id_` the id of a new
        one.
        """
        place = SessionDirectories(directory) if isinstance(directory, str) else directory
        session = cls(record, world_for, session_options)
        session.prepare(Opening(place, version, id_))
        if record.has_lease:  # from before this opening: take it again
            await record.close()
        await record.open()
        return session

    def prepare(self, opening: "Opening", *more: MakeEvents) -> None:
        """Record the opening, and `more`, as soon as the lock is taken."""

        def make_events(view: View) -> Sequence[Event]:
            self.left_bypass = bool(view.seq) and view.rights.mode == "bypass"
            make = _resume_events if view.seq else _start_events
            return make(view, opening, self._options)

        self.record.record_first(make_events, *more)

    async def release(self) -> None:
        """Release the lock, unless something runs; the next event takes it again."""
        if not self._one_turn.locked() and not self.view.background.running:
            await self.record.close()

    @property
    def view(self) -> View:
        return self.record.view

    @property
    def lost_text(self) -> str:
        """What was missing from the journal's end when it was opened here."""
        seq, lost = self.view.session.repaired
        return lost if seq > self.record.since else ""

    @property
    def hub(self) -> Hub:
        return self.record.hub

    @property
    def running(self) -> bool:
        """Whether a turn runs."""
        return self._one_turn.locked() and not self.beside

    @property
    def idle(self) -> bool:
        """Whether no turn runs, and no waiting message may begin one."""
        return not self.view.turn.seq and not _messages_for_turn(self.view)

    def unmasked_call(self, call: ToolCall) -> ToolCall:
        """A call as the model made it, for the user who is asked about it.

        The journal redacts secrets; the user who approves must see what will be done.
        """
        return self.record.unmask(call) or call

    async def run_turns(self) -> View:
        """Finish the open turn, then answer waiting messages.

        Returns when there is nothing to do, or when the user has to be asked.
        """
        if self._one_turn.locked() and not self.beside:
            raise BadInput("a turn of this session is running already: wait, or stop it")
        async with self._one_turn:
            await self.record.open()  # after a failure of the disk the view is stale
            await self._run_open_turn()
            # Nothing is awaited once a turn waits for a person: an answer that
            # arrived then would be missed.
            while not self.view.turn.seq and await self._start():
                await self._run_open_turn()
        return self.view

    async def continue_(self) -> View:
        """Continue where the last turn ended, without a new message."""
        await self.begin_continuation()
        return await self.run_turns()

    async def begin_continuation(self) -> bool:
        """Record a turn that continues where the last one ended. False if there is one, or a message."""
        await self.record.open()

        def make_events(view: View) -> tuple[Event, ...]:
            busy = view.turn.seq or _messages_for_turn(view) or self.running
            return () if busy else (TurnStarted(view.seq, "continue"),)

        return await self.record.append_if(make_events, kept=True, author="person")

    async def compact(self, kind: CompactionKind = "full", focus: str = "") -> bool:
        """Compact the conversation: now, or before the next step of the turn that runs.

        False if there is nothing to compact yet.
        """
        if self.running or self.view.turn.seq:
            return await self.inbox.compact(kind, focus)
        from refold.engine.summarize import compact_conversation

        async with self._one_turn:
            self.beside = True
            try:
                view = await self.record.open()
                if not view.conversation.messages:
                    return False
                action = CompactConversation(kind, ASKED_FOR, focus, wanted=True)
                world = self._world_for(self.view)
                await compact_conversation(action, world, self.record, "person")
            finally:
                self.beside = False
        return True

    async def rewind(self, mark: int) -> bool:
        """Rewind the conversation to a mark. False if there is no such mark or a turn runs."""

        def make_events(view: View) -> tuple[Event, ...]:
            return (Rewound(mark),) if view.mark_at(mark) and not view.turn.seq else ()

        return await self.record.append_if(make_events, kept=True, author="person")

    async def pause(self) -> None:
        """Release the journal, so that another process can open it. The background commands end."""
        if self.background is not None:
            with anyio.CancelScope(shield=True):
                await self.background.close()
        await self.record.close()

    async def close(self) -> None:
        if self.at_end is not None and self._worked:
            self._worked = False
            # Each of its hooks has a limit; a journal that failed is only released.
            with anyio.CancelScope(shield=True), suppress(JournalError):
                await self.at_end()
        await self.pause()
        self.hub.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _start(self) -> bool:
        """Begin a turn with the waiting messages, unless they were stopped meanwhile."""

        def make_events(view: View) -> tuple[Event, ...]:
            start_event = turn_start(view)
            return (start_event,) if start_event else ()

        return await self.record.append_if(make_events, author="agent")

    async def _run_open_turn(self) -> None:
        if not self.view.turn.seq:
            return
        self._worked = True
        world, here = await self._prepare_world(), self.view.session.directory
        leave = self.hub.subscribe(self._stop_step)
        try:
            # Events that arrive while the background ends count, too: an answer, or a stop.
            while decide(self.view, world.policies) is not None:
                if self.view.session.directory != here:
                    world, here = await self._prepare_world(), self.view.session.directory
                async with world.background() if world.background else nullcontext():
                    await run_turn(world, self.record, self._set_step)
        except BaseExceptionGroup as group:
            if not isinstance(first(group), _TurnLeft):
                raise first(group) from group
        except _TurnLeft:
            pass
        finally:
            leave()

    async def _prepare_world(self) -> World:
        """The world of the turn in the session's present directory."""
        world = self._world_for(self.view)
        if (system_prompt := world.system_prompt()) != self.view.conversation.system_prompt:
            await self.record(system_prompt)
        if not world.attended:
            await self._refuse_questions()
        if world.snapshots is not None:
            world.snapshots.forget()
        await find_external_edits(world, self.record)
        return world

    async def _refuse_questions(self) -> None:
        """Deny the questions of an attended session that is unattended now."""
        for call in self.view.conversation.waiting_calls:
            from refold.engine.calls import NOBODY_TO_ASK

            await self.inbox.answer(call.call.id, allowed=False, reason=NOBODY_TO_ASK)

    def _set_step(self, step: anyio.CancelScope) -> None:
        if self.leaves_turn():
            raise _TurnLeft
        self._step = step

    def _stop_step(self, entry: Entry) -> None:
        if isinstance(entry.event, Stopped):
            self._step.cancel()


class _TurnLeft(Exception):
    """The turn stays open between two steps."""


CUT_OFF = "refold exited before the response came; its reservation counts as used"


def _start_events(
    _: View, opening: Opening, session_options: SessionOptions
) -> Sequence[Event]:
    private, place = not session_options.remember, opening.place
    started = SessionStarted(
        place.directory,
        opening.version,
        opening.id,
        private,
        place.roots,
        session_options.given,
        session_options.checks,
        session_options.schedule,
    )
    # Recorded, so that the session is resumed in this mode.
    mode = [ModeChanged(session_options.mode)] if session_options.mode != "default" else []
    return (started, *mode)


def _resume_events(
    view: View, opening: Opening, session_options: SessionOptions
) -> Sequence[Event]:
    private, place = not session_options.remember, opening.place
    moved = place.directory if place.directory != view.session.own_directory else ""
    roots = place.roots if place.directory else None
    # Who resumes a session may not know that everything runs without a question in it.
    careful = [ModeChanged("default")] if view.rights.mode == "bypass" else []
    resumed = SessionResumed(opening.version, private, moved, roots, session_options.given)
    lost = (BackgroundEnded(command.name, "lost") for command in view.background.running)
    ended = (*careful, *_settle_cut_off(view), *lost)
    if not (ended or opening.resume_hooks or _is_needed(resumed, view)):
        return ()
    return (resumed, *ended)


def _is_needed(event: SessionResumed, view: View) -> bool:
    """Whether the fold, or a reader of the journal, needs this event."""
    session, rights = view.session, view.rights
    return bool(
        view.turn.seq  # its time until here was another process's
        or rights.granted
        or rights.mode_before_plan == "bypass"
        or rights.limits != event.limits
        or session.version != event.version
        or session.version_before  # that change was reported
        or session.no_memory != event.no_memory
        or event.directory
        or event.roots not in (None, session.roots)
        or session.schedule  # resumed, it is the user's, and no longer a run
    )


def _settle_cut_off(view: View) -> Iterator[Settled]:
    """Settle model calls that another process began and did not end. The provider may bill
    them, so their reservations count as used.
    """
    for item in view.turn.reserved:
        usage = Usage(fresh=item.estimate.tokens, estimated=True)
        model = item.model or view.conversation.system_prompt.model
        yield Settled(item.seq, usage, model, item.estimate.dollars, CUT_OFF)


def turn_start(view: View) -> TurnStarted | None:
    """The start of a turn for the waiting messages, if they may begin one."""
    words = () if view.turn.seq else _messages_for_turn(view)
    return TurnStarted(words[0]) if words else None


def _messages_for_turn(view: View) -> list[int]:
    """Return the waiting messages that may begin a turn: those sent after the last stop.

    Older ones were meant for the stopped turn; they are delivered with the next message. So
    is the late report of a subagent, which `wishes` leaves out: it begins no turn.
    """
    return [wish.seq for wish in view.wishes if wish.seq > view.turn.stop_seq]
