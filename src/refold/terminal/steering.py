"""Handles messages and commands that the user types during work.

`work` decides when the keyboard is read.
"""

from collections.abc import Callable
from typing import Protocol

from refold.client.session import Session
from refold.console.clipboard import load_named_images
from refold.console.printer import Printer
from refold.console.reader import CTRL_C, Key, QueuedMessage, TerminalReader
from refold.views.escape import visible
from refold.views.question_keys import WAITING_NOTICE, DraftMessage
from refold.views.styled import Line

_STEER_HINT = "Enter: send at the next step · Alt+Enter: after this turn · Esc: stop\n"
_PLAIN_STEER_HINT = "sent at the next step · Esc and Enter: stop\n"
_WAITS_HINT = f"{WAITING_NOTICE}: Enter sends your message first\n"
_ALT_ENTER = ("\x1b\r", "\x1b\n")  # Alt+Enter at the end of text that arrived in one piece


class Commands(Protocol):
    """The slash commands that the user can type during work."""

    def is_command(self, typed: str) -> bool:
        """Return whether the typed text is a slash command."""
        ...

    def is_immediate(self, typed: str) -> bool:
        """Return whether the command can run during a turn. Otherwise it waits until the turn
        is over.
        """
        ...

    async def run(self, typed: str) -> None:
        """Run the command that was typed, with its arguments."""
        ...


class NoCommands:
    """A replacement for `Commands` that has no commands: all text is a message."""

    def is_command(self, typed: str) -> bool:
        return False

    def is_immediate(self, typed: str) -> bool:
        return False

    async def run(self, typed: str) -> None:
        return


class Steering:
    """Sends messages and runs commands that the user types during work.

    `question_waits` returns whether a question will be asked once the user has stopped typing.
    `delayed` are commands that must wait until the turn is over, and messages that were entered
    when the turn had just ended.
    """

    def __init__(
        self,
        session: Session,
        printer: Printer,
        reader: TerminalReader,
        commands: Commands,
        question_waits: Callable[[], bool] = lambda: False,
    ) -> None:
        self._question_waits = question_waits
        self._session, self._printer, self._reader = session, printer, reader
        self._commands = commands
        self._withdrawn = ""  # a queued message that will be edited next
        self.delayed: list[str] = []

    async def read(self) -> str | DraftMessage:
        """Return a key, or a message or command that the user has typed below the output."""
        withdrawn, self._withdrawn = self._withdrawn, ""
        typed = withdrawn or await self._reader.read_input()
        if typed and typed[0].isprintable():
            return await self.finish_line(typed)
        return typed

    async def finish_line(self, typed: str) -> str | DraftMessage:
        """Let the user finish the line that begins with `typed`, and return it.

        Return `CTRL_C` if the user stops the turn instead.
        """
        if (entered := entered_message(typed)) is not None:
            return entered
        begun = typed.rstrip("\r\n")
        match await self._reader.read_draft(self._steering_prompt, begun):
            case QueuedMessage(words):
                return DraftMessage(words, later=True)
            case str(words):
                return DraftMessage(words)
            case Key.ESC | Key.CTRL_C:
                return CTRL_C
            case _:  # any other key: send nothing
                return DraftMessage("")

    async def send(self, draft: DraftMessage) -> None:
        """Send the draft as a message, or run it if it is a command."""
        words = draft.words
        if not words.strip():
            return
        if self._commands.is_command(words):
            await self.run_or_delay_command(words)
            return
        images = load_named_images(words, self._session, self._printer)
        when = "next" if draft.later else "now"
        await self._session.say(words, when=when, images=images)
        if self._question_waits() and self._reader.has_line_editor:
            # The typed text was erased, and the message is printed after the question.
            step = "after this turn" if draft.later else "for the next step"
            self._printer.print_text(f"{step}: {visible(words.strip())}", "dim")

    async def edit_queued(self) -> None:
        """Withdraw the newest queued message, so that the user can edit it."""
        if not (waiting := self._session.view.message_queue):
            return
        newest = waiting[-1]
        await self._session.withdraw_message(newest.seq)
        words = newest.said.typed or newest.said.text
        self._printer.print_text(f"withdrawn: {visible(words)}", "dim")
        self._withdrawn = words.rstrip("\r\n")

    def _steering_prompt(self) -> Line:
        """Return the prompt below the output, with a warning while a question waits."""
        hint = _STEER_HINT if self._reader.has_line_editor else _PLAIN_STEER_HINT
        waits: Line = (("warn", _WAITS_HINT),) if self._question_waits() else ()
        return (*waits, ("dim", hint), ("person", "› "))

    async def run_or_delay_command(self, typed: str) -> None:
        """Run a command now, or queue it until the turn is over."""
        shown = visible(typed.strip())
        if not self._commands.is_immediate(typed):
            self.delayed.append(typed)
            self._printer.print_text(f"after this turn: {shown}", "dim")
            return
        if self._reader.has_line_editor:  # the typed text was erased
            self._printer.print_text(
                f"{self._printer.capabilities.sign('prompt')} {shown}", "dim"
            )
        await self._commands.run(typed)


def entered_message(typed: str | DraftMessage) -> DraftMessage | None:
    """Return the message if `typed` ends with Enter or Alt+Enter; otherwise None.

    Return None also for several pasted lines, because the user may continue them.
    """
    if isinstance(typed, DraftMessage):
        return typed
    if typed.endswith(_ALT_ENTER):
        return DraftMessage(typed[: -len("\x1b\r")], later=True)
    words = typed.rstrip("\r\n")
    has_line_end = words != typed
    has_several_lines = "\n" in typed[:-1]  # a paste, which the user may continue
    if not has_line_end or has_several_lines:
        return None
    return DraftMessage(words)
