"""The line terminal from start to end: reads a prompt, shows the work, and repeats.

The user types a message or a command. `terminal` shows the work between two prompts.
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
from refold.views.styled import Line

_PORT_NOTE = "Port {port} listens in the workspace: /ports {port} opens it on this machine."
_RETRY_SECONDS = 0.1  # seconds until closing the prompt is tried again
IDLE_SECONDS = 600.0  # seconds without a message after which notes are made without asking


async def run(
    session: Session,
    first_words: str = "",
    images: Sequence[ImageData] = (),
    typed: str | None = None,
    background: BackgroundWork | None = None,
) -> int:
    """Run the conversation until the person leaves. Return the exit code."""

    def current_terminal() -> Terminal:
        return loop.terminal

    mode_key, clipboard = ModeKey(), Clipboard(os.environ)
    chosen, config = session.settings.terminal, session.config
    printer, reader = open_terminal(
        history=config.history_file, mask_secrets=config.mask, complete=session_completer(current_terminal),
        keys=PromptKeys(mode_key.press, clipboard.take_image), display=chosen.display,
        theme=chosen.theme,
    )  # fmt: skip
    if chosen.vi:
        reader.use_vi_keys(enabled=True)
    loop = PromptLoop(session, printer, reader, mode_key)
    loop.pasted = clipboard.images_in
    return await loop.run(first_words, images, typed, background)


class PromptLoop:
    """Reads prompts, and sends what is typed, until the person leaves.

    `pasted` finds the images of the clipboard whose labels are in a message.
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
        # Events up to here do not start a turn by themselves.
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
        here, background = self.terminal, background or do_no_background_work

        async def converse() -> None:
            # Keys between prompts are read, and not echoed.
            with self._reader.suppress_echo():
                await greet_and_prompt()

        async def greet_and_prompt() -> None:
            await greet(here.session, here.printer)
            async with anyio.create_task_group() as group:
                if here.socket is not None:
                    group.start_soon(here.socket.run)
                await self._resume_turn(ask=not (first_words or images))
                if first_words or images:
                    await here.say(first_words, images, typed=typed, seen=False)
                group.start_soon(self._mode_key.switch_modes, here)
                group.start_soon(make_notes_when_idle, here, self._idle)
                group.start_soon(background, self._notes.add)
                await self._read_prompts()
                group.cancel_scope.cancel()

        try:
            stopping = self._printer.clear_status, self._reader.redraw
            return await run_with_signals(converse, here.interrupt, here.end, stopping)
        finally:
            self._printer.start_line()  # an error may be printed after this

    async def _resume_turn(self, *, ask: bool) -> None:
        """Finish the turn that was under way when the last process exited.

        No tokens are spent before the person agrees, at the prompt or by a message.
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
        here = self.terminal
        pressed = False  # Ctrl+C, at the prompt before this one
        while not (here.leaving or here.session.end_reason):
            try:
                await self._ask_about_plans()
            except RefoldError as error:  # the answer could not be written to the disk
                self._printer.print_line(sentence(error))
            self._notes.print(self._printer)
            self._printer.ensure_blank_line()
            here.clear_early_interrupt()
            typed = await self._read_input()
            if typed is Key.CTRL_D or (typed is Key.CTRL_C and pressed):
                break
            pressed = typed is Key.CTRL_C
            if pressed and has_interrupted_work(here.session):
                await here.carry_out(here.session.interrupt)
                pressed = False
            elif isinstance(typed, Key) and typed in SHORTCUTS:
                await here.commands.run(SHORTCUTS[typed])
            elif isinstance(typed, Key):
                self._printer.print_text("Press Ctrl+C again to leave, or Ctrl+D.", "dim")
            else:
                await self._handle(typed)
        if here.session.end_reason:
            self._printer.print_text(here.session.end_reason, "warn")
        else:
            self._printer.print_lines(farewell(here.session))

    async def _read_input(self) -> str | Key:
        """Return what is typed. Work that another client orders meanwhile is shown."""
        while True:
            typed: str | Key = Key.CTRL_D
            watch, since = self.terminal.session.watch(live=0), self.terminal.session.view
            async with anyio.create_task_group() as group:
                group.start_soon(self._close_prompt_for_work, watch)
                group.start_soon(self._report_ended_commands)
                group.start_soon(self._print_notes_when_added)
                group.start_soon(self._note_new_ports)
                typed = await self._reader.read_message(self._prompt)
                group.cancel_scope.cancel()
            if typed is not Key.PROMPT_CLOSED or self.terminal.session.end_reason:
                watch.close()
                return Key.CTRL_D if typed is Key.PROMPT_CLOSED else typed
            # A note does not continue a turn that waits for the user.
            if not (self._notes and has_interrupted_work(self.terminal.session)):
                await self.terminal.settle(watch, since)
            self._notes.print(self._printer)
            self._printer.ensure_blank_line()

    async def _close_prompt_for_work(self, watch: Subscription) -> None:
        """Close the prompt when another client or a background command starts work."""
        socket = self.terminal.socket
        async with anyio.create_task_group() as group:

            async def wait_for_work() -> None:
                if socket is not None:
                    await socket.wait_for_order()
                    while not self.terminal.session.has_work:
                        await socket.wait_for_order()
                    group.cancel_scope.cancel()

            group.start_soon(wait_for_work)
            await self._wait_for_work(watch)
            group.cancel_scope.cancel()
        self._seen = self.terminal.session.view.seq
        await self._close_prompt()

    async def _report_ended_commands(self) -> None:
        """Close the prompt when a background command ends, to report it."""
        session = self.terminal.session
        before = {command.name for command in session.view.background.running}
        while before <= {command.name for command in session.view.background.running}:
            try:
                await session.wait_for_change(after=session.view.seq)
            except BadInput:  # the session was closed
                return
        await self._close_prompt()

    async def _print_notes_when_added(self) -> None:
        await self._notes.wait_for_line()
        await self._close_prompt()

    async def _note_new_ports(self) -> None:
        """Add a note for each port of the place that began to listen, also before the prompt."""
        watch = self.terminal.session.watch(kinds=(PortsChanged,))
        async with aclosing(watch.frames()) as frames:
            async for frame in frames:
                ports = frame.item.ports if isinstance(frame.item, PortsChanged) else ()
                for port in sorted({*ports} - self._noted_ports):
                    self._notes.add(_PORT_NOTE.format(port=port))
                self._noted_ports = {*ports}

    async def _close_prompt(self) -> None:
        while True:
            if self._reader.close_prompt():
                return
            await anyio.sleep(_RETRY_SECONDS)  # an editor is open, or no prompt yet

    async def _wait_for_work(self, watch: Subscription) -> None:
        """Wait until a turn runs elsewhere, or a background command starts one here."""
        session = self.terminal.session

        # A short turn may have ended before it is seen to run.
        def runs_elsewhere() -> bool:
            return bool(watch.outstanding) and not session.owns_turns

        while not (
            session.running
            or session.end_reason
            or runs_elsewhere()
            or self._has_events_to_handle()
        ):
            with suppress(BadInput):  # it has ended
                await session.wait_for_change(after=session.view.seq)

    def _has_events_to_handle(self) -> bool:
        """Return True if events since the session was opened call for a turn."""
        session = self.terminal.session
        if session is not self._watched:
            self._watched, self._seen = session, session.view.seq
        begins = session.owns_turns and not (session.idle or session.view.turn.seq)
        return begins and session.view.seq > self._seen

    async def _ask_about_plans(self) -> None:
        """Ask about the pending plan, unless it was put off, and about each revision."""
        here = self.terminal
        while not here.leaving and (plan := here.plans.next_plan(here.session)):
            if not await plans.ask_about_plan(
                plan, here.session, self._printer, self._reader
            ):
                here.plans.postpone(plan)
                return
            if not here.session.idle:
                await here.settle()

    async def _handle(self, typed: str) -> None:
        here = self.terminal
        if not typed.strip():
            if is_resumable(here.session.view) or has_interrupted_work(here.session):
                await here.carry_out(partial(continue_turn, here.session))
        elif here.commands.is_command(typed):
            await here.commands.run(typed)
        else:
            images = self.pasted(typed)
            print_sent_images(images, self._printer)
            await here.say(typed, images)
            if was_stopped_unanswered(here.session.view):
                self._reader.restore_draft(typed)

    def _prompt(self) -> Line:
        mode = self.terminal.session.mode
        sign = self._printer.capabilities.sign("prompt")
        before: Line = () if mode == "default" else (("warn", f"{mode} "),)
        background_count = len(self.terminal.session.view.background.running)
        if background_count:
            before = (*before, ("dim", f"{background_count} in background "))
        if ports := ports_text(self.terminal.session.workspace.new_ports):
            before = (*before, ("dim", f"{ports} "))
        return (*before, ("person", f"{sign} "))


class PendingLines:
    """Lines about background work. They are printed between turns."""

    def __init__(self) -> None:
        self._lines, self._news = list[str](), anyio.Event()

    def add(self, text: str) -> None:
        self._lines.append(text)
        self._news.set()

    async def wait_for_line(self) -> None:
        """Wait until there is a line to print."""
        while not self._lines:
            self._news = anyio.Event()
            await self._news.wait()

    def __bool__(self) -> bool:
        return bool(self._lines)

    def print(self, printer: Printer) -> None:
        for text in self._lines:
            printer.print_text(text, "dim")
        self._lines.clear()


class ModeKey:
    """Records presses of Shift+Tab, and changes the mode in a task that can await."""

    def __init__(self) -> None:
        self._pressed, self._news = 0, anyio.Event()

    def press(self) -> None:
        self._pressed += 1
        self._news.set()

    async def switch_modes(self, terminal: Terminal) -> None:
        """Switch to the next mode each time that it is pressed."""
        while True:
            await self._wait_for_press()
            try:
                await set_next_mode(terminal.session)
            except RefoldError as error:
                terminal.printer.print_line(sentence(error))
            terminal.reader.redraw()

    async def _wait_for_press(self) -> None:
        while not self._pressed:
            self._news = anyio.Event()
            await self._news.wait()
        self._pressed -= 1


async def make_notes_when_idle(terminal: Terminal, idle: float) -> None:
    """Make notes of the session after each long silence, until this is cancelled.

    Only once in each: a model that gives no notes would be asked, and paid, again and again.
    """
    tried: tuple[Session, int] | None = None
    while True:
        seq, memory = terminal.session.view.seq, terminal.session.memory
        await anyio.sleep(idle)
        session = terminal.session
        silent = not terminal.working and session.idle and session.view.seq == seq
        if (session, seq) != tried and silent and memory is not None and memory.makes_notes:
            with suppress(RefoldError):  # the next turn, or the end, tries again
                await memory.learn_idle()
            tried = session, session.view.seq
