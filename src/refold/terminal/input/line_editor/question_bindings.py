"""Key bindings while a question is open at the line editor.

`views.question_keys` decides what each key does, and this module does it. The edited text is
the user's draft of a message, or the answer if it is free text.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct
from prompt_toolkit import PromptSession
from prompt_toolkit.application.current import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import (
    KeyBindings,
    KeyBindingsBase,
    KeyPressEvent,
    merge_key_bindings,
)
from prompt_toolkit.keys import Keys

from refold.terminal.input.line_editor.key_bindings import add_leave_keys, text_keys
from refold.terminal.input.line_editor.pastes import PasteMarks
from refold.terminal.input.line_editor.typing_pace import TypingPace
from refold.values.key_shapes import looks_like_key
from refold.views.question_keys import (
    CALM_SECONDS,
    DraftMessage,
    Menu,
    Pressed,
    menu_line,
    press_key,
    type_text,
)
from refold.views.styled import Line

_KEYS_WITHOUT_TEXT = ("up", "down", "left", "right", "tab")


class MenuAnswer(Struct, frozen=True):
    """The answer at a menu: the id of a choice, or a text that the user wrote.

    If the answer is a text, `choice` is "".
    """

    choice: str
    text: str


class QuestionPrompt:
    """A question that is open.

    A key chooses an answer only if no other key was pressed shortly before.
    """

    def __init__(
        self,
        menu: Menu,
        prompt: Line,
        pasted: PasteMarks,
        clock: Callable[[], float],
        width: Callable[[], int],
    ) -> None:
        self.menu, self._width = menu, width
        self._prompt, self._pasted = prompt, pasted
        self._pace = TypingPace(clock)
        self._pace.note_key()  # earlier input is a draft
        self.row: Callable[[], Line] = lambda: self.line("")

    @contextmanager
    def open_in(self, session: PromptSession[Any]) -> Generator[dict[str, Any]]:
        """Show the question in a prompt session. Yield the arguments with which to run its
        prompt.
        """
        app = session.app
        app.key_processor.before_key_press += self.note_key
        self.row = lambda: self.line(session.default_buffer.text)
        try:
            yield {
                "key_bindings": self.bindings(),
                "is_password": Condition(
                    lambda: looks_like_key(session.default_buffer.text)
                ),
                "pre_run": self.redraw_when_calm,
            }
        finally:
            app.key_processor.before_key_press -= self.note_key

    def line(self, text: str) -> Line:
        """Return what is shown before the cursor while the edited text is `text`."""
        calm, typed = self._pace.is_calm, bool(text)
        choices = menu_line(self.menu, self._width(), typed=typed, calm=calm)
        if typed and not self.menu.writing:  # the text is a message, not an answer
            return (*choices, ("person", "\n› "))
        if not self._prompt:
            return choices
        if not typed and (self.menu.choices or not calm):
            return choices
        return self._prompt

    def note_key(self, _: object) -> None:
        """Record the time of a key. It is called before the key is handled."""
        self._pace.note_key()
        self.redraw_when_calm()

    def redraw_when_calm(self) -> None:
        """Draw the prompt again after `CALM_SECONDS`, when its keys may be active."""
        app = get_app()
        if app.loop is not None:
            app.loop.call_later(CALM_SECONDS, app.invalidate)

    def bindings(self) -> KeyBindingsBase:
        """Return the bindings. The keys `_KEYS_WITHOUT_TEXT` act only if no text was typed."""
        keys = draft_keys(lambda: self.menu.writing)
        untyped = Condition(lambda: not get_app().current_buffer.text)
        for name in _KEYS_WITHOUT_TEXT:

            @keys.add(name, filter=untyped)
            def _(event: KeyPressEvent, name: str = name) -> None:
                self._press(event, name)

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            self._press(event, "enter")

        @keys.add("<any>")
        def _(event: KeyPressEvent) -> None:
            if event.data.isprintable():
                self._type(event, event.data, calm=self._pace.was_calm)

        @keys.add(Keys.BracketedPaste)
        def _(event: KeyPressEvent) -> None:
            calm = self.menu.free_text and self._pace.was_calm
            self._type(event, self._pasted.text_to_show(event.data), calm=calm)

        return merge_key_bindings([text_keys(self._pasted), keys])

    def _press(self, event: KeyPressEvent, key: str) -> None:
        """Handle a key that may answer the question or move the selection."""
        text = event.current_buffer.text
        calm = self._pace.was_calm
        pressed = press_key(self.menu, key, typed=bool(text), calm=calm)
        if pressed.action == "select":
            self._pace.forget_key()  # Enter may follow at once
        self._perform(event, pressed)

    def _type(self, event: KeyPressEvent, text: str, *, calm: bool) -> None:
        typed = bool(event.current_buffer.text)
        self._perform(event, type_text(self.menu, text, typed=typed, calm=calm))

    def _perform(self, event: KeyPressEvent, pressed: Pressed) -> None:
        """Store the menu after a key, and perform the key's action."""
        self.menu = pressed.menu
        buffer: Buffer = event.current_buffer
        match pressed.action:
            case "answer":
                event.app.exit(result=MenuAnswer(pressed.value, buffer.text))
            case "send":
                event.app.exit(result=DraftMessage(buffer.text))
            case "draft" | "write":
                buffer.insert_text(pressed.value)
            case _:  # at most the selection has changed
                pass


def draft_keys(writing: Callable[[], bool]) -> KeyBindings:
    """Return bindings that leave the question (Esc, Ctrl+C, Ctrl+D) or queue a draft
    (Alt+Enter).

    If `writing` returns True, the text is an answer and not a draft, and Alt+Enter does
    nothing.
    """
    keys = KeyBindings()
    add_leave_keys(keys)

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        text = event.current_buffer.text
        if text.strip() and not writing():
            event.app.exit(result=DraftMessage(text, later=True))

    return keys
