"""The port for input: a line, one key, a secret.

`line_reader` reads whole lines from any terminal; `prompt_toolkit_reader` has a line editor with
history and completion. `run` and `work` interpret the input.

`edit` runs the user's editor, because only the display knows how to leave its screen and
raw mode, and how to return to them when the editor fails.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from enum import Enum
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from msgspec import Struct

from refold.views.picker import OnMove, Picker, Search
from refold.views.question_keys import DraftMessage, Menu
from refold.views.styled import Line

CTRL_C = "\x03"  # like a key that came before the terminal turned it into a signal again


class Key(Enum):
    """A key that does not answer the question."""

    CTRL_C = "ctrl+c"
    CTRL_D = "ctrl+d"  # or the terminal is closed
    ESC = "esc"
    SHIFT_TAB = "shift+tab"
    CTRL_O = "ctrl+o"
    CTRL_T = "ctrl+t"
    PROMPT_CLOSED = "aside"  # no key: `close_prompt` was called


# What keys stand for, at an empty or half-typed prompt and while the session works.
SHORTCUTS: Mapping[Key, str] = MappingProxyType(
    {Key.CTRL_O: "/expand", Key.CTRL_T: "/todos"}
)


class PromptKeys(Struct, frozen=True):
    """What two keys of the prompt do: Shift+Tab (`cycle_mode`) and Ctrl+V (`paste_image`).

    `paste_image` takes the image on the clipboard and returns its label.
    """

    cycle_mode: Callable[[], None] = lambda: None
    paste_image: Callable[[], Awaitable[str]] | None = None


class QueuedMessage(Struct, frozen=True):
    """A message for after the current turn, sent with Alt+Enter."""

    words: str


@runtime_checkable
class ListReader(Protocol):
    """A reader that can show a list to pick from. None: the person left.

    `search` may take its time: it is called in a thread. `on_move` is called with each
    newly selected item if the list is drawn.
    """

    async def pick(
        self,
        picker: Picker,
        search: Search | None = None,
        on_move: OnMove | None = None,
    ) -> Picker | None: ...


class DialogReader(Protocol):
    """Asks the questions of commands and of the session, one at a time.

    A cancelled question leaves the screen as it was. `read_message` reads one or more lines, and
    begins with `text`. `read_line` reads one line; Esc leaves it, and its prompt is erased
    afterwards. `choose` asks a question while the user may be typing: it returns the id of a
    choice, or a text if `menu` takes one below `prompt`, or the draft that was sent instead.
    `read_choice` asks about something that the user began: it returns the key of `keys` that was
    pressed, or "" for another key.

    `edit` gives the terminal to `command`, the user's editor, with `text` in a file `name`,
    and returns the edited text. Raises `RefoldError`. Within `suppress_echo`, no key is echoed.
    `has_line_editor` says whether there is one, which erases a short line once it is
    answered.
    """

    @property
    def has_line_editor(self) -> bool: ...
    @property
    def can_edit_text(self) -> bool:
        """Whether `read_message` and `read_line` can start with a text to edit."""
        ...

    async def read_message(
        self, prompt: Callable[[], Line], text: str = ""
    ) -> str | Key: ...
    async def read_line(self, prompt: Line, text: str = "") -> str | Key: ...
    async def choose(self, menu: Menu, prompt: Line = ()) -> str | DraftMessage | Key: ...
    async def read_choice(self, prompt: Line, keys: str) -> str | Key: ...
    async def edit(self, text: str, command: tuple[str, ...], name: str) -> str: ...
    def suppress_echo(self) -> AbstractContextManager[None]: ...
    def erase_question(self) -> bool:
        """Erase what was printed for the question. False: it stays on the screen."""
        ...

    def use_vi_keys(self, enabled: bool | None = None) -> bool | None:
        """Set the vi keys (None: leave them). Return whether they are on.

        Returns None without a line editor.
        """
        ...


class TerminalReader(DialogReader, Protocol):
    """The keyboard of the line terminal, also between questions and while the session works.

    `redraw` draws the prompt of `read_message` or `read_draft` again, if the terminal can. A key
    of `SHORTCUTS` ends `read_message` if it began without text; the next prompt has what was typed.
    `read_draft` is like `read_line`, but Alt+Enter returns the typed text as a `QueuedMessage`.
    `read_secret` does not show what is typed, except text for which `shows` is true, where the reader
    draws the line itself.
    `interrupt` handles a Ctrl+C that came as a signal: it answers the open question, and
    returns False if there is none. `close_prompt` ends `read_message` with `Key.PROMPT_CLOSED`, and the next
    prompt has what was typed; it returns False if no prompt is open. `switch_draft` keeps the
    draft of the session `left`, and restores that of `to`. `restore_draft` puts a text into the
    next prompt, unless something was typed for it.

    `read_input` returns what is typed while no question is open: some keys, a whole line with
    its end, or `CTRL_C` alone; "" at the end of input. `reads_input` is False if it cannot return
    anything: in a script, or without a terminal.
    """

    @property
    def reads_input(self) -> bool: ...
    async def read_draft(
        self, prompt: Callable[[], Line], text: str = ""
    ) -> str | QueuedMessage | Key: ...
    async def read_secret(
        self, prompt: Line, shows: Callable[[str], bool] = lambda _: False
    ) -> str | Key: ...
    async def read_input(self) -> str: ...
    def interrupt(self) -> bool: ...
    def close_prompt(self) -> bool: ...
    def switch_draft(self, old_session: str, new_session: str) -> None: ...
    def restore_draft(self, text: str) -> None: ...
    def redraw(self) -> None: ...
