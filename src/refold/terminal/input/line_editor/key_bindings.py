"""Key bindings at a prompt, beyond those of prompt_toolkit."""

from collections.abc import Callable

from msgspec import Struct
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.application.current import get_app
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import (
    Condition,
    emacs_mode,
    has_focus,
    has_selection,
    vi_insert_mode,
    vi_navigation_mode,
)
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from refold.console.keys import suspend
from refold.console.letter_keys import add_letter_keys
from refold.console.reader import SHORTCUTS, Key, QueuedMessage
from refold.terminal.input.line_editor.pastes import Pasted
from refold.terminal.input.line_editor.typing_pace import TypingPace

_LEAVING_KEYS = (("c-c", Key.CTRL_C), ("c-d", Key.CTRL_D), ("escape", Key.ESC))
# What Shift+Enter and Ctrl+Enter are where a terminal tells them from Enter: as xterm
# says it, which the line editor takes for Enter, and as kitty does, which it does not know.
_WITH_ENTER = ("\x1b[27;2;13~", "\x1b[27;5;13~", "\x1b[27;6;13~")
_AS_KITTY_SAYS = ("2", "5", "6")


class KeyActions(Struct, frozen=True):
    """What the keys of the message prompt do.

    `ahead` returns whether text was typed before the prompt was shown. `shortcut` keeps the
    text typed until then, and returns False where shortcuts are off. `image` pastes an
    image. `stopped` returns whether Esc has stopped the work just now.
    """

    cycle: Callable[[], None]
    edit: Callable[[KeyPressEvent], None]
    ahead: Callable[[], bool]
    shortcut: Callable[[str], bool] = lambda _: False
    image: Callable[[KeyPressEvent], None] | None = None
    stopped: Callable[[], bool] = lambda: False


def message_keys(pasted: Pasted, doing: KeyActions) -> KeyBindings:
    """Return the keys for text of several lines."""
    keys = text_keys(pasted)
    focused = has_focus(DEFAULT_BUFFER)

    @keys.add("s-tab", filter=focused)
    def _(event: KeyPressEvent) -> None:
        doing.cycle()

    @keys.add("c-x", "c-e", filter=focused & emacs_mode & ~has_selection)
    @keys.add("c-g", filter=focused & ~has_selection)
    @keys.add("v", filter=focused & vi_navigation_mode)
    def _(event: KeyPressEvent) -> None:
        doing.edit(event)

    if doing.image is not None:
        keys.add("c-v", filter=focused & (emacs_mode | vi_insert_mode))(doing.image)

    _add_enter_keys(keys, doing.ahead)
    _add_leave_keys(keys)
    _add_shortcut_keys(keys, doing.shortcut)
    _add_escape_keys(keys)
    keys.add("escape", filter=Condition(doing.stopped), eager=True)(_ignore)
    return keys


def _ignore(event: KeyPressEvent) -> None:
    """Do nothing: a person who stops the work often presses Esc twice."""


def _add_enter_keys(keys: KeyBindings, ahead: Callable[[], bool]) -> None:
    """Enter sends; a backslash before it, or another key with it, begins a new line."""
    focused = has_focus(DEFAULT_BUFFER)

    @keys.add("enter", filter=focused)
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if event.data in _WITH_ENTER:
            _insert_new_line(event)
        elif _choose_completion(event):
            buffer.complete_state = None
        elif buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor()
            _insert_new_line(event)
        else:
            buffer.validate_and_handle()

    @keys.add("c-j", filter=focused)
    def _(event: KeyPressEvent) -> None:
        # A terminal that no prompt has yet made raw turns Enter into this.
        if ahead():
            send(event)
        else:
            _insert_new_line(event)

    @keys.add("escape", "enter", filter=focused)
    def _(event: KeyPressEvent) -> None:
        _insert_new_line(event)

    for modifier in _AS_KITTY_SAYS:

        @keys.add("escape", "[", "1", "3", ";", modifier, "u", filter=focused)
        def _(event: KeyPressEvent) -> None:
            _insert_new_line(event)


def _add_escape_keys(keys: KeyBindings) -> None:
    """Make Esc close a menu at once: the key after it is not Alt and that key.

    Esc twice on an empty prompt lists the points to rewind to.
    """
    focused = has_focus(DEFAULT_BUFFER) & emacs_mode

    @keys.add("escape", "/", filter=focused)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("/")
        event.current_buffer.start_completion()

    @keys.add("escape", "escape", filter=focused)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if not buffer.text:
            buffer.text = "/rewind"
            buffer.validate_and_handle()


