"""Binds editing keys that prompt_toolkit lacks or binds differently, for both displays.

Most of these keys act on a whole grapheme: an emoji of several characters, or a letter with
combining marks. These bindings apply only beside a grapheme of several characters, and at the
ends of lines. Words consist of letters of every language.
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

_LETTER_CHARS = 64  # no grapheme is longer
_WORD_PATTERNS = ("_FIND_WORD_RE", "_FIND_CURRENT_WORD_RE",
          "_FIND_CURRENT_WORD_INCLUDE_TRAILING_WHITESPACE_RE")  # fmt: skip
_is_typing = emacs_mode | vi_insert_mode


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


# The keys are bound only where prompt_toolkit would move by one character, or stop.
_wide_after = _is_before_cluster | _is_at_line_end
_wide_before = _is_after_cluster | _is_at_line_start


def add_letter_keys(keys: KeyBindings) -> None:
    """Bind the arrows, Backspace, Delete, and vi's `h`, `l`, `x`, `X`, `s`, `r` and `cw`."""
    _match_words_of_all_languages()
    _add_moves(keys)
    _add_deletions(keys)
    _add_vi_changes(keys)
    _add_registers(keys)


def keep_cursor_between_letters(app: Application[Any]) -> None:
    """After each key, move the cursor to the edge of a grapheme if it is within one."""
    old_position = 0

    def begin(_: KeyProcessor) -> None:
        nonlocal old_position
        old_position = app.current_buffer.cursor_position

    def end(_: KeyProcessor) -> None:
        buffer = app.current_buffer
        start, after = _letter_around(buffer)
        if not start < buffer.cursor_position < after:
            return
        has_moved_right = buffer.cursor_position > old_position
        # in vi's normal mode, the cursor stays on the last grapheme of a line
        is_last = buffer.text[after : after + 1] in ("", "\n") and vi_navigation_mode()
        buffer.cursor_position = after if has_moved_right and not is_last else start

    app.key_processor.before_key_press += begin
    app.key_processor.after_key_press += end


def _match_words_of_all_languages() -> None:
    """Make prompt_toolkit's patterns match words of all languages, not only English."""
    for name in _WORD_PATTERNS:
        pattern: str = getattr(document, name).pattern
        # With accents that are characters of their own.
        new_pattern = pattern.replace("a-zA-Z0-9_", r"\w\u0300-\u036f")
        setattr(document, name, re.compile(new_pattern))


def _add_moves(keys: KeyBindings) -> None:
    """Bind the keys that move by one letter, even if it has several characters."""
    text_object = create_text_object_decorator(keys)

    @keys.add("left", filter=_wide_before & _is_typing)
    @keys.add("c-b", filter=_wide_before & emacs_mode)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.cursor_position -= _chars_before(event)

    @keys.add("right", filter=_wide_after & _is_typing)
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
    """Bind the keys that delete one letter. In vi's normal mode, the clipboard gets it."""

    @keys.add("backspace", filter=_wide_before & _is_typing & ~has_selection)
    @keys.add("X", filter=_is_after_cluster & vi_navigation_mode)
    def _(event: KeyPressEvent) -> None:
        deleted = event.current_buffer.delete_before_cursor(_chars_before(event))
        if vi_navigation_mode():
            event.app.clipboard.set_text(deleted)

    @keys.add("delete", filter=_wide_after & _is_typing & ~has_selection)
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
    """Bind vi's `r`, which replaces letters, and `cw` and `cW`, which replace words."""

    @keys.add("r", Keys.Any, filter=vi_navigation_mode)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        document, repeat_count = buffer.document, event.arg
        char_count = _chars_after(event)
        chars_left = len(document.current_line) - document.cursor_position_col
        # vi replaces nothing if the line has fewer letters than the repeat count
        if repeat_count <= chars_left and char_count <= chars_left:
            buffer.delete(char_count)
            buffer.insert_text(event.data * repeat_count)
            buffer.cursor_position -= 1

    @keys.add("c", "w", filter=vi_navigation_mode)
    @keys.add("c", "W", filter=vi_navigation_mode)
    def _(event: KeyPressEvent) -> None:
        """Delete the word for vi's `cw`, without the blanks after it, and begin to insert."""
        document = event.current_buffer.document
        to_next_blank = event.data == "W"
        if document.current_char.isspace():
            end = document.find_next_word_beginning(event.arg, WORD=to_next_blank)
        else:
            end = document.find_next_word_ending(
                include_current_position=True, count=event.arg, WORD=to_next_blank
            )
        # Without a next word, all text after the cursor is deleted.
        deleted = event.current_buffer.delete(end or len(document.text_after_cursor))
        event.app.clipboard.set_text(deleted)
        event.app.vi_state.input_mode = InputMode.INSERT


