"""Prints what happens during work, asks questions, and reads keys.

While a question is open, output is held back until the answer, and the work continues. Esc
and Ctrl+C stop the turn without a confirmation, because a command would continue to run while
the user reads the question. Any other key opens a line for a message. The message goes to the
running turn, or is sent after that turn. Output is printed above the line.
"""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from refold.client.session import Session
from refold.client.types import Entry, Subscription, View
from refold.commands.session_lines import sentence
from refold.console.asker import Asker
from refold.console.bell import Bell, notice_sequence, show_desktop_notice
from refold.console.printer import Printer
from refold.console.reader import CTRL_C, SHORTCUTS, Key, TerminalReader
from refold.errors import RefoldError
from refold.terminal.screen.status_line import PlainProgress
from refold.terminal.screen.streamed_text import split_text
from refold.terminal.screen.transcript import TranscriptPrinter
from refold.terminal.steering import Commands, NoCommands, Steering, entered_message
from refold.views.notices import notification
from refold.views.question_keys import DraftMessage

_TICK_SECONDS = 0.1
# Keys of commands, as terminals send them.
_WORK_COMMANDS = {
    "\x02": "/background move",
    "\x0f": SHORTCUTS[Key.CTRL_O],
    "\x14": SHORTCUTS[Key.CTRL_T],
}
_UP_KEYS = ("\x1b[A", "\x1bOA")
_STOP_KEYS = ("\x1b", CTRL_C)
# seconds for which a question waits for others of the same response
_GROUPING_SECONDS = 0.3


