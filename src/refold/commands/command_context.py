"""The context of a slash command: the session, and the surface on which it was typed.

The line terminal, the full screen, pages and editors implement `CommandContext`. A command
shows documents, which each surface draws in its own way, and asks questions; it never
prints.
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
    """A Markdown text to show."""

    text: str


Document: TypeAlias = Line | Markdown


class Look(Struct, frozen=True):
    """How a surface draws documents, in rows of at most `width` cells.

    `signs` is true if the surface shows more characters than ASCII, and `wraps` if it breaks
    rows at `width`. `picks` is true if the user can pick from a drawn list, and false if the
    items are only numbered.
    """

    width: int = 100
    signs: bool = True
    wraps: bool = True
    picks: bool = True


class TerminalFeatures(Protocol):
    """Features that only a terminal has."""

    @property
    def has_colours(self) -> bool:
        """Whether the terminal can show colours."""
        ...

    def use_theme(self, theme: str) -> Callable[[], None]:
        """Use the colours of `theme` from now on.

        Return a function that restores the earlier colours.
        """
        ...

    def use_vi_keys(self, enabled: bool | None) -> bool | None:
        """Turn vi keys on or off, or change nothing if `enabled` is None.

        Return whether vi keys are on; None without a line editor.
        """
        ...

    async def edit_text(self, text: str, name: str) -> str | None:
        """Let the user edit `text`, in an editor or the input line.

        Return the edited text, or None if the user cancels.
        """
        ...

    async def copy(self, text: str) -> str:
        """Copy the text to the clipboard.

        Return a sentence that says where it can be pasted.
        """
        ...

    async def run_program(
        self, command: Sequence[str], *, only_prints: bool = False
    ) -> "ProgramOutput":
        """Run a program in the terminal and the session's directory until it exits.

        If `only_prints` is true, the full screen stays open and shows the output.
        """
        ...

    def show_plan(self) -> None:
        """Have the terminal ask about the pending plan before the next prompt."""
        ...

    def quit(self) -> None:
        """Leave refold after the command."""
        ...


class ProgramOutput(Struct, frozen=True):
    """The exit code and the output of a program.

    The output is `start` and `end`; the `dropped` bytes between them were not kept.
    `full_screen` is true if the program used the alternate screen. `in_message` is true if the
    output is shown with the message about it.
    """

    code: int
    start: str = ""
    end: str = ""
    dropped: int = 0
    full_screen: bool = False
    in_message: bool = False


class CommandContext(Protocol):
    @property
    def session(self) -> Session:
        """The session that is open now, which `switch` replaces by another session."""
        ...

    @property
    def look(self) -> Look:
        """The width and the abilities of the surface that shows the output."""
        ...

    @property
    def terminal(self) -> TerminalFeatures | None:
        """The features of the terminal; None on a surface that is not a terminal."""
        ...

    @property
    def lacks(self) -> Collection[Need]:
        """The features that this surface lacks and that some commands need."""
        ...

    def show(self, *documents: Document) -> None:
        """Show documents, one below the other, as the output of the command."""
        ...

    async def show_long(self, rows: Sequence[Line]) -> None:
        """Show rows that may not fit on a screen. A terminal shows them in the pager."""
        ...

    async def ask(self, prompt: str, keys: str = "", text: str = "") -> str:
        """Ask a question, and return the answer; "" if there is none.

        The answer is the pressed key of `keys`, or a typed text if `keys` is "". `text` is the
        initial text of the input. A command must ask before it changes anything, because a page
        runs the whole command again with the answer.
        """
        ...

    async def pick(
        self, picker: Picker, search: Search | None = None, on_move: OnMove | None = None
    ) -> Picker | None:
        """Let the user pick an item, and return the list with this item selected.

        Return None if the user picks none. `search` finds further items, and runs in a thread.
        `on_move` is called when another item is selected.
        """
        ...

    async def say(self, text: str, *, typed: str | None = None) -> None:
        """Send a message to the model. `typed` is the part of `text` that the user wrote."""
        ...

    async def carry_out(self, start: Callable[[], Awaitable[object]] | None = None) -> None:
        """Call `start`, if given, and then run turns until the session has no work left."""
        ...

    async def wait(self, job: Callable[[], Awaitable[T]]) -> T | None:
        """Run `job`, and return its result, or None if the user stopped it."""
        ...

    async def switch(self, target: ResumeTarget | None) -> Sequence[str]:
        """Close this session, and open `target`, or a new session for None.

        Return notices to show. If opening fails, an error is raised, and this session stays
        open.
        """
        ...

    async def show_session(self) -> None:
        """Show the state of the session after a switch, and continue its work."""
        ...


def terminal_of(context: CommandContext, command: str) -> TerminalFeatures:
    """Return the features of the terminal.

    Raises `BadInput`, which names `command`, if the surface is not a terminal.
    """
    if (terminal := context.terminal) is None:
        raise BadInput(f"{command} needs a terminal: type it in `refold`")
    return terminal
