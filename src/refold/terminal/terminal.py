"""The line terminal with its open session: sends messages, and shows the work.

A slash command gets the `Terminal` as its context. `run` reads the prompts; `commands` has
the commands.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

from refold.client.launch import ResumeTarget
from refold.client.session import Session
from refold.client.types import ImageData, Subscription, View
from refold.commands.command_context import ProgramOutput
from refold.commands.dispatch import CommandRunner
from refold.commands.session_lines import has_interrupted_work, sentence
from refold.console.clipboard import load_named_images
from refold.console.console_context import ConsoleContext
from refold.console.printer import Printer
from refold.console.reader import TerminalReader
from refold.terminal.greeting import print_cut_off_turn, print_last_exchange
from refold.terminal.work import Work


class Terminal(ConsoleContext):
    """Implements `CommandContext` for the line terminal."""

    def __init__(self, session: Session, printer: Printer, reader: TerminalReader) -> None:
        super().__init__(session, printer, reader)
        self.reader = reader
        self.commands = CommandRunner(self)
        self._work: Work | None = None
        process_key = os.urandom(8).hex()
        self._message_keys = (f"{process_key}-{number}" for number in count(1))
        # whether Ctrl+C was pressed after the prompt and before the work
        self._pressed_early = False

    @property
    def terminal(self) -> "Terminal":
        return self

    @property
    def working(self) -> bool:
        return self._work is not None

    async def switch(self, target: ResumeTarget | None) -> Sequence[str]:
        """Switch to another session and its draft. Return notices for the user."""
        old_session = self.session
        notices = await super().switch(target)
        self.reader.switch_draft(old_session.id, self.session.id)
        return notices

    async def show_session(self) -> None:
        """Print the last exchange of the session, and finish the turn that was running."""
        await print_last_exchange(self.session, self.printer)
        if has_interrupted_work(self.session):
            print_cut_off_turn(self.session, self.printer)
        elif not self.session.idle:
            self.printer.print_text("Continuing the interrupted turn.", "dim")
            await self.settle()

    async def run_program(
        self, command: Sequence[str], *, only_prints: bool = False
    ) -> ProgramOutput:
        """Run a program that uses this terminal. `only_prints` makes no difference here."""
        from refold.console.run_program import run_program

        directory = self.session.view.session.directory or "."
        return await run_program(command, directory, self.printer)

    async def say(
        self,
        text: str,
        images: Sequence[ImageData] = (),
        *,
        typed: str | None = None,
        seen: bool = True,
    ) -> None:
        """Send a message, and show the work until it is over.

        `typed` is the part of `text` that the user wrote. `seen` says that the message is
        already visible on the screen.
        """
        key = next(self._message_keys)
        shown = (*images, *load_named_images(text, self.session, self.printer))

        async def send() -> None:
            await self.session.say(text, client_key=key, images=shown, typed=typed)
            await self.session.settle()

        await self.show_until_over(send, message_key=key if seen else "")

    async def settle(
        self, watch: Subscription | None = None, since: View | None = None
    ) -> None:
        """Run turns until nothing is left to do, and show the work.

        `watch`, if given, began at the view `since`. The events that it has collected since
        then are shown, too.
        """
        await self.show_until_over(self.session.settle, watch=watch, since=since)

    async def carry_out(self, start: Callable[[], Awaitable[object]] | None = None) -> None:
        """Call `start`, if given, and run turns until nothing is left to do; show the work."""

        async def start_and_settle() -> None:
            if start is not None:
                await start()
            await self.session.settle()

        await self.show_until_over(start_and_settle)

    async def show_until_over(
        self,
        start: Callable[[], Awaitable[object]],
        message_key: str = "",
        watch: Subscription | None = None,
        since: View | None = None,
    ) -> None:
        """Call `start`, and show the work until it is over.

        Then print its error, if any, and run the commands that had to wait.
        """
        self._work = Work(self.session, self.printer, self.reader, self.commands)
        try:
            if self._pressed_early:
                self._pressed_early = False
                await self._work.interrupt()
            failure = await self._work.run_until_over(start, message_key, watch, since)
            delayed = self._work.delayed
        finally:
            self._work = None
        if failure is not None:
            self.printer.print_line(sentence(failure))
            if self.socket is not None:
                self.socket.report_error(failure)
        for typed in delayed:
            if self.commands.is_command(typed):
                await self.commands.run(typed)
            elif typed.strip():
                await self.say(typed)

    def clear_early_interrupt(self) -> None:
        """Forget a Ctrl+C that was pressed before the prompt was shown."""
        self._pressed_early = False

    async def interrupt(self) -> None:
        """Handle Ctrl+C that arrived as a signal: stop the work, or leave the open prompt.

        If there is neither work nor a prompt, remember Ctrl+C. The next work is then stopped
        as soon as it begins.
        """
        if self._work is not None:
            await self._work.interrupt()
        elif not self.job.stop():
            self._pressed_early = not self.reader.interrupt()

    async def end(self, reason: str) -> None:
        """Stop the work because a signal ends the process. `reason` is recorded with the turn."""
        self.leaving = True
        if self._work is not None:
            await self._work.end(reason)