class Work:
    """One period of work, until the session has nothing left to do.

    `commands` are the slash commands that the user can type meanwhile.
    """

    def __init__(
        self,
        session: Session,
        printer: Printer,
        reader: TerminalReader,
        commands: Commands | None = None,
    ) -> None:
        self._session = session
        self._printer, self._reader = printer, reader
        self._transcript = TranscriptPrinter(
            printer,
            anyio.current_time,
            session.tool,
            session.settings.context.default_window_tokens,
        )
        self._transcript.usage = session.settings.terminal.show_tokens
        self._transcript.hint = reader.reads_input
        self._steering = Steering(
            session,
            printer,
            reader,
            commands or NoCommands(),
            lambda: self._asker.next_question() is not None,
        )
        self._lock = PromptLock(
            self._steering.read if reader.has_line_editor else reader.read_input
        )
        self._asker = Asker(session, printer, reader, self._steering.send)
        self.under_way, self._over = False, anyio.Event()
        self._bell = Bell(anyio.current_time, session.settings.notify_seconds)
        self._is_handling_input = False
        self._stop_requested = anyio.Event()
        self._compaction = anyio.CancelScope()
        self._cursor = PrintCursor()
        self._notices = list[str]()

    @property
    def delayed(self) -> Sequence[str]:
        """Messages and commands that were typed during the work, and can be handled after it."""
        return self._steering.delayed

    async def run_until_over(
        self,
        start: Callable[[], Awaitable[object]],
        message_key: str = "",
        watch: Subscription | None = None,
        since: View | None = None,
    ) -> RefoldError | None:
        """Call `start`, and show the work until nothing is left to do.

        Return the error that ended the work, or None. `message_key` is the key of a message
        that is already on the screen. `watch` may have begun earlier, at the view `since`.
        Its earlier events are shown, too.
        """
        # An earlier watch may have events that are not printed yet, even the end of the
        # turn. Then the work waits until all of them are printed.
        has_unprinted_events = watch is not None and watch.outstanding
        self._cursor.shown = 0 if has_unprinted_events else self._session.view.seq
        self.under_way = True
        self._bell.note_key()
        watch = self._session.watch() if watch is None else watch
        stop_listening = self._session.on_event(self._on_event)
        if message_key:
            self._transcript.own.add(message_key)
        self._transcript.begin(since or self._session.view)
        failure: RefoldError | None = None
        try:
            with self._reader.suppress_echo():
                async with anyio.create_task_group() as group:
                    group.start_soon(self._print_frames, watch)
                    group.start_soon(self._show_status)
                    group.start_soon(self._put_questions)
                    group.start_soon(self._read_keys)
                    group.start_soon(self._stop_turns_on_request)
                    group.start_soon(self._show_notifications)
                    failure = await self._run_session(start)
                    group.cancel_scope.cancel()
        finally:
            self.under_way = False
            stop_listening()
            watch.close()
            self._printer.clear_status()
            self._over.set()
        self._ring("it is done" if failure is None else str(failure))
        return failure

    async def interrupt(self) -> None:
        """Handle Ctrl+C that arrived as a signal: leave the open question, or stop the turn."""
        if self._lock.asking and self._reader.interrupt():
            return
        self._printer.note_echoed_ctrl_c()
        self._stop_requested.set()

    async def end(self, reason: str) -> None:
        """Stop the turn for good, and wait until the work is over.

        A turn that runs in another process is not stopped, but no longer shown.
        """
        if self._only_compacts or not self._session.owns_turns:
            self._compaction.cancel()
        if self._session.owns_turns:
            await self._session.interrupt(reason=reason)
        if self._lock.asking:
            self._reader.interrupt()
        await self._over.wait()

    async def _run_session(
        self, start: Callable[[], Awaitable[object]]
    ) -> RefoldError | None:
        """Run the session until it has nothing left to do. Return the error that ended it, or
        None.
        """
        session = self._session
        next_step = start
        while True:
            try:
                with anyio.CancelScope() as self._compaction:
                    await next_step()
            except RefoldError as error:
                return error
            if self._compaction.cancelled_caught:
                return None
            next_step = session.settle
            view = session.view
            if view.turn.seq:  # the turn waits for the user, whose answer is a new event
                while session.view.seq <= view.seq and not session.end_reason:
                    await self._cursor.wait_for_wake()
                continue
            await self._cursor.wait_for(view.seq)
            async with self._lock.printing:  # a question or a command may be open
                if session.idle and not self._is_handling_input:
                    return None
            # What the user types now may begin further work.
            while self._is_handling_input:
                await self._cursor.wait_for_wake()

    async def _print_frames(self, watch: Subscription) -> None:
        """Print what the session does, and record the last event that was printed."""
        async for frame in watch.merge_frames():
            for part in split_text(frame):
                async with self._lock.printing:
                    had_status = self._printer.has_status
                    self._transcript.show(part)
                    if had_status and not self._printer.has_status:
                        # It was erased. If it were drawn later, it would flicker.
                        self._printer.show_status(
                            *self._transcript.subagent_rows(), self._transcript.status()
                        )
                if part is not frame:
                    await checkpoint()  # keys are read between the parts
            if isinstance(frame.item, Entry):
                self._cursor.shown = frame.seq
                self._cursor.wake_waiters()
        if self._session.end_reason:
            self._cursor.wake_waiters()

    async def _show_status(self) -> None:
        """Show the status at regular times while no question is open, until cancelled."""
        progress = PlainProgress(self._printer, anyio.current_time)
        while True:
            await anyio.sleep(_TICK_SECONDS)
            if not self._lock.asking:
                progress.show(self._transcript.status(), self._transcript.subagent_rows())

    async def _put_questions(self) -> None:
        """Ask the session's questions one by one, until cancelled.

        Before a question is asked, other questions of the same response may arrive for a
        short time, and all output before the question is printed.
        """
        while True:
            first_request = self._asker.next_question()
            if first_request is None:
                await self._cursor.wait_for_wake()
                continue
            with anyio.move_on_after(_GROUPING_SECONDS):
                while self._asker.has_undecided_calls:
                    await self._cursor.wait_for_wake()
            # another question may be the next by now
            request = self._asker.next_question() or first_request
            await self._cursor.wait_for(request.call.since or self._session.view.seq)
            if self._lock.asking:
                # the user is typing, and the prompt announces the question
                self._reader.redraw()
            async with self._reserve_terminal():
                if self._asker.is_open(request.id):
                    self._ring("a question for you")
                    for call_id in await self._asker.put_question(request):
                        self._transcript.note_question(call_id)
                    if self._asker.chosen_mode:
                        self._transcript.own_mode = self._asker.chosen_mode
                        self._asker.chosen_mode = None
                    self._bell.note_key()

    async def _read_keys(self) -> None:
        """Act on what is typed during the work, until cancelled."""
        while True:
            typed = await self._lock.read_input()
            if not typed:  # the terminal was closed
                await anyio.sleep_forever()
            self._is_handling_input = True  # the work is not over before this is done
            self._bell.note_key()
            if typed in _STOP_KEYS:
                self._stop_requested.set()
            else:
                await self._handle_input(typed)
            self._is_handling_input = False
            self._cursor.wake_waiters()

    async def _handle_input(self, typed: str | DraftMessage) -> None:
        """Act on input when the terminal is free. If the work ends first, a message is sent
        later.
        """
        is_taken = False
        try:
            async with self._reserve_terminal():
                is_taken = True
                await self._act_on_input(typed)
        finally:
            # The work may have ended, and cancelled this, before the terminal was free.
            if not is_taken:
                message = entered_message(typed)
                if message is not None:
                    self._steering.delayed.append(message.words)

    async def _act_on_input(self, typed: str | DraftMessage) -> None:
        """Handle a key, a message or a command that was typed during the work."""
        if isinstance(typed, str) and typed[0].isprintable():
            typed = await self._steering.finish_line(typed)
        if isinstance(typed, DraftMessage):
            await self._steering.send(typed)
        elif typed in _STOP_KEYS:
            self._stop_requested.set()
        elif typed in _UP_KEYS:
            await self._steering.edit_queued()
        elif command := _WORK_COMMANDS.get(typed):
            await self._steering.run_or_delay_command(command)

    async def _stop_turns_on_request(self) -> None:
        """Stop the turn or the compaction whenever a stop is requested, until cancelled.

        If neither is running, stop the next turn or compaction as soon as it begins.
        """
        while True:
            await self._stop_requested.wait()
            self._stop_requested = anyio.Event()
            while not (self._session.compacting or self._session.view.turn.seq):
                await self._cursor.wait_for_wake()
            if self._only_compacts:
                self._compaction.cancel()
            elif not self._session.view.turn.stopped:
                with self._print_errors():
                    await self._session.interrupt()

    @property
    def _only_compacts(self) -> bool:
        """Whether a compaction runs and no turn."""
        return not self._session.view.turn.seq and bool(self._session.compacting)

    def _ring(self, text: str) -> None:
        """Notify the user, if the work has taken so long that the user may be looking
        elsewhere.
        """
        if self._bell.is_due:
            title = self._session.view.session.title
            notice = f"{text}: {title}" if title else text
            self._printer.send_sequence(
                notice_sequence(os.environ, notice, self._printer.capabilities.display)
            )

    @asynccontextmanager
    async def _reserve_terminal(self) -> AsyncGenerator[None]:
        """Reserve the terminal for a question or for typed text, and erase the status."""
        async with self._lock.take():
            self._printer.clear_status()
            with self._print_errors():
                yield

    @contextmanager
    def _print_errors(self) -> Generator[None]:
        """Within the block, print an error of refold instead of raising it."""
        try:
            yield
        except RefoldError as error:  # an order could not be written to the disk
            self._printer.print_line(sentence(error))

    async def _show_notifications(self) -> None:
        """Show the notifications that the model requests, until cancelled."""
        while True:
            while self._notices:
                notice = self._notices.pop(0)
                self._printer.send_sequence(
                    notice_sequence(os.environ, notice, self._printer.capabilities.display)
                )
                await show_desktop_notice(os.environ, notice)
            await self._cursor.wait_for_wake()

    def _on_event(self, entry: Entry) -> None:
        """Store the notification in the event, and tell waiting tasks about the event."""
        if notice := notification(entry, self._session.view):
            self._notices.append(notice)
        self._cursor.wake_waiters()
        self._asker.on_event(entry)