def _add_shortcut_keys(keys: KeyBindings, keep: Callable[[str], bool]) -> None:
    """Bind the keys that stand for commands; the text is kept for the next prompt."""
    for name, key in (("c-o", Key.CTRL_O), ("c-t", Key.CTRL_T)):

        @keys.add(name, filter=has_focus(DEFAULT_BUFFER))
        def _(event: KeyPressEvent, key: Key = key) -> None:
            buffer = event.current_buffer
            if keep(buffer.text):
                buffer.text = SHORTCUTS[key]  # as if it had been typed
                event.app.exit(result=key)


def _insert_new_line(event: KeyPressEvent) -> None:
    event.current_buffer.insert_text("\n")


def _choose_completion(event: KeyPressEvent) -> bool:
    """Return True if a file was chosen from the menu. A chosen command is sent at once."""
    state = event.current_buffer.complete_state
    chosen = state is not None and state.current_completion is not None
    return chosen and not event.current_buffer.text.startswith("/")


def _add_leave_keys(keys: KeyBindings) -> None:
    """Bind Ctrl+C and Ctrl+D: they clear the text, or leave an empty prompt."""
    focused = has_focus(DEFAULT_BUFFER)

    @keys.add("c-c", filter=focused)
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(result=Key.CTRL_C)

    @keys.add("c-d", filter=focused)
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.delete()
        else:
            event.app.exit(result=Key.CTRL_D)


def text_keys(pasted: Pasted) -> KeyBindings:
    """A paste sends nothing, asks for no completion, and stands as a mark if it is long."""
    keys = _suspend_keys()
    add_letter_keys(keys)

    @Condition
    def is_after_paste_mark() -> bool:
        return bool(
            pasted.mark_before(get_app().current_buffer.document.text_before_cursor)
        )

    @Condition
    def has_suggestion() -> bool:
        buffer = get_app().current_buffer
        return buffer.suggestion is not None and buffer.document.is_cursor_at_the_end

    @keys.add(Keys.BracketedPaste)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text(pasted.text_to_show(event.data), fire_event=False)

    @keys.add("backspace", filter=is_after_paste_mark & (emacs_mode | vi_insert_mode))
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        mark = pasted.mark_before(buffer.document.text_before_cursor)
        buffer.delete_before_cursor(len(mark))

    @keys.add("end", filter=has_suggestion)
    def _(event: KeyPressEvent) -> None:
        if suggestion := event.current_buffer.suggestion:
            event.current_buffer.insert_text(suggestion.text)

    return keys


def _suspend_keys() -> KeyBindings:
    """Bind Ctrl+Z: it gives the terminal to the shell until the process is continued."""
    keys = KeyBindings()

    @keys.add("c-z")
    def _(event: KeyPressEvent) -> None:
        run_in_terminal(lambda: suspend(group=0))

    return keys


def leave_keys() -> KeyBindings:
    """Return the keys that leave a question; Esc works without a delay."""
    keys = _suspend_keys()
    add_leave_keys(keys, eager=True)
    return keys


def add_leave_keys(keys: KeyBindings, *, eager: bool = False) -> None:
    """Bind Esc, Ctrl+C and Ctrl+D to leave."""
    for name, key in _LEAVING_KEYS:

        @keys.add(name, eager=eager)
        def _(event: KeyPressEvent, key: Key = key) -> None:
            event.app.exit(result=key)


def send_keys(entered: Callable[[], object]) -> KeyBindings:
    """Bind Enter to send, Alt+Enter (Esc and Enter to a terminal) to queue.

    `entered` is called at Enter: the prompt may be cancelled before it returns the text.
    """
    keys = KeyBindings()
    add_leave_keys(keys)
    written = Condition(lambda: bool(get_app().current_buffer.text))

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        entered()
        event.app.exit(result=event.current_buffer.text)

    @keys.add("c-d", filter=written)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.delete()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result=QueuedMessage(event.current_buffer.text))

    return keys


def answer_keys(letters: str, pace: TypingPace) -> KeyBindings:
    """Return keys of which one is the answer, unless it follows text typed before."""
    keys = leave_keys()

    def answer(event: KeyPressEvent, pressed: str) -> None:
        if pace.note_key():
            pace.forget_key()  # another question may follow at once
            event.app.exit(result=pressed)

    @keys.add("s-tab")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result=Key.SHIFT_TAB)

    @keys.add("<any>")
    def _(event: KeyPressEvent) -> None:
        pressed = event.data.lower()  # or all that was pasted
        known = len(pressed) == 1 and pressed in letters
        answer(event, pressed if known else "")

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        answer(event, "")

    return keys
