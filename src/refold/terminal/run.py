"""Runs the line terminal: repeatedly reads a message or a command, and shows the work.

`terminal` sends the message and draws the work.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial

import anyio

from refold.client.session import Session
from refold.client.types import ImageData, Subscription
from refold.commands.completions import session_completer
from refold.commands.continue_ import continue_turn
from refold.commands.mode import set_next_mode
from refold.commands.session_lines import farewell, has_interrupted_work, sentence
from refold.console import plan_prompt as plans
from refold.console.clipboard import Clipboard, print_sent_images
from refold.console.console_context import BackgroundWork, do_no_background_work
from refold.console.printer import Printer
from refold.console.reader import SHORTCUTS, Key, PromptKeys, TerminalReader
from refold.console.signals import run_with_signals
from refold.errors import BadInput, RefoldError
from refold.terminal.greeting import greet, is_resumable, print_cut_off_turn
from refold.terminal.terminal import Terminal
from refold.terminal.this_terminal import open_terminal
from refold.values.live import PortsChanged
from refold.views.notices import was_stopped_unanswered
from refold.views.screen.status import ports_text
from refold.views.styled import Line, Piece

_PORT_NOTE = "Port {port} listens in the workspace: /ports {port} opens it on this machine."
_RETRY_SECONDS = 0.1  # between attempts to close the prompt
IDLE_SECONDS = 600.0  # without a message; then notes are made without asking


async def run(
    session: Session,
    first_words: str = "",
    images: Sequence[ImageData] = (),
    typed: str | None = None,
    background: BackgroundWork | None = None,
) -> int:
    """Run the line terminal for the session until the user leaves. Return the exit code.

    `first_words` and `images` are a first message. `typed` is the part of it that the user
    wrote. `background` runs in the background and reports lines to print.
    """

    def current_terminal() -> Terminal:
        return loop.terminal  # `loop` is created below, because it needs the reader

    mode_key, clipboard = ModeKey(), Clipboard(os.environ)
    settings, config = session.settings.terminal, session.config
    printer, reader = open_terminal(
        history=config.history_file, mask_secrets=config.mask,
        complete=session_completer(current_terminal),
        keys=PromptKeys(mode_key.press, clipboard.take_image),
        display=settings.display, theme=settings.theme,
    )  # fmt: skip
    if settings.vi:
        reader.use_vi_keys(enabled=True)
    loop = PromptLoop(session, printer, reader, mode_key)
    loop.pasted = clipboard.images_in
    return await loop.run(first_words, images, typed, background)


class PromptLoop:
    """Repeats until the user leaves: shows a prompt, and sends the message or runs the command.

    `pasted` returns the images whose labels are in a message.
    """

    def __init__(
        self,
        session: Session,
        printer: Printer,
        reader: TerminalReader,
        mode_key: "ModeKey | None" = None,
        idle: float = IDLE_SECONDS,
    ) -> None:
        self.terminal = Terminal(session, printer, reader)
        self._printer, self._reader = printer, reader
        self._mode_key, self._idle = mode_key or ModeKey(), idle
        # Events of the session `_watched` up to `_seen` do not start a turn by themselves.
        self._watched, self._seen = session, session.view.seq
        self._notes, self._noted_ports = PendingLines(), set[int]()
        self.pasted: Callable[[str], Sequence[ImageData]] = lambda _: ()

    async def run(
        self,
        first_words: str = "",
        images: Sequence[ImageData] = (),
        typed: str | None = None,
        background: BackgroundWork | None = None,
    ) -> int:
        """Run the loop until the user leaves. Return the exit code.

        The arguments are those of the function `run`.
        """
        terminal = self.terminal
        background_work = background or do_no_background_work

        async def converse() -> None:
            # Keys between prompts are read, and not echoed.
            with self._reader.suppress_echo():
                await greet_and_prompt()

        async def greet_and_prompt() -> None:
            await greet(terminal.session, terminal.printer)
            async with anyio.create_task_group() as group:
                if terminal.socket is not None:
                    group.start_soon(terminal.socket.run)
                await self._resume_turn(ask=not (first_words or images))
                if first_words or images:
                    await terminal.say(first_words, images, typed=typed, seen=False)
                group.start_soon(self._mode_key.switch_modes, terminal)
                group.start_soon(make_notes_when_idle, terminal, self._idle)
                group.start_soon(background_work, self._notes.add)
                await self._read_prompts()
                group.cancel_scope.cancel()

        try:
            suspend_hooks = self._printer.clear_status, self._reader.redraw
            return await run_with_signals(
                converse, terminal.interrupt, terminal.end, suspend_hooks
            )
        finally:
            self._printer.start_line()  # an error may be printed after this

    async def _resume_turn(self, *, ask: bool) -> None:
        """Finish the turn that was running when the session's last process exited.

        If finishing the turn would call the model, do nothing yet: the user must first agree,
        by a key at the prompt or by a message. With `ask`, print what the turn was doing,
        because the user has not sent a message.
        """
        session = self.terminal.session
        if has_interrupted_work(session):
            if ask:
                print_cut_off_turn(session, self._printer)
        elif not session.idle:
            self._printer.ensure_blank_line()
            if session.owns_turns:
                self._printer.print_text("Continuing the interrupted turn.", "dim")
            await self.terminal.settle()

    async def _read_prompts(self) -> None:
        """Read prompts, and act on each, until the user leaves or the session ends."""
        terminal = self.terminal
        was_ctrl_c = False  # whether Ctrl+C was pressed at the previous prompt
        while not (terminal.leaving or terminal.session.end_reason):
            try:
                await self._ask_about_plans()
            except RefoldError as error:  # the answer could not be written to the disk
                self._printer.print_line(sentence(error))
            self._notes.print(self._printer)
            self._printer.ensure_blank_line()
            terminal.clear_early_interrupt()
            typed = await self._read_input()
            is_ctrl_c = typed is Key.CTRL_C
            if typed is Key.CTRL_D or (is_ctrl_c and was_ctrl_c):
                break
            was_ctrl_c = is_ctrl_c
            if is_ctrl_c and has_interrupted_work(terminal.session):
                await terminal.carry_out(terminal.session.interrupt)
                was_ctrl_c = False
            elif isinstance(typed, Key) and typed in SHORTCUTS:
                await terminal.commands.run(SHORTCUTS[typed])
            elif isinstance(typed, Key):
                self._printer.print_text("Press Ctrl+C again to leave, or Ctrl+D.", "dim")
            else:
                await self._handle(typed)
        if terminal.session.end_reason:
            self._printer.print_text(terminal.session.end_reason, "warn")
        else:
            self._printer.print_lines(farewell(terminal.session))

    async def _read_input(self) -> str | Key:
        """Return a line or a key of the user. While waiting, show work that other clients
        start.

        If the session has ended, return Ctrl+D, so that the loop ends.
        """
        while True:
            typed: str | Key = Key.CTRL_D
            # Begun before the prompt, so that no event is missed when the work is shown.
            watch, since = self.terminal.session.watch(live=0), self.terminal.session.view
            async with anyio.create_task_group() as group:
                group.start_soon(self._close_prompt_for_work, watch)
                group.start_soon(self._report_ended_commands)
                group.start_soon(self._print_notes_when_added)
                group.start_soon(self._note_new_ports)
                typed = await self._reader.read_message(self._prompt)
                group.cancel_scope.cancel()
            if typed is not Key.PROMPT_CLOSED:
                watch.close()
                return typed
            if self.terminal.session.end_reason:
                watch.close()
                return Key.CTRL_D
            # A note does not continue a turn that waits for the user.
            if not (self._notes and has_interrupted_work(self.terminal.session)):
                await self.terminal.settle(watch, since)
            self._notes.print(self._printer)
            self._printer.ensure_blank_line()

    async def _close_prompt_for_work(self, watch: Subscription) -> None:
        """Close the prompt when another client or a background command starts work."""
        socket = self.terminal.socket
        async with anyio.create_task_group() as group:

            async def wait_for_orders() -> None:
                if socket is not None:
                    await socket.wait_for_order()
                    while not self.terminal.session.has_work:
                        await socket.wait_for_order()
                    group.cancel_scope.cancel()

            group.start_soon(wait_for_orders)
            await self._wait_for_work(watch)
            group.cancel_scope.cancel()
        self._seen = self.terminal.session.view.seq
        await self._close_prompt()

    async def _report_ended_commands(self) -> None:
        """Close the prompt when a background command ends, so that its end is reported."""
        session = self.terminal.session
        first_names = {command.name for command in session.view.background.running}
        names = first_names
        while first_names <= names:  # all of them still run
            try:
                await session.wait_for_change(after=session.view.seq)
            except BadInput:  # the session was closed
                return
            names = {command.name for command in session.view.background.running}
        await self._close_prompt()

    async def _print_notes_when_added(self) -> None:
        await self._notes.wait_for_line()
        await self._close_prompt()

    async def _note_new_ports(self) -> None:
        """Add a note for each port that begins to listen in a workspace on another machine.

        Ports that began to listen before the prompt was shown get a note, too.
        """
        watch = self.terminal.session.watch(kinds=(PortsChanged,))
        async with aclosing(watch.frames()) as frames:
            async for frame in frames:
                ports = frame.item.ports if isinstance(frame.item, PortsChanged) else ()
                for port in sorted({*ports} - self._noted_ports):
                    self._notes.add(_PORT_NOTE.format(port=port))
                self._noted_ports = {*ports}

    async def _close_prompt(self) -> None:
        """Close the prompt as soon as that is possible."""
        while True:
            if self._reader.close_prompt():
                return
            # an editor is open, or there is no prompt yet
            await anyio.sleep(_RETRY_SECONDS)

    async def _wait_for_work(self, watch: Subscription) -> None:
        """Wait until a turn runs in another process, a background command starts one here, or
        the session ends.
        """
        session = self.terminal.session

        def has_turn_elsewhere() -> bool:
            # A short turn may end before it is seen to run, so its events count.
            return bool(watch.outstanding) and not session.owns_turns

        while not (session.running or session.end_reason or has_turn_elsewhere()):
            if session is not self._watched:  # the user has opened another session
                self._watched, self._seen = session, session.view.seq
            may_begin_turn = session.owns_turns and not session.view.turn.seq
            has_new_events = session.view.seq > self._seen
            if may_begin_turn and has_new_events and not session.idle:
                return
            with suppress(BadInput):  # the turn has ended
                await session.wait_for_change(after=session.view.seq)

    async def _ask_about_plans(self) -> None:
        """Ask the user about the plan that waits for approval, and then about each revision of
        it.

        The user may postpone a plan; then it is not asked about again.
        """
        terminal = self.terminal
        while not terminal.leaving:
            plan = terminal.plans.next_plan(terminal.session)
            if plan is None:
                return
            if not await plans.ask_about_plan(
                plan, terminal.session, self._printer, self._reader
            ):
                terminal.plans.postpone(plan)
                return
            if not terminal.session.idle:
                await terminal.settle()

    async def _handle(self, typed: str) -> None:
        """Handle a line: run a command, send a message, or, if it is empty, continue the turn."""
        terminal = self.terminal
        if not typed.strip():
            session = terminal.session
            if is_resumable(session.view) or has_interrupted_work(session):
                await terminal.carry_out(partial(continue_turn, terminal.session))
        elif terminal.commands.is_command(typed):
            await terminal.commands.run(typed)
        else:
            images = self.pasted(typed)
            print_sent_images(images, self._printer)
            await terminal.say(typed, images)
            if was_stopped_unanswered(terminal.session.view):
                self._reader.restore_draft(typed)

    def _prompt(self) -> Line:
        """Return the prompt, with an unusual mode, background commands and new ports before it."""
        session = self.terminal.session
        pieces = list[Piece]()
        if session.mode != "default":
            pieces.append(("warn", f"{session.mode} "))
        background_count = len(session.view.background.running)
        if background_count:
            pieces.append(("dim", f"{background_count} in background "))
        if ports := ports_text(session.workspace.new_ports):
            pieces.append(("dim", f"{ports} "))
        sign = self._printer.capabilities.sign("prompt")
        return (*pieces, ("person", f"{sign} "))


class PendingLines:
    """Lines about background work that wait until they can be printed between turns."""

    def __init__(self) -> None:
        self._lines, self._news = list[str](), anyio.Event()

    def add(self, text: str) -> None:
        self._lines.append(text)
        self._news.set()

    async def wait_for_line(self) -> None:
        """Wait until at least one line can be printed."""
        while not self._lines:
            self._news = anyio.Event()
            await self._news.wait()

    def __bool__(self) -> bool:
        return bool(self._lines)

    def print(self, printer: Printer) -> None:
        """Print the lines, and remove them."""
        for text in self._lines:
            printer.print_text(text, "dim")
        self._lines.clear()


class ModeKey:
    """Counts presses of Shift+Tab, and changes the permission mode in a separate task."""

    def __init__(self) -> None:
        self._pressed, self._news = 0, anyio.Event()

    def press(self) -> None:
        self._pressed += 1
        self._news.set()

    async def switch_modes(self, terminal: Terminal) -> None:
        """Change to the next permission mode after each press, until cancelled."""
        while True:
            await self._wait_for_press()
            try:
                await set_next_mode(terminal.session)
            except RefoldError as error:
                terminal.printer.print_line(sentence(error))
            terminal.reader.redraw()

    async def _wait_for_press(self) -> None:
        """Wait for a press of the key. Each press ends one wait, also an earlier press."""
        while not self._pressed:
            self._news = anyio.Event()
            await self._news.wait()
        self._pressed -= 1


async def make_notes_when_idle(terminal: Terminal, idle: float) -> None:
    """Make notes of the session whenever it was idle for `idle` seconds, until cancelled.

    Notes are made only once in each idle time, because each attempt calls a model and costs
    money.
    """
    # The session and its last event at the end of the last attempt.
    last_attempt: tuple[Session, int] | None = None
    while True:
        seq, memory = terminal.session.view.seq, terminal.session.memory
        await anyio.sleep(idle)
        session = terminal.session
        was_idle = not terminal.working and session.idle and session.view.seq == seq
        if not was_idle or (session, seq) == last_attempt:
            continue
        if memory is not None and memory.makes_notes:
            with suppress(RefoldError):  # the next turn, or the end, tries again
                await memory.learn_idle()
            last_attempt = session, session.view.seq
