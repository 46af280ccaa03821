"""The interfaces for reading the user's input: lines, single keys and secrets.

`line_reader` reads whole lines from any terminal. `prompt_toolkit_reader` has a line editor
with history and completion. `run` and `work` interpret the input. The interface includes
running the user's editor, because the display must leave its screen and raw mode for it.
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

# also for a key that arrived while the terminal did not turn it into a signal
CTRL_C = "\x03"


class Key(Enum):
    """A key or another event that ends a prompt without an answer."""

    CTRL_C = "ctrl+c"
    CTRL_D = "ctrl+d"  # also if the terminal was closed
    ESC = "esc"
    SHIFT_TAB = "shift+tab"
    CTRL_O = "ctrl+o"
    CTRL_T = "ctrl+t"
    PROMPT_CLOSED = "aside"  # not a key: `close_prompt` was called


# The commands of keys, at an empty or half-typed prompt and while the session works.
SHORTCUTS: Mapping[Key, str] = MappingProxyType(
    {Key.CTRL_O: "/expand", Key.CTRL_T: "/todos"}
)


class PromptKeys(Struct, frozen=True):
    """The actions of two keys at the prompt: Shift+Tab and Ctrl+V.

    Shift+Tab calls `cycle_mode`. Ctrl+V calls `paste_image`, which takes the image from the
    clipboard and returns its label.
    """

    cycle_mode: Callable[[], None] = lambda: None
    paste_image: Callable[[], Awaitable[str]] | None = None


class QueuedMessage(Struct, frozen=True):
    """A message to send after the current turn, entered with Alt+Enter."""

    words: str


@runtime_checkable
class ListReader(Protocol):
    """A reader that can show a list to pick from.

    `pick` returns the list with an item selected, or None if the user leaves. `search` is
    called in a thread. `on_move` is called with each newly selected item.
    """

    async def pick(
        self,
        picker: Picker,
        search: Search | None = None,
        on_move: OnMove | None = None,
    ) -> Picker | None: ...


class DialogReader(Protocol):
    """Reads answers to questions of commands and of the session, one at a time.

    If a question is cancelled, the screen is restored. `read_message` reads one or more
    lines; `text` is the initial text. `read_line` reads one line and then erases its prompt;
    Esc cancels it. `choose` asks a question that may appear while the user is typing. It
    returns the id of a choice, a text typed after `prompt` if `menu` accepts one, or the
    message that the user sends instead. `read_choice` asks about an action of the user. It
    returns the key of `keys` that was pressed, or "" for another key.

    `edit` runs the user's editor `command` with `text` in a file `name`, and returns the
    edited text. If the editor fails, `edit` raises `RefoldError`. Within `suppress_echo`, no
    key is echoed. `has_line_editor` is true if refold edits the line itself. A reader with a
    line editor erases a short question once the question is answered.
    """

    @property
    def has_line_editor(self) -> bool:
        """Whether refold edits the line itself, and erases answered short questions."""
        ...

    @property
    def can_edit_text(self) -> bool:
        """True if `read_message` and `read_line` can begin with a text to edit."""
        ...

    async def read_message(self, prompt: Callable[[], Line], text: str = "") -> str | Key:
        """Read one or more lines, beginning as `text`. Return a key if it ended the prompt."""
        ...

    async def read_line(self, prompt: Line, text: str = "") -> str | Key:
        """Read one line, beginning as `text`. Return a key if it ended the prompt."""
        ...

    async def choose(self, menu: Menu, prompt: Line = ()) -> str | DraftMessage | Key:
        """Return the id of a choice of `menu`, a text if `menu` accepts one, the message that
        the user sent instead, or the key that ended the question.
        """
        ...

    async def read_choice(self, prompt: Line, keys: str) -> str | Key:
        """Return a key of `keys`, "" for another one, or the key that ended the prompt."""
        ...

    async def edit(self, text: str, command: tuple[str, ...], name: str) -> str:
        """Return the edited text. Raises `RefoldError` if the editor fails."""
        ...

    def suppress_echo(self) -> AbstractContextManager[None]:
        """Within the block, do not echo keys."""
        ...

    def erase_question(self) -> bool:
        """Erase the rows that were printed for the question.

        Return False if this is impossible.
        """
        ...

    def use_vi_keys(self, enabled: bool | None = None) -> bool | None:
        """Turn vi keys on or off, or leave them if `enabled` is None.

        Return whether vi keys are on. Return None without a line editor.
        """
        ...


class TerminalReader(DialogReader, Protocol):
    """Reads the keyboard of the line terminal, also between questions and during a turn.

    `redraw` draws the prompt of `read_message` or `read_draft` again, if the terminal can. A
    key of `SHORTCUTS` ends `read_message` if it began without text; the next prompt then
    contains what was typed. `read_draft` is like `read_line`, but Alt+Enter returns the typed
    text as a `QueuedMessage`. `read_secret` does not show what is typed. But a reader that
    draws the line itself shows a text for which `shows` returns true. `interrupt` handles a
    Ctrl+C that arrived as a signal: it answers the open question, and returns False if there is
    none. `close_prompt` ends `read_message` with `Key.PROMPT_CLOSED`, and the next prompt
    contains what was typed; it returns False if no prompt is open. `switch_draft` stores the
    draft of `old_session`, and restores that of `new_session`. `restore_draft` puts a text into
    the next prompt, unless something was typed for it.

    `read_input` returns what is typed while no question is open: some keys, a whole line with
    its end, or `CTRL_C` alone; "" at the end of input. `reads_input` is false if nothing can be
    typed: in a script, or without a terminal.
    """

    @property
    def reads_input(self) -> bool:
        """Whether anything can be typed. It is false in a script and without a terminal."""
        ...

    async def read_draft(
        self, prompt: Callable[[], Line], text: str = ""
    ) -> str | QueuedMessage | Key:
        """Return a line typed during work, a message for after the turn, or a key."""
        ...

    async def read_secret(
        self, prompt: Line, shows: Callable[[str], bool] = lambda _: False
    ) -> str | Key:
        """Read a hidden line. A text for which `shows` returns true may be shown."""
        ...

    async def read_input(self) -> str:
        """Return the keys or the line typed while no question is open; "" at the end."""
        ...

    def interrupt(self) -> bool:
        """Answer the open question with Ctrl+C. Return False if none is open."""
        ...

    def close_prompt(self) -> bool:
        """End `read_message` with `Key.PROMPT_CLOSED`. Return False if no prompt is open."""
        ...

    def switch_draft(self, old_session: str, new_session: str) -> None:
        """Store the draft of the old session, and restore that of the new one."""
        ...

    def restore_draft(self, text: str) -> None:
        """Put a text into the next prompt, unless something was typed for it."""
        ...

    def redraw(self) -> None:
        """Draw the open prompt again."""
        ...