def _add_registers(keys: KeyBindings) -> None:
    """Bind vi's operators with registers, because those of prompt_toolkit raise an error.

    The bindings of prompt_toolkit read the name of the register from the wrong key.
    """
    for key in "cdy":

        @keys.add('"', Keys.Any, key, filter=vi_navigation_mode)
        def _(event: KeyPressEvent, key: str = key) -> None:
            register = event.key_sequence[1].data

            def operate(event: KeyPressEvent, text_object: TextObject) -> None:
                remaining, cut_data = text_object.cut(event.current_buffer)
                if register in vi_register_names:
                    event.app.vi_state.named_registers[register] = cut_data
                if key != "y":
                    event.current_buffer.document = remaining
                if key == "c":
                    event.app.vi_state.input_mode = InputMode.INSERT

            event.app.vi_state.operator_func = operate
            event.app.vi_state.operator_arg = event.arg


def _letter_around(buffer: Buffer) -> tuple[int, int]:
    """Return the start and the end of the grapheme around the cursor.

    If the characters beside the cursor are ASCII, both are the position of the cursor.
    """
    text, position = buffer.text, buffer.cursor_position
    if text[max(position - 1, 0) : position + 1].isascii():
        return position, position
    # Only text near the cursor is divided into graphemes, because that takes long.
    line_start = text.rfind("\n", 0, position) + 1
    near_start = max(line_start, position - _LETTER_CHARS)
    near_text, _, _ = text[near_start : position + _LETTER_CHARS].partition("\n")
    start = end = near_start
    for letter, _width in letters(near_text):
        start, end = end, end + len(letter)
        if end >= position:
            break
    return start, end


def _length_after(text: str, position: int) -> int:
    """Return the number of characters in the grapheme at `position`; 0 at the end of the text."""
    rest = text[position : position + _LETTER_CHARS]
    if not rest:
        return 0
    if rest[0] == "\n":
        return 1
    line, _, _ = rest.partition("\n")
    letter, _width = next(iter(letters(line)))
    return len(letter)


def _length_before(text: str, position: int) -> int:
    """Return the number of characters in the grapheme before `position`.

    Return 1 for the line break before a line, and 0 at the start of the text.
    """
    line_start = text.rfind("\n", 0, position) + 1
    if line_start >= position:
        return min(position, 1)
    near_start = max(line_start, position - _LETTER_CHARS)
    *_, (last, _width) = letters(text[near_start:position])
    return len(last)


def _chars_after(event: KeyPressEvent) -> int:
    """Return the number of characters in the next N graphemes; N is the key's repeat count."""
    text, start = event.current_buffer.text, event.current_buffer.cursor_position
    position = start
    for _ in range(min(event.arg, len(text) - start)):
        position += _length_after(text, position)
    return position - start


def _chars_before(event: KeyPressEvent) -> int:
    """Return the number of characters in the last N graphemes; N is the key's repeat count."""
    text, start = event.current_buffer.text, event.current_buffer.cursor_position
    position = start
    for _ in range(min(event.arg, start)):
        position -= _length_before(text, position)
    return start - position
