"""Runs the line editor without a terminal, to apply keys to a text field.

So keys, kill ring, undo and vi mode are the same as in the line terminal: prompt_toolkit
implements them. A hidden application gets the field and the keys, and then its state is read.
It draws nothing and has no event loop. `editing` imports this module at the first key.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from copy import copy
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from prompt_toolkit.application import Application
from prompt_toolkit.application.current import set_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import emacs_mode
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import DummyInput
from prompt_toolkit.input.ansi_escape_sequences import REVERSE_ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import KEY_ALIASES, Keys
from prompt_toolkit.layout import BufferControl, Layout, Window
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.selection import SelectionState

from refold.console.letter_keys import add_letter_keys, keep_cursor_between_letters
from refold.tui.text_field import Edit, Mode, TextField

MAX_UNDO_TEXTS = 200
_VI_MODES: dict[InputMode, Mode] = {
    InputMode.NAVIGATION: "normal", InputMode.REPLACE: "replace",
    InputMode.REPLACE_SINGLE: "replace",
}  # fmt: skip
# The attributes with the state of prompt_toolkit between two keys, besides text and cursor, by
# the object that has them. `_TEXT_FIELDS` are about the edited text, `_SESSION_FIELDS` are kept
# for later texts.
_TEXT_FIELDS = (
    ("current_buffer", ("selection_state", "preferred_column", "multiple_cursor_positions",
                        "document_before_paste", "yank_nth_arg_state", "_undo_stack",
                        "_redo_stack")),
    ("key_processor", ("arg", "_previous_handler", "_previous_key_sequence")),
    ("vi_state", ("input_mode", "operator_func", "operator_arg", "waiting_for_digraph",
                  "digraph_symbol1", "temporary_navigation_mode", "recording_register",
                  "current_recording")),
    ("", ("quoted_insert",)),
)  # fmt: skip
_SESSION_FIELDS = (
    ("clipboard", ("_ring",)),
    ("vi_state", ("named_registers", "last_character_find")),
    ("emacs_state", ("macro", "current_recording")),
)
_MUTABLE_TYPES = frozenset((list, dict, deque, SelectionState))
_Names = Sequence[tuple[str, tuple[str, ...]]]


class _Memory(Struct, frozen=True, eq=False):
    """The state of the editor that a field keeps between two keys: values of the editor's
    attributes.
    """

    values: tuple[Any, ...]
    keys: tuple[KeyPress, ...] = ()  # the keys of an unfinished command


class HeadlessEditor:
    """Loads a field into the hidden application, applies keys, and reads the field from it."""

    def __init__(self) -> None:
        self._buffer = _FieldBuffer()
        keys = KeyBindings()
        add_letter_keys(keys)
        _bind_text_ends(keys)
        self._app = Application[None](
            layout=Layout(Window(BufferControl(self._buffer))), key_bindings=keys,
            input=DummyInput(), output=DummyOutput(),
        )  # fmt: skip
        # A timeout would need an event loop.
        self._app.timeoutlen = None  # pyright: ignore[reportAttributeAccessIssue]
        keep_cursor_between_letters(self._app)
        self._new_text = self._get_attributes(_TEXT_FIELDS)
        self._new_session = self._get_attributes(_SESSION_FIELDS)

    def press(
        self,
        field: TextField,
        keys: Iterable[KeyPress],
        history: Sequence[str] = (),
        *,
        emacs: bool = False,
    ) -> Edit:
        """Return the field after these keys. With `emacs`, a field with vi keys treats them as
        Emacs keys.
        """
        self._load_field(field, emacs=emacs)
        self._buffer.beyond = 0
        pressed = tuple(keys)
        # Alt and a key may insert a word from the history.
        if pressed and pressed[0].key == Keys.Escape:
            self._buffer.history = InMemoryHistory()
            for text in history:
                self._buffer.history.append_string(text)
        processor = self._app.key_processor
        with set_app(self._app):
            processor.feed_multiple(list(pressed))
            try:
                processor.process_keys()
            except Exception:
                # Some commands fail for counts and texts that they do not expect.
                return Edit(self._without_command(field))
            return Edit(self._read_field(field, pressed), self._buffer.beyond)

    def replace_text(self, field: TextField, text: str, cursor: int) -> TextField:
        """Return the field with `text` as its text. This edit can be undone."""
        self._load_field(field)
        with set_app(self._app):
            self._buffer.save_to_undo_stack()
            self._buffer.document = Document(text, cursor)
            return self._read_field(field, ())

    def _without_command(self, field: TextField) -> TextField:
        """Return the field without its unfinished command, because a command has failed."""
        self._load_field(field)
        self._app.key_processor.key_buffer.clear()
        self._app.key_processor.arg = self._app.vi_state.operator_func = None
        return self._read_field(field, ())

    def _read_field(self, before: TextField, keys: Sequence[KeyPress]) -> TextField:
        """Return the field `before` with the text, cursor and state that the editor has after
        the keys.
        """
        buffer, vi = self._buffer, self._app.vi_state
        processor = self._app.key_processor
        is_unfinished = bool(
            processor.key_buffer
            or processor.arg
            or vi.operator_func
            or vi.waiting_for_digraph
        )
        typed = "".join(key.data for key in keys)
        buffer.limit_undo()
        values = self._get_attributes(_SESSION_FIELDS)
        return replace(
            before,
            text=buffer.text,
            at=buffer.cursor_position,
            mode=_VI_MODES.get(vi.input_mode, "insert"),
            pending=before.pending + typed if is_unfinished else "",
            selected=tuple(buffer.document.selection_ranges()),
            edit=_Memory(self._get_attributes(_TEXT_FIELDS), tuple(processor.key_buffer)),
            kept=before.kept if values == self._session_values(before) else _Memory(values),
        )

    def _load_field(self, field: TextField, *, emacs: bool = False) -> None:
        """Give the editor the text, the cursor and the stored state of a field."""
        vi = field.vi and not emacs
        self._app.editing_mode = EditingMode.VI if vi else EditingMode.EMACS
        self._buffer.set_document(Document(field.text, field.at), bypass_readonly=True)
        initial = _Memory(self._new_text)
        memory = field.edit if isinstance(field.edit, _Memory) else initial
        self._set_attributes(_TEXT_FIELDS, memory.values)
        # the generator of the key processor refers to this list
        self._app.key_processor.key_buffer[:] = memory.keys
        if memory is initial and field.mode == "normal":
            self._app.vi_state.input_mode = InputMode.NAVIGATION
        self._set_attributes(_SESSION_FIELDS, self._session_values(field))

    def _session_values(self, field: TextField) -> tuple[Any, ...]:
        memory = field.kept
        return memory.values if isinstance(memory, _Memory) else self._new_session

    def _get_attributes(self, names: _Names) -> tuple[Any, ...]:
        """Return copies of the named attributes, in the order of `names`."""
        return tuple(
            _copy_mutable(getattr(self._application_part(part), name))
            for part, attributes in names
            for name in attributes
        )

    def _set_attributes(self, names: _Names, values: Sequence[Any]) -> None:
        """Set the named attributes to copies of `values`, which are in the order of `names`."""
        rest = iter(values)
        for part, attributes in names:
            for name in attributes:
                setattr(self._application_part(part), name, _copy_mutable(next(rest)))

    def _application_part(self, name: str) -> object:
        return getattr(self._app, name) if name else self._app


class _FieldBuffer(Buffer):
    """A buffer of prompt_toolkit without history and completions.

    `beyond` is the number of lines by which a key would move the cursor out of the text,
    negative if upwards.
    """

    beyond = 0

    def limit_undo(self) -> None:
        del self._undo_stack[:-MAX_UNDO_TEXTS]

    def history_backward(self, count: int = 1) -> None:
        self.beyond -= count

    def history_forward(self, count: int = 1) -> None:
        self.beyond += count

    def go_to_history(self, index: int) -> None:
        """Move to the line `index`: that is what `G` of vi does with a count."""
        row = max(min(index, self.document.line_count - 1), 0)
        self.cursor_position = self.document.translate_row_col_to_index(row, 0)

    def start_completion(self, *_: object, **__: object) -> None:
        """Do nothing: `composer` completes."""


@cache
def headless_editor() -> HeadlessEditor:
    """Return the editor, which all fields share. It stores nothing about a field."""
    return HeadlessEditor()


def key_presses(name: str) -> tuple[KeyPress, ...]:
    """Return the key presses of prompt_toolkit for a key; () if the key is unknown.

    A key with Alt becomes two key presses: Esc, and the key.
    """
    if name.startswith("alt+"):
        rest = key_presses(name.removeprefix("alt+"))
        return (_to_key_press(Keys.Escape), *rest) if rest else ()
    if len(name) == 1:
        return (KeyPress(name),)
    toolkit_name = name.replace("ctrl+", "c-").replace("shift+", "s-")
    if toolkit_name == "esc":
        toolkit_name = "escape"
    try:
        key = Keys(KEY_ALIASES.get(toolkit_name, toolkit_name))
    except ValueError:
        return ()
    return (_to_key_press(key),)


def _to_key_press(key: Keys) -> KeyPress:
    return KeyPress(key, REVERSE_ANSI_SEQUENCES.get(key, ""))


def _copy_mutable(value: Any) -> Any:
    """Return a copy of the value if prompt_toolkit could change it in place."""
    return copy(value) if type(value) in _MUTABLE_TYPES else value


def _bind_text_ends(keys: KeyBindings) -> None:
    """Bind Alt+< and Alt+> to the start and end of the text: here they cannot mean the history."""

    @keys.add("escape", "<", filter=emacs_mode)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.cursor_position = 0

    @keys.add("escape", ">", filter=emacs_mode)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.cursor_position = len(event.current_buffer.text)
