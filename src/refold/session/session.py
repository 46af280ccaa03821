"""A session: one journal, its writer and its inbox, and one turn at a time.

`Session.open` locks the journal, checks the chain and folds it. A session that was folded
without the lock takes it when it records its first event. The caller chooses the store, the
tools and the provider: `world_for` returns the dependencies of each turn, so a model that was
chosen between two turns applies to the second.

If a crash interrupted a model call, resuming settles it at its reservation, by an event.
The provider bills the call even if the response was not read, and a fold must not invent
usage that no event has.
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
    Rewound,
    SessionResumed,
    SessionStarted,
    Settled,
    Stopped,
    TurnStarted,
)
from refold.journal.events.setting_events import ModeChanged
from refold.journal.state.fold import View
from refold.journal.state.session_info import SessionDirectories
from refold.session.hub import Hub
from refold.session.inbox import Inbox
from refold.session.pending_requests import RequestElsewhere
from refold.session.question_timeout import QuestionTimeout
from refold.session.recorder import MakeEvents, Recorder
from refold.values.control import CompactionKind
from refold.values.messages import ToolCall
from refold.values.modes import Mode
from refold.values.usage import NO_RUN_LIMITS, RunLimits, Usage

WorldFor = Callable[[View], World]


class RunningBackground(Protocol):
    """The background commands of a session. They end when the session is left."""

    async def stop(self, name: str) -> bool:
        """Stop the command, and wait for its end. Return False if it had ended already."""
        ...

    def move(self, call_id: str = "") -> bool:
        """Move the command of this call to the background. "" moves all commands.

        Return False if no such command runs.
        """
        ...

    async def read_tail(self, name: str, max_bytes: int) -> str:
        """Return the end of a command's output, without changing the model's read
        position.
        """
        ...

    async def close(self) -> None:
        """Stop all commands, and wait for their ends."""
        ...


class SessionOptions(Struct, frozen=True):
    """The options of a session, from the settings."""

    mode: Mode = "default"  # until the user chooses another
    # How many seconds a question is shown before it is denied; None: no limit.
    question: float | None = None
    remember: bool = True  # whether notes may be made of the conversation
    # Limits of the command line, for the journal: no setting has them.
    given: RunLimits = NO_RUN_LIMITS
    checks: str = ""  # the id of the session whose claims this one checks
    schedule: int = 0  # the number of the schedule of which this is a run


DEFAULT_OPTIONS = SessionOptions()


class Opening(Struct, frozen=True):
    """How a session is opened: the directory, the version of refold, and the id if it is new.

    With `resume_hooks`, hooks run when a session is resumed, so each resumption is recorded.
    """

    place: SessionDirectories
    version: str = ""
    id: str = ""
    resume_hooks: bool = False


class Session:
    """A session: its journal, its inbox and its turns.

    Open it with `Session.open`; leave it with `close`, or use it in `async with`.
    """

    def __init__(
        self,
        record: Recorder,
        world_for: WorldFor,
        session_options: SessionOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.record = record
        self.inbox = Inbox(record, mode=session_options.mode)
        timeout_inbox = Inbox(record, author="question_timeout", mode=session_options.mode)
        self.question_timeout = QuestionTimeout(timeout_inbox, session_options.question)
        self._world_for = world_for
        self._options = session_options
        self._turn_lock = anyio.Lock()
        self._step = anyio.CancelScope()
        self.background: RunningBackground | None = None  # its background commands
        self.beside = False  # whether something runs between two turns
        # Called at the end, if this process ran a turn.
        self.at_end: Callable[[], Awaitable[None]] | None = None
        self._ran_turn = False
        self.left_bypass = False  # whether it was in bypass mode when it was opened
        # Called before each step: whether another process should continue the turn.
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
        """Lock and open the session of `record`, and return it.

        `directory` is the present directory of the session. `id_` is the id of a new session.
        """
        place = SessionDirectories(directory) if isinstance(directory, str) else directory
        session = cls(record, world_for, session_options)
        session.prepare(Opening(place, version, id_))
        if record.has_lease:  # a lock from before is taken again
            await record.close()
        await record.open()
        return session

    def prepare(self, opening: "Opening", *more: MakeEvents) -> None:
        """Have the opening, then the events of `more`, recorded once the lock is taken."""

        def make_events(view: View) -> Sequence[Event]:
            is_new = not view.seq
            self.left_bypass = not is_new and view.rights.mode == "bypass"
            if is_new:
                return _start_events(opening, self._options)
            return _resume_events(view, opening, self._options)

        self.record.record_first(make_events, *more)

    async def release(self) -> None:
        """Release the lock, unless a turn or a background command runs. The next event takes it
        again.
        """
        if not self._turn_lock.locked() and not self.view.background.running:
            await self.record.close()

    @property
    def view(self) -> View:
        return self.record.view

    @property
    def lost_text(self) -> str:
        """What was missing from the end of the journal when it was opened; "" if nothing."""
        seq, lost = self.view.session.repaired
        return lost if seq > self.record.since else ""

    @property
    def hub(self) -> Hub:
        return self.record.hub

    @property
    def running(self) -> bool:
        """Whether a turn runs."""
        return self._turn_lock.locked() and not self.beside

    @property
    def idle(self) -> bool:
        """Whether no turn runs, and no message waits that would begin one."""
        return not self.view.turn.seq and not _messages_for_turn(self.view)

    def unmasked_call(self, call: ToolCall) -> ToolCall:
        """Return a call as the model made it, for the user who is asked about it.

        The journal masks secrets, but the user who approves must see what will be executed.
        """
        return self.record.unmask(call) or call

    def request_elsewhere(self, id_: str) -> RequestElsewhere | None:
        """Return the details of this request from the process that has the session open.

        Return None if that is this process.
        """
        return None

    async def run_turns(self) -> View:
        """Finish the open turn, then run turns for waiting messages. Return the view.

        The method returns when nothing is left to do, or when the user must be asked.
        """
        if self._turn_lock.locked() and not self.beside:
            raise BadInput("a turn of this session is running already: wait, or stop it")
        async with self._turn_lock:
            await self.record.open()  # after a failure of the disk the view is stale
            await self._run_open_turn()
            # Do not await once a turn waits for a person: an answer that arrived meanwhile
            # would be missed.
            while not self.view.turn.seq and await self._begin_turn():
                await self._run_open_turn()
        return self.view

    async def continue_(self) -> View:
        """Run a turn that continues where the last one ended, without a new message. Return the
        view.
        """
        await self.begin_continuation()
        return await self.run_turns()

    async def begin_continuation(self) -> bool:
        """Record the start of a turn that continues where the last one ended.

        Return False if a turn is open, or a message waits.
        """
        await self.record.open()

        def make_events(view: View) -> tuple[Event, ...]:
            if view.turn.seq or _messages_for_turn(view) or self.running:
                return ()
            return (TurnStarted(view.seq, "continue"),)

        return await self.record.append_if(make_events, kept=True, author="person")

    async def compact(self, kind: CompactionKind = "full", focus: str = "") -> bool:
        """Compact the conversation: now, or before the next step of the running turn.

        Return False if there is nothing to compact, or if a compaction is requested already.
        """
        if self.running or self.view.turn.seq:
            return await self.inbox.compact(kind, focus)
        from refold.engine.summarize import compact_conversation

        async with self._turn_lock:
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
        """Restore the conversation to its state just before the event `mark`.

        Return False if the conversation cannot be restored to that event, or a turn runs.
        """

        def make_events(view: View) -> tuple[Event, ...]:
            return (Rewound(mark),) if view.mark_at(mark) and not view.turn.seq else ()

        return await self.record.append_if(make_events, kept=True, author="person")

    async def pause(self) -> None:
        """Release the journal, so that another process can open it.

        Background commands are stopped.
        """
        if self.background is not None:
            with anyio.CancelScope(shield=True):
                await self.background.close()
        await self.record.close()

    async def close(self) -> None:
        """Run the session's end hooks if a turn ran, release the journal, and close the
        hub.
        """
        if self.at_end is not None and self._ran_turn:
            self._ran_turn = False
            # Each hook has a time limit. A journal that failed is only released.
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

    async def _begin_turn(self) -> bool:
        """Begin a turn with the waiting messages, unless they were stopped meanwhile. Return
        whether a turn has begun.
        """

        def make_events(view: View) -> tuple[Event, ...]:
            start_event = turn_start(view)
            return (start_event,) if start_event else ()

        return await self.record.append_if(make_events, author="agent")

    async def _run_open_turn(self) -> None:
        """Run the open turn, if there is one, until it ends, waits for the user, or is left."""
        if not self.view.turn.seq:
            return
        self._ran_turn = True
        world = await self._prepare_world()
        directory = self.view.session.directory
        unsubscribe = self.hub.subscribe(self._stop_step)
        try:
            # Background work that ends may take time. An answer or a stop that arrives
            # meanwhile is the next thing to do.
            while decide(self.view, world.policies) is not None:
                if self.view.session.directory != directory:
                    world = await self._prepare_world()
                    directory = self.view.session.directory
                async with world.background() if world.background else nullcontext():
                    await run_turn(world, self.record, self._set_step)
        except BaseExceptionGroup as group:  # the background work has a task group
            if not isinstance(first(group), _TurnLeft):
                raise first(group) from group
        except _TurnLeft:
            pass  # another process continues the turn
        finally:
            unsubscribe()

    async def _prepare_world(self) -> World:
        """Return the world of the turn, and record what changed since the last turn."""
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
        """Deny the open questions, if the session had a user before and has none now."""
        for call in self.view.conversation.waiting_calls:
            from refold.engine.calls import NOBODY_TO_ASK

            await self.inbox.answer(call.call.id, allowed=False, reason=NOBODY_TO_ASK)

    def _set_step(self, step: anyio.CancelScope) -> None:
        """Store the scope of the step that begins, so that a stop can cancel it.

        Raise `_TurnLeft` if another process should continue the turn.
        """
        if self.leaves_turn():
            raise _TurnLeft
        self._step = step

    def _stop_step(self, entry: Entry) -> None:
        if isinstance(entry.event, Stopped):
            self._step.cancel()


class _TurnLeft(Exception):
    """Raised between two steps to leave the turn open for another process."""


CUT_OFF = "refold exited before the response came; its reservation counts as used"


def _start_events(opening: Opening, session_options: SessionOptions) -> Sequence[Event]:
    """Return the first events of a new session."""
    started = SessionStarted(
        opening.place.directory,
        opening.version,
        opening.id,
        no_memory=not session_options.remember,
        roots=opening.place.roots,
        limits=session_options.given,
        checks=session_options.checks,
        schedule=session_options.schedule,
    )
    if session_options.mode == "default":
        return (started,)
    # The mode is recorded, so that the session is resumed in it.
    return (started, ModeChanged(session_options.mode))


def _resume_events(
    view: View, opening: Opening, session_options: SessionOptions
) -> Sequence[Event]:
    """Return the events to record when a session is resumed; () if none is needed.

    They settle what another process began and did not end.
    """
    place = opening.place
    has_moved = place.directory != view.session.own_directory
    resumed = SessionResumed(
        opening.version,
        no_memory=not session_options.remember,
        directory=place.directory if has_moved else "",
        roots=place.roots if place.directory else None,
        limits=session_options.given,
    )
    # The user who resumes the session may not know that in bypass mode every call runs without
    # a question.
    mode_events = [ModeChanged("default")] if view.rights.mode == "bypass" else []
    lost_commands = [
        BackgroundEnded(command.name, "lost") for command in view.background.running
    ]
    more_events = (*mode_events, *_settle_cut_off(view), *lost_commands)
    is_needed = opening.resume_hooks or _is_resume_needed(resumed, view)
    if not more_events and not is_needed:
        return ()
    return (resumed, *more_events)


def _is_resume_needed(event: SessionResumed, view: View) -> bool:
    """Whether this event must be recorded, because the fold or a reader of the journal needs
    it.
    """
    session, rights = view.session, view.rights
    return bool(
        view.turn.seq  # before this event, another process spent time on the turn
        or rights.granted
        or rights.mode_before_plan == "bypass"
        or rights.limits != event.limits
        or session.version != event.version
        or session.version_before  # that change was reported before
        or session.no_memory != event.no_memory
        or event.directory
        or event.roots not in (None, session.roots)
        # A run of a schedule that is resumed becomes a session of the user.
        or session.schedule
    )


def _settle_cut_off(view: View) -> Iterator[Settled]:
    """Settle the model calls that another process began and did not end.

    The provider may bill them, so their reservations count as used.
    """
    for item in view.turn.reserved:
        usage = Usage(fresh=item.estimate.tokens, estimated=True)
        model = item.model or view.conversation.system_prompt.model
        yield Settled(item.seq, usage, model, item.estimate.dollars, CUT_OFF)


def turn_start(view: View) -> TurnStarted | None:
    """Return the start of a turn for the oldest message that may begin a turn.

    Return None if there is no such message, or if a turn runs.
    """
    messages = () if view.turn.seq else _messages_for_turn(view)
    return TurnStarted(messages[0]) if messages else None


def _messages_for_turn(view: View) -> list[int]:
    """Return the event numbers of the messages that may begin a turn.

    Only messages sent after the last stop are among them. Older messages belong to the stopped
    turn, and are delivered with the next message. `turn_requests` leaves out the late report of a
    subagent, because that does not begin a turn.
    """
    stop_seq = view.turn.stop_seq
    return [request.seq for request in view.turn_requests if request.seq > stop_seq]
