"""Key bindings at a prompt, in addition to those of prompt_toolkit."""

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

from refold.console.keyboard_modes import suspend
from refold.console.letter_keys import add_letter_keys
from refold.console.reader import SHORTCUTS, Key, QueuedMessage
from refold.terminal.input.line_editor.pastes import PasteMarks
from refold.terminal.input.line_editor.typing_pace import TypingPace

_LEAVING_KEYS = (("c-c", Key.CTRL_C), ("c-d", Key.CTRL_D), ("escape", Key.ESC))
# Shift+Enter and Ctrl+Enter, if the terminal distinguishes them from Enter: first xterm's
# sequences, which the line editor treats as Enter, then kitty's, which it does not know.
_XTERM_ENTER_KEYS = ("\x1b[27;2;13~", "\x1b[27;5;13~", "\x1b[27;6;13~")
_KITTY_MODIFIERS = ("2", "5", "6")


class KeyActions(Struct, frozen=True):
    """The functions that keys call at the message prompt.

    `cycle_mode` changes the permission mode, `edit` opens the user's editor, `image` pastes an
    image. `shortcut` stores the text typed so far; it returns False if shortcuts are off.
    `has_typed_ahead` returns whether the text was typed before the prompt was shown,
    `is_after_stop` whether Esc has just stopped the work.
    """

    cycle_mode: Callable[[], None]
    edit: Callable[[KeyPressEvent], None]
    has_typed_ahead: Callable[[], bool]
    shortcut: Callable[[str], bool] = lambda _: False
    image: Callable[[KeyPressEvent], None] | None = None
    is_after_stop: Callable[[], bool] = lambda: False


def message_keys(pasted: PasteMarks, actions: KeyActions) -> KeyBindings:
    """Return the bindings of the message prompt, whose text may have several lines."""
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
    """Do nothing: a user who stops the work often presses Esc twice."""


def _add_enter_keys(keys: KeyBindings, has_typed_ahead: Callable[[], bool]) -> None:
    """Bind Enter to send the text, and other keys to begin a new line.

    The keys for a new line are Ctrl+J, Alt+Enter, Shift+Enter, Ctrl+Enter, and Enter after a
    backslash.
    """
    focused = has_focus(DEFAULT_BUFFER)

    @keys.add("enter", filter=focused)
    def send(event: KeyPressEvent) -> None:
        """Send the text, unless Enter begins a new line or closes the completion menu."""
        buffer = event.current_buffer
        if event.data in _XTERM_ENTER_KEYS:
            _insert_new_line(event)
        elif _has_chosen_file(event):
            buffer.complete_state = None
        elif buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor()
            _insert_new_line(event)
        else:
            buffer.validate_and_handle()

    @keys.add("c-j", filter=focused)
    def _(event: KeyPressEvent) -> None:
        # Before the first prompt has switched it to raw mode, a terminal turns Enter into Ctrl+J.
        if has_typed_ahead():
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
    """Bind "/" right after Esc, and Esc twice.

    Without the binding of "/", Esc and "/" would together count as Alt+/. Esc twice on an
    empty prompt runs /rewind.
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


def _add_shortcut_keys(keys: KeyBindings, keep_draft: Callable[[str], bool]) -> None:
    """Bind the keys that run a command. The unfinished text is stored for the next prompt."""
    for name, key in (("c-o", Key.CTRL_O), ("c-t", Key.CTRL_T)):

        @keys.add(name, filter=has_focus(DEFAULT_BUFFER))
        def _(event: KeyPressEvent, key: Key = key) -> None:
            buffer = event.current_buffer
            if keep_draft(buffer.text):
                buffer.text = SHORTCUTS[key]  # as if it had been typed
                event.app.exit(result=key)


def _insert_new_line(event: KeyPressEvent) -> None:
    event.current_buffer.insert_text("\n")


def _has_chosen_file(event: KeyPressEvent) -> bool:
    """Return whether the user has chosen a file in the completion menu.

    Enter then only closes the menu. After a command was chosen, Enter sends the command.
    """
    state = event.current_buffer.complete_state
    chosen = state is not None and state.current_completion is not None
    return chosen and not event.current_buffer.text.startswith("/")


def _add_leave_keys(keys: KeyBindings) -> None:
    """Bind Ctrl+C and Ctrl+D to leave the prompt if it is empty.

    Otherwise Ctrl+C clears the text, and Ctrl+D deletes the character at the cursor.
    """
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
    """Return the bindings that all text prompts share: for pastes and suggestions.

    A long paste is shown as a mark, which Backspace deletes as a whole.
    """
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
    """Return a binding of Ctrl+Z, which suspends the process until the shell continues it."""
    keys = KeyBindings()

    @keys.add("c-z")
    def _(event: KeyPressEvent) -> None:
        run_in_terminal(lambda: suspend(group=0))

    return keys


def leave_keys() -> KeyBindings:
    """Return bindings that leave a question. Esc takes effect without a delay."""
    keys = _ctrl_z_key()
    add_leave_keys(keys, eager=True)
    return keys


def add_leave_keys(keys: KeyBindings, *, eager: bool = False) -> None:
    """Bind Esc, Ctrl+C and Ctrl+D to end the prompt with that key as the result."""
    for name, key in _LEAVING_KEYS:

        @keys.add(name, eager=eager)
        def _(event: KeyPressEvent, key: Key = key) -> None:
            event.app.exit(result=key)


def send_keys(on_enter: Callable[[], object]) -> KeyBindings:
    """Return bindings for a message during work. Enter sends the message now.

    Alt+Enter sends the message after the turn; many terminals send this key as Esc and Enter.
    `on_enter` is called as soon as Enter is pressed, because the prompt may be cancelled
    before it returns the message.
    """
    keys = KeyBindings()
    add_leave_keys(keys)
    has_text = Condition(lambda: bool(get_app().current_buffer.text))

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        on_enter()
        event.app.exit(result=event.current_buffer.text)

    @keys.add("c-d", filter=has_text)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.delete()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result=QueuedMessage(event.current_buffer.text))

    return keys


def answer_keys(letters: str, pace: TypingPace) -> KeyBindings:
    """Return bindings in which a single key answers the question.

    The answer is a key of `letters`, or "" for any other key. A key that follows another one
    too fast is ignored, because the user is probably typing text.
    """
    keys = leave_keys()

    def answer(event: KeyPressEvent, pressed: str) -> None:
        if pace.note_key():
            pace.forget_key()  # another question may follow immediately
            event.app.exit(result=pressed)

    @keys.add("s-tab")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(result=Key.SHIFT_TAB)

    @keys.add("<any>")
    def _(event: KeyPressEvent) -> None:
        pressed = event.data.lower()  # or the whole text that was pasted
        known = len(pressed) == 1 and pressed in letters
        answer(event, pressed if known else "")

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        answer(event, "")

    return keys
