"""The runtime of the full screen: converts keys to messages, and performs commands.

`update` and `view` are pure. Code that waits, writes or asks is here, in `following` and in
`host`. A frame is painted only if something on it has changed.

No framework is used, because it would slow down every key: with 10,000 blocks, Textual took 14
ms for a key at the median and 185 ms at the 99th percentile; this module takes 0.6 and 1.0 ms.
"""

import os
import sys
import time
from collections.abc import (
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from functools import partial
from typing import Literal

import anyio
from anyio.abc import TaskGroup

from refold.client.protocol import Interrupt, Order
from refold.client.session import Session
from refold.client.types import ImageData
from refold.commands.mode import set_next_mode
from refold.commands.session_lines import (
    cut_off_turn,
    farewell,
    heading,
    is_cut_off,
    sentence,
)
from refold.commands.table import command_name
from refold.console import plan_prompt as plans
from refold.console.bell import Bell, notice_sequence, show_desktop_notice
from refold.console.capabilities import (
    TerminalCapabilities,
    detect_capabilities,
    is_dumb,
)
from refold.console.clipboard import Clipboard
from refold.console.console_context import BackgroundWork, do_no_background_work
from refold.console.editor import editor_command
from refold.console.history import open_history
from refold.console.printer import Printer
from refold.console.signals import run_with_signals
from refold.console.terminfo import read_terminfo
from refold.errors import BadInput, RefoldError
from refold.tui import messages as m
from refold.tui.following import SessionFollower
from refold.tui.foreground import Foreground
from refold.tui.host import Questions, RowPrinter, ScreenContext, ScreenReader
from refold.tui.image_loader import ImageLoader
from refold.tui.image_painter import ImagePainter
from refold.tui.layout_queue import LayoutQueue
from refold.tui.model import Model
from refold.tui.offers import Completer, palette
from refold.tui.screen_modes import ScreenModes, write
from refold.tui.shell_display import ShellDisplay
from refold.tui.shell_rows import shell_output_width
from refold.tui.transcript import Memo, Transcript
from refold.tui.update import update
from refold.tui.view import divide_screen
from refold.views.call_summary import full_label
from refold.views.escape import escape_to_one_line
from refold.views.styled import Line, line

_TICK_SECONDS = 0.1  # between two steps of the spinner
_INPUT_MESSAGES = m.Key | m.Typed | m.Paste | m.Mouse
_MAX_STOP_SECONDS = 2  # for a turn to end after it was stopped
_PERSON_LEFT = "the person has left"


async def run(
    session: Session,
    first_words: str = "",
    images: Sequence[ImageData] = (),
    typed: str | None = None,
    background: BackgroundWork | None = None,
) -> int:
    """Run the full screen for the session until the user leaves. Return the exit code.

    `first_words` and `images` are a first message. `typed` is the part of it that the user
    wrote. `background` runs in the background and reports lines to print.
    """
    return await App(session, background or do_no_background_work).run(
        first_words, images, typed
    )


def check_terminal(environ: Mapping[str, str]) -> None:
    """Raise `BadInput` if the terminal cannot show a full screen."""
    term = environ.get("TERM", "")
    if not is_dumb(environ):
        terminfo = read_terminfo(term)
        if terminfo is None or terminfo.full:  # without an entry, it is treated like xterm
            return
    raise BadInput(
        f"the terminal {escape_to_one_line(term) or '(TERM is not set)'} cannot place and hide its "
        "cursor, as the full screen does: use refold --display plain"
    )


def _greet(session: Session, printer: Printer) -> None:
    """Print the heading and the notices of the session, and a turn that was cut off."""
    printer.print_line(heading(session))
    for notice in session.notices():
        printer.print_text(escape_to_one_line(notice), "warn")
    if is_cut_off(session):
        printer.print_lines(cut_off_turn(session, printer.free_columns))


async def _stop_turn(session: Session, reason: str) -> None:
    """Stop the turn that this process runs, and wait briefly for its end."""
    if session.view.turn.seq and session.owns_turns:
        await session.interrupt(reason=reason)
        with anyio.move_on_after(_MAX_STOP_SECONDS):
            while session.view.turn.seq:
                await session.wait_for_change(after=session.view.seq)


class App:
    """The runtime of one terminal, with the session that it shows."""

    def __init__(self, session: Session, background: BackgroundWork) -> None:
        settings, config, environ = session.settings.terminal, session.config, os.environ
        self._background = background
        self._capabilities = detect_capabilities(
            sys.stdout, environ, display="line", theme=settings.theme
        )
        modes = ScreenModes(
            config.history_file.parent, mouse=settings.mouse, environ=environ
        )
        painter = ImagePainter(environ, wanted=settings.images)
        self._images = ImageLoader(painter, lambda name: self.session.blob(name), self.post)
        self._foreground = Foreground(modes, self._capabilities, self.post, self._images)
        width, height = self._foreground.size()
        self._layouts = LayoutQueue()
        transcript = Transcript(
            label=lambda call: full_label(call, self.session.tool(call.name)),
            links=self._capabilities.links,
            memo=Memo(self._layouts),
        )
        self.model = Model(
            width=width, height=height, now=time.time(), transcript=transcript
        )
        self._questions = Questions(self.post, anyio.current_time)
        self._printer = self._row_printer(
            lambda rows: self.post(m.RowsPrinted(tuple(rows)))
        )
        reader = ScreenReader(self._questions, self._foreground.edit_text)
        self._terminal = ScreenContext(session, self._printer, reader, self)
        self._bell = Bell(anyio.current_time, session.settings.notify_seconds)
        self._history = open_history(
            config.history_file,
            restore_pastes=lambda text: text,  # `Remember` has the pasted text in it
            mask_secrets=config.mask,
        )
        self._has_left, self._turn_began = anyio.Event(), anyio.Event()
        if settings.vi:
            reader.use_vi_keys(enabled=True)
        self._follow_scope = anyio.CancelScope()
        self._follower: SessionFollower | None = None
        self._completer = Completer(session, self.post)
        self._clipboard = Clipboard(environ)
        self._delayed = list[str]()
        self._shell: ShellDisplay | None = None
        self._shell_lock = anyio.Lock()

    @property
    def session(self) -> Session:
        return self._terminal.session

    async def run(
        self, first_words: str, images: Sequence[ImageData], typed: str | None
    ) -> int:
        """Run the screen until the user leaves. Return the exit code."""

        async def show_until_left() -> None:
            async with anyio.create_task_group() as self._group:
                earlier = list(self._history.load_history_strings())
                self.post(m.Remembered(tuple(reversed(earlier))))
                self._group.start_soon(self._foreground.paint_frames, lambda: self.model)
                self._group.start_soon(self._images.run, self._foreground.request_frame)
                self._group.start_soon(self._layouts.run, self._foreground.request_frame)
                await self.show_session(self.session)
                self._group.start_soon(self._read)
                self._group.start_soon(self._tick)
                self._group.start_soon(self._terminal.let_processes_join)
                self._group.start_soon(self._background, self._printer.print_text)
                if first_words or images:
                    await self._terminal.say(first_words, images, typed=typed)
                await self._has_left.wait()
                await self._stop_this_turn(_PERSON_LEFT)
                self._group.cancel_scope.cancel()

        self._foreground.enter()
        try:
            return await run_with_signals(
                show_until_left, self._press_ctrl_c, self._stop_this_turn
            )
        finally:
            self._foreground.close()
            Printer(sys.stdout, self._capabilities).print_lines(farewell(self.session))

    _group: TaskGroup

    def post(self, message: m.Message) -> None:
        """Update the state by a message, and perform the commands that `update` returns."""
        if isinstance(message, _INPUT_MESSAGES):
            self._bell.note_key()
        self.model, commands = update(self.model, message)
        self._foreground.request_frame(keyed=isinstance(message, _INPUT_MESSAGES))
        if self.model.screen.view.turn.seq:
            self._turn_began.set()
        for command in commands:
            self._perform(command)

    async def _read(self) -> None:
        await self._foreground.run()
        self._has_left.set()  # the terminal was closed

    async def _tick(self) -> None:
        """Post a tick regularly while a turn runs. Without a turn, the process sleeps."""
        while True:
            await self._turn_began.wait()
            while self.model.screen.view.turn.seq:
                await anyio.sleep(_TICK_SECONDS)
                self.post(m.Tick(time.time()))
            self._turn_began = anyio.Event()

    async def show_session(self, session: Session) -> None:
        """Show another session, from its first event."""
        self._follow_scope.cancel()
        self._follow_scope = anyio.CancelScope()
        self._completer = Completer(session, self.post)
        body = list[Line]()
        self._follower = SessionFollower(
            session, self, self._row_printer(body.extend),
            ScreenReader(self._questions, self._foreground.edit_text, body),
        )  # fmt: skip
        await self._follower.load()
        _greet(session, self._printer)
        if not is_cut_off(session):
            self._follower.may_work.set()
        self._group.start_soon(self._follower.run, self._follow_scope)

    async def _press_ctrl_c(self) -> None:  # Ctrl+C, received as a signal
        self.post(m.Key("ctrl+c", anyio.current_time()))

    async def _stop_this_turn(self, reason: str) -> None:
        await _stop_turn(self.session, reason)

    def _perform(self, command: m.Command) -> None:
        """Perform a command. If it waits for something, start a task for it."""
        match command:
            case m.Answer() | m.Picked() | m.Selected():
                self._questions.accept(command)
            case m.Remember(text):
                self._history.store_string(text)
            case m.ShellKey() if self._shell is not None:
                self._shell.press(command)
            case m.Repaint():
                self._foreground.repaint()
            case m.Quit():
                self._has_left.set()
            case m.Watch() | m.Follow() if self._follower is not None:
                self._follower.watch(command)
            case m.WakeAfter(seconds):
                self._start_task(partial(_wake_after, seconds, self.post))
            case (
                m.FindMatches()
                | m.Complete()
                | m.Copy()
                | m.PasteImage()
                | m.MeasureImages()
            ):
                self._start_task(partial(self._run_query, command))
            case _:
                self._start_task(partial(self._carry_out, command))

    def _start_task(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run a function in a task of its own, and print its error if it fails."""

        async def start_guarded() -> None:
            try:
                await function()
            except RefoldError as error:
                self._printer.print_line(sentence(error))

        self._group.start_soon(start_guarded)

    async def _run_query(
        self,
        command: m.FindMatches | m.Complete | m.Copy | m.PasteImage | m.MeasureImages,
    ) -> None:
        """Carry out a command that looks something up or copies it, and post the result."""
        match command:
            case m.FindMatches(number, query):
                await self._questions.search(number, query)
            case m.Complete(before):
                await self._completer.look_for_completions(before)
            case m.Copy(text):
                order, hint = await self._clipboard.copy_text(text)
                write(order)
                self.post(m.Copied(hint))
            case m.PasteImage():
                self.post(m.ImagePasted(await self._clipboard.take_image()))
            case m.MeasureImages(names):
                await self._images.measure(names)

    async def _carry_out(self, command: m.Command) -> None:
        """Carry out a command for the session or the terminal. Ignore other commands."""
        match command:
            case m.Send(order):
                await self._send(order)
            case m.Submit(text, when):
                await self._submit(text, when)
            case m.EditQueued(message, text):
                if await self.session.withdraw_message(message):
                    self.post(m.Unqueued(text))
            case m.RunCommand(typed):
                await self._run_command(typed)
            case m.CycleMode():
                await set_next_mode(self.session)
            case m.LoadPalette():
                picker = await anyio.to_thread.run_sync(palette, self.session)
                self.post(m.PaletteLoaded(picker))
            case m.EditInEditor(text):
                await self._edit_in_editor(text)
            case m.Suspend():
                self._foreground.suspend()
            case _:
                return

    async def _send(self, order: Order) -> None:
        """Give an order to the session."""
        await self.session.send(order)
        # this also ends a turn that was cut off
        if isinstance(order, Interrupt):
            self.wake_turn_loop()

    async def _submit(self, text: str, when: Literal["now", "next"]) -> None:
        """Run the text if it is a slash command, or else send it as a message."""
        if self._terminal.commands.is_command(text):
            await self._run_command(text)
        else:
            await self._terminal.say(text, self._clipboard.images_in(text), when=when)

    def display_for(self, command: str) -> ShellDisplay:
        """Return a new display for a shell command, and remember it as the current one."""
        self._shell = ShellDisplay(
            command, self.post, lambda: shell_output_width(divide_screen(self.model).text_width),
            self._foreground.lend_terminal,
        )  # fmt: skip
        return self._shell

    def wake_turn_loop(self) -> None:
        if self._follower is not None:
            self._follower.wake_turn_loop()

    async def _run_command(self, typed: str) -> None:
        """Run a command now, or after the turn if it must not run during one."""
        name = command_name(typed)
        is_working = self.session.view.turn.seq and not is_cut_off(self.session)
        if is_working and not self._terminal.commands.is_immediate(typed):
            self._printer.print_text(f"after this turn: {escape_to_one_line(typed)}", "dim")
            self._delayed.append(typed)
            return
        if name == "shell":  # the session shows the command as a message
            await self._run_shell(typed)
        else:
            row = line(f"› {escape_to_one_line(typed)}", "person")
            self.post(m.RowsPrinted((row,), begins=True))
            await self._terminal.commands.run(typed)
        if self._terminal.leaving:
            self._has_left.set()

    async def _run_shell(self, typed: str) -> None:
        """Run a `!command`, but not before every earlier `!command` has ended."""
        if self._shell_lock.locked():
            text = f"after the running command: {escape_to_one_line(typed)}"
            self._printer.print_text(text, "dim")
        async with self._shell_lock:
            await self._terminal.commands.run(typed)
            self.post(m.ShellEnded())

    def run_delayed(self) -> None:
        """Run the commands that were typed during a turn and had to wait for its end."""

        async def run() -> None:
            while self._delayed:
                await self._terminal.commands.run(self._delayed.pop(0))

        self._start_task(run)

    async def _edit_in_editor(self, text: str) -> None:
        """Let the user edit the text in the editor, and post the result."""
        if command := editor_command(os.environ):
            new = await self._foreground.edit_text(text, command, "message.md")
            self.post(m.Edited(new.removesuffix("\n")))
        else:
            self._printer.print_text(
                "Set $VISUAL or $EDITOR to write in an editor.", "warn"
            )

    @property
    def plans(self) -> plans.PlanQueue:
        return self._terminal.plans

    def print_row(self, row: Line) -> None:
        self._printer.print_line(row)

    def _row_printer(self, rows: Callable[[Sequence[Line]], None]) -> RowPrinter:
        return RowPrinter(
            lambda: self.model.width - 2, self._capabilities, rows, self._use_capabilities
        )

    def _use_capabilities(self, capabilities: TerminalCapabilities) -> None:
        self._capabilities = self._foreground.capabilities = capabilities
        self._foreground.repaint()

    def notify(self, text: str) -> None:
        write(notice_sequence(os.environ, text))
        self._start_task(partial(show_desktop_notice, os.environ, text))

    def ring(self, reason: str) -> None:
        """Notify the user, if no key was pressed for a while."""
        if self._bell.is_due:
            write(notice_sequence(os.environ, f"refold: {reason}"))
        self._bell.note_key()


async def _wake_after(seconds: float, post: Callable[[m.Message], None]) -> None:
    await anyio.sleep(seconds)
    post(m.Woken(anyio.current_time()))
