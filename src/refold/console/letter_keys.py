"""Editing keys of both displays that prompt_toolkit lacks, or binds differently.

Most act on a whole letter (grapheme): an emoji of several characters, or a letter with
marks. They apply where the next letter has several characters, and at the ends of lines.
Letters of every language belong to words.
"""

import re
from typing import Any

from prompt_toolkit import document
from prompt_toolkit.application import Application
from prompt_toolkit.application.current import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import (
    Condition,
    emacs_mode,
    has_selection,
    vi_insert_mode,
    vi_navigation_mode,
)
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.bindings.vi import (
    TextObject,
    create_text_object_decorator,
    vi_register_names,
)
from prompt_toolkit.key_binding.key_processor import KeyProcessor
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys

from refold.views.wrap import letters

_LETTER_CHARS = 64  # no letter has more
_WORD_PATTERNS = ("_FIND_WORD_RE", "_FIND_CURRENT_WORD_RE",
          "_FIND_CURRENT_WORD_INCLUDE_TRAILING_WHITESPACE_RE")  # fmt: skip
_typing = emacs_mode | vi_insert_mode


@Condition
def _is_before_cluster() -> bool:
    buffer = get_app().current_buffer
    return _length_after(buffer.text, buffer.cursor_position) > 1


@Condition
def _is_after_cluster() -> bool:
    buffer = get_app().current_buffer
    return _length_before(buffer.text, buffer.cursor_position) > 1


@Condition
def _is_at_line_end() -> bool:
    return get_app().current_buffer.document.current_char == "\n"


@Condition
def _is_at_line_start() -> bool:
    return get_app().current_buffer.document.char_before_cursor == "\n"


_wide_after = _is_before_cluster | _is_at_line_end
_wide_before = _is_after_cluster | _is_at_line_start


def add_letter_keys(keys: KeyBindings) -> None:
    """Add the arrows, Backspace and Delete, and vi's `h`, `l`, `x`, `X`, `s`, `r`, `cw`."""
    _match_words_of_all_languages()
    _add_moves(keys)
    _add_deletions(keys)
    _add_vi_changes(keys)
    _add_registers(keys)


def keep_cursor_between_letters(app: Application[Any]) -> None:
    """Keep the cursor of `app` between letters after each key, never within one."""
    came_from = [0]

    def begin(_: KeyProcessor) -> None:
        came_from[0] = app.current_buffer.cursor_position

    def end(_: KeyProcessor) -> None:
        buffer = app.current_buffer
        start, after = _letter_around(buffer)
        if start < buffer.cursor_position < after:
            last = buffer.text[after : after + 1] in ("", "\n") and vi_navigation_mode()
            ahead = buffer.cursor_position > came_from[0] and not last
            buffer.cursor_position = after if ahead else start

    app.key_processor.before_key_press += begin
    app.key_processor.after_key_press += end


def _match_words_of_all_languages() -> None:
    """Patch prompt_toolkit's patterns, which know English letters only."""
    for name in _WORD_PATTERNS:
        pattern: str = getattr(document, name).pattern
        letters_of_all = pattern.replace("a-zA-Z0-9_", r"\w\u0300-\u036f")
        setattr(document, name, re.compile(letters_of_all))


def _add_moves(keys: KeyBindings) -> None:
    text_object = create_text_object_decorator(keys)

    @keys.add("left", filter=_wide_before & _typing)
    @keys.add("c-b", filter=_wide_before & emacs_mode)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.cursor_position -= _chars_before(event)

    @keys.add("right", filter=_wide_after & _typing)
    @keys.add("c-f", filter=_wide_after & emacs_mode)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.cursor_position += _chars_after(event)

    @text_object("h", filter=_is_after_cluster)
    @text_object("left", filter=_is_after_cluster)
    def _(event: KeyPressEvent) -> TextObject:
        return TextObject(-_chars_before(event))

    @text_object("l", filter=_is_before_cluster)
    @text_object("right", filter=_is_before_cluster)
    def _(event: KeyPressEvent) -> TextObject:
        return TextObject(_chars_after(event))


