"""Records the terminals that the user opens in the page of a conversation.

The events name the user as their source, and do not change the conversation. To show the
model something from a terminal, `Session.record_command` sends a message. The shell itself
runs in `server.terminals`.
"""

from collections.abc import Sequence

from refold.journal.events.child_events import (
    TerminalCommandEntered,
    TerminalEnded,
    TerminalStarted,
)
from refold.journal.events.kinds import Event
from refold.journal.state.fold import View
from refold.session.session import Session as Engine

MAX_COMMAND_CHARS = 10_000  # of a command line that are recorded


class TerminalLog:
    """Records terminals in the journal of one session.

    This process must be able to write the journal. Raises `Held` if another process writes
    it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def start(self, shell: str, directory: str) -> int:
        """Record a terminal before its shell is started. Return the number of the event."""
        number = 0

        def make_events(view: View) -> Sequence[Event]:
            nonlocal number
            number = view.seq + 1
            return (TerminalStarted(shell, directory),)

        await self._engine.record.append_if(make_events, kept=True, author="person")
        return number

    async def enter(self, terminal: int, command: str | None) -> None:
        """Record a command line that was entered; None if its text is unknown."""
        text = None if command is None else command[:MAX_COMMAND_CHARS]
        is_cut = text != command
        await self._engine.record(
            TerminalCommandEntered(terminal, text, is_cut), author="person"
        )

    async def end(self, event: TerminalEnded) -> None:
        """Record how a terminal ended."""
        await self._engine.record(event, kept=True, author="person")
