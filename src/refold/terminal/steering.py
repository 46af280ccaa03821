"""What the user types while the session works: messages, commands, and what to do instead.

`work` decides when the keyboard is read.
"""

from collections.abc import Callable
from typing import Protocol

from refold.client.session import Session
from refold.console.clipboard import with_images
from refold.console.printer import Printer
from refold.console.reader import Key, QueuedMessage, TerminalReader
from refold.views.escape import visible
from refold.views.question_keys import WAITING_NOTICE, DraftMessage
from refold.views.styled import Line

_STOP_HINT = "type a new instruction · Enter to stop · {esc} to dismiss\n"
_STEER_HINT = "Enter: send at the next step · Alt+Enter: after this turn · Esc: discard\n"
_STEER_PLAIN = "sent at the next step · Esc and Enter: discard\n"
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
    """`delayed` are the commands that have to wait until the turn is over.

    `obeyed` is called after one that ran at once. `question_waits`: for the end of the input.
    """

    def __init__(
        self,
        session: Session,
        printer: Printer,
        reader: TerminalReader,
        commands: Commands,
        obeyed: Callable[[], None],
        question_waits: Callable[[], bool] = lambda: False,
    ) -> None:
        self._question_waits = question_waits
        self._session, self._printer, self._reader = session, printer, reader
        self._commands, self._obeyed = commands, obeyed
        self.delayed: list[str] = []

    async def redirect(self) -> bool:
        """Ask what to do instead. Return False if the person lets the turn continue."""
        turn = self._session.view.turn
        if not turn.seq or turn.stopped:
            return True
        match await self._reader.brief(self._instead()):
            case Key.ESC:
                return False
            case str(words) if words.strip():
                await self._session.interrupt(words)
            case _:
                await self._session.interrupt()
        return True

    async def hear(self, typed: str) -> None:
        """Take a message for this turn or after it, or a command."""
        result: str | QueuedMessage | Key = typed.rstrip("\r\n")
        if typed.endswith(_ALT_ENTER):
            result = QueuedMessage(typed[:-2])
        elif result == typed or "\n" in typed[:-1]:  # an unfinished line, or more than one
            result = await self._reader.aside(self._steer, typed.rstrip("\r\n"))
        if isinstance(result, Key):
            return
        later = isinstance(result, QueuedMessage)
        await self.send(DraftMessage(result.words if later else result, later))

    async def send(self, draft: DraftMessage) -> None:
        """Send a message, or run a command."""
        words = draft.words
        if not words.strip():
            return
        if self._commands.is_command(words):
            await self.command(words)
            return
        shown = with_images(words, self._session, self._printer)
        when = "next" if draft.later else "now"
        await self._session.say(words, when=when, images=shown)

    async def edit_queued(self) -> None:
        """Withdraw the newest queued message, and let the user edit it."""
        if not (waiting := self._session.view.message_queue):
            return
        newest = waiting[-1]
        await self._session.withdraw_message(newest.seq)
        words = newest.said.typed or newest.said.text
        self._printer.say(f"withdrawn: {visible(words)}", "dim")
        await self.hear(words.rstrip("\r\n"))

    def _instead(self) -> Line:
        esc = "Esc" if self._reader.lively else "Esc and Enter"
        return (("dim", _STOP_HINT.format(esc=esc)), ("warn", "instead › "))

    def _steer(self) -> Line:
        hint = _STEER_HINT if self._reader.lively else _STEER_PLAIN
        waits: Line = (("warn", _WAITS_HINT),) if self._question_waits() else ()
        return (*waits, ("dim", hint), ("person", "› "))

    async def command(self, typed: str) -> None:
        """Run a command now, or queue it for after the turn."""
        shown = visible(typed.strip())
        if not self._commands.is_immediate(typed):
            self.delayed.append(typed)
            self._printer.say(f"after this turn: {shown}", "dim")
            return
        if self._reader.lively:  # what was typed has been erased
            self._printer.say(f"{self._printer.look.sign('prompt')} {shown}", "dim")
        await self._commands.run(typed)
        self._obeyed()
