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
from refold.terminal.input.line_editor.pastes import PasteMarks
from refold.terminal.input.line_editor.typing_pace import TypingPace

_LEAVING_KEYS = (("c-c", Key.CTRL_C), ("c-d", Key.CTRL_D), ("escape", Key.ESC))
# Shift+Enter and Ctrl+Enter, if the terminal distinguishes them from Enter: first xterm's
# sequences, which the line editor takes for Enter, then kitty's, which it does not know.
_XTERM_ENTER_KEYS = ("\x1b[27;2;13~", "\x1b[27;5;13~", "\x1b[27;6;13~")
_KITTY_MODIFIERS = ("2", "5", "6")


class KeyActions(Struct, frozen=True):
    """What the keys of the message prompt do.

    `has_typed_ahead` returns whether text was typed before the prompt was shown. `shortcut`
    keeps the text typed so far, and returns False if shortcuts are off. `image` pastes an
    image. `is_after_stop` returns whether Esc has just stopped the work.
    """

    cycle_mode: Callable[[], None]
    edit: Callable[[KeyPressEvent], None]
    has_typed_ahead: Callable[[], bool]
    shortcut: Callable[[str], bool] = lambda _: False
    image: Callable[[KeyPressEvent], None] | None = None
    is_after_stop: Callable[[], bool] = lambda: False


def message_keys(pasted: PasteMarks, actions: KeyActions) -> KeyBindings:
    """Return the keys for text of several lines."""
    keys = text_keys(pasted)
    focused = has_focus(DEFAULT_BUFFER)

    @keys.add("s-tab", filter=focused)
    def _(event: KeyPressEvent) -> None:
        actions.cycle_mode()

    @keys.add("c-x", "c-e", filter=focused & emacs_mode & ~has_selection)
    @keys.add("c-g", filter=focused & ~has_selection)
    @keys.add("v", filter=focused & vi_navigation_mode)
    def _(event: KeyPressEvent) -> None:
        actions.edit(event)

    if actions.image is not None:
        keys.add("c-v", filter=focused & (emacs_mode | vi_insert_mode))(actions.image)

    _add_enter_keys(keys, actions.has_typed_ahead)
    _add_leave_keys(keys)
    _add_shortcut_keys(keys, actions.shortcut)
    _add_escape_keys(keys)
    keys.add("escape", filter=Condition(actions.is_after_stop), eager=True)(_ignore)
    return keys


def _ignore(event: KeyPressEvent) -> None:
    """Do nothing: a person who stops the work often presses Esc twice."""


def _add_enter_keys(keys: KeyBindings, ahead: Callable[[], bool]) -> None:
    """Enter sends; a backslash before it, or another key with it, begins a new line."""
    focused = has_focus(DEFAULT_BUFFER)

    @keys.add("enter", filter=focused)
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if event.data in _XTERM_ENTER_KEYS:
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

    for modifier in _KITTY_MODIFIERS:

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


def text_keys(pasted: PasteMarks) -> KeyBindings:
    """Return the keys for pastes, suggestions and completion. A long paste becomes a mark."""
    keys = _ctrl_z_key()
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


def _ctrl_z_key() -> KeyBindings:
    """Bind Ctrl+Z: it gives the terminal to the shell until the process is continued."""
    keys = KeyBindings()

    @keys.add("c-z")
    def _(event: KeyPressEvent) -> None:
        run_in_terminal(lambda: suspend(group=0))

    return keys


def leave_keys() -> KeyBindings:
    """Return the keys that leave a question; Esc works without a delay."""
    keys = _ctrl_z_key()
    add_leave_keys(keys, eager=True)
    return keys


def add_leave_keys(keys: KeyBindings, *, eager: bool = False) -> None:
    """Bind Esc, Ctrl+C and Ctrl+D to leave."""
    for name, key in _LEAVING_KEYS:

        @keys.add(name, eager=eager)
        def _(event: KeyPressEvent, key: Key = key) -> None:
            event.app.exit(result=key)


def send_keys(on_enter: Callable[[], object]) -> KeyBindings:
    """Bind Enter to send, Alt+Enter (Esc and Enter to a terminal) to queue.

    `on_enter` is called at Enter, because the prompt may be cancelled before it returns.
    """
    keys = KeyBindings()
    add_leave_keys(keys)
    written = Condition(lambda: bool(get_app().current_buffer.text))

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        on_enter()
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
