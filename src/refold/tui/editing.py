"""Edits a text field by keys, characters and pastes. Pure.

The keys mean the same as in the line terminal: `headless_editor` runs the line editor without a
terminal. `composer` decides what Enter, the history and completion do.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from refold.tui.text_field import FIRST_PASTE, MAX_PASTES, Edit, TextField
from refold.views.pastes import clean_paste, paste_label

if TYPE_CHECKING:
    from refold.tui.headless_editor import HeadlessEditor

MAX_TYPED_CHARS = 200  # at once; a longer text was not typed
# Keys that do not edit the text of a field.
_OTHER_KEYS = frozenset({
    "enter", "alt+enter", "tab", "shift+tab", "ctrl+c", "ctrl+j", "ctrl+l", "ctrl+z", "pageup", "pagedown",
    "ctrl+up", "ctrl+down",
})  # fmt: skip
# Emacs keys that also work in the insert mode of vi, besides those with Alt.
_INSERT_MODE_KEYS = frozenset({
    "ctrl+a", "ctrl+b", "ctrl+d", "ctrl+e", "ctrl+f", "ctrl+y", "ctrl+_", "ctrl+left", "ctrl+right",
})  # fmt: skip


def press_key(field: TextField, key: str, history: Sequence[str] = ()) -> Edit | None:
    """Return the field after a key, or None if the key has no effect."""
    from refold.tui.headless_editor import key_presses

    keys = key_presses(key)
    if not keys or key in _OTHER_KEYS:
        return None
    if key == "esc" and not _handles_esc(field):
        return None
    # Also with vi keys, Alt and some other keys edit as in Emacs while text is inserted.
    is_emacs_key = key.startswith("alt+") or key in _INSERT_MODE_KEYS
    emacs = field.mode == "insert" and is_emacs_key
    edit = _editor().press(field, keys, history, emacs=emacs)
    looks_the_same = _visible_state(edit.field) == _visible_state(field)
    is_unchanged = looks_the_same and edit.field.kept is field.kept
    return None if is_unchanged and not edit.beyond else edit


def edit_field(field: TextField, key: str) -> TextField | None:
    """Return a field without a history after a key, or None if the key has no effect."""
    edit = press_key(field, key)
    return None if edit is None else edit.field


def type_into(field: TextField, text: str, history: Sequence[str] = ()) -> Edit:
    """Return the field after typed characters. In the normal mode of vi, they are commands."""
    from refold.tui.headless_editor import key_presses

    inserts = field.mode == "insert" and not field.pending
    if inserts and (len(text) > MAX_TYPED_CHARS or "\n" in text):
        return Edit(insert_text(field, text))
    keys = (key for letter in text for key in key_presses(letter))
    return _editor().press(field, keys, history)


def insert_text(field: TextField, text: str) -> TextField:
    """Return the field with `text` inserted at the cursor."""
    cursor = field.at
    new_text = field.text[:cursor] + text + field.text[cursor:]
    return with_text_at(field, new_text, cursor + len(text))


def insert_paste(field: TextField, text: str) -> TextField:
    """Return the field with `text` pasted at the cursor.

    A long paste takes only one character of the text, and is drawn as a label.
    """
    pasted = clean_paste(text)
    is_long = bool(paste_label(pasted))
    if not is_long or len(field.pastes) >= MAX_PASTES:
        return insert_text(field, pasted)
    placeholder = chr(FIRST_PASTE + len(field.pastes))
    return insert_text(replace(field, pastes=(*field.pastes, pasted)), placeholder)


def with_text_at(field: TextField, text: str, cursor: int) -> TextField:
    """Return the field with `text` as its text. This edit can be undone."""
    return _editor().replace_text(field, text, cursor)


def _editor() -> "HeadlessEditor":
    from refold.tui.headless_editor import headless_editor

    return headless_editor()


def _handles_esc(field: TextField) -> bool:
    """Return whether Esc has an effect in the field: it ends a mode, a command or a selection."""
    if not field.vi:
        return False
    return field.mode != "normal" or bool(field.pending or field.selected)


def _visible_state(field: TextField) -> tuple[object, ...]:
    return field.text, field.at, field.mode, field.pending, field.selected