def _add_deletions(keys: KeyBindings) -> None:
    @keys.add("backspace", filter=_wide_before & _typing & ~has_selection)
    @keys.add("X", filter=_is_after_cluster & vi_navigation_mode)
    def _(event: KeyPressEvent) -> None:
        deleted = event.current_buffer.delete_before_cursor(_chars_before(event))
        if vi_navigation_mode():
            event.app.clipboard.set_text(deleted)

    @keys.add("delete", filter=_wide_after & _typing & ~has_selection)
    @keys.add("c-d", filter=_wide_after & emacs_mode & ~has_selection)
    @keys.add("x", filter=_is_before_cluster & vi_navigation_mode)
    @keys.add("s", filter=_is_before_cluster & vi_navigation_mode)
    def _(event: KeyPressEvent) -> None:
        deleted = event.current_buffer.delete(_chars_after(event))
        if vi_navigation_mode():
            event.app.clipboard.set_text(deleted)
            if event.data == "s":
                event.app.vi_state.input_mode = InputMode.INSERT


def _add_vi_changes(keys: KeyBindings) -> None:
    @keys.add("r", Keys.Any, filter=vi_navigation_mode)
    def _(event: KeyPressEvent) -> None:
        buffer, line = event.current_buffer, event.current_buffer.document.current_line
        chars, column = _chars_after(event), buffer.document.cursor_position_col
        if event.arg <= len(line) - column and column + chars <= len(line):
            buffer.delete(chars)
            buffer.insert_text(event.data * event.arg)
            buffer.cursor_position -= 1

    @keys.add("c", "w", filter=vi_navigation_mode)
    @keys.add("c", "W", filter=vi_navigation_mode)
    def _(event: KeyPressEvent) -> None:
        """Move to the end of the word, without the blanks after it."""
        doc, whole = event.current_buffer.document, event.data == "W"
        if doc.current_char.isspace():
            end = doc.find_next_word_beginning(event.arg, WORD=whole)
        else:
            end = doc.find_next_word_ending(True, event.arg, WORD=whole)
        deleted = event.current_buffer.delete(end or len(doc.text_after_cursor))
        event.app.clipboard.set_text(deleted)
        event.app.vi_state.input_mode = InputMode.INSERT


def _add_registers(keys: KeyBindings) -> None:
    """Bind registers: prompt_toolkit reads their name from the wrong key, and fails."""
    for key in "cdy":

        @keys.add('"', Keys.Any, key, filter=vi_navigation_mode)
        def _(event: KeyPressEvent, key: str = key) -> None:
            register = event.key_sequence[1].data

            def operate(event: KeyPressEvent, text_object: TextObject) -> None:
                left, taken = text_object.cut(event.current_buffer)
                if register in vi_register_names:
                    event.app.vi_state.named_registers[register] = taken
                if key != "y":
                    event.current_buffer.document = left
                if key == "c":
                    event.app.vi_state.input_mode = InputMode.INSERT

            event.app.vi_state.operator_func = operate
            event.app.vi_state.operator_arg = event.arg


def _letter_around(buffer: Buffer) -> tuple[int, int]:
    """Return where the letter at the cursor begins and ends."""
    text, position = buffer.text, buffer.cursor_position
    if text[max(position - 1, 0) : position + 1].isascii():
        return position, position
    start = end = max(text.rfind("\n", 0, position) + 1, position - _LETTER_CHARS)
    for letter, _ in letters(text[start : position + _LETTER_CHARS].split("\n")[0]):
        start, end = end, end + len(letter)
        if end >= position:
            break
    return start, end


def _length_after(text: str, position: int) -> int:
    """Return how many characters the letter at `position` has; 0: the text ends there."""
    rest = text[position : position + _LETTER_CHARS]
    if not rest or rest[0] == "\n":
        return len(rest[:1])
    return len(next(iter(letters(rest.split("\n")[0])))[0])


def _length_before(text: str, position: int) -> int:
    start = max(position - _LETTER_CHARS, text.rfind("\n", 0, position) + 1)
    if start >= position:
        return min(position, 1)
    *_, (last, _width) = letters(text[start:position])
    return len(last)


def _chars_after(event: KeyPressEvent) -> int:
    """Return how many characters the next letters have, as many as the key's count."""
    text, start = event.current_buffer.text, event.current_buffer.cursor_position
    position = start
    for _ in range(min(event.arg, len(text) - start)):
        position += _length_after(text, position)
    return position - start


def _chars_before(event: KeyPressEvent) -> int:
    text, start = event.current_buffer.text, event.current_buffer.cursor_position
    position = start
    for _ in range(min(event.arg, start)):
        position -= _length_before(text, position)
    return start - position
