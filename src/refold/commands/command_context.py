"""What a slash command gets: the session, and the surface on which it was typed.

The line terminal, the full screen, pages and editors implement `CommandContext`. A command shows
documents, which each surface draws its own way, and asks; it never prints.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol, TypeAlias, TypeVar

from msgspec import Struct

from refold.client.launch import ResumeTarget
from refold.client.session import Session
from refold.commands.table import Need
from refold.errors import BadInput
from refold.views.picker import OnMove, Picker, Search
from refold.views.styled import Line

T = TypeVar("T")


class Markdown(Struct, frozen=True):
    """A text as a model writes it."""

    text: str


Document: TypeAlias = Line | Markdown


class Look(Struct, frozen=True):
    """How documents are drawn: `room` cells wide.

    `signs`: more than ASCII; `wraps`: rows are broken at `room`; `picks`: a list to pick from is
    drawn, and not only numbered.
    """

    room: int = 100
    signs: bool = True
    wraps: bool = True
    picks: bool = True


class TerminalFeatures(Protocol):
    """What only a terminal has."""

    @property
    def has_colours(self) -> bool: ...
    def use_theme(self, theme: str) -> Callable[[], None]:
        """Paint in these colours from now on. The result brings the earlier ones back."""
        ...

    def use_vi_keys(self, on: bool | None) -> bool | None:
        """`on` None: the other keys. None: there is no line editor."""
        ...

    async def edit_text(self, text: str, name: str) -> str | None:
        """`text` as the user edited it, in their editor or on the input line; None: they left."""
        ...

    async def run_program(
        self, command: Sequence[str], *, only_prints: bool = False
    ) -> "ProgramOutput":
        """Give the terminal to a program in the session's directory, until it has ended.

        One that `only_prints` leaves the full screen where it is.
        """
        ...

    def show_plan(self) -> None:
        """Ask about the plan that waits before the next prompt."""
        ...

    def quit(self) -> None: ...


class ProgramOutput(Struct, frozen=True):
    """What a program printed: `start` and `end`, with `dropped` bytes between them.

    `full_screen`: it drew a screen of its own.
    """

    code: int
    start: str = ""
    end: str = ""
    dropped: int = 0
    full_screen: bool = False


class CommandContext(Protocol):
    @property
    def session(self) -> Session: ...
    @property
    def look(self) -> Look: ...
    @property
    def terminal(self) -> TerminalFeatures | None: ...
    @property
    def lacks(self) -> Collection[Need]:
        """What commands may need and this surface does not have."""
        ...

    def show(self, *documents: Document) -> None: ...
    async def show_long(self, rows: Sequence[Line]) -> None:
        """Rows that may not fit on a screen: a terminal shows them in the pager."""
        ...

    async def ask(self, prompt: str, keys: str = "") -> str:
        """The key of `keys` that was pressed; without `keys`, what was typed. "": no answer.

        A command asks before it changes anything: a page runs it once more with the answer.
        """
        ...

    async def pick(
        self, picker: Picker, search: Search | None = None, on_move: OnMove | None = None
    ) -> Picker | None:
        """The list as it was left, with an item chosen; None: nothing was.

        `search` runs in a thread; `on_move` is called when another item is selected.
        """
        ...

    async def say(self, text: str, *, typed: str | None = None) -> None:
        """Send a message to the model. `typed` is what the user wrote of it, if not all."""
        ...

    async def carry_out(self, start: Callable[[], Awaitable[object]] | None = None) -> None:
        """Call `start`, then run turns until nothing is left to do."""
        ...

    async def wait(self, job: Callable[[], Awaitable[T]]) -> T | None:
        """The result of a job that the user may stop; None: they did."""
        ...

    async def switch(self, target: ResumeTarget | None) -> Sequence[str]:
        """Close this session and open that of the target; None: a new one. Notices come back.

        Raises where it leads nowhere; then this session stays open.
        """
        ...

    async def show_session(self) -> None:
        """Show where the session stands after a switch, and continue what is due."""
        ...


def terminal_of(here: CommandContext, command: str) -> TerminalFeatures:
    """Raises `BadInput` on a page and in an editor."""
    if (terminal := here.terminal) is None:
        raise BadInput(f"{command} needs a terminal: type it in `refold`")
    return terminal
