"""A teammate between two turns: it waits for mail or a free task, and ends when neither
arrives.

It ends after a minute, when its leader asks it to, or when the leader and all teammates
have nothing left to do. A crash between any two events loses nothing: undelivered mail
begins a turn, and so does a task that was claimed but not mentioned yet. `child` runs the
turns, `team` has the mail.

Mail is an event in the journal of the leader, so all members agree on its order. The leader's
turn stays open, because rights and budget are those of a turn. No member blocks until another
one answers, because two members could wait for each other.
"""

from collections.abc import Sequence
from contextlib import suppress

import anyio
import anyio.lowlevel

from refold.agents.team import is_dismissed, new_mail
from refold.engine.policies.conversation import is_last_word
from refold.errors import ToolFailed
from refold.journal.events.child_events import (
    ChildEnded,
    ChildStopped,
    MailSent,
    TeammateIdled,
)
from refold.journal.events.kinds import (
    Ended,
    Entry,
    Event,
    ModelAnswered,
    Said,
    TurnStarted,
)
from refold.journal.state.children import Child
from refold.journal.state.fold import View
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.tools.todo import Board
from refold.values.control import BoardTask, TaskChange
from refold.values.modes import AWAITED_SECONDS

BOARD_SENDER = "board"  # the sender of messages about a task
_WAKING_EVENTS = (MailSent, TeammateIdled, ModelAnswered, Ended, ChildEnded)


