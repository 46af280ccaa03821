"""The context of a slash command: the session, and the surface on which it was typed.

The line terminal, the full screen, pages and editors implement `CommandContext`. A command
shows documents, which each surface draws its own way, and asks; it never prints.
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
    """A Markdown text, as models write it."""

    text: str


Document: TypeAlias = Line | Markdown


class Look(Struct, frozen=True):
    """How documents are drawn: `width` cells wide.

    `signs`: more than ASCII; `wraps`: rows are broken at `width`; `picks`: a list to pick from is
    drawn, and not only numbered.
    """

    width: int = 100
    signs: bool = True
    wraps: bool = True
    picks: bool = True


class TerminalFeatures(Protocol):
    """Features that only a terminal has."""

    @property
    def has_colours(self) -> bool: ...
    def use_theme(self, theme: str) -> Callable[[], None]:
        """Use these colours from now on. Returns what restores the earlier ones."""
        ...

    def use_vi_keys(self, enabled: bool | None) -> bool | None:
        """Set the vi keys (None: leave them). Return whether they are on.

        Returns None without a line editor.
        """
        ...

    async def edit_text(self, text: str, name: str) -> str | None:
        """Let the user edit `text`, in an editor or the input line. None: they left."""
        ...

    async def copy(self, text: str) -> str:
        """Copy the text to the clipboard. Return a sentence about where it is."""
        ...

    async def run_program(
        self, command: Sequence[str], *, only_prints: bool = False
    ) -> "ProgramOutput":
        """Give the terminal to a program in the session's directory, until it has ended.

        A program that `only_prints` does not make the full screen leave.
        """
        ...

    def show_plan(self) -> None:
        """Ask about the pending plan before the next prompt."""
        ...

    def quit(self) -> None: ...


class ProgramOutput(Struct, frozen=True):
    """The output of a program: `start` and `end`, with `dropped` bytes between them.

    `full_screen`: it used the alternate screen. `in_message`: the output is not shown yet,
    but with the message about it.
    """

    code: int
    start: str = ""
    end: str = ""
    dropped: int = 0
    full_screen: bool = False
    in_message: bool = False


class CommandContext(Protocol):
    @property
    def session(self) -> Session: ...
    @property
    def look(self) -> Look: ...
    @property
    def terminal(self) -> TerminalFeatures | None: ...
    @property
    def lacks(self) -> Collection[Need]:
        """The features that commands may need and this surface lacks."""
        ...

    def show(self, *documents: Document) -> None: ...
    async def show_long(self, rows: Sequence[Line]) -> None:
        """Show rows that may not fit on a screen: a terminal uses the pager."""
        ...

    async def ask(self, prompt: str, keys: str = "", text: str = "") -> str:
        """Return the pressed key of `keys`; without `keys`, the typed text. "": no answer.

        The typed text starts as `text`.
        A command asks before it changes anything: a page runs it again with the answer.
        """
        ...

    async def pick(
        self, picker: Picker, search: Search | None = None, on_move: OnMove | None = None
    ) -> Picker | None:
        """Let the user pick an item; return the list with it chosen, or None.

        `search` runs in a thread; `on_move` is called when another item is selected.
        """
        ...

    async def say(self, text: str, *, typed: str | None = None) -> None:
        """Send a message to the model. `typed` is the part that the user wrote."""
        ...

    async def carry_out(self, start: Callable[[], Awaitable[object]] | None = None) -> None:
        """Call `start`, then run turns until nothing is left to do."""
        ...

    async def wait(self, job: Callable[[], Awaitable[T]]) -> T | None:
        """Return the result of a job, or None if the user stopped it."""
        ...

    async def switch(self, target: ResumeTarget | None) -> Sequence[str]:
        """Close this session and open the target's, or a new one. Returns notices.

        If it raises, this session stays open.
        """
        ...

    async def show_session(self) -> None:
        """Show the state of the session after a switch, and continue its work."""
        ...


def terminal_of(context: CommandContext, command: str) -> TerminalFeatures:
    """Return the terminal's features. Raises `BadInput` on a page and in an editor."""
    if (terminal := context.terminal) is None:
        raise BadInput(f"{command} needs a terminal: type it in `refold`")
    return terminal
