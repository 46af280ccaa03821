"""What a person types while the session works: words, commands, what to do instead.

Who has the floor, and when somebody is heard at all, is `work`'s business.
"""

from collections.abc import Awaitable, Callable, Sequence

from refold.cli.attached import attached
from refold.cli.terminal.commands.table import at_once, command_in
from refold.cli.terminal.display.paper import Paper
from refold.cli.terminal.reading import Key, Later, TerminalReader
from refold.session.session import Session
from refold.tools.contract import Picture
from refold.views.escape import on_one_line, visible
from refold.views.styled import Line

_INSTEAD = "words redirect · Enter stops · {esc} goes on\n"
_STEER = "Enter: heard at the next step · Alt+Enter: after this turn · Esc: not at all\n"
_STEER_PLAIN = "heard at the next step · Esc and Enter: not at all\n"
_LATER = ("\x1b\r", "\x1b\n")  # Alt+Enter behind words that came in one piece
Obey = Callable[[str], Awaitable[bool]]
Unread = Callable[[str], str]


async def nothing(typed: str) -> bool:
    return False


class Steering:
    """`obey` does a command that need not wait until the turn is over; false: it has to.

    `unsaid` are those that had to.
    """

    def __init__(
        self,
        session: Session,
        paper: Paper,
        reading: TerminalReader,
        unread: Unread,
        obey: Obey = nothing,
    ) -> None:
        self._session, self._paper, self._reading = session, paper, reading
        self._unread, self._obey = unread, obey
        self.unsaid: list[str] = []

    async def redirect(self) -> bool:
        """Ask what to do instead. False: the person lets it go on."""
        inbox, turn = self._session.inbox, self._session.view.turn
        if not turn.seq or turn.stopped:
            return True
        match await self._reading.brief(self._instead()):
            case Key.ESC:
                return False
            case str(words) if words.strip():
                if not await inbox.interrupt(instead=words):
                    await inbox.say(words)
            case _:
                await inbox.interrupt()
        return True

    async def hear(self, typed: str) -> None:
        """Words into the running turn, or for after it, or a command."""
        found: str | Later | Key = typed.rstrip("\r\n")
        if typed.endswith(_LATER):
            found = Later(typed[:-2])
        elif found == typed or "\n" in typed[:-1]:  # no whole line yet, or more than one
            found = await self._reading.aside(self._steer(), typed.rstrip("\r\n"))
        if isinstance(found, Key):
            return
        words = found.words if isinstance(found, Later) else found
        if not words.strip():
            return
        if command := command_in(words):
            await self._command(words, command[0])
            return
        shown = with_pictures(words, self._session, self._paper, self._unread)
        when = "next" if isinstance(found, Later) else "now"
        await self._session.inbox.say(words, when=when, pictures=shown)

    def _instead(self) -> Line:
        esc = "Esc" if self._reading.lively else "Esc and Enter"
        return (("dim", _INSTEAD.format(esc=esc)), ("warn", "instead › "))

    def _steer(self) -> Line:
        said = _STEER if self._reading.lively else _STEER_PLAIN
        return (("dim", said), ("person", "› "))

    async def _command(self, words: str, name: str) -> None:
        if self._reading.lively and at_once(name):  # what was typed is wiped away
            sign = self._paper.look.sign("prompt")
            self._paper.say(f"{sign} {visible(words.strip())}", "dim")
        if not await self._obey(words):
            self.unsaid.append(words)
            self._paper.say(f"after this turn: {visible(words.strip())}", "dim")


def with_pictures(
    words: str, session: Session, paper: Paper, unread: Unread
) -> Sequence[Picture]:
    """The pictures that the words name, and a line about each."""
    pictures, problems = attached(words, session.view.about.directory, unread)
    for picture in pictures:
        paper.say(f"shown to the model: {on_one_line(picture.name)}", "dim")
    for problem in problems:
        paper.say(visible(problem), "warn")
    return pictures
