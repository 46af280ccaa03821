"""The context of slash commands that are typed in the line terminal or the full screen.

`ConsoleContext` draws documents with a printer, and asks questions with a reader. Its
subclasses in `terminal.terminal` and `tui.host` send messages and show turns.
"""

import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import anyio

from refold.client.folder_trust import NAMESPACES_QUESTION
from refold.client.launch import ResumeTarget
from refold.client.session import Session
from refold.client.session_socket import SessionSocket
from refold.commands.command_context import Document, Look, Markdown
from refold.commands.table import Need
from refold.console.clipboard import Clipboard
from refold.console.markdown import print_markdown
from refold.console.plan_prompt import PlanQueue
from refold.console.printer import Printer
from refold.console.reader import DialogReader, Key, ListReader
from refold.errors import BadInput
from refold.views.escape import visible
from refold.views.picker import OnMove, Picker, Search
from refold.views.styled import Line, line

T = TypeVar("T")
# Runs in the background of the session. It gets a function that prints a line.
BackgroundWork: TypeAlias = Callable[[Callable[[str], None]], Coroutine[Any, Any, None]]


async def do_no_background_work(_: Callable[[str], None]) -> None:
    """Do nothing, because this display needs no work in the background."""


class ConsoleContext:
    """Implements `CommandContext` with a printer and a reader.

    `lacks` are the features that commands may need and this display does not have.
    """

    lacks: Collection[Need] = ()

    def __init__(self, session: Session, printer: Printer, reader: DialogReader) -> None:
        # If the turns run in another process, that process has the socket.
        self.socket = SessionSocket(session, os.environ) if session.owns_turns else None
        self.session, self.printer = session, printer
        self.job = CancellableJob(printer, reader)
        self.plans = PlanQueue()
        self.leaving = False
        self._reader = reader

    @property
    def look(self) -> Look:
        capabilities = self.printer.capabilities
        picks = isinstance(self._reader, ListReader)
        return Look(
            self.printer.free_columns, capabilities.signs, capabilities.moves, picks
        )

    def show(self, *documents: Document) -> None:
        """Print lines and Markdown texts."""
        for document in documents:
            if isinstance(document, Markdown):
                self.printer.ensure_blank_line()
                print_markdown(document.text, self.printer)
            else:
                self.printer.print_line(document)

    async def show_long(self, rows: Sequence[Line]) -> None:
        from refold.console.pager import show_rows

        await show_rows(rows, self.printer)

    async def ask(self, prompt: str, keys: str = "", text: str = "") -> str:
        """Ask for a line, or for one of `keys`. Return "" if the user gives no answer."""
        if keys:
            asked = line(f"{prompt} {'/'.join(keys)} ", "strong")
            key = await self._reader.read_choice(asked, keys)
            return key if isinstance(key, str) else ""
        typed = await self._reader.read_line(line(f"{prompt} ", "strong"), text)
        answer = typed if isinstance(typed, str) else ""
        # a line editor has erased the line from the screen
        if answer.strip() and self._reader.has_line_editor:
            self.printer.print_text(f"{prompt} {visible(answer.strip())}", "dim")
        return answer

    async def pick(
        self, picker: Picker, search: Search | None = None, on_move: OnMove | None = None
    ) -> Picker | None:
        from refold.console.list_prompt import pick

        return await pick(self.printer, self._reader, picker, search, on_move)

    async def wait(self, job: Callable[[], Awaitable[T]]) -> T | None:
        return await self.job.wait(job)

    async def switch(self, target: ResumeTarget | None) -> Sequence[str]:
        """Open `target`, or a new session if it is None. Return notices for the user."""
        if target is None:
            session, notices = await self.session.new(), ()
        else:
            switched = await self.session.switch(target, self._ask_for_trust)
            session, notices = switched.session, switched.notices
        self.session, self.plans = session, PlanQueue()
        if self.socket is not None:
            self.socket.follow(session)
        return notices

    async def _ask_for_trust(self, rows: Sequence[str], question: str) -> bool:
        """Show `rows`, ask `question`, and return whether the answer is yes.

        Raises `BadInput` if the user cancels.
        """
        self.printer.ensure_blank_line()
        for row in rows:
            self.printer.print_text(row)
        key = await self._reader.read_choice(line(f"{question} y/n ", "strong"), "yn")
        if isinstance(key, Key):
            raise BadInput("Cancelled: the session stays where it is.")
        if key == "y":
            return True
        if question == NAMESPACES_QUESTION:
            self.printer.print_text("Its commands make none.", "dim")
        else:
            self.printer.print_text("Its settings and instructions are ignored.", "dim")
        return False

    # The following methods implement `TerminalFeatures`, which only a terminal has.

    @property
    def has_colours(self) -> bool:
        return self.printer.capabilities.color

    def use_theme(self, theme: str) -> Callable[[], None]:
        """Use the theme `theme`; "" changes nothing.

        Return a function that restores the theme that was used before.
        """
        old_capabilities = self.printer.capabilities
        if theme:
            self.printer.set_theme(theme, os.environ)
        return partial(self.printer.set_capabilities, old_capabilities)

    def use_vi_keys(self, enabled: bool | None) -> bool | None:
        return self._reader.use_vi_keys(enabled)

    async def edit_text(self, text: str, name: str) -> str | None:
        """Let the user edit a text. Return None if the user leaves its prompt."""
        from refold.console.editor import editor_command

        if command := editor_command(os.environ):
            return await self._reader.edit(text, command, name)
        typed = await self._reader.read_message(lambda: line("message › ", "person"), text)
        return typed if isinstance(typed, str) else None

    async def copy(self, text: str) -> str:
        """Copy the text to the clipboard. Return a hint for the user."""
        sequence, hint = await Clipboard(os.environ).copy_text(text)
        self.printer.send_sequence(sequence)
        return hint

    def show_plan(self) -> None:
        self.plans.show_again()

    def quit(self) -> None:
        self.leaving = True


class CancellableJob:
    """Runs work of a slash command outside of a turn; Ctrl+C can cancel it."""

    def __init__(self, printer: Printer, reader: DialogReader) -> None:
        self._printer, self._reader = printer, reader
        self._scope: anyio.CancelScope | None = None

    async def wait(self, function: Callable[[], Awaitable[T]]) -> T | None:
        """Return the result of `function`. If the user cancels, print that and return None.

        A function that works in a thread is cancelled only where it calls
        `anyio.from_thread.check_cancelled`.
        """
        try:
            with self._reader.suppress_echo(), anyio.CancelScope() as self._scope:
                return await function()
        finally:
            self._scope = None
        # The scope was cancelled, or the function would have returned.
        self._printer.note_echoed_ctrl_c()
        self._printer.print_text("stopped", "dim")
        return None

    def stop(self) -> bool:
        """Cancel the running work. Return False if none runs."""
        if self._scope is None:
            return False
        self._scope.cancel()
        return True
