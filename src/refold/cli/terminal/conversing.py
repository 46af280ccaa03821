"""What a slash command is, and what it may use of the conversation it is typed into."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from refold.cli.terminal.apart import Apart
from refold.cli.terminal.display.paper import Paper
from refold.cli.terminal.keyboard.completion import CompletionChoice
from refold.cli.terminal.reading import TerminalReader
from refold.cli.terminal.surroundings import Surroundings, Way
from refold.journal.fold import View
from refold.session.session import Session


class Conversation(Protocol):
    @property
    def session(self) -> Session: ...
    @property
    def around(self) -> Surroundings: ...
    @property
    def paper(self) -> Paper: ...
    @property
    def reading(self) -> TerminalReader: ...
    @property
    def apart(self) -> Apart: ...
    async def change(self, session: Session, told: str) -> None:
        """Go over to another session, close the one before, and say so."""
        ...

    async def go_on(self, way: Way) -> Sequence[str]:
        """Leave this session for where the way leads; what is to be told of it comes back.

        Raises where it leads nowhere: then this session goes on.
        """
        ...

    async def say(self, words: str, *, typed: str | None = None) -> None:
        """Words for the model. `typed` is what the person wrote of them, if not all."""
        ...

    async def go(self) -> None:
        """Do what is to be done by now."""
        ...

    async def continue_(self) -> None: ...
    async def through(self, start: Callable[[], Awaitable[View]]) -> None:
        """Do this and show what happens meanwhile."""
        ...

    async def ask(self, prompt: str, keys: str) -> str:
        """The key of `keys` that was pressed, or ""."""
        ...

    async def ask_words(self, prompt: str) -> str:
        """What was typed, or ""."""
        ...

    def judge(self) -> None:
        """Put the plan that waits to the person before the next prompt."""
        ...

    def vi(self, on: bool | None = None) -> bool | None:
        """As `Reading.vi`."""
        ...

    def quit(self) -> None: ...


Does: TypeAlias = Callable[[Conversation, str], Awaitable[None]]
Group: TypeAlias = Literal[
    "session", "model", "rights", "plan", "context", "children", "knowledge", "terminal"
]


Offers: TypeAlias = Callable[[Surroundings], Iterable[CompletionChoice]]


def one_of(*words: str) -> Offers:
    """What is the same everywhere."""
    found = tuple(map(CompletionChoice, words))
    return lambda around: found


def nothing_more(around: Surroundings) -> Iterable[CompletionChoice]:
    return ()


class SlashCommand(Struct, frozen=True):
    """`choices` are what may follow it, and `more` what there is to know besides `about`.

    `at_once`: while the session works, it need not wait until the turn is over.
    """

    name: str
    about: str
    does: Does
    takes: str = ""
    aliases: tuple[str, ...] = ()
    at_once: bool = False
    group: Group = "terminal"
    more: str = ""
    choices: Offers = nothing_more

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)