class Teammate:
    """The teammate `child` with its `session`. `leader` is the leader's recorder."""

    def __init__(
        self,
        child: Child,
        session: Session,
        leader: Recorder,
        board: Board,
        stop: anyio.Event,
        patience: tuple[float, float],
    ) -> None:
        self._child = child
        self._session = session
        self._leader = leader
        self._board = board
        self._stop = stop
        # The seconds that it waits for work, and the seconds between two looks at the board.
        self._max_idle_seconds, self._poll_seconds = patience
        self._id = session.view.session.id
        self._wake = anyio.Event()

    async def mail(self) -> None:
        """Deliver mail to the session, until cancelled."""
        unsubscribe = self._leader.hub.subscribe(self._on_event)
        try:
            while True:
                self._wake.set()  # `_wait_for_news` may wait for the old one
                self._wake = anyio.Event()
                await self._session.record.append_if(
                    lambda view: new_mail(self._child, self._leader.view, view),
                    kept=True,
                    author="mail",
                )
                await self._wake.wait()
        finally:
            unsubscribe()

    async def next_turn(self) -> bool:
        """Wait for work and begin a turn with it.

        Return False if no work arrives and the teammate must end.
        """
        patience = AWAITED_SECONDS if self._awaits_command else self._max_idle_seconds
        until = anyio.current_time() + patience
        while not self._stop.is_set():
            if await self._begin_turn():
                await self._leader.append_if(self._working_events, author=self._child.name)
                return True
            if is_dismissed(self._child, self._leader.view):
                if await self._leave("its leader asked it to end"):
                    return False
                continue  # mail arrived: it is read first
            if await self._send_task():
                continue
            await self._leader.append_if(self._idle_events, author=self._child.name)
            if self._session.view.conversation.undelivered:
                continue  # mail arrived while the board was read
            seconds_left = until - anyio.current_time()
            if not self._all_is_done and seconds_left > 0:
                with anyio.move_on_after(min(seconds_left, self._poll_seconds)):
                    await self._wait_for_news()
            # Nothing is awaited between the wait and this check, so that all members see
            # the same state, and all of them end.
            is_over = self._all_is_done or seconds_left <= 0
            if is_over and await self._leave("it has nothing to do"):
                return False
        return False

    def _on_event(self, entry: Entry) -> None:
        if isinstance(entry.event, _WAKING_EVENTS):
            self._wake.set()

    async def _wait_for_news(self) -> None:
        """Wait for an event in the leader's journal, for mail, or for a stop."""
        async with anyio.create_task_group() as group:

            async def wait_for_one(wait: anyio.Event) -> None:
                await wait.wait()
                group.cancel_scope.cancel()

            async def wait_for_mail(seq: int) -> None:
                await self._session.record.wait_for_event(after=seq)
                group.cancel_scope.cancel()

            group.start_soon(wait_for_one, self._stop)
            group.start_soon(wait_for_one, self._wake)
            group.start_soon(wait_for_mail, self._session.view.seq)

    async def _begin_turn(self) -> bool:
        """Begin a turn with the teammate's waiting messages. Return whether a turn is open
        now.
        """

        def make_events(view: View) -> Sequence[Event]:
            waiting = view.conversation.undelivered
            turn_is_open = bool(view.turn.seq)
            if turn_is_open or not waiting:
                return ()
            return (TurnStarted(waiting[0].seq),)

        await self._session.record.append_if(make_events, kept=True, author="mail")
        return bool(self._session.view.turn.seq)

    async def _send_task(self) -> bool:
        """Send the teammate a task of the board that it has already, or that it can claim.

        Return False if there is no task for the teammate.
        """
        try:
            tasks = await self._board.tasks()
            known_keys = self._session.view.account.client_keys
            own_tasks = in_progress(tasks, self._id)
            not_sent = [task for task in own_tasks if f"task {task.id}" not in known_keys]
            if not_sent:
                task = not_sent[0]
                key = f"task {task.id}"
            else:
                claim_key = f"claim {self._session.view.seq}"
                # 0: any task that is free.
                task = await self._board.claim(0, self._id, f"{self._id}/{claim_key}")
                key = f"task {task.id}"
                if key in known_keys:  # it was freed and claimed again: it is sent again
                    key = claim_key
        except ToolFailed:  # none is free, or the board cannot be read
            return False
        message = Said(_task_message(task), BOARD_SENDER, client_key=key)
        await self._session.record.append_if(
            lambda _: (message,), kept=True, author=BOARD_SENDER
        )
        return True

    async def _leave(self, reason: str) -> bool:
        """Record that the teammate ends, so that it gets no more mail.

        Return False and record nothing if mail has arrived.
        """

        def make_events(view: View) -> Sequence[Event]:
            stopped = ChildStopped(self._child.name, reason)
            return () if self._has_unread(view) else (stopped,)

        if await self._leader.append_if(make_events, author=self._child.name):
            return True
        await anyio.lowlevel.checkpoint()  # lets `mail` deliver it
        return False

    def _idle_events(self, view: View) -> Sequence[Event]:
        """Return the event that the teammate is idle.

        Return () if the event is recorded already, or if the teammate has work.
        """
        child = view.children.child(self._child.name)
        if child is None or child.idle or child.end is not None or self._awaits_command:
            return ()
        return () if self._has_unread(view) else (TeammateIdled(child.name),)

    def _working_events(self, view: View) -> Sequence[Event]:
        """Return the event that the teammate is no longer idle.

        Return () if the teammate is not recorded as idle.
        """
        child = view.children.child(self._child.name)
        return (TeammateIdled(child.name, idle=False),) if child and child.idle else ()

    @property
    def _awaits_command(self) -> bool:
        """Whether a background command will wake the teammate."""
        return bool(self._session.view.background.commands_to_await)

    def _has_unread(self, leader: View) -> bool:
        """Whether mail for the teammate is not in its own journal yet, or is not read there."""
        member = self._session.view
        return bool(
            member.conversation.undelivered or new_mail(self._child, leader, member)
        )

    @property
    def _all_is_done(self) -> bool:
        """Whether the leader has finished for now, and every teammate is idle."""
        view = self._leader.view
        conversation = view.conversation
        if not is_last_word(view) or conversation.undelivered or conversation.calls:
            return False
        return all(child.idle for child in view.children.running if child.born.background)


def in_progress(tasks: Sequence[BoardTask], owner: str) -> list[BoardTask]:
    return [t for t in tasks if t.status == "in_progress" and t.owner == owner]


async def find_owned(board: Board, owner: str) -> Sequence[int]:
    """Return the numbers of the tasks that are in progress with this owner."""
    try:
        return [task.id for task in in_progress(await board.tasks(), owner)]
    except ToolFailed:  # the board cannot be read: the teammate ends anyway
        return ()


async def free_tasks(board: Board, owners: Sequence[str]) -> None:
    """Make the tasks in progress of these owners, who have ended, free again."""
    with suppress(ToolFailed):
        for owner in owners:
            for id_ in await find_owned(board, owner):
                await board.change(id_, TaskChange(status="pending"), owner)


def _task_message(task: BoardTask) -> str:
    """Return the message that gives a teammate this task."""
    about = f"\n{task.description}" if task.description else ""
    return (
        f"<reminder>Task #{task.id} of the board is yours: do it, and complete it with "
        f"task_update.</reminder>\n{task.subject}{about}"
    )
