"""What the user types while the session works: messages and commands.

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
_STEER_PLAIN = "sent at the next step · Esc and Enter: stop\n"
_WAITS_HINT = f"{WAITING_NOTICE}: Enter sends your message first\n"
_ALT_ENTER = ("\x1b\r", "\x1b\n")  # Alt+Enter at the end of text that came in one piece


class Commands(Protocol):
    """The commands that can be typed instead of a message."""

    def is_command(self, typed: str) -> bool: ...
    def is_immediate(self, typed: str) -> bool:
        """Return False if it has to wait until the turn is over."""
        ...

    async def run(self, typed: str) -> None: ...


class NoCommands:
    """Used where everything that is typed is a message."""

    def is_command(self, typed: str) -> bool:
        return False

    def is_immediate(self, typed: str) -> bool:
        return False

    async def run(self, typed: str) -> None:
        return


class Steering:
    """`question_waits` says whether a question waits for the end of the input. `delayed` has the
    commands that have to wait until the turn is over, and messages entered while it ended.
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
        self._withdrawn = ""  # a queued message that is edited next
        self.delayed: list[str] = []

    async def read(self) -> str | DraftMessage:
        """Return a key, or a message or command that was written below the output."""
        withdrawn, self._withdrawn = self._withdrawn, ""
        typed = withdrawn or await self._reader.read_input()
        return await self.finish_line(typed) if typed and typed[0].isprintable() else typed

    async def finish_line(self, typed: str) -> str | DraftMessage:
        """Let the user finish a line that began so. Returns `CTRL_C` for a stop."""
        if (entered := entered_message(typed)) is not None:
            return entered
        words = typed.rstrip("\r\n")
        match await self._reader.read_draft(self._steering_prompt, words):
            case QueuedMessage(words):
                return DraftMessage(words, later=True)
            case str(words):
                return DraftMessage(words)
            case Key.ESC | Key.CTRL_C:
                return CTRL_C
            case _:
                return DraftMessage("")

    async def send(self, draft: DraftMessage) -> None:
        """Send a message, or run a command."""
        words = draft.words
        if not words.strip():
            return
        if self._commands.is_command(words):
            await self.run_or_delay_command(words)
            return
        shown = load_named_images(words, self._session, self._printer)
        when = "next" if draft.later else "now"
        await self._session.say(words, when=when, images=shown)
        if self._question_waits() and self._reader.has_line_editor:
            # What was typed has been erased, and the message is printed after the question.
            step = "after this turn" if draft.later else "for the next step"
            self._printer.print_text(f"{step}: {visible(words.strip())}", "dim")

    async def edit_queued(self) -> None:
        """Withdraw the newest queued message, and let the user edit it."""
        if not (waiting := self._session.view.message_queue):
            return
        newest = waiting[-1]
        await self._session.withdraw_message(newest.seq)
        words = newest.said.typed or newest.said.text
        self._printer.print_text(f"withdrawn: {visible(words)}", "dim")
        self._withdrawn = words.rstrip("\r\n")

    def _steering_prompt(self) -> Line:
        hint = _STEER_HINT if self._reader.has_line_editor else _STEER_PLAIN
        waits: Line = (("warn", _WAITS_HINT),) if self._question_waits() else ()
        return (*waits, ("dim", hint), ("person", "› "))

    async def run_or_delay_command(self, typed: str) -> None:
        """Run a command now, or queue it for after the turn."""
        shown = visible(typed.strip())
        if not self._commands.is_immediate(typed):
            self.delayed.append(typed)
            self._printer.print_text(f"after this turn: {shown}", "dim")
            return
        if self._reader.has_line_editor:  # what was typed has been erased
            self._printer.print_text(
                f"{self._printer.capabilities.sign('prompt')} {shown}", "dim"
            )
        await self._commands.run(typed)


def entered_message(typed: str | DraftMessage) -> DraftMessage | None:
    """Return the message, if `typed` is complete."""
    if isinstance(typed, DraftMessage):
        return typed
    if typed.endswith(_ALT_ENTER):
        return DraftMessage(typed[:-2], later=True)
    words = typed.rstrip("\r\n")
    return DraftMessage(words) if words != typed and "\n" not in typed[:-1] else None