# Decides who may use the terminal: either the printer or a question. Printing holds
# `printing` briefly. A question also takes the keyboard, because two readers would each get
# half of what is typed.
class PromptLock:
    """A lock for the terminal, held by a task that prints or asks.

    `keyboard` returns what is typed while no question is open.
    """

    def __init__(self, keyboard: Callable[[], Awaitable[str | DraftMessage]]) -> None:
        self.printing = anyio.Lock()
        self.asking = False  # whether a question or a line is open
        self._read_typed = keyboard
        self._keyboard = anyio.Lock()
        self._listening: anyio.CancelScope | None = None  # around the waiting for keys

    @asynccontextmanager
    async def take(self) -> AsyncGenerator[None]:
        """Reserve the terminal for a question: nothing else is printed, and no other task reads
        keys.
        """
        async with self.printing:
            self.asking = True
            self._stop_listening()
            try:
                async with self._keyboard:
                    yield
            finally:
                self.asking = False

    async def read_input(self) -> str | DraftMessage:
        """Return what is typed, at a time when no question is open."""
        while True:
            async with self._keyboard:
                if self.asking:  # a question was faster
                    continue
                with anyio.CancelScope() as self._listening:
                    await checkpoint_if_cancelled()  # a line may already be there
                    return await self._read_typed()

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.cancel()


# The position up to which events are printed, and tasks that wait for more. `wake_waiters`
# only says that something happened; the printer reports how far it has printed.
class PrintCursor:
    """The position of the printer: `shown` is the number of the last event that was printed."""

    def __init__(self) -> None:
        self.shown = 0
        self._news = anyio.Event()

    def wake_waiters(self) -> None:
        """Wake the waiting tasks, because an event has arrived or was printed."""
        news, self._news = self._news, anyio.Event()
        news.set()

    async def wait_for_wake(self) -> None:
        await self._news.wait()

    async def wait_for(self, seq: int) -> None:
        while self.shown < seq:
            await self.wait_for_wake()
